package integration

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tier-agent/internal/httpapi"
	"tier-agent/test/engine"
	"tier-agent/test/guarantee"
	"tier-agent/test/lab"
)

// waitLeft polls until heavy's server has the state and so many streams.
func (w *world) waitLeft(state string, streams int) {
	w.t.Helper()
	require.NoError(w.t, lab.Within(10*time.Second, func() error {
		s := w.status().Tiers[0].Servers[0]
		if s.State != state || s.Left == nil || s.Left.Streams != streams || s.Left.Unknown != nil {
			return fmt.Errorf("%s, left %+v", s.State, s.Left)
		}
		return nil
	}), "%s, %d streams", state, streams)
}

// endless is a stream on heavy that has begun, and goes on until the engine is told to
// hurry. It lasts two minutes if it is not told: longer than any test needs it, also on a
// busy machine.
func (w *world) endless() *lab.Stream {
	w.t.Helper()
	s := w.Stream(w.t.Context(), "heavy", 600, 200*time.Millisecond)
	w.begun(s)
	return s
}

// begun waits for a stream's first token. One that is refused never has any, and ends.
func (w *world) begun(s *lab.Stream) {
	w.t.Helper()
	select {
	case <-s.Started:
	case err := <-s.Ended:
		require.Fail(w.t, "the stream has ended", "%v", err)
	}
}

// drainOutlasted runs a drain that must reach its timeout, patience, because s still runs;
// then lets s end, and runs a drain that must end as done. It returns the progress that the
// first one printed.
func (w *world) drainOutlasted(s *lab.Stream, patience string) (progress string) {
	w.t.Helper()
	out, progress, code := w.CLI(w.t.Context(), "drain", "heavy", "--timeout", patience)
	require.Equal(guarantee.T(w.t), 3, code, out+progress)
	w.heavy.Hurry()
	w.verb(0, "drain", "heavy", "--timeout", "60s")
	require.NoError(w.t, <-s.Ended)
	return progress
}

// A stream outlives the quiesce, and then a reload: status counts it in the worker
// that runs it, and says quiesced when it has ended.
//
// Controls: with the call of count taken out of watch, it was never known; with
// everyWorker asking the stats socket alone, it was not draining after the reload.
func TestStatusSaysDrainingWhileAStreamRuns(t *testing.T) {
	onEach(t, func(t *testing.T, haproxy string) {
		w := newWorld(t, haproxy, "")
		assert.Nil(t, w.status().Tiers[0].Servers[0].Left, "it is open")
		stream := w.endless()
		w.verb(0, "quiesce", "heavy", "--reason", "swap")
		w.waitLeft("draining", 1)
		out, _, _ := w.CLI(t.Context(), "status")
		assert.Contains(t, out, "draining (1 stream)")
		require.NoError(t, w.Reload())
		require.NoError(t, lab.Within(15*time.Second, func() error {
			pid, err := w.WorkerPID()
			if err != nil {
				return err
			}
			if now := w.status().HAProxy[0]; strconv.Itoa(now.PID) != pid {
				return fmt.Errorf("worker %d", now.PID)
			}
			return nil
		}), "the new worker is read")
		w.waitLeft("draining", 1)
		w.heavy.Hurry()
		require.NoError(t, <-stream.Ended)
		w.waitLeft("quiesced", 0)
		s := w.status().Tiers[0].Servers[0]
		assert.Equal(t, &httpapi.LeftStatus{}, s.Left)
		w.verb(0, "readmit", "heavy", "--wait", "5s")
		assert.Nil(t, w.status().Tiers[0].Servers[0].Left)
	})
}

// An engine dies, and a request that was admitted meets it; the tier is quiesced, drained
// and given another model. The request ends with a 503 rather than there: HAProxy does not
// try it again, and where a haproxy.cfg has it do so, the drain waits for the last try.
//
// Control: with trying not looked at in the drain's wait, the next engine answered the
// request of the second case; with "retries 0" taken out of haproxy.cfg as well, that of
// the first.
func TestARequestThatMetADeadEngineIsNotRetriedOnTheNext(t *testing.T) {
	for name, change := range map[string]func(lab.Options, string) string{
		"as shipped": nil,
		"HAProxy's own retries": func(_ lab.Options, text string) string {
			return strings.Replace(text, "    retries 0\n", "    retries 3\n", 1)
		},
	} {
		t.Run(name, func(t *testing.T) {
			onEach(t, func(t *testing.T, haproxy string) { deadEngine(t, haproxy, change) })
		})
	}
}

