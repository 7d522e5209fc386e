package integration

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tier-agent/test/guarantee"
	"tier-agent/test/lab"
)

// twoHeavy has the right model on heavy/h1 and a wrong one, fast's engine, on heavy/h2.
const twoHeavy = lab.Head + `probe: {interval: 200ms, timeout: 2s, max_age: 10s}
tiers:
  - name: heavy
    servers:
      - {server: heavy/h1, url: 'http://127.0.0.1:{{.Ports.Heavy}}'}
      - {server: heavy/h2, url: 'http://127.0.0.1:{{.Ports.Fast}}'}
    identity: {id: big-70b}
`

// wiring is a way in which somebody may have wired the two servers of heavy.
type wiring struct {
	name    string
	backend string            // lines before the servers
	h1, h2  string            // the ends of the server lines; both where h2 is empty
	more    string            // other sections
	gate    bool              // the frontend asks about each request
	runtime []string          // commands once it is up
	verbs   [][]string        // of tier-agent
	undo    [][]string        // the verbs that end those
	serves  map[string]string // what status says of h1 and h2, where that is worth saying
}

const (
	wiredBoth = `default-server weight 100 inter 200ms fall 1 rise 1 check addr 127.0.0.1 port "${TIER_AGENT_HTTP_PORT}" agent-check agent-addr 127.0.0.1 agent-port "${TIER_AGENT_CHECK_PORT}" agent-inter 200ms
    option httpchk
    http-check send meth GET uri-lf "/readyz/%[be_name]/%[srv_name]"`
	wiredAgent  = `default-server weight 100 agent-check agent-addr 127.0.0.1 agent-port "${TIER_AGENT_CHECK_PORT}" agent-inter 200ms`
	wiredHealth = `default-server weight 100 inter 200ms fall 1 rise 1 check addr 127.0.0.1 port "${TIER_AGENT_HTTP_PORT}"
    option httpchk
    http-check send meth GET uri-lf "/readyz/%[be_name]/%[srv_name]"`
	wiredEngine = `default-server weight 100 inter 200ms check
    option httpchk GET /health`
	other = `
backend other
    server o1 "${TIER_FAST_F1}"`
)

