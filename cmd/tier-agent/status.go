package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"tier-agent/internal/httpapi"
)

// statusTimeout is generous: the answer comes from memory.
const statusTimeout = 10 * time.Second

func (a *app) status() *cobra.Command {
	show := a.showStatus
	var check bool
	cmd := &cobra.Command{
		Use:   "status [TIER]",
		Short: "Show every tier, server and HAProxy",
		Long: `Show every tier, server and HAProxy. With a TIER, or a server of one as
"backend/server", only that is shown, and what holds for all.

With --check only what is wrong is printed, a line each, and the exit code is 1 where
anything is: HAProxy sends requests to a server that should get none, has one down that
should be up, or cannot be read; what is quiesced is not closed everywhere, or not
written down; a server-state file is not loaded or not written.`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 || len(args) == 1 && args[0] == "" {
				return usage("%s takes one tier or server at most, by its name; see %s --help", cmd.CommandPath(), cmd.CommandPath())
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if check {
				show = a.checkStatus
			}
			return show(cmd.Context(), strings.Join(args, ""), statusTimeout)
		},
	}
	cmd.Flags().BoolVar(&check, "check", false, "print what is wrong alone, and exit with 1 where anything is")
	return cmd
}

// askStatus asks for what is about name, or all where it is "".
func (a *app) askStatus(ctx context.Context, name string, timeout time.Duration) (httpapi.Status, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	st, err := a.client().Status(ctx)
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return st, &exitError{code: exitTimedOut, err: fmt.Errorf("no answer at %s within %v: tier-agent still waits for its first round of probes (start_budget), or hangs", a.socket, timeout)}
	case err != nil:
		return st, err
	}
	return only(st, name)
}

// showStatus shows what is about name, or all where it is "".
func (a *app) showStatus(ctx context.Context, name string, timeout time.Duration) error {
	st, err := a.askStatus(ctx, name, timeout)
	if err != nil {
		return err
	}
	if a.json {
		for n := range st.Tiers {
			st.Tiers[n].Servers = shownOf(st.Tiers[n], name)
		}
		return a.printJSON(st)
	}
	var out strings.Builder
	printStatus(&out, st, name)
	_, err = io.WriteString(a.out, out.String())
	return err
}

func printStatus(out io.Writer, st httpapi.Status, name string) {
	for _, t := range st.Tiers {
		if o := t.Override; o != nil {
			fmt.Fprintf(out, "OVERRIDE: %s is open on HAProxy's word and health checks alone, for %v more, until %s, by %s for %q; tier-agent override %s --end\n",
				t.Name, time.Duration(o.LeftS)*time.Second, o.Until.Format(time.RFC3339), o.Who, o.Reason, t.Name)
		}
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "TIER\tSERVER\tNEW REQUESTS\tSTATE\tREASON\tEVIDENCE\tAGE\tGENERATION\tHAPROXY")
	for _, t := range st.Tiers {
		fmt.Fprintf(w, "%s\t\t%s\t-\t%s\t%d of %d serving\t%s\t%s\t-\n",
			t.Name, takes(t, t.Servers), t.Reason, t.Serving, len(t.Servers), age(t.AgeMS), t.Generation)
		for _, s := range shownOf(t, name) {
			fmt.Fprintf(w, "\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n",
				s.Name, takes(t, []httpapi.ServerStatus{s}), s.State+left(s.Left), s.Reason, s.Evidence, age(s.AgeMS), s.Generation, states(s))
		}
	}
	_ = w.Flush()
	for _, t := range st.Tiers {
		if t.Needed > t.MinReady && !t.Ready {
			fmt.Fprintf(out, "%s has not been ready since it appeared: for that it needs %d ready servers, and %d after it\n", t.Name, t.Needed, t.MinReady)
		}
		if m := t.Members; m != nil && len(t.Servers) == 0 {
			fmt.Fprintf(out, "%s has no members: HAProxy shows no server of backend %s with an address\n", t.Name, m.Backend)
		}
		if m := t.Members; m != nil && m.LeftOut > 0 {
			fmt.Fprintf(out, "%s has no room for %s of backend %s: see members.max, and how long their names are\n", t.Name, count(m.LeftOut, "server"), m.Backend)
		}
		if c := t.Closure; c != nil {
			fmt.Fprintf(out, "%s is quiesced since %s by %s: %s\n", t.Name, c.Since.Format(time.RFC3339), c.Who, c.Reason)
		}
		for _, way := range t.WaysIn {
			fmt.Fprintf(out, "  %s\n", stillGetsIn(way))
		}
		for _, s := range shownOf(t, name) {
			if c := s.Closure; c != nil {
				fmt.Fprintf(out, "%s is quiesced since %s by %s: %s\n", s.Name, c.Since.Format(time.RFC3339), c.Who, c.Reason)
			}
			for _, way := range s.WaysIn {
				fmt.Fprintf(out, "  %s\n", stillGetsIn(way))
			}
		}
	}
	for _, t := range st.Tiers {
		printWiring(out, t, shownOf(t, name), st.HAProxy)
	}
	for _, h := range st.HAProxy {
		line := fmt.Sprintf("haproxy %s: %s, pid %d, up %v", h.Instance, h.Version, h.PID, time.Duration(h.UptimeS)*time.Second)
		if !h.Readable {
			line = unreadable(h)
		}
		fmt.Fprintln(out, line)
		for _, server := range h.ClosedHere {
			fmt.Fprintf(out, "  closed there by tier-agent, since nothing there asks about it: %s\n", server)
		}
		for _, hold := range h.Holds {
			fmt.Fprintf(out, "  held there by somebody else: %s\n", hold)
		}
		if h.StateFile != "" {
			fmt.Fprintf(out, "  its %s\n", stateFile(h))
		}
	}
	printWhole(out, st.Daemon)
	printGate(out, st.Gate)
	printIntents(out, st.Intents)
}

