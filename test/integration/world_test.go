package integration

import (
	"cmp"
	"context"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tier-agent/internal/admission"
	"tier-agent/internal/httpapi"
	"tier-agent/test/engine"
	"tier-agent/test/lab"
)

// world is a lab whose engines live in the test, so that it can hold them.
type world struct {
	*lab.Lab
	t           *testing.T
	heavy, fast *engine.Engine
	// heavyPort is heavy's: closed, it leaves the engine the connections that it has.
	heavyPort net.Listener
}

// patient is a configuration in which a held probe does not time out.
const patient = lab.Head + `probe: {interval: 200ms, timeout: 60s, max_age: 120s}
tiers:
  - {name: heavy, servers: [{server: heavy/h1, url: 'http://127.0.0.1:{{.Ports.Heavy}}'}], identity: {id: big-70b}}
  - {name: fast, servers: [{server: fast/f1, url: 'http://127.0.0.1:{{.Ports.Fast}}'}], identity: {id: small-8b}}
`

// worldOptions say how a world differs from the usual one.
type worldOptions struct {
	agentYAML string
	haproxies int    // 1 where it is 0
	agent     string // another binary of tier-agent
	agentEnv  []string
	gate      bool // HAProxy asks about each request
	// dns is where heavy's hosts are found by heavyName, and heavyHost the first of them;
	// without them it has one server.
	dns, heavyName, heavyHost string
	// bare starts no HAProxy: the test writes its configuration first.
	bare bool
	// config changes the shipped haproxy.cfg.
	config func(o lab.Options, text string) string
}

// newWorld starts engines, tier-agent and HAProxy, and waits until both tiers
// serve and tier-agent has read every HAProxy.
func newWorld(t *testing.T, haproxy, agentYAML string) *world {
	t.Helper()
	return newWorldWith(t, haproxy, worldOptions{agentYAML: agentYAML})
}

func newWorldWith(t *testing.T, haproxy string, wo worldOptions) *world {
	t.Helper()
	o := labOptions(t, haproxy)
	o.AgentYAML, o.Gate, o.AgentEnv = wo.agentYAML, wo.gate, wo.agentEnv
	o.DNS, o.HeavyName = wo.dns, wo.heavyName
	if wo.agent != "" {
		o.Agent = wo.agent
	}
	for len(o.More) < wo.haproxies-1 {
		ports, err := lab.FreePorts()
		require.NoError(t, err)
		o.More = append(o.More, ports.Front)
	}
	if wo.config != nil {
		configure(t, &o, wo.config)
	}
	if wo.bare {
		bareConfig(&o)
	}
	l, err := lab.New(o)
	require.NoError(t, err)
	heavyAt := fmt.Sprintf("%s:%d", cmp.Or(wo.heavyHost, "127.0.0.1"), o.Ports.Heavy)
	heavyPort, err := net.Listen("tcp", heavyAt)
	require.NoError(t, err)
	w := &world{
		Lab: l, t: t, heavyPort: heavyPort,
		heavy: serveEngineThrough(t, heavyPort, lab.HeavyModel), fast: serveEngine(t, o.Ports.Fast, lab.FastModel),
	}
	t.Cleanup(func() {
		require.NoError(t, l.Close())
		if t.Failed() && l.HAProxies[0].Proc != nil {
			t.Logf("tier-agent:\n%s\nHAProxy:\n%s", l.AgentProc.Output(), l.HAProxies[0].Proc.Output())
		}
	})
	require.NoError(t, l.StartAgent(t.Context()))
	if !wo.bare {
		require.NoError(t, l.StartHAProxy(t.Context()))
		w.serves()
	}
	return w
}

// serves waits until both tiers serve and tier-agent has read every HAProxy. It starts
// before them and looks once a second, so that the tiers may serve before it knows the
// addresses that HAProxy sends to.
func (w *world) serves() {
	w.t.Helper()
	w.waitStatus("heavy", http.StatusOK)
	w.waitStatus("fast", http.StatusOK)
	require.NoError(w.t, lab.Within(15*time.Second, func() error {
		for _, h := range w.status().HAProxy {
			if !h.Readable {
				return fmt.Errorf("haproxy %s is not read: %s", h.Instance, h.Error)
			}
		}
		return nil
	}))
}

// newWorldOfProcesses is a world whose engines are processes of their own; it returns
// heavy's.
func newWorldOfProcesses(t *testing.T, o lab.Options) (*world, *lab.Process) {
	t.Helper()
	ctx := t.Context()
	l, err := lab.New(o)
	require.NoError(t, err)
	w := &world{Lab: l, t: t}
	t.Cleanup(func() { require.NoError(t, l.Close()) })
	heavy, err := l.StartEngine(ctx, "heavy", lab.HeavyModel, l.Ports.Heavy)
	require.NoError(t, err)
	_, err = l.StartEngine(ctx, "fast", lab.FastModel, l.Ports.Fast)
	require.NoError(t, err)
	require.NoError(t, l.StartAgent(ctx))
	require.NoError(t, l.StartHAProxy(ctx))
	w.serves()
	return w, heavy
}

// configure gives the lab the shipped haproxy.cfg with a change.
func configure(t *testing.T, o *lab.Options, change func(o lab.Options, text string) string) {
	t.Helper()
	o.HAProxyCfg = filepath.Join(o.Dir, "haproxy.cfg")
	text, err := os.ReadFile(filepath.Join(o.Root, "haproxy", "haproxy.cfg"))
	require.NoError(t, err)
	changed := change(*o, string(text))
	require.NotEqual(t, string(text), changed, "the change has found nothing to change")
	require.NoError(t, os.WriteFile(o.HAProxyCfg, []byte(changed), 0o644))
	tiers, err := os.ReadFile(filepath.Join(o.Root, "haproxy", "tiers.map"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(o.Dir, "tiers.map"), tiers, 0o644))
}

