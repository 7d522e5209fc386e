package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"tier-agent/internal/admission"
	"tier-agent/internal/config"
	"tier-agent/internal/httpapi"
	"tier-agent/internal/override"
	"tier-agent/internal/runtimeapi"
)

// askFirst is how long override --direct waits for a tier-agent that may be running.
const askFirst = 2 * time.Second

func (a *app) override() *cobra.Command {
	var (
		lasting time.Duration
		reason  string
		end     bool
		direct  bool
		haproxy []string
	)
	cmd := &cobra.Command{
		Use:   "override TIER --for 30m --reason WORD",
		Short: "Open a tier on its engines' health alone, for a time",
		Long: `Open a tier for a time on HAProxy's word and the health checks of its engines
alone: identity, metadata, exercise, address, min_ready and the age of evidence
do not count. A tier or server that is quiesced stays closed, and so does one
that somebody has closed in HAProxy. It is recorded, shown by status, survives a
restart, and ends by itself or with --end.

With --direct, where tier-agent is dead or cannot start, and for single servers:
each HAProxy is told over its stats socket to send to them although their checks
say down, until the time is over or this command is ended (Ctrl-C); then they
are given back to their checks as they were found. Nothing is probed. A gate in
HAProxy's frontend still refuses: take it out there.`,
		Example: `  tier-agent override heavy --for 30m --reason wrong-identity
  tier-agent override heavy --end
  tier-agent override --direct --haproxy unix:/run/haproxy/admin.sock heavy/h1 heavy/h2 --for 30m --reason agent-down`,
		RunE: func(cmd *cobra.Command, args []string) error {
			given := cmd.Flags().Changed
			switch {
			case end && (direct || given("for") || given("reason") || given("haproxy")):
				return usage("--end goes with a tier and nothing else; see %s --help", cmd.CommandPath())
			case !direct && given("haproxy"):
				return usage("--haproxy goes with --direct; see %s --help", cmd.CommandPath())
			case !direct && (len(args) != 1 || args[0] == ""):
				return usage("%s takes 1 argument (TIER), not %d; see %s --help", cmd.CommandPath(), len(args), cmd.CommandPath())
			case !end && !given("for"):
				return usage("--for is missing: say how long, %s to %s", override.Shortest, override.Longest)
			case !end && (lasting < override.Shortest || lasting > override.Longest):
				return usage("--for %v: give %s to %s", lasting, override.Shortest, override.Longest)
			case !end && !given("reason"):
				return usage("--reason is missing: say why, in 1 to 128 of the characters A-Z a-z 0-9 _ . -")
			case !end && !admission.ValidReason(reason):
				return usage("--reason %.140q: give 1 to 128 of the characters A-Z a-z 0-9 _ . -", reason)
			}
			if direct {
				return a.overrideDirect(cmd.Context(), haproxy, args, lasting, reason)
			}
			c := httpapi.Command{Tier: args[0], Reason: reason, End: end}
			if !end {
				c.For = lasting.String()
			}
			return a.transition(cmd.Context(), admission.VerbOverride, c, newProgress(a.err))
		},
	}
	cmd.Flags().DurationVar(&lasting, "for", 0, "how long, 1m to 24h (required)")
	cmd.Flags().StringVar(&reason, "reason", "", "why; 1 to 128 of A-Z a-z 0-9 _ . - (required)")
	cmd.Flags().BoolVar(&end, "end", false, "end the tier's override now")
	cmd.Flags().BoolVar(&direct, "direct", false, "without tier-agent: open servers (backend/server...) in HAProxy, while this command runs")
	cmd.Flags().StringArrayVar(&haproxy, "haproxy", nil, "with --direct: a stats socket of HAProxy, as unix:/path or tcp:host:port; may be repeated")
	return cmd
}

func (a *app) overrideDirect(ctx context.Context, sockets, servers []string, lasting time.Duration, reason string) error {
	// Nothing may end this process by itself before the servers are given back: not a
	// second Ctrl-C, nor a terminal that is gone. Under nohup that is no end at all.
	ends := []os.Signal{syscall.SIGINT, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) {
		ends = append(ends, syscall.SIGHUP)
	}
	ctx, stop := signal.NotifyContext(ctx, ends...)
	defer stop()
	signal.Ignore(syscall.SIGPIPE)
	d := override.Direct{Servers: servers, For: lasting, Say: a.sayDirect}
	for _, socket := range sockets {
		at, err := config.ParseAddress(socket)
		if err != nil {
			return usage("--haproxy %w", err)
		}
		d.HAProxy = append(d.HAProxy, runtimeapi.New(at.String(), at.Network, at.Addr, runtimeapi.Options{}))
	}
	if len(sockets) == 0 || len(servers) == 0 {
		return usage("--direct wants at least one --haproxy and one backend/server; see tier-agent override --help")
	}
	for _, name := range servers {
		if backend, server, two := strings.Cut(name, "/"); !two || !runtimeapi.ValidName(backend) || !runtimeapi.ValidName(server) {
			return usage("%.140q is no server: give backend/server, as HAProxy has it", name)
		}
	}
	if err := a.nobodyServes(ctx); err != nil {
		return err
	}
	a.sayDirect(fmt.Sprintf("override of %s for %v, reason %s", strings.Join(servers, ", "), lasting, reason))
	return d.Run(ctx)
}

// nobodyServes refuses where a tier-agent answers: it has the better way, and would close
// again what is opened behind its back.
func (a *app) nobodyServes(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, askFirst)
	defer cancel()
	_, err := a.client().Status(ctx)
	switch {
	case err == nil:
		return fmt.Errorf("tier-agent answers at %s: give tier-agent override TIER instead, or stop it first", a.socket)
	case errors.Is(err, context.DeadlineExceeded):
		a.sayDirect("a tier-agent at " + a.socket + " does not answer: kill it, or it may close these servers when it goes on")
	case errors.Is(err, fs.ErrPermission):
		a.sayDirect("you may not open " + a.socket + ", so that a tier-agent may serve there: if it does, stop it, and give its own override as its user")
	}
	return nil
}

func (a *app) sayDirect(text string) {
	now := time.Now().UTC().Format(time.RFC3339)
	if a.json {
		_ = a.printJSON(map[string]string{"time": now, "message": text})
		return
	}
	// A terminal that is gone ends nothing.
	_, _ = fmt.Fprintln(a.out, now+" "+printable(text))
}
