package integration

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tier-agent/internal/admission"
	"tier-agent/internal/httpapi"
	"tier-agent/test/engine"
	"tier-agent/test/guarantee"
	"tier-agent/test/lab"
)

// muffle stands between tier-agent and a HAProxy's sockets, which serves on behind it. While
// it is silent it takes connections and commands, and nothing is answered or passed on.
type muffle struct {
	mu      sync.Mutex
	talking chan struct{} // closed while it is not silent
	ended   context.Context
	all     sync.WaitGroup
}

func newMuffle(t *testing.T, sockets map[string]string) *muffle {
	ctx, end := context.WithCancel(context.Background())
	m := &muffle{talking: make(chan struct{}), ended: ctx}
	close(m.talking)
	var listeners []net.Listener
	for path, to := range sockets {
		ln, err := net.Listen("unix", path)
		require.NoError(t, err)
		listeners = append(listeners, ln)
		m.all.Go(func() {
			for {
				c, err := ln.Accept()
				if err != nil {
					return
				}
				m.all.Go(func() { m.pass(c, to) })
			}
		})
	}
	t.Cleanup(func() {
		end()
		for _, ln := range listeners {
			_ = ln.Close()
		}
		m.all.Wait()
	})
	return m
}

// pass passes one connection on. One that silence meets stays silent until its client goes.
func (m *muffle) pass(c net.Conn, to string) {
	defer c.Close()
	defer context.AfterFunc(m.ended, func() { _ = c.Close() })()
	m.mu.Lock()
	talking := m.talking
	m.mu.Unlock()
	select {
	case <-talking:
	default:
		_, _ = io.Copy(io.Discard, c)
		return
	}
	up, err := net.Dial("unix", to)
	if err != nil {
		return
	}
	defer up.Close()
	defer context.AfterFunc(m.ended, func() { _ = up.Close() })()
	m.all.Go(func() {
		_, _ = io.Copy(up, c)
		_ = up.(*net.UnixConn).CloseWrite()
	})
	_, _ = io.Copy(c, up)
}

func (m *muffle) silent() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.talking = make(chan struct{})
}

func (m *muffle) talk() {
	m.mu.Lock()
	defer m.mu.Unlock()
	close(m.talking)
}

// threeTiers are heavy, fast and third, through the sockets of a muffle.
const threeTiers = `haproxy:
  - {name: edge, runtime: 'unix:{{.Dir}}/via', master: 'unix:{{.Dir}}/viam', state_file: {{(index .HAProxies 0).StateFile}}}
state_dir: {{.StateDir}}
listen:
  agent_check: 127.0.0.1:{{.Ports.AgentCheck}}
  http: 127.0.0.1:{{.Ports.HTTP}}
  spoe: {address: '127.0.0.1:{{.Ports.SPOE}}'}
  admin: {path: {{.AdminSocket}}}
probe: {interval: 300ms, timeout: 2s, max_age: 5s}
tiers:
  - {name: heavy, servers: [{server: heavy/h1, url: 'http://127.0.0.1:{{.Ports.Heavy}}'}], identity: {id: big-70b}}
  - {name: fast, servers: [{server: fast/f1, url: 'http://127.0.0.1:{{.Ports.Fast}}'}], identity: {id: small-8b}}
  - {name: third, servers: [{server: third/t1, url: 'http://127.0.0.2:{{.Ports.Heavy}}'}], identity: {id: big-70b}}
`

// All Runtime APIs fall silent at once, stats socket and master alike, while HAProxy
// serves. An open tier loses nothing, a quiesced one gets nothing, evidence still closes and
// opens, status says that it sees nothing and since when, and what needs the Runtime API
// says so.
//
// Control: with judge called after a look that failed, and the servers of an instance that
// cannot be read taken for shut, the gate refused every request of the open tiers.
func TestFault16_EveryRuntimeAPIIsSilent(t *testing.T) {
	for name, gate := range map[string]bool{"16 every Runtime API silent": false, "16 the same, with the gate": true} {
		t.Run(strings.ReplaceAll(name[3:], " ", "_"), func(t *testing.T) {
			onEach(t, func(t *testing.T, haproxy string) {
				f, runtime, third := newSilentWorld(t, haproxy, gate)
				defer func() { // also of what has failed before
					f.heavyTraffic.stop()
					f.fastTraffic.stop()
					f.report(name)
				}()
				f.staysRight(runtime, third)
			})
		})
	}
}