func deadEngine(t *testing.T, haproxy string, change func(lab.Options, string) string) {
	ctx := t.Context()
	o := labOptions(t, haproxy)
	o.Gate = true
	// No probe comes between: the evidence outlives the engine.
	o.AgentYAML = strings.Replace(patient, "interval: 200ms", "interval: 50s", 1)
	if change != nil {
		configure(t, &o, change)
	}
	w, heavy := newWorldOfProcesses(t, o)

	require.NoError(t, heavy.Kill())
	type outcome struct {
		lab.Answer
		err error
	}
	asked := make(chan outcome, 1)
	go func() {
		a, err := w.Ask(ctx, "heavy")
		asked <- outcome{a, err}
	}()
	w.waitStat("heavy", "h1", func(s map[string]string) bool { return s["wretr"] != "0" || s["econ"] != "0" }, "the request has met the dead engine")
	w.verb(0, "quiesce", "heavy", "--reason", "swap")
	w.verb(0, "drain", "heavy", "--timeout", "20s")
	_, err := w.StartEngine(ctx, "heavy-wrong", lab.FastModel, w.Ports.Heavy)
	require.NoError(t, err)
	got := <-asked
	require.NoError(t, got.err)
	assert.Equal(t, http.StatusServiceUnavailable, got.Status)
	assert.Empty(guarantee.T(t), got.Model, "an engine has answered")
}

// An engine gives its port up to the next one and lives on, with the connections that it
// has: one that ends slowly, or one behind an address that is moved. After the readmit
// each request goes to the one that was probed, also those of a client that has kept its
// connection to HAProxy.
//
// Control: without "option http-server-close" in haproxy.cfg each of the client's
// requests went to the old engine.
func TestAfterASwapNoConnectionLeadsToTheOldEngine(t *testing.T) {
	onEach(t, func(t *testing.T, haproxy string) {
		w := newWorldWith(t, haproxy, worldOptions{gate: true})
		client := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{MaxConnsPerHost: 1}}
		t.Cleanup(client.CloseIdleConnections)
		askedOf := func() string {
			t.Helper()
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, w.URL("/heavy/v1/models"), nil)
			require.NoError(t, err)
			res, err := client.Do(req)
			require.NoError(t, err)
			defer res.Body.Close()
			_, err = io.Copy(io.Discard, res.Body) // so that the connection is kept
			require.NoError(t, err)
			require.Equal(t, http.StatusOK, res.StatusCode)
			return res.Header.Get("X-Engine-Instance")
		}
		for range 3 {
			require.Equal(t, w.heavy.Instance(), askedOf())
		}
		w.verb(0, "quiesce", "heavy", "--reason", "swap")
		w.verb(0, "drain", "heavy", "--timeout", "10s")
		require.NoError(t, w.heavyPort.Close())
		next := serveEngine(t, w.Ports.Heavy, lab.HeavyModel)
		w.verb(0, "readmit", "heavy", "--wait", "3s")
		for range 3 {
			assert.Equal(guarantee.T(t), next.Instance(), askedOf())
		}
	})
}

// twoServers gives heavy a second server, at the port.
func twoServers(port int) worldOptions {
	return worldOptions{
		agentYAML: lab.Head + fmt.Sprintf(`probe: {interval: 500ms, timeout: 2s, max_age: 5s}
tiers:
  - name: heavy
    servers: [{server: heavy/h1, url: 'http://127.0.0.1:{{.Ports.Heavy}}'}, {server: heavy/h2, url: 'http://127.0.0.1:%d'}]
    identity: {id: big-70b}
  - {name: fast, servers: [{server: fast/f1, url: 'http://127.0.0.1:{{.Ports.Fast}}'}], identity: {id: small-8b}}
`, port),
		config: func(_ lab.Options, text string) string {
			h1 := `    server h1 "${TIER_HEAVY_H1}" agent-send "heavy/h1\n"`
			return strings.Replace(text, h1, fmt.Sprintf("    balance roundrobin\n%s\n    server h2 127.0.0.1:%d agent-send \"heavy/h2\\n\"", h1, port), 1)
		},
	}
}