var wirings = []wiring{
	{name: "both checks", backend: wiredBoth, h1: `agent-send "heavy/h1\n"`, h2: `agent-send "heavy/h2\n"`, serves: map[string]string{"h1": "yes", "h2": "no"}},
	{name: "agent-check alone", backend: wiredAgent, h1: `agent-send "heavy/h1\n"`, h2: `agent-send "heavy/h2\n"`, serves: map[string]string{"h2": "no"}},
	{name: "health check alone", backend: wiredHealth, serves: map[string]string{"h1": "yes", "h2": "no"}},
	{name: "no checks", backend: "default-server weight 100", serves: map[string]string{"h1": "yes", "h2": "yes"}},
	{name: "no checks on h2", backend: wiredBoth, h1: `agent-send "heavy/h1\n"`, h2: "no-check no-agent-check", serves: map[string]string{"h1": "yes", "h2": "no"}},
	{name: "agent-send of another server", backend: wiredAgent, h1: `agent-send "heavy/h2\n"`, h2: `agent-send "heavy/h2\n"`, serves: map[string]string{"h1": "no (haproxy)"}},
	{name: "no agent-send", backend: wiredAgent, serves: map[string]string{"h1": "no (haproxy)", "h2": "no"}},
	{name: "agent-send of the tier", backend: wiredAgent, h1: `agent-send "heavy\n"`, serves: map[string]string{"h1": "yes", "h2": "yes"}},
	{name: "health check of the engine", backend: wiredEngine, serves: map[string]string{"h1": "yes", "h2": "yes"}},
	{name: "health check of the engine and agent-check", backend: wiredEngine + "\n    " + wiredAgent, h1: `agent-send "heavy/h1\n"`, h2: `agent-send "heavy/h2\n"`, serves: map[string]string{"h1": "yes", "h2": "no"}},
	{name: "health check of the tier", backend: strings.Replace(wiredHealth, "/%[be_name]/%[srv_name]", "/heavy", 1), serves: map[string]string{"h1": "yes"}},
	{name: "weight 0", backend: wiredBoth, h1: `weight 0 agent-send "heavy/h1\n"`, h2: `agent-send "heavy/h2\n"`, serves: map[string]string{"h1": "no (haproxy)"}},
	{name: "weight 0 by hand", backend: wiredHealth, runtime: []string{"set server heavy/h1 weight 0"}, serves: map[string]string{"h1": "no (haproxy)"}},
	{name: "disabled in the file", backend: wiredBoth, h1: `disabled agent-send "heavy/h1\n"`, h2: `agent-send "heavy/h2\n"`, serves: map[string]string{"h1": "no (haproxy)"}},
	{name: "maintenance by hand", backend: wiredHealth, runtime: []string{"set server heavy/h1 state maint"}, serves: map[string]string{"h1": "no (haproxy)"}},
	{name: "drain by hand", backend: wiredHealth, runtime: []string{"set server heavy/h1 state drain"}, serves: map[string]string{"h1": "no (haproxy)"}},
	{name: "tracks a server in maintenance", backend: "default-server weight 100", h1: "track other/o1", h2: "weight 1", more: other + " check inter 200ms", runtime: []string{"set server other/o1 state maint"}, serves: map[string]string{"h1": "no (haproxy)"}},
	{name: "tracks a server in drain", backend: "default-server weight 100", h1: "track other/o1", h2: "weight 1", more: other + " check inter 200ms", runtime: []string{"set server other/o1 state drain"}, serves: map[string]string{"h1": "no (haproxy)"}},
	{name: "tracks a server that is down", backend: "default-server weight 100", h1: "track other/o1", h2: "weight 1", more: strings.Replace(other, "${TIER_FAST_F1}", "127.0.0.1:1", 1) + " check inter 200ms", serves: map[string]string{"h1": "no (haproxy)"}},
	{name: "checks disabled by hand", backend: wiredBoth, h1: `agent-send "heavy/h1\n"`, h2: `agent-send "heavy/h2\n"`, runtime: []string{"disable agent heavy/h2", "disable health heavy/h2", "set server heavy/h2 health up"}, serves: map[string]string{"h1": "yes", "h2": "no"}},
	{name: "health down by hand", backend: "default-server weight 100", runtime: []string{"set server heavy/h1 health down"}, serves: map[string]string{"h1": "no (haproxy)", "h2": "yes"}},
	{name: "checks on a port where nobody is", backend: strings.Replace(wiredHealth, "${TIER_AGENT_HTTP_PORT}", "1", 1), serves: map[string]string{"h1": "no (haproxy)", "h2": "no"}},
	{name: "quiesced server", backend: wiredHealth, verbs: [][]string{{"quiesce", "heavy", "--server", "heavy/h1", "--force", "--reason", "swap"}}, undo: [][]string{{"readmit", "heavy", "--server", "heavy/h1"}}, serves: map[string]string{"h1": "no", "h2": "no"}},
	{name: "quiesced tier", backend: "default-server weight 100", verbs: [][]string{{"quiesce", "heavy", "--reason", "swap"}}, undo: [][]string{{"readmit", "heavy", "--partial"}}, serves: map[string]string{"h1": "no", "h2": "no"}},
	{name: "both checks and the gate", backend: wiredBoth, h1: `agent-send "heavy/h1\n"`, h2: `agent-send "heavy/h2\n"`, gate: true, serves: map[string]string{"h1": "yes", "h2": "no"}},
	{name: "the gate alone, tier quiesced", backend: "default-server weight 100", gate: true, verbs: [][]string{{"quiesce", "heavy", "--reason", "swap"}}, undo: [][]string{{"readmit", "heavy", "--partial"}}, serves: map[string]string{"h1": "no", "h2": "no"}},
	{name: "health check of the engine and the gate", backend: wiredEngine, gate: true, serves: map[string]string{"h1": "yes"}},
	{name: "backup", backend: wiredBoth, h1: `agent-send "heavy/h1\n"`, h2: `backup agent-send "heavy/h2\n"`, serves: map[string]string{"h1": "yes", "h2": "no"}},
}

// Lines of a frontend that ask the gate about heavy, and the gate's backend.
const (
	gateRules = `
    filter spoe engine tier config "${TIER_SPOE_FILE}"
    http-request set-var(txn.tier_name) str(heavy)
    http-request set-var(txn.tier_backend) str(heavy)
    http-request send-spoe-group tier check
    http-request return status 503 if { var(txn.tier.error) -m found } or !{ var(txn.tier.admit) -m bool }`
	gateBackend = `
backend tier-gate
    .if version_atleast(3.1)
    mode spop
    .else
    mode tcp
    .endif
    timeout server 2m
    server a1 "${TIER_AGENT_SPOE_ADDR}"
`
)

