package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"

	"tier-agent/internal/admission"
	"tier-agent/internal/config"
	"tier-agent/internal/httpapi"
	"tier-agent/internal/members"
	"tier-agent/internal/observe"
	"tier-agent/internal/tier"
)

// problemsLogged bounds the problems of one reload that go to the log; the verb
// prints all of them.
const problemsLogged = 20

// reloader carries the configuration's file into the running daemon, whole or not
// at all.
type reloader struct {
	model      *tier.Model
	polls      *observe.Polls
	controller *admission.Controller
	monitor    *tier.Monitor
	metrics    *httpapi.Metrics
	watcher    *observe.Watcher
	board      *board
	activated  *activations
	log        *slog.Logger

	one sync.Mutex // held for one reload, and taken before mu: what is read first is in force first

	mu     sync.Mutex               // held while a reload replaces; protects the rest
	cfg    *config.Config           // in force
	found  map[string]members.Found // in force, by tier
	absent map[string][]absentee    // what each HAProxy was last seen to lack
}

// onSignal reloads at each SIGHUP until ctx ends.
func (r *reloader) onSignal(ctx context.Context, hangups <-chan os.Signal) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-hangups:
			r.Reload(ctx, "SIGHUP", true) // a signal cannot ask back
		}
	}
}

// Reload reads the file that serve was given and replaces what is in force, unless that
// would close what serves now and acceptClosing does not say that it may. Then it waits,
// no longer than start_budget and no longer than ctx, until every server that is new or
// changed has been probed, and as long again until the state files say so.
func (r *reloader) Reload(ctx context.Context, who string, acceptClosing bool) httpapi.Reload {
	began := time.Now()
	result, probed, budget := r.replace(ctx, acceptClosing)
	if probed != nil {
		select {
		case <-probed:
		default:
			select {
			case <-probed:
			case <-time.After(budget):
				result.Unproven = true
			case <-ctx.Done():
				result.Unproven = true
			}
		}
	}
	if result.Outcome == admission.Done {
		// HAProxy may be reloaded right after: its state file has to say by then how the
		// servers of this configuration start.
		bounded, cancel := context.WithTimeout(ctx, budget)
		r.watcher.Look(bounded)
		cancel()
	}
	result.By, result.Seconds = who, time.Since(began).Seconds()
	if result.Unproven {
		result.Message += "; not every server that is new or changed has been probed yet"
	}
	r.report(result)
	return result
}