// printWhole says what concerns more than one tier.
func printWhole(out io.Writer, d httpapi.DaemonReadiness) {
	if d.CorrelatedFailure > 0 {
		fmt.Fprintf(out, "all %s became unreachable together: look at the network, and at tier-agent itself\n", count(d.CorrelatedFailure, "server"))
	}
	for _, s := range d.StaleDegraded {
		fmt.Fprintf(out, "%s has failed for so long that it no longer counts: %s, unchanged for %v\n", s.Name, s.Reason, time.Duration(s.IdleSeconds)*time.Second)
	}
}

// printGate says whether HAProxy asks about each request.
func printGate(out io.Writer, g *httpapi.GateStatus) {
	switch {
	case g == nil:
	case g.Connections == 0:
		fmt.Fprintln(out, "gate: no HAProxy is connected")
	case g.AskedMS == nil:
		fmt.Fprintf(out, "gate: %s, never asked\n", count(g.Connections, "connection"))
	default:
		fmt.Fprintf(out, "gate: %s, last asked %s ago\n", count(g.Connections, "connection"), age(g.AskedMS))
	}
	if g != nil && g.StrangeMS != nil {
		fmt.Fprintln(out, "  "+strange(g))
	}
}

// printIntents says what an operator has to know of the intents besides that
// their tiers are quiesced: where they do not hold yet, and what a start found.
func printIntents(out io.Writer, intents []httpapi.IntentStatus) {
	for _, i := range intents {
		name := whose(i)
		if i.Orphan {
			fmt.Fprintf(out, "%s is quiesced by an intent of %s (%s), but the configuration does not name it; tier-agent forget %s ends that\n", name, i.Who, i.Reason, name)
		}
		if i.Host != "" {
			fmt.Fprintf(out, "%s was quiesced by %s (%s) while it was %s, a host that is in no slot now; it is closed again when it is back; tier-agent forget %s ends that\n", name, i.Who, i.Reason, i.Host, strings.TrimSuffix(name, "@"+i.Host)+"@"+i.Host)
		} else if i.Stale {
			fmt.Fprintf(out, "%s was quiesced by %s (%s) when it had another address; that closes nothing now, and the next quiesce takes its place; tier-agent forget %s ends it\n", name, i.Who, i.Reason, name)
		}
		if i.Note != "" {
			fmt.Fprintln(out, noted(i))
		}
		for _, drift := range i.Drift {
			fmt.Fprintln(out, notClosed(name, drift))
		}
		if len(i.Without) > 0 {
			fmt.Fprintf(out, "%s was quiesced without %s\n", name, strings.Join(i.Without, ", "))
		}
	}
}

// takes says whether new requests go to the servers, by what each HAProxy does: it
// sends to what is up there, and where it asks the gate only while that admits the tier. One
// that cannot be read counts as doing what it is told.
func takes(t httpapi.TierStatus, servers []httpapi.ServerStatus) string {
	open := map[string]bool{} // by instance
	admitted := false
	for _, s := range servers {
		told := s.Ready && !t.Quiesced
		admitted = admitted || told
		for instance := range s.HAProxy {
			sends := told
			if shown, read := s.Shown[instance]; read {
				sends = shown.Takes && !gateRefuses(t, shown)
			} else if s.HAProxy[instance] == "no such server" {
				sends = false
			}
			open[instance] = open[instance] || sends
		}
	}
	n := 0
	for _, yes := range open {
		if yes {
			n++
		}
	}
	switch {
	case len(open) == 0 && admitted, n > 0 && n == len(open):
		return "yes"
	case n == 0 && admitted:
		return "no (haproxy)"
	case n == 0:
		return "no"
	}
	return fmt.Sprintf("on %d of %d", n, len(open))
}

func age(ms *int64) string {
	if ms == nil {
		return "-"
	}
	return (time.Duration(*ms) * time.Millisecond).String()
}

// states is how each HAProxy has a server; of one that cannot be read the admin state
// says so.
func states(s httpapi.ServerStatus) string {
	if len(s.HAProxy) == 0 {
		return "-"
	}
	var all []string
	for instance, state := range s.HAProxy {
		if shown, read := s.Shown[instance]; read {
			state = shown.State
		}
		all = append(all, instance+" "+state)
	}
	slices.Sort(all)
	return strings.Join(all, ", ")
}

// left says what a quiesced server still has, behind its state.
func left(l *httpapi.LeftStatus) string {
	if l == nil {
		return ""
	}
	var parts []string
	if l.Streams > 0 {
		parts = append(parts, count(l.Streams, "stream"))
	}
	if l.Queue > 0 {
		parts = append(parts, fmt.Sprintf("%d queued", l.Queue))
	}
	switch {
	case len(l.Unknown) > 0 && parts == nil:
		return " (streams unknown)"
	case len(l.Unknown) > 0:
		return " (at least " + strings.Join(parts, ", ") + ")"
	case parts == nil:
		return ""
	}
	return " (" + strings.Join(parts, ", ") + ")"
}
