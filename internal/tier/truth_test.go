package tier

import (
	"flag"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tier-agent/test/document"
)

var update = flag.Bool("update", false, "write the table in docs/readiness.md anew")

// The table for people is what the code says, played through its own API.
func TestTheTableOfActivation(t *testing.T) {
	const heading = "| since it appeared the tier | its servers that may take a request | tier | reason |\n|---|---|---|---|\n"
	var b strings.Builder
	servers := []string{"heavy/h1", "heavy/h2", "heavy/h3"}
	for _, since := range []struct {
		then   string
		before bool // it was ready
		closed bool
	}{
		{then: "was never ready"},
		{then: "was ready", before: true},
		{then: "was ready only while it was quiesced", closed: true},
		{then: "was ready, and tier-agent was restarted", before: true},
	} {
		for n := range len(servers) + 1 {
			all := activating()
			all[0].ActivationMin = 2
			m, err := New(all, time.Now)
			require.NoError(t, err)
			if since.closed {
				h := paused(t, m, heavy, "swap")
				m.set(servers...)
				require.False(t, tierOf(t, m, "heavy").Admit)
				m.unset(servers...)
				h.Release()
			}
			if since.before {
				m.set(servers...)
				require.True(t, tierOf(t, m, "heavy").Admit)
				m.unset(servers...)
			}
			if strings.HasSuffix(since.then, "restarted") {
				before := m.Activated()
				m, err = New(all, time.Now)
				require.NoError(t, err)
				m.Activate(func(name string) bool { return len(before) == 1 && name == before[0] })
				m.unset(servers...)
			}
			m.unset(servers...)
			m.set(servers[:n]...)
			a := tierOf(t, m, "heavy")
			reason := "`" + a.Reason + "`"
			switch {
			case a.Admit:
				reason = "-"
			case a.Reason == "health_http_503":
				reason = "that of a server"
			}
			fmt.Fprintf(&b, "| %s | %d | %s | %s |\n", since.then, n, map[bool]string{true: "**ready**", false: "not ready"}[a.Admit], reason)
		}
	}
	document.Table(t, heading, b.String(), *update)
}
