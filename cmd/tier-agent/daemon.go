package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"golang.org/x/sync/errgroup"

	"tier-agent/internal/admission"
	"tier-agent/internal/agentcheck"
	"tier-agent/internal/config"
	"tier-agent/internal/httpapi"
	"tier-agent/internal/observe"
	"tier-agent/internal/probe"
	"tier-agent/internal/runtimeapi"
	"tier-agent/internal/tier"
)

// grace bounds how long running answers and transitions may take to end.
const grace = 15 * time.Second

// lastResort is the part of grace in which a readmit that is still running has to
// close what it has opened.
const lastResort = 5 * time.Second

// watchEvery is the time between two reads of each HAProxy for status.
const watchEvery = time.Second

// serve runs the daemon until ctx ends. It starts in this order: the state directory
// is read; sockets are bound, so that a port that is taken is an error before anything
// happens; HAProxy is asked who the members are; probes begin; the listeners answer
// once the first round has ended or its budget is over (G9). Until then HAProxy's connections wait in the listen queue,
// and the gate's in the gate, whose health check fails. It ends in the opposite one:
// commands; the gate's health check, and after linger the faces; then probes, so
// that no face ever reads from a model that nobody feeds.
//
// SIGHUP reloads, once it serves.
func serve(ctx context.Context, cfg *config.Config, log *slog.Logger) error {
	hangups := make(chan os.Signal, 1) // one that comes earlier is not lost, and many are one
	signal.Notify(hangups, syscall.SIGHUP)
	defer signal.Stop(hangups)
	// The intents first: nothing may answer before it is known what is closed.
	kept, err := within(ctx, "state_dir "+cfg.StateDir, func() (disk, error) { return openDisk(cfg.StateDir, log) })
	if err != nil {
		return err
	}
	defer kept.close()
	ls, err := within(ctx, "the listeners", func() (listeners, error) { return listen(cfg.Listen, log) })
	if err != nil {
		return err
	}
	defer ls.close()
	return serveOn(ctx, ls, kept, cfg, hangups, log)
}