// One server of two is drained after a reload. Who connected before that, and asks only
// now, asks the old worker, which nobody can tell of the quiesce: it refuses.
//
// Control: without the rule on "stopping" in haproxy.cfg the drained server answered two
// of the four.
func TestAnOldWorkerSendsNothingToADrainedServerOfTwo(t *testing.T) {
	onEach(t, func(t *testing.T, haproxy string) {
		ports, err := lab.FreePorts()
		require.NoError(t, err)
		second := serveEngine(t, ports.Heavy, lab.HeavyModel)
		o := twoServers(ports.Heavy)
		o.gate = true
		w := newWorldWith(t, haproxy, o)
		w.waitStat("heavy", "h2", func(row map[string]string) bool { return row["check_status"] == "L7OK" }, "h2 is checked")
		// Each has sent nothing yet, and is accepted: else the new worker would do that.
		var before [6]net.Conn
		for n := range before {
			c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", fmt.Sprintf("127.0.0.1:%d", w.Ports.Front))
			require.NoError(t, err)
			t.Cleanup(func() { _ = c.Close() })
			require.NoError(t, c.SetDeadline(time.Now().Add(25*time.Second)))
			before[n] = c
		}
		require.NoError(t, lab.Within(15*time.Second, func() error {
			text, err := w.Runtime("show stat api 1 -1")
			if err == nil && !strings.Contains(text, fmt.Sprintf("api,FRONTEND,,,%d,", len(before))) {
				err = fmt.Errorf("not all are accepted: %s", text)
			}
			return err
		}))
		ask := func(c net.Conn) lab.Answer {
			t.Helper()
			// Not what a probe asks for: that counts as well.
			_, err := io.WriteString(c, "POST /heavy/v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 16\r\n\r\n{\"max_tokens\":1}")
			require.NoError(t, err)
			res, err := http.ReadResponse(bufio.NewReader(c), nil)
			require.NoError(t, err)
			defer res.Body.Close()
			body, err := io.ReadAll(res.Body)
			require.NoError(t, err)
			return lab.Answer{Status: res.StatusCode, Retry: res.Header.Get("Retry-After"), Body: string(body)}
		}
		require.NoError(t, w.Reload())
		assert.Equal(guarantee.T(t), http.StatusOK, ask(before[0]).Status, "the reload alone costs nothing")
		w.verb(0, "quiesce", "heavy", "--server", "heavy/h2", "--reason", "swap")
		w.verb(0, "drain", "heavy", "--server", "heavy/h2", "--timeout", "10s")
		drained := second.Requests(engine.Chat)
		for _, c := range before[1:5] {
			assert.Equal(t, "quiesced", refusalOf(t, ask(c)).Reason)
		}
		assert.Equal(guarantee.T(t), drained, second.Requests(engine.Chat))
		assert.Equal(t, http.StatusOK, w.ask("heavy").Status, "by h1, through the new worker")
		w.verb(0, "readmit", "heavy", "--server", "heavy/h2", "--wait", "3s")
		assert.Equal(t, http.StatusOK, ask(before[5]).Status)
	})
}

// A reload renames the server of a tier while a stream runs on it: the old worker has the
// stream under the old name, and the drain waits for it.
//
// Control: without goneFrom the drain was done at once.
func TestADrainCountsAStreamOfAServerThatWasRenamed(t *testing.T) {
	onEach(t, func(t *testing.T, haproxy string) {
		w := newWorldWith(t, haproxy, worldOptions{config: func(_ lab.Options, text string) string { return text + "\n" }})
		stream := w.endless()
		for file, names := range map[string][2]string{
			w.HAProxyCfg:                            {`server h1 "${TIER_HEAVY_H1}" agent-send "heavy/h1\n"`, `server g1 "${TIER_HEAVY_H1}" agent-send "heavy/g1\n"`},
			filepath.Join(w.Dir, "tier-agent.yaml"): {"heavy/h1", "heavy/g1"},
		} {
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			renamed := strings.Replace(string(text), names[0], names[1], 1)
			require.NotEqual(t, string(text), renamed)
			require.NoError(t, os.WriteFile(file, []byte(renamed), 0o600))
		}
		require.NoError(t, w.Reload())
		out, errs, code := w.CLI(t.Context(), "reload")
		require.Zero(t, code, out+errs)
		w.verb(0, "quiesce", "heavy", "--reason", "swap")
		assert.Contains(t, w.drainOutlasted(stream, "3s"), "in old worker")
	})
}
