package integration

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tier-agent/internal/override"
	"tier-agent/internal/runtimeapi"
	"tier-agent/test/engine"
	"tier-agent/test/guarantee"
	"tier-agent/test/lab"
)

// must waits until heavy answers with code, and holds its requests to that from then on.
func (f *fault) must(code int) {
	f.t.Helper()
	f.heavyTraffic.rule.Store(either)
	f.waitStatus("heavy", code)
	if f.heavyTraffic.rule.Store(mustRefuse); code == http.StatusOK {
		f.heavyTraffic.rule.Store(mustServe)
	}
	f.settle(f.heavyTraffic, 30)
}

// poll is one agent-check of heavy/h1.
func (w *world) poll() string {
	w.t.Helper()
	c, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", w.Ports.AgentCheck))
	require.NoError(w.t, err)
	defer c.Close()
	_, err = c.Write([]byte("heavy/h1\n"))
	require.NoError(w.t, err)
	line, err := bufio.NewReader(c).ReadString('\n')
	require.NoError(w.t, err)
	return line
}

// heavy is healthy and goes by a name that the configuration does not expect.
//
// Controls: with the override left out of the model, nothing was served; with health not
// asked, an engine that answers 503 was; with the gates not looked at under an override,
// the checks of the quiesced tier were told up; with shut not looked at, the tier whose one
// server is held was admitted.
func TestOverride_OpensOnHealthAlone(t *testing.T) {
	faults(t, "an override", worldOptions{gate: true}, func(f *fault) {
		t := f.t
		f.must(http.StatusOK)
		f.heavyTraffic.rule.Store(either)
		f.heavy.SetModel("big-70b-v2")
		f.must(http.StatusServiceUnavailable)

		f.heavyTraffic.rule.Store(either)
		r := f.verb(0, "override", "heavy", "--for", "10m", "--reason", "wrong-identity")
		assert.Contains(t, r.Message, "heavy is overridden until ")
		f.must(http.StatusOK)
		for _, path := range []string{"/readyz/heavy", "/readyz/heavy/h1"} {
			require.NoError(t, lab.Within(10*time.Second, func() error { // a tier's is held against the last look at HAProxy
				code, body, err := f.get(path)
				if err == nil && (code != http.StatusOK || !strings.Contains(string(body), `"reason":"override"`)) {
					err = fmt.Errorf("%s answers %d %s", path, code, body)
				}
				return err
			}))
		}
		assert.Equal(t, "up\n", f.poll())
		heavy := f.status().Tiers[0]
		require.NotNil(t, heavy.Override)
		assert.Equal(t, []string{"override", "wrong-identity", "identity_mismatch"}, []string{heavy.Reason, heavy.Override.Reason, heavy.Servers[0].Evidence})
		assert.Greater(t, f.metric(`tier_agent_tier_override_seconds{tier="heavy"}`), 500.0)
		text, _, _ := f.CLI(t.Context(), "status")
		assert.True(t, strings.HasPrefix(text, "OVERRIDE: heavy is open on HAProxy's word"), text)
		res, err := http.Post(fmt.Sprintf("http://127.0.0.1:%d/api/v1/override", f.Ports.HTTP), "application/json", strings.NewReader(`{"tier":"fast","for":"10m","reason":"x"}`))
		require.NoError(t, err)
		require.NoError(t, res.Body.Close())
		assert.GreaterOrEqual(guarantee.T(t), res.StatusCode, 400, "the read-only listener triggers nothing")
		assert.Nil(guarantee.T(t), f.status().Tiers[1].Override)

		f.heavyTraffic.rule.Store(either)
		require.NoError(t, f.heavy.Set(engine.Health, engine.Behaviour{Status: 503}))
		f.must(http.StatusServiceUnavailable)
		f.heavyTraffic.rule.Store(either)
		f.heavy.Reset()
		f.must(http.StatusOK)

		// Held in HAProxy.
		f.heavyTraffic.rule.Store(either)
		_, err = f.Runtime("set server heavy/h1 state drain")
		require.NoError(t, err)
		f.must(http.StatusServiceUnavailable)
		require.NoError(t, lab.Within(10*time.Second, func() error {
			r, err := f.ask("heavy").Refusal()
			if err == nil && r.Reason != "closed_in_haproxy" {
				err = errors.New(r.Reason)
			}
			return err
		}))
		assert.Equal(guarantee.T(t), " 8 ", f.admin(f.HAProxies[0], "heavy", "h1"))
		f.heavyTraffic.rule.Store(either)
		_, err = f.Runtime("set server heavy/h1 state ready")
		require.NoError(t, err)
		f.must(http.StatusOK)

		f.heavyTraffic.rule.Store(either)
		f.quiesceHeavy()
		f.settle(f.heavyTraffic, 50)
		r = f.verb(0, "override", "heavy", "--for", "20m", "--reason", "again")
		assert.Contains(t, r.Message, "it is quiesced, and stays closed")
		f.settle(f.heavyTraffic, 100)
		assert.Equal(guarantee.T(t), "quiesced", refusalOf(t, f.ask("heavy")).Reason)
		assert.Equal(guarantee.T(t), "down # quiesced\n", f.poll())
		assert.Equal(guarantee.T(t), "not_ready", f.verb(1, "readmit", "heavy", "--wait", "2s").Code, "a readmit wants evidence")
		f.settle(f.heavyTraffic, 30)
		f.heavy.SetModel(lab.HeavyModel)
		f.readmitHeavy()
		f.heavyTraffic.rule.Store(either)
		f.heavy.SetModel("big-70b-v2")
		f.must(http.StatusOK)

		f.heavyTraffic.rule.Store(either)
		f.verb(0, "override", "heavy", "--end")
		f.must(http.StatusServiceUnavailable)
		assert.Nil(t, f.status().Tiers[0].Override)
	})
}

