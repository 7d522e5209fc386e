package main

import (
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"tier-agent/internal/admission"
	"tier-agent/internal/httpapi"
)

func (a *app) drain() *cobra.Command {
	var c httpapi.Command
	cmd := &cobra.Command{
		Use:   "drain TIER",
		Short: "Wait until nothing runs on a quiesced tier",
		Long: `Wait until no HAProxy has a stream or a queued request on the tier's servers.
At the timeout, and when this command is ended, the tier stays quiesced.`,
		Example: "  tier-agent drain heavy --timeout 15m",
		Args:    exactly("TIER"),
		RunE: func(cmd *cobra.Command, args []string) error {
			// A string until here: of a wrong one the flag package says only that.
			if d, err := time.ParseDuration(c.Timeout); err != nil || d <= 0 {
				return usage("--timeout %.40q: give a positive duration with its unit, such as 10m, of at most 2562047h", c.Timeout)
			}
			c.Tier = args[0]
			return a.transition(cmd.Context(), admission.VerbDrain, c, newProgress(a.err))
		},
	}
	targeted(cmd, &c.Server)
	cmd.Flags().StringVar(&c.Timeout, "timeout", "10m", "how long to wait, with its unit")
	cmd.Flags().BoolVar(&c.IgnoreOldWorkers, "ignore-old-workers", false, "accept a drain although HAProxy was reloaded since the quiesce")
	return cmd
}

// progress shows for what a transition waits: one line that is rewritten on a terminal,
// otherwise a line whenever something has changed, and every ten seconds.
type progress struct {
	out      io.Writer
	terminal bool
	last     string
	at       float64 // seconds, of the last line
}

// anew is after how many seconds what has not changed is said again.
const anew = 10

func newProgress(out io.Writer) *progress {
	f, ok := out.(*os.File)
	return &progress{out: out, terminal: ok && term.IsTerminal(int(f.Fd()))}
}

func (p *progress) tell(now admission.Progress) {
	var parts []string
	for _, i := range now.HAProxy {
		one := fmt.Sprintf("haproxy %s: %s, %d queued", i.Instance, count(i.Streams, "stream"), i.Queue)
		for _, server := range slices.Sorted(maps.Keys(i.Tracking)) {
			one += fmt.Sprintf(" (%d of them on %s, which tracks)", i.Tracking[server], server)
		}
		for _, w := range i.OldWorkers {
			one += fmt.Sprintf(" (%d of the streams in old worker %d)", w.Streams, w.PID)
		}
		if i.BackendQueue > 0 {
			one += fmt.Sprintf(" (%d wait in the backend)", i.BackendQueue)
		}
		if i.Hidden != "" {
			one += "; " + i.Hidden
		}
		if i.Error != "" {
			one = about(i.Instance, i.Error)
		}
		parts = append(parts, one)
	}
	text := strings.Join(parts, "; ")
	if text == "" && now.Waiting != "" {
		text = "waits for " + now.Waiting
	}
	switch {
	case text == "":
		return
	case p.terminal:
		// Clears what is left of a longer line before it.
		fmt.Fprintf(p.out, "\r\x1b[K%4.0fs  %s", now.Seconds, text)
	case text != p.last, now.Seconds-p.at >= anew:
		fmt.Fprintf(p.out, "%.1fs %s\n", now.Seconds, text)
		p.at = now.Seconds
	}
	p.last = text
}

// done ends the line that tell kept rewriting.
func (p *progress) done() {
	if p.terminal && p.last != "" {
		fmt.Fprintln(p.out)
	}
}