// wiringHead begins the haproxy.cfg of a wiring, up to its first proxy.
const wiringHead = `global
    stats socket "${TIER_STATS_SOCKET}" mode 600 level admin expose-fd listeners
    default-path config
defaults
    mode http
    timeout client 10s
    timeout server 10s
    timeout connect 2s
    timeout check 1s
    retries 0
    option http-server-close
`

// config is a whole haproxy.cfg with the wiring.
func (g wiring) config() string {
	gate, backend := "", ""
	if g.gate {
		gate, backend = gateRules, gateBackend
	}
	h2 := g.h2
	if h2 == "" {
		h2 = g.h1
	}
	return fmt.Sprintf(wiringHead+`frontend api
    bind "${TIER_FRONT_ADDR}"%s
    http-request replace-path ^/heavy/?(.*) /\1
    default_backend heavy
backend heavy
    balance roundrobin
    %s
    server h1 "${TIER_HEAVY_H1}" %s
    server h2 "${TIER_FAST_F1}" %s
%s%s
`, gate, g.backend, g.h1, h2, g.more, backend)
}

// What status says of each server is what a request loop gets.
//
// Controls: with takes as it was, by the admission and HAProxy's admin state alone, 15 of
// the wirings were told wrongly; with weights left out of Server.Open, those of weight 0.
func TestStatusSaysWhatARequestLoopGets(t *testing.T) {
	mostlyWaits(t)
	onEach(t, func(t *testing.T, haproxy string) {
		w := newWorldWith(t, haproxy, worldOptions{agentYAML: twoHeavy, bare: true})
		for _, g := range wirings {
			t.Run(strings.ReplaceAll(g.name, " ", "_"), func(t *testing.T) { w.wired(t, g) })
		}
	})
}

func (w *world) wired(t *testing.T, g wiring) {
	w.t = t
	w.restartWith(g.config())
	for _, command := range g.runtime {
		said, err := w.Runtime(command)
		require.NoError(t, err)
		require.Empty(t, strings.TrimSpace(said), command)
	}
	for _, verb := range g.verbs {
		_, errs, code := w.CLI(t.Context(), verb...)
		require.Zero(t, code, errs)
	}
	t.Cleanup(func() {
		for _, verb := range g.undo {
			_, errs, code := w.CLI(context.Background(), verb...)
			assert.Zero(t, code, errs)
		}
	})
	// Checks and looks take their time; then what is said and what is done stay the same.
	require.NoError(guarantee.T(t), lab.Within(15*time.Second, func() error {
		before := w.told()
		got := w.loop()
		said := w.told()
		if fmt.Sprint(said) != fmt.Sprint(before) {
			return fmt.Errorf("status says %v, and said %v", said, before)
		}
		for server, want := range g.serves {
			if said[server] != want {
				return fmt.Errorf("status says %v, not %v", said, g.serves)
			}
		}
		for server := range said {
			if (said[server] == "yes") != (got[server] != "0") {
				return fmt.Errorf("status says %v, a request loop got %v", said, got)
			}
		}
		return nil
	}))
}

// told is the column NEW REQUESTS of heavy's servers.
func (w *world) told() map[string]string {
	out, errs, code := w.CLI(w.t.Context(), "status")
	require.Zero(w.t, code, errs)
	of := map[string]string{}
	for line := range strings.Lines(out) {
		if name, rest, is := strings.Cut(strings.TrimSpace(line), "  "); is && (name == "heavy/h1" || name == "heavy/h2") {
			column, _, _ := strings.Cut(strings.TrimSpace(rest), "  ")
			of[strings.TrimPrefix(name, "heavy/")] = column
		}
	}
	require.Len(w.t, of, 2, out)
	return of
}

// loop sends requests and says how many reached each server.
func (w *world) loop() map[string]string {
	n := map[string]int{}
	for range 12 {
		a, err := w.Ask(w.t.Context(), "heavy")
		require.NoError(w.t, err)
		n[map[string]string{lab.HeavyModel: "h1", lab.FastModel: "h2"}[a.Model]]++
	}
	return map[string]string{"h1": fmt.Sprint(n["h1"]), "h2": fmt.Sprint(n["h2"])}
}

// bareConfig is where a world without HAProxy will find its configuration.
func bareConfig(o *lab.Options) { o.HAProxyCfg = filepath.Join(o.Dir, "haproxy.cfg") }