// tier-agent is killed under an override, and is started again; then the record is one
// that ends soon.
//
// Control: with restoreOverrides taken out, nothing was served after the start.
func TestOverride_OutlivesAKillAndEndsByItself(t *testing.T) {
	mostlyWaits(t)
	onEach(t, func(t *testing.T, haproxy string) {
		w := newWorldWith(t, haproxy, worldOptions{gate: true})
		f := &fault{world: w, heavyTraffic: w.traffic("heavy"), fastTraffic: &traffic{cancel: func() {}}}
		w.heavy.SetModel("big-70b-v2")
		f.must(http.StatusServiceUnavailable)
		f.heavyTraffic.rule.Store(either)
		w.verb(0, "override", "heavy", "--for", "10m", "--reason", "wrong-identity")
		f.must(http.StatusOK)

		f.heavyTraffic.rule.Store(either)
		require.NoError(t, w.AgentProc.Kill())
		require.NoError(t, w.StartAgent(t.Context()))
		f.must(http.StatusOK)
		assert.NotNil(t, w.status().Tiers[0].Override)

		f.heavyTraffic.rule.Store(either)
		require.NoError(t, w.AgentProc.Kill())
		until := time.Now().Add(10 * time.Second).UTC()
		text, err := json.Marshal(map[string]any{"version": 1, "overrides": []override.Record{
			{Tier: "heavy", Reason: "wrong-identity", Who: "ann", Since: until.Add(-time.Minute), Until: until},
		}})
		require.NoError(t, err)
		file := filepath.Join(w.StateDir(), "overrides.json")
		require.NoError(t, os.WriteFile(file, text, 0o600))
		require.NoError(t, w.StartAgent(t.Context()))
		w.waitStatus("heavy", http.StatusOK)
		time.Sleep(time.Until(until))
		f.heavyTraffic.rule.Store(mustRefuse)
		f.settle(f.heavyTraffic, 300)
		w.waitStat("heavy", "h1", isDown, "the checks hear of it, too")
		require.NoError(t, lab.Within(5*time.Second, func() error {
			if log := w.AgentProc.Output(); !strings.Contains(log, "an override has ended") {
				return errors.New("nothing says that it has ended")
			}
			return nil
		}))

		require.NoError(t, os.WriteFile(file, []byte("{"), 0o600))
		require.NoError(t, w.AgentProc.Kill())
		require.NoError(t, w.StartAgent(t.Context()))
		f.settle(f.heavyTraffic, 50)
		assert.Regexp(t, regexp.QuoteMeta(file)+": .*unexpected EOF.*: no override is in force", w.AgentProc.Output())
		f.heavyTraffic.stop()
		f.report("an override that ends")
	})
}

// row is what HAProxy has of a server, as far as an override may change it.
func (w *world) row(name string) string {
	w.t.Helper()
	backend, server, _ := strings.Cut(name, "/")
	all, err := runtimeapi.New("edge", "unix", w.RuntimeSocket(), runtimeapi.Options{}).Servers(w.t.Context(), backend)
	require.NoError(w.t, err)
	s, known := all.Find(backend, server)
	require.True(w.t, known)
	return fmt.Sprintf("%s %s weight %d health %+v agent %+v", s.Admin, s.Operational, s.Weight, s.Health(), s.Agent())
}

