package integration

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tier-agent/internal/httpapi"
	"tier-agent/test/guarantee"
	"tier-agent/test/lab"
)

// thousand is how many servers the tier has. HAProxy asks for each of them every five
// seconds by its agent-check, and tier-agent each of them every ten.
const thousand = 1000

const thousandHead = `start_budget: 20s
probe: {interval: 10s, timeout: 10s, max_age: 60s}
tiers:
  - {name: fast, servers: [{server: fast/f1, url: 'http://127.0.0.1:{{.Ports.Fast}}'}], identity: {id: small-8b}}
  - name: heavy
    identity: {id: big-70b}
    servers:
`

// A tier of 1,000 servers, each at an address of its own, behind a HAProxy that has
// a line for each.
func TestAThousandServersInOneTier(t *testing.T) {
	w := bareWorld(t, haproxy(t, versions()[len(versions())-1]), "")
	var members, lines strings.Builder
	var addresses []string
	for n := range thousand {
		address := fmt.Sprintf("127.0.%d.%d:%d", 10+n/200, n%200+1, w.Ports.Heavy)
		addresses = append(addresses, address)
		fmt.Fprintf(&members, "      - {server: heavy/h%d, url: 'http://%s'}\n", n+1, address)
		pace := "inter 20s downinter 5s agent-inter 5s"
		if n+1 == 500 { // whose readmit waits for both checks
			pace = "inter 2s downinter 250ms agent-inter 500ms"
		}
		fmt.Fprintf(&lines, "    server h%d %s %s agent-send \"heavy/h%d\\n\"\n", n+1, address, pace, n+1)
	}
	w.AgentYAML = lab.Head + thousandHead + members.String()
	w.HAProxyCfg = w.withLines(lines.String())
	heavy := serveEngineOn(t, lab.HeavyModel, addresses)
	serveEngine(t, w.Ports.Fast, lab.FastModel)

	began := time.Now()
	require.NoError(t, w.StartAgent(t.Context()))
	t.Logf("%v until the first answer", time.Since(began).Round(time.Millisecond))
	w.ready(thousand, "")
	t.Logf("%v until all are ready; tier-agent takes %s", time.Since(began).Round(time.Millisecond), resident(t, w.AgentProc.PID()))
	require.NoError(t, w.StartHAProxy(t.Context()))

	asked := time.Now()
	for n := range thousand {
		code, err := w.readyz(fmt.Sprintf("/readyz/heavy/h%d", n+1))
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, code, n)
	}
	w.agentChecks("")
	w.ready(thousand, "")
	t.Logf("%v for the answers about all of them", time.Since(asked).Round(time.Millisecond))
	assert.Equal(t, http.StatusOK, w.ask("heavy").Status)

	asked = time.Now()
	w.verb(0, "quiesce", "heavy", "--server", "heavy/h500", "--reason", "swap")
	t.Logf("%v for a quiesce of one", time.Since(asked).Round(time.Millisecond))
	w.agentChecks("heavy/h500")
	for path, want := range map[string]int{"/readyz/heavy/h500": 503, "/readyz/heavy": 200} {
		code, err := w.readyz(path)
		require.NoError(t, err)
		assert.Equal(guarantee.T(t), want, code, path)
	}
	w.ready(thousand-1, "heavy/h500")
	// A check that came too late on a loaded machine is made again 5 s later.
	require.NoError(t, lab.Within(time.Minute, func() error {
		for name, state := range w.states() {
			if want := map[bool]string{true: "drained", false: "up"}[name == "h500"]; state != want {
				return fmt.Errorf("%s is %s, not %s", name, state, want)
			}
		}
		return nil
	}), "HAProxy has one server less, and no other")
	assert.Equal(t, http.StatusOK, w.ask("heavy").Status)
	asked = time.Now()
	w.verb(0, "readmit", "heavy", "--server", "heavy/h500", "--wait", "5s")
	t.Logf("%v for its readmit; tier-agent takes %s, %d probes", time.Since(asked).Round(time.Millisecond),
		resident(t, w.AgentProc.PID()), heavy.Requests("models"))
	assert.Equal(t, http.StatusOK, w.ask("heavy").Status)
}

// agentChecks asks about each server as HAProxy does: all are up, but for out.
func (w *world) agentChecks(out string) {
	w.t.Helper()
	for n := range thousand {
		name, want := fmt.Sprintf("heavy/h%d", n+1), "up"
		if name == out {
			want = "down # quiesced"
		}
		said, err := w.agentCheck(name)
		require.NoError(w.t, err)
		require.True(w.t, strings.HasPrefix(said, want), "%s: %q", name, said)
	}
}

// ready waits until the status shows so many of heavy's servers ready, all of them
// but out. On a loaded machine the first round has probes that come too late, and the next begins
// 10 s after it.
func (w *world) ready(want int, out string) {
	w.t.Helper()
	require.NoError(w.t, lab.Within(time.Minute, func() error {
		servers := w.page().Tiers[1].Servers
		if len(servers) != thousand {
			return fmt.Errorf("%d servers", len(servers))
		}
		n := 0
		for _, s := range servers {
			if s.Ready && s.Name != out {
				n++
			}
		}
		if n != want {
			return fmt.Errorf("%d are ready, not %d", n, want)
		}
		return nil
	}))
}

// withLines is the shipped haproxy.cfg with other servers in backend heavy.
func (w *world) withLines(lines string) (path string) {
	w.t.Helper()
	text, err := os.ReadFile(filepath.Join(w.Root, "haproxy", "haproxy.cfg"))
	require.NoError(w.t, err)
	at := regexp.MustCompile(`(?m)^    server h1 .*\n`).FindIndex(text)
	require.NotNil(w.t, at)
	path = filepath.Join(w.Dir, "haproxy.cfg")
	require.NoError(w.t, os.WriteFile(path, []byte(string(text[:at[0]])+lines+string(text[at[1]:])), 0o644))
	return path
}

// page is the status as it is served over HTTP.
func (w *world) page() httpapi.Status {
	w.t.Helper()
	code, body, err := w.get("/api/v1/status")
	require.NoError(w.t, err)
	require.Equal(w.t, http.StatusOK, code)
	var st httpapi.Status
	require.NoError(w.t, json.Unmarshal(body, &st))
	return st
}

// states are what HAProxy has heavy's servers in, by name: up, down or drained. Its
// statistics have that too, and take it 50 ms for so many.
func (w *world) states() map[string]string {
	w.t.Helper()
	text, err := w.Runtime("show servers state heavy")
	require.NoError(w.t, err)
	of := map[string]string{}
	for line := range strings.Lines(text) {
		// be_id be_name srv_id srv_name srv_addr srv_op_state srv_admin_state ...
		columns := strings.Fields(line)
		if len(columns) < 7 || columns[1] != "heavy" {
			continue
		}
		state := "down"
		switch {
		case columns[6] != "0":
			state = "drained"
		case columns[5] == "2":
			state = "up"
		}
		of[columns[3]] = state
	}
	require.Len(w.t, of, thousand)
	return of
}

// resident is the memory that a process holds (proc(5)).
func resident(t *testing.T, pid int) string {
	t.Helper()
	file, err := os.Open(fmt.Sprintf("/proc/%d/status", pid))
	require.NoError(t, err)
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		if size, ok := strings.CutPrefix(lines.Text(), "VmRSS:"); ok {
			return strings.TrimSpace(size)
		}
	}
	return "?"
}