// newSilentWorld has a third tier, whose engine is returned, and a muffle before the
// sockets of HAProxy.
func newSilentWorld(t *testing.T, haproxy string, gate bool) (*fault, *muffle, *engine.Engine) {
	w := newWorldWith(t, haproxy, worldOptions{agentYAML: threeTiers, gate: gate, bare: true, config: func(o lab.Options, text string) string {
		tiers := filepath.Join(o.Dir, "three.map")
		require.NoError(t, os.WriteFile(tiers, []byte("heavy heavy\nfast fast\nthird third\n"), 0o644))
		return strings.ReplaceAll(text, "${TIER_MAP_FILE}", tiers) +
			fmt.Sprintf("\nbackend third from tiers\n    server t1 127.0.0.2:%d agent-send \"third/t1\\n\"\n", o.Ports.Heavy)
	}})
	third := serveEngineAt(t, fmt.Sprintf("127.0.0.2:%d", w.Ports.Heavy), lab.HeavyModel)
	runtime := newMuffle(t, map[string]string{
		filepath.Join(w.Dir, "via"):  w.RuntimeSocket(),
		filepath.Join(w.Dir, "viam"): w.HAProxies[0].MasterSocket(),
	})
	require.NoError(t, w.StartHAProxy(t.Context()))
	w.serves()
	w.waitStatus("third", http.StatusOK)
	w.checked()
	f := &fault{world: w, began: time.Now()}
	f.heavyTraffic, f.fastTraffic = w.traffic("heavy"), w.traffic("fast")
	f.fastTraffic.rule.Store(mustServe)
	f.quiesceHeavy()
	return f, runtime, third
}

// staysRight takes the Runtime API away, and gives it back.
func (f *fault) staysRight(runtime *muffle, third *engine.Engine) {
	f.t.Helper()
	over := time.Now().Add(time.Duration(times(12)) * 5 * time.Second) // a minute in make soak
	runtime.silent()
	var h httpapi.HAProxyStatus
	require.NoError(f.t, lab.Within(15*time.Second, func() error {
		if h = f.status().HAProxy[0]; h.Readable || h.AgeMS < 2000 {
			return fmt.Errorf("readable %v, age %d ms", h.Readable, h.AgeMS)
		}
		return nil
	}))
	assert.NotEmpty(f.t, h.Error)
	out, _, code := f.CLI(f.t.Context(), "status", "--check")
	assert.Equal(f.t, 1, code)
	assert.Regexp(f.t, `(?m)^haproxy edge: .+; last read [0-9.]+m?s ago$`, out)
	for flip := 0; flip == 0 || time.Now().Add(6*time.Second).Before(over); flip++ {
		// What is wrong is closed by both checks, and by the gate at once.
		third.SetModel("another")
		f.waitStatus("third", http.StatusServiceUnavailable)
		f.settles("third", http.StatusServiceUnavailable)
		third.SetModel(lab.HeavyModel)
		f.waitStatus("third", http.StatusOK)
		f.settles("third", http.StatusOK)
	}
	r := f.verb(1, "readmit", "heavy")
	assert.Equal(f.t, admission.CodeHAProxy, r.Code, r.Message)
	assert.Contains(f.t, r.Message, "haproxy edge")
	assert.True(guarantee.T(f.t), r.Quiesced)
	r = f.verb(1, "quiesce", "third", "--reason", "swap")
	assert.Equal(f.t, admission.Incomplete, r.Outcome)
	assert.Equal(f.t, admission.CodeHAProxy, r.Code, r.Message)
	assert.Contains(f.t, r.Message, "third is closed here; HAProxy did not confirm, is tried again")
	f.waitStatus("third", http.StatusServiceUnavailable)
	for time.Now().Before(over) {
		f.settle(f.fastTraffic, 50)
	}
	runtime.talk()
	require.NoError(f.t, lab.Within(15*time.Second, func() error {
		st := f.status()
		for _, i := range st.Intents {
			if len(i.Drift) > 0 {
				return fmt.Errorf("%s: %v", i.Tier, i.Drift)
			}
		}
		if !st.HAProxy[0].Readable {
			return fmt.Errorf("not read: %s", st.HAProxy[0].Error)
		}
		return nil
	}))
	f.readmitHeavy()
	f.verb(0, "readmit", "third", "--wait", "2s")
	f.waitStatus("third", http.StatusOK)
}

// settles holds some more requests of a tier to the status that it has come to.
func (f *fault) settles(tier string, code int) {
	f.t.Helper()
	for range 20 {
		assert.Equal(guarantee.T(f.t), code, f.ask(tier).Status, tier)
	}
}