// tier-agent is dead: of heavy the last that it said was down, of fast it was up.
//
// Controls: without the health set up, nothing was served; with keepOpen acting once, a
// reload ended it; without giveBack both went on being served; without SIGHUP caught, so they did
// when the terminal was gone; without the look at the admin state it was not refused, and
// without health down in Reinstating the servers stayed open at the end.
func TestOverride_DirectlyWhereTierAgentIsDead(t *testing.T) {
	mostlyWaits(t)
	onEach(t, func(t *testing.T, haproxy string) {
		w := newWorld(t, haproxy, "")
		w.checked()
		w.heavy.SetModel("big-70b-v2")
		w.waitStatus("heavy", http.StatusServiceUnavailable)
		direct := func(name string, servers ...string) *lab.Process {
			p, err := lab.Run(w.Dir, name, nil, binaries.agent, append([]string{"override", "--socket", w.AdminSocket(),
				"--direct", "--haproxy", "unix:" + w.RuntimeSocket(), "--for", "10m", "--reason", "agent-dead"}, servers...)...)
			require.NoError(t, err)
			return p
		}
		refused := func(says string, servers ...string) {
			t.Helper()
			p := direct("refused", servers...)
			select {
			case <-p.Done():
			case <-time.After(15 * time.Second):
				require.NoError(t, p.Kill())
				assert.Fail(guarantee.T(t), "it is not refused")
			}
			assert.Contains(t, p.Output(), says)
		}
		refused("tier-agent answers at "+w.AdminSocket()+": give tier-agent override TIER instead", "heavy/h1")
		require.NoError(t, w.AgentProc.Kill())
		w.waitStat("fast", "f1", isDown, "its health check asks nobody")
		before := []string{w.row("heavy/h1"), w.row("fast/f1")}
		f := &fault{world: w, heavyTraffic: w.traffic("heavy"), fastTraffic: w.traffic("fast")}
		both := func(rule int32) {
			f.heavyTraffic.rule.Store(rule)
			f.fastTraffic.rule.Store(rule)
		}
		both(mustRefuse)
		refused("haproxy unix:"+w.RuntimeSocket()+" has no server heavy/h9", "heavy/h1", "heavy/h9")
		_, err := w.Runtime("set server heavy/h1 state drain")
		require.NoError(t, err)
		refused("heavy/h1 on haproxy unix:"+w.RuntimeSocket()+" is drain(forced), closed by an administrator's command", "heavy/h1", "fast/f1")
		_, err = w.Runtime("set server heavy/h1 state ready")
		require.NoError(t, err)
		f.settle(f.heavyTraffic, 50)
		assert.Equal(t, before, []string{w.row("heavy/h1"), w.row("fast/f1")}, "a refusal changes nothing")

		hangup := syscall.SIGHUP
		if signal.Ignored(hangup) {
			hangup = syscall.SIGINT // this runs under nohup
		}
		for end, long := range map[syscall.Signal]int64{hangup: 1000, syscall.SIGTERM: 100} { // 1000 last longer than its checks need
			both(either)
			began := time.Now()
			p := direct("direct-"+end.String(), "heavy/h1", "fast/f1")
			w.waitStatus("heavy", http.StatusOK)
			w.waitStatus("fast", http.StatusOK)
			t.Logf("served %v after the command", time.Since(began))
			both(mustServe)
			f.settle(f.fastTraffic, long)
			both(either)
			require.NoError(t, w.Reload())
			w.waitStatus("heavy", http.StatusOK)
			w.waitStatus("fast", http.StatusOK)
			time.Sleep(1500 * time.Millisecond) // a check that was under way may have taken one down until the next look
			both(mustServe)
			f.settle(f.fastTraffic, 100)
			both(either)
			require.NoError(t, p.Signal(end))
			<-p.Done()
			both(mustRefuse)
			assert.Equal(guarantee.T(t), before, []string{w.row("heavy/h1"), w.row("fast/f1")}, p.Output())
			f.settle(f.fastTraffic, long)
			assert.Equal(guarantee.T(t), before, []string{w.row("heavy/h1"), w.row("fast/f1")})
		}

		both(either)
		ended := time.Now()
		d := override.Direct{
			HAProxy: []*runtimeapi.Instance{runtimeapi.New("edge", "unix", w.RuntimeSocket(), runtimeapi.Options{})},
			Servers: []string{"heavy/h1"}, For: 3 * time.Second, Say: func(text string) { t.Log(text) },
		}
		require.NoError(t, d.Run(context.Background()))
		assert.InDelta(t, 3, time.Since(ended).Seconds(), 1)
		both(mustRefuse)
		f.settle(f.heavyTraffic, 300)

		both(either)
		require.NoError(t, w.StartAgent(t.Context()))
		w.waitStatus("fast", http.StatusOK)
		f.heavyTraffic.rule.Store(mustRefuse)
		f.settle(f.heavyTraffic, 50)
		f.heavyTraffic.stop()
		f.fastTraffic.stop()
		f.report("an override without tier-agent")

		// HAProxy is gone at the end.
		ctx, cancel := context.WithCancel(t.Context())
		d.For, d.Say = time.Hour, func(text string) {
			if strings.HasSuffix(text, "now open") {
				assert.NoError(t, w.HAProxies[0].Kill())
				cancel()
			}
		}
		err = d.Run(ctx)
		require.ErrorContains(t, err, "not given back: haproxy edge: ")
		assert.ErrorContains(t, err, "say to haproxy edge: set server heavy/h1 health down; enable health heavy/h1; enable agent heavy/h1")
	})
}

