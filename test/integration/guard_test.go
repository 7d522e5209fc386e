package integration

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tier-agent/test/guarantee"
	"tier-agent/test/lab"
)

// guarded has two servers of heavy, each with an engine of its own.
const guarded = lab.Head + `probe: {interval: 300ms, timeout: 2s, max_age: 5s}
tiers:
  - name: heavy
    servers:
      - {server: heavy/h1, url: 'http://127.0.0.1:{{.Ports.Heavy}}'}
      - {server: heavy/h2, url: 'http://127.0.0.2:{{.Ports.Heavy}}'}
    identity: {id: big-70b}
    min_ready: 1
  - name: fast
    servers: [{server: fast/f1, url: 'http://127.0.0.1:{{.Ports.Fast}}'}]
    identity: {id: small-8b}
`

// closedThere are the ways in which HAProxy may have heavy/h2 closed, although tier-agent
// has good evidence about it.
var closedThere = []struct {
	name, line string
	runtime    string // once both serve
	state      string // what HAProxy shows
}{
	{name: "maintenance by hand", line: `agent-send "heavy/h2\n"`, runtime: "set server heavy/h2 state maint", state: "maint(forced)"},
	{name: "drain by hand", line: `agent-send "heavy/h2\n"`, runtime: "set server heavy/h2 state drain", state: "drain(forced)"},
	{name: "inherited maintenance", line: "no-check no-agent-check track fast/f1", runtime: "set server fast/f1 state maint", state: "maint(inherited)"},
	{name: "inherited drain", line: "no-check no-agent-check track fast/f1", runtime: "set server fast/f1 state drain", state: "drain(inherited)"},
	{name: "a name that does not resolve", line: `init-addr none resolvers nowhere agent-send "heavy/h2\n"`, state: "maint(dns)"},
}

// The guard counts the servers that HAProxy sends to, and not those that only
// tier-agent has evidence about.
//
// Control: with takes in tooFew answered by Admit alone, the quiesce of the last server
// that serves was done, and every request after it was a 503.
func TestTheGuardCountsWhatHAProxyHasOpen(t *testing.T) {
	mostlyWaits(t)
	onEach(t, func(t *testing.T, haproxy string) {
		w := newWorldWith(t, haproxy, worldOptions{agentYAML: guarded, bare: true, config: func(_ lab.Options, text string) string { return text + "\n" }})
		serveEngineAt(t, fmt.Sprintf("127.0.0.2:%d", w.Ports.Heavy), lab.HeavyModel)
		shipped, err := os.ReadFile(w.HAProxyCfg)
		require.NoError(t, err)
		for _, g := range closedThere {
			t.Run(strings.ReplaceAll(g.name, " ", "_"), func(t *testing.T) {
				w.t = t
				at := fmt.Sprintf("127.0.0.2:%d ", w.Ports.Heavy)
				if g.runtime == "" {
					at = fmt.Sprintf("nosuch.invalid:%d ", w.Ports.Heavy)
				}
				const h1 = `server h1 "${TIER_HEAVY_H1}" agent-send "heavy/h1\n"`
				text := strings.Replace(string(shipped), h1, h1+"\n    server h2 "+at+g.line, 1)
				w.restartWith(text + "\nresolvers nowhere\n    nameserver ns 127.0.0.1:9\n    timeout resolve 1s\n    timeout retry 200ms\n")
				w.guards(g.runtime, g.state)
			})
		}
	})
}

func (w *world) guards(runtime, state string) {
	t := w.t
	t.Cleanup(func() { // what was quiesced all the same
		_, _, _ = w.CLI(context.Background(), "readmit", "heavy", "--server", "heavy/h1")
	})
	w.waitStatus("heavy", http.StatusOK)
	w.waitStatus("fast", http.StatusOK)
	if runtime != "" {
		w.waitStat("heavy", "h2", func(row map[string]string) bool {
			return strings.HasPrefix(row["status"], "UP") || row["status"] == "no check"
		}, "heavy/h2 is up")
		said, err := w.Runtime(runtime)
		require.NoError(t, err)
		require.Empty(t, strings.TrimSpace(said))
	}
	require.NoError(t, lab.Within(15*time.Second, func() error {
		heavy := w.status().Tiers[0]
		if h2 := heavy.Servers[1]; h2.Shown["edge"].State != state || h2.Shown["edge"].Takes || h2.Evidence != "identity_passed" {
			return fmt.Errorf("heavy/h2 is shown as %+v, evidence %s", h2.Shown["edge"], h2.Evidence)
		}
		if !heavy.Ready || heavy.Serving != 1 {
			return fmt.Errorf("ready %v, %d serving", heavy.Ready, heavy.Serving)
		}
		return nil
	}))
	out, _, _ := w.CLI(t.Context(), "status", "heavy")
	assert.Regexp(t, `(?m)^ +heavy/h1 +yes .* edge up$`, out)
	assert.Regexp(t, `(?m)^ +heavy/h2 +no( \(haproxy\))? .*`+strings.NewReplacer("(", `\(`, ")", `\)`).Replace(" edge "+state)+"$", out)

	out, errs, code := w.CLI(t.Context(), "quiesce", "heavy", "--server", "heavy/h1", "--reason", "swap")
	require.Equal(guarantee.T(t), 1, code, out+errs)
	assert.Contains(t, out, "refused: heavy (heavy/h1) stays open: without it 0 servers of its tier would serve on haproxy edge, and min_ready is 1")
	for range 20 {
		require.Equal(guarantee.T(t), http.StatusOK, w.ask("heavy").Status)
	}
}