func (r *reloader) replace(ctx context.Context, acceptClosing bool) (result httpapi.Reload, probed <-chan struct{}, budget time.Duration) {
	r.one.Lock()
	defer r.one.Unlock()
	notify(r.log, daemon.SdNotifyReloading+"\n"+daemon.SdNotifyMonotonicUsec())
	defer notify(r.log, daemon.SdNotifyReady)
	defer func() { r.metrics.Reloaded(result.Outcome == admission.Done, time.Now()) }()

	cfg, err := config.Load(r.cfg.File) // nobody else changes r.cfg
	if err == nil && !acceptClosing {
		r.watcher.Look(ctx) // what was drained by hand a moment ago is no reason to refuse
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	var problems config.Problems
	if errors.As(err, &problems) {
		return invalid(r.cfg.File, problems), nil, 0
	}
	if err != nil {
		return refused(httpapi.CodeUnreadable, "%v", err), nil, 0
	}
	if keys := fixed(r.cfg, cfg); keys != nil {
		return refused(httpapi.CodeNeedsRestart, "%s cannot be changed while tier-agent runs: restart it, or undo that", strings.Join(keys, ", ")), nil, 0
	}
	found := shown(cfg, r.watcher.Views(), r.found)
	next := specs(cfg, found)
	closing := closes(r.board.model.Closes(next), r.watcher.Views())
	if len(closing) > 0 && !acceptClosing {
		result := refused(httpapi.CodeWouldClose, "what serves now would be closed: %s; quiesce that first, or say --accept-closing", brief(closing))
		result.Closing = closing
		return result, nil, 0
	}
	changes, err := r.controller.Replace(next)
	switch {
	case errors.Is(err, admission.ErrTierBusy):
		return refused(httpapi.CodeReloadBusy, "%v; reload when it has ended", err), nil, 0
	case err != nil: // nothing that a valid file can say
		return refused(httpapi.CodeInvalidConfig, "%v", err), nil, 0
	}
	r.cfg, r.found = cfg, found
	r.remark()
	var names []string
	for _, t := range cfg.Tiers {
		names = append(names, t.Name)
	}
	// First the series, so that the first probe of a new tier counts.
	r.metrics.SetTiers(names)
	probed = r.follow()
	r.board.follow(cfg)
	r.watcher.Wake()
	// Before the answer: a tier that has left has to appear anew when it comes back,
	// whatever becomes of this process.
	r.activated.save()
	message := summary(changes)
	if len(closing) > 0 {
		message += "; closed by it: " + brief(closing)
	}
	return httpapi.Reload{
		Outcome: admission.Done, Code: httpapi.CodeReloaded, Message: message,
		Added: changes.Added, Removed: changes.Removed, Changed: changes.Changed, Closing: closing,
	}, probed, cfg.StartBudget
}

// follow probes what the model has now, and notes who is asked about it.
func (r *reloader) follow() (probed <-chan struct{}) {
	r.polls.SetNames(modelNames(r.model))
	return r.monitor.Follow()
}

// modelNames are those of every tier and server.
func modelNames(model *tier.Model) []string {
	var all []string
	for _, spec := range model.Specs() {
		all = append(all, spec.Name)
		for _, s := range spec.Servers {
			all = append(all, s.FullName())
		}
	}
	return all
}

// remark logs the remarks about the configuration in force.
func (r *reloader) remark() {
	for _, remark := range r.cfg.Remarks[:min(len(r.cfg.Remarks), problemsLogged)] {
		r.log.Warn("a remark about the configuration", "remark", remark.String())
	}
	if more := len(r.cfg.Remarks) - problemsLogged; more > 0 {
		r.log.Warn("there are more remarks about the configuration: see tier-agent check-config", "more", more)
	}
}

// noteMissing logs what the configuration names and one HAProxy does not have, when that
// is new.
func (r *reloader) noteMissing(o observe.View) {
	r.mu.Lock()
	defer r.mu.Unlock()
	absent := missing(r.cfg, o.Servers)
	if slices.Equal(absent, r.absent[o.Instance]) {
		return
	}
	if r.absent == nil {
		r.absent = map[string][]absentee{}
	}
	if r.absent[o.Instance] = absent; len(absent) == 0 {
		r.log.Info("haproxy has all that the configuration names", "haproxy", o.Instance)
		return
	}
	r.log.Warn("haproxy does not have all that the configuration names", "haproxy", o.Instance,
		"missing", named(absent, o.Servers), "number", len(absent))
}

// fixed names the keys that differ and are read at a start alone.
func fixed(now, next *config.Config) []string {
	var keys []string
	for _, one := range []struct {
		key       string
		now, next any
	}{
		{"haproxy", now.HAProxy, next.HAProxy},
		{"listen.agent_check", now.Listen.AgentCheck, next.Listen.AgentCheck},
		{"listen.http", now.Listen.HTTP, next.Listen.HTTP},
		{"listen.hosts", now.Listen.Hosts, next.Listen.Hosts},
		{"listen.spoe", now.Listen.SPOE, next.Listen.SPOE},
		{"listen.admin", now.Listen.Admin, next.Listen.Admin},
		{"state_dir", now.StateDir, next.StateDir},
	} {
		if !reflect.DeepEqual(one.now, one.next) {
			keys = append(keys, one.key)
		}
	}
	return keys
}

func refused(code, format string, args ...any) httpapi.Reload {
	return httpapi.Reload{
		Outcome: admission.Refused, Code: code,
		Message: "the configuration stays as it was: " + fmt.Sprintf(format, args...),
	}
}

func invalid(file string, problems config.Problems) httpapi.Reload {
	result := refused(httpapi.CodeInvalidConfig, "%s has %s", file, count(len(problems), "problem"))
	for _, p := range problems {
		result.Problems = append(result.Problems, httpapi.Problem(p))
	}
	return result
}

func summary(c tier.Changes) string {
	var parts []string
	for _, one := range []struct {
		what  string
		names []string
	}{{"added", c.Added}, {"changed", c.Changed}, {"removed", c.Removed}} {
		if len(one.names) > 0 {
			parts = append(parts, one.what+" "+strings.Join(one.names, ", "))
		}
	}
	if parts == nil {
		return "the configuration has been read again; no tier has changed"
	}
	return "the configuration has been read again: " + strings.Join(parts, "; ")
}

func (r *reloader) report(result httpapi.Reload) {
	attrs := []any{"outcome", result.Outcome, "code", result.Code, "by", result.By, "seconds", result.Seconds}
	if result.Outcome == admission.Done {
		level := slog.LevelInfo
		if result.Closing != nil {
			level = slog.LevelWarn
		}
		r.log.Log(context.Background(), level, result.Message, attrs...)
		return
	}
	problems := []string{}
	for _, p := range result.Problems[:min(len(result.Problems), problemsLogged)] {
		problems = append(problems, config.Problem(p).String())
	}
	r.log.Warn(result.Message, append(attrs, "problems", problems)...)
}