// Where tier-agent is dead the gate refuses what the servers would take. One line and a
// reload take it out.
//
// Control: with presetenv in the place of setenv, it went on refusing.
func TestOverride_DirectlyBehindAGate(t *testing.T) {
	onEach(t, func(t *testing.T, haproxy string) {
		w := newWorldWith(t, haproxy, worldOptions{gate: true, config: func(_ lab.Options, text string) string {
			return strings.Replace(text, "# HAProxy beside", "# A HAProxy beside", 1)
		}})
		w.checked()
		require.NoError(t, w.AgentProc.Kill())
		p, err := lab.Run(w.Dir, "direct", nil, binaries.agent, "override", "--socket", w.AdminSocket(),
			"--direct", "--haproxy", "unix:"+w.RuntimeSocket(), "heavy/h1", "--for", "10m", "--reason", "agent-dead")
		require.NoError(t, err)
		w.waitStat("heavy", "h1", func(row map[string]string) bool { return row["status"] == "no check" }, "it is open there")
		assert.Contains(t, w.ask("heavy").Body, "gate_error")

		text, err := os.ReadFile(w.HAProxyCfg)
		require.NoError(t, err)
		changed := strings.Replace(string(text), "    # Relative names are", "    setenv TIER_GATE off\n    # Relative names are", 1)
		require.NotEqual(t, string(text), changed)
		require.NoError(t, os.WriteFile(w.HAProxyCfg, []byte(changed), 0o644))
		began := time.Now()
		require.NoError(t, w.Reload())
		w.waitStatus("heavy", http.StatusOK)
		t.Logf("served %v after the reload began", time.Since(began))
		require.NoError(t, p.Signal(syscall.SIGINT))
		<-p.Done()
		w.waitStatus("heavy", http.StatusServiceUnavailable)
	})
}

// A member that no evidence has opened yet is opened on its health, and is its checks'
// when that is over.
//
// Control: with the reconciler asking for evidence, its slot stayed disabled.
func TestOverride_OfMembers(t *testing.T) {
	discovered(t, 4, func(f *fleet) {
		t := f.t
		other := f.host("127.0.0.3", "other")
		require.NoError(t, f.dns.Set(heavyName, "127.0.0.2", "127.0.0.3"))
		f.member("heavy/h2", "degraded")
		assert.Zero(guarantee.T(t), other.Requests(engine.Chat))
		f.verb(0, "override", "heavy", "--for", "10m", "--reason", "wrong-identity")
		reached := func() error {
			if _, err := f.Ask(t.Context(), "heavy"); err != nil {
				return err
			}
			if other.Requests(engine.Chat) == 0 {
				return errors.New("no request at the other one")
			}
			return nil
		}
		require.NoError(t, lab.Within(15*time.Second, reached))
		f.verb(0, "override", "heavy", "--end")
		f.waitStat("heavy", "h2", isDown, "its checks hear of the end")
		n := other.Requests(engine.Chat)
		for range 50 {
			assert.Equal(t, http.StatusOK, f.ask("heavy").Status)
		}
		assert.Equal(guarantee.T(t), n, other.Requests(engine.Chat))
	})
}