func serveOn(ctx context.Context, ls listeners, kept disk, cfg *config.Config, hangups <-chan os.Signal, log *slog.Logger) error {
	model, err := tier.New(specs(cfg, nil), time.Now)
	if err != nil {
		return err
	}
	activated := &activations{model: model, store: kept.once, log: log}
	activated.restore()
	metrics := httpapi.NewMetrics(version, agentcheck.Kinds())
	set := instances(cfg)
	monitor := tier.NewMonitor(model, probe.New(probe.Options{UserAgent: "tier-agent/" + version}), metrics.ProbeEnded, log)
	var controller *admission.Controller
	var reload *reloader
	ungate := ungates(model)
	watcher := observe.New(observe.Options{
		HAProxy: set, Every: watchEvery, Log: log,
		StateFiles: stateFiles(cfg), Rows: rows(model), Quiesced: quiesced(model), Ready: up(model),
		Looked: func(ctx context.Context, i *runtimeapi.Instance, o observe.View) {
			ungate(o)
			reload.Discover(ctx)
			reload.noteMissing(o)
			controller.Reconcile(ctx, i, o)
		},
	})
	polls := &observe.Polls{Several: len(cfg.HAProxy) > 1}
	controller = admission.New(admission.Options{
		Polls: polls, Model: model, Monitor: monitor, HAProxy: set, Watcher: watcher, Store: kept.intents, Openings: kept.openings, Overrides: kept.overrides, Unasked: kept.unasked, Processes: kept.processes, HardStopAfter: hardStops(cfg), Log: log, Ended: metrics.TransitionEnded,
	})
	metrics.Watch(model, watcher)
	metrics.Reloaded(true, time.Now())
	whole := newBoard(model, cfg)
	reload = &reloader{model: model, polls: polls, controller: controller, monitor: monitor, metrics: metrics, watcher: watcher, board: whole, activated: activated, log: log, cfg: cfg}
	// Who the members are, before it is asked which of them an intent closes, and
	// before the first round of probes.
	reload.meet(ctx)
	polls.SetNames(modelNames(model))
	controller.Restore()
	monitor.Changed = watcher.Wake
	readOnly := &httpapi.ReadOnly{Model: model, Watcher: watcher, Polls: polls, Intents: controller, Judge: whole.Judge, LastChange: whole.horizon.LastChange, Metrics: metrics.Handler(), Version: version, Hosts: cfg.Listen.Hosts}
	adminAPI := &httpapi.Admin{ReadOnly: readOnly, Controller: controller, Reloader: reload}
	room := newCaps(log)
	agent := agentcheck.NewServer(agentSource{model, polls}, agentcheck.Options{MaxConns: room.agent, MaxConnsPerPeer: room.agentPeer, OnAnswer: metrics.Answered, Logger: log})
	ready := make(chan struct{})
	gate := newGate(gateSource{model, polls, len(cfg.HAProxy) == 1}, cfg.Listen.SPOE, ready, metrics, room, log)
	if len(ls.spoe) > 0 {
		readOnly.Gate = func() (int, time.Time) { return gate.Connections(), gate.Asked() }
	}

	// Each stage ends only when the one before it has: commands, faces, probes.
	probes, endProbes := context.WithCancel(context.WithoutCancel(ctx))
	defer endProbes()
	faces, endFaces := context.WithCancel(context.WithoutCancel(ctx))
	defer endFaces()
	// Whatever fails ends ctx, and with it everything in order.
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	stage := func(what string, f func() error) func() error {
		return func() error {
			err := f()
			if err != nil {
				err = fmt.Errorf("%s: %w", what, err)
				fail(err)
			}
			return err
		}
	}

	var background, answering, commands errgroup.Group
	background.Go(stage("monitor", func() error { return monitor.Run(probes) }))
	background.Go(stage("haproxy watcher", func() error { return watcher.Run(probes) }))
	background.Go(stage("readiness", func() error { return whole.run(probes, ready) }))
	background.Go(stage("activations", func() error { return activated.run(probes) }))
	background.Go(stage("tend", func() error { return controller.Tend(probes) }))
	compared := make(chan struct{})
	background.Go(func() error {
		defer close(compared)
		controller.Compare(probes)
		return nil
	})
	log.Info("starting", "version", version, "tiers", len(cfg.Tiers), "haproxy", len(cfg.HAProxy),
		"agent_check", ls.agent.Addr().String(), "http", ls.http.Addr().String(), "spoe", addresses(ls.spoe), "admin", ls.admin.Addr().String())
	reload.remark()
	// The gate answers HAProxy's check of it from the start, so that another one is
	// asked meanwhile; requests wait for the first round in it.
	for _, ln := range ls.spoe {
		answering.Go(stage("spoe", func() error { return gate.Serve(faces, ln) }))
	}
	// A face that opened although the start was broken off would tell the
	// connections in its queue that nothing is ready.
	served := false
	if began := time.Now(); awaitFirstRound(ctx, monitor, compared, cfg.StartBudget, log) {
		served = true
		close(ready)
		answering.Go(stage("agent-check", func() error { return agent.Serve(faces, ls.agent) }))
		answering.Go(stage("http", func() error {
			return httpapi.Serve(faces, httpapi.Limit(ls.http, room.http), readOnly.Handler(), grace, log)
		}))
		commands.Go(stage("admin", func() error {
			return httpapi.Serve(ctx, httpapi.AdminListener(ls.admin, room.admin), adminAPI.Handler(), grace, log)
		}))
		commands.Go(stage("reload", func() error { return reload.onSignal(ctx, hangups) }))
		watcher.KeepFiles()
		// HAProxy may be reloaded as soon as systemd knows that this serves.
		bounded, cancel := context.WithTimeout(ctx, cfg.StartBudget/compareShare)
		watcher.Look(bounded)
		cancel()
		log.Info("serving", "waited", time.Since(began).Round(time.Millisecond).String())
		notify(log, daemon.SdNotifyReady)
	}

	<-ctx.Done()
	log.Info("stopping", "cause", context.Cause(ctx).Error())
	notify(log, daemon.SdNotifyStopping)
	// A transition may end by itself for most of the grace; then it is brought to a
	// safe point, while its answer still has a connection.
	hurry := time.AfterFunc(grace-lastResort, func() {
		bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastResort)
		defer cancel()
		controller.Stop(bounded)
	})
	commandsErr := commands.Wait()
	hurry.Stop()
	gate.Retire()
	if len(ls.spoe) > 0 && served && commandsErr == nil {
		time.Sleep(cfg.Listen.SPOE.Linger)
	}
	endFaces()
	facesErr := answering.Wait()
	endProbes()
	for _, err := range []error{commandsErr, facesErr, background.Wait()} {
		if err != nil {
			return err
		}
	}
	return nil
}

// compareShare of the start budget is what a start waits for the HAProxies' addresses:
// 0.25 s of the 2 s that are the default. One that answers takes some milliseconds, and
// for one that hangs the others are not kept longer than a request may wait in the gate.
const compareShare = 8

// awaitFirstRound waits until every server has been probed once, but no longer
// than the budget, and until it is known where the HAProxies send to: evidence about
// another address must not be the first thing that they hear (G11). It reports false
// where ctx has ended.
func awaitFirstRound(ctx context.Context, monitor *tier.Monitor, compared <-chan struct{}, budget time.Duration, log *slog.Logger) bool {
	late := time.After(budget / compareShare)
	select {
	case <-monitor.FirstRound():
	case <-time.After(budget):
		log.Warn("the first round of probes has not ended in its budget; servers without evidence are answered probe_pending",
			"start_budget", budget.String())
	case <-ctx.Done():
	}
	select {
	case <-compared:
	case <-late:
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}

// notify tells systemd, where it started us; without it nothing happens.
func notify(log *slog.Logger, state string) {
	if _, err := daemon.SdNotify(false, state); err != nil {
		log.Warn("systemd could not be told", "error", err)
	}
}