func serveEngine(t *testing.T, port int, model string) *engine.Engine {
	t.Helper()
	return serveEngineAt(t, fmt.Sprintf("127.0.0.1:%d", port), model)
}

// serveEngineAt may be asked for an address that another listener has just left. A process
// that a parallel test starts has that one, too, between its fork and its exec.
func serveEngineAt(t *testing.T, address, model string) *engine.Engine {
	t.Helper()
	var ln net.Listener
	require.NoError(t, lab.Within(10*time.Second, func() (err error) {
		ln, err = net.Listen("tcp", address)
		return err
	}))
	return serveEngineThrough(t, ln, model)
}

func serveEngineThrough(t *testing.T, ln net.Listener, model string) *engine.Engine {
	t.Helper()
	eng := engine.New(engine.Options{Model: model, TokenDelay: 50 * time.Millisecond})
	srv := &http.Server{Handler: eng, ReadHeaderTimeout: 5 * time.Second, Protocols: new(http.Protocols)}
	srv.Protocols.SetHTTP1(true)
	srv.Protocols.SetUnencryptedHTTP2(true) // for a server line with "proto h2"
	var wg sync.WaitGroup
	wg.Go(func() { _ = srv.Serve(ln) }) // ends with http.ErrServerClosed
	t.Cleanup(func() {
		eng.Close()
		_ = srv.Close()
		wg.Wait()
	})
	return eng
}

// ask sends one request and requires an answer of some kind.
func (w *world) ask(tier string) lab.Answer {
	w.t.Helper()
	a, err := w.Ask(w.t.Context(), tier)
	require.NoError(w.t, err)
	return a
}

// waitStatus polls a tier until it answers with code: HAProxy's checks take
// their time.
func (w *world) waitStatus(tier string, code int) {
	w.t.Helper()
	require.NoError(w.t, lab.Within(15*time.Second, func() error {
		a, err := w.Ask(w.t.Context(), tier)
		if err == nil && a.Status != code {
			err = fmt.Errorf("%s answers %d, not %d", tier, a.Status, code)
		}
		return err
	}))
}

// verb runs a transition through the CLI and returns its result.
func (w *world) verb(code int, args ...string) admission.Result {
	w.t.Helper()
	out, errs, got := w.CLI(w.t.Context(), append(args, "--json")...)
	require.Equal(w.t, code, got, "%v: %s%s", args, out, errs)
	var r admission.Result
	require.NoError(w.t, json.Unmarshal([]byte(out), &r), out)
	return r
}

func (w *world) status() httpapi.Status {
	w.t.Helper()
	out, errs, code := w.CLI(w.t.Context(), "status", "--json")
	require.Zero(w.t, code, errs)
	var st httpapi.Status
	require.NoError(w.t, json.Unmarshal([]byte(out), &st))
	return st
}

// stat is one server's row of HAProxy's own statistics, by column name.
func (w *world) stat(backend, server string) map[string]string {
	w.t.Helper()
	row, err := readStat(w.HAProxies[0], backend, server)
	require.NoError(w.t, err)
	return row
}

func readStat(h *lab.HAProxy, backend, server string) (map[string]string, error) {
	text, err := h.Runtime("show stat " + backend + " 4 -1")
	if err != nil {
		return nil, err
	}
	rows, err := csv.NewReader(strings.NewReader(strings.TrimPrefix(strings.TrimSpace(text), "# "))).ReadAll()
	if err != nil {
		return nil, fmt.Errorf("%w: %s", err, text)
	}
	for _, row := range rows { // the first has the names of the columns
		of := map[string]string{}
		for n, column := range rows[0] {
			of[column] = row[n]
		}
		if of["svname"] == server {
			return of, nil
		}
	}
	return nil, fmt.Errorf("no %s/%s in %q", backend, server, text)
}

// waitStat polls a server's row until ok. An answer that fails is asked for again: a
// HAProxy that is being replaced may owe one.
func (w *world) waitStat(backend, server string, ok func(map[string]string) bool, what string) map[string]string {
	w.t.Helper()
	var row map[string]string
	err := lab.Within(15*time.Second, func() error {
		var err error
		if row, err = readStat(w.HAProxies[0], backend, server); err == nil && !ok(row) {
			return fmt.Errorf("status %q, agent %q %q, check %q", row["status"], row["agent_status"], row["last_agt"], row["check_status"])
		}
		return err
	})
	require.NoError(w.t, err, what)
	return row
}

// metric reads one sample, named as it stands in the exposition.
func (w *world) metric(sample string) float64 {
	w.t.Helper()
	_, text, err := w.get("/metrics")
	require.NoError(w.t, err)
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), sample+" "); ok {
			f, err := strconv.ParseFloat(value, 64)
			require.NoError(w.t, err)
			return f
		}
	}
	require.Fail(w.t, "no such sample", sample)
	return 0
}

// load keeps asking a tier until stop, and returns what came back by status.
type load struct {
	cancel context.CancelFunc
	done   chan map[int]int
}

func (w *world) load(tier string) *load {
	ctx, cancel := context.WithCancel(w.t.Context())
	l := &load{cancel: cancel, done: make(chan map[int]int, 1)}
	go func() {
		seen := map[int]int{}
		for ctx.Err() == nil {
			a, err := w.Ask(context.WithoutCancel(ctx), tier)
			if err != nil {
				a.Status = -1
			}
			seen[a.Status]++
		}
		l.done <- seen
	}()
	return l
}

func (l *load) stop() map[int]int {
	l.cancel()
	return <-l.done
}
