package integration

import (
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

// admin is " MASK " of one server on one HAProxy, by its own CLI.
func (w *world) admin(h *lab.HAProxy, backend, server string) string {
	text, err := h.Runtime("show servers state " + backend)
	if err != nil {
		return err.Error()
	}
	for line := range strings.Lines(text) {
		if fields := strings.Fields(line); len(fields) > 6 && fields[3] == server {
			return " " + fields[6] + " "
		}
	}
	return text
}

// waitRow waits until the first HAProxy's state file has a row with this in it.
func (f *fault) waitRow(part string) {
	f.t.Helper()
	require.NoError(f.t, lab.Within(10*time.Second, func() error {
		text, err := os.ReadFile(f.HAProxies[0].StateFile())
		if err == nil && !strings.Contains(string(text), part) {
			err = assert.AnError
		}
		return err
	}), "a row in the state file")
}

func TestFault10_AnOperatorsHandsAreRespected(t *testing.T) {
	faults(t, "10 maint by hand", worldOptions{}, func(f *fault) {
		set := func(state string) {
			f.t.Helper()
			_, err := f.Runtime("set server heavy/h1 state " + state)
			require.NoError(f.t, err)
		}
		held := func() {
			f.t.Helper()
			require.NoError(f.t, lab.Within(15*time.Second, func() error {
				if h := f.status().HAProxy[0].Holds; len(h) != 1 || !strings.Contains(h[0], "heavy/h1 is maint") {
					return assert.AnError
				}
				return nil
			}), "the hold is shown")
		}
		refused := func() {
			f.t.Helper()
			r := f.verb(1, "readmit", "heavy")
			assert.Equal(f.t, "held", r.Code)
			assert.Contains(guarantee.T(f.t), f.admin(f.HAProxies[0], "heavy", "h1"), " 1 ")
		}
		// Before.
		set("maint")
		f.heavyTraffic.rule.Store(mustRefuse)
		held()
		f.verb(0, "quiesce", "heavy", "--reason", "swap")
		held()
		require.NoError(f.t, f.Reload())
		f.settle(f.heavyTraffic, 20)
		refused()
		// The operator's own end of it: HAProxy brings a server that leaves
		// maintenance up at once. The intent closes it again at the next look.
		f.heavyTraffic.rule.Store(either)
		set("ready")
		f.awaitDrained(1)
		f.heavyTraffic.rule.Store(mustRefuse)
		f.settle(f.heavyTraffic, 20)
		f.heavyTraffic.rule.Store(either)
		f.verb(1, "readmit", "heavy")
		f.verb(0, "readmit", "heavy", "--take-hold", "--wait", "5s")
		f.waitStatus("heavy", http.StatusOK)
		// During.
		f.quiesceHeavy()
		set("maint")
		held()
		refused()
		f.settle(f.heavyTraffic, 20)
		f.heavyTraffic.rule.Store(either)
		f.verb(0, "readmit", "heavy", "--take-hold", "--wait", "5s")
		f.waitStatus("heavy", http.StatusOK)
		// After.
		set("maint")
		f.heavyTraffic.rule.Store(mustRefuse)
		held()
		f.settle(f.heavyTraffic, 50)
		assert.Contains(guarantee.T(f.t), f.admin(f.HAProxies[0], "heavy", "h1"), " 1 ")
	})
}

// A state directory that is gone stands for one that is full or read-only.
func TestFault12_TheStateDirectoryCannotBeWritten(t *testing.T) {
	faults(t, "12 state directory lost", worldOptions{}, func(f *fault) {
		require.NoError(f.t, os.RemoveAll(f.StateDir()))
		r := f.verb(1, "quiesce", "heavy", "--reason", "swap")
		assert.Equal(f.t, "not_durable", r.Code)
		assert.Regexp(f.t, `a restart of tier-agent would forget it: [^%]*/intents.json: no such file or directory$`, r.Message)
		assert.True(guarantee.T(f.t), r.Quiesced, "closed all the same")
		f.heavyTraffic.rule.Store(mustRefuse)
		assert.Contains(guarantee.T(f.t), f.admin(f.HAProxies[0], "heavy", "h1"), " 8 ")
		f.settle(f.heavyTraffic, 20)
		r = f.verb(1, "readmit", "heavy", "--wait", "5s")
		assert.Equal(f.t, "not_durable", r.Code)
		assert.True(guarantee.T(f.t), r.Quiesced)
		f.settle(f.heavyTraffic, 20)
		log, err := os.ReadFile(f.AgentProc.Log)
		require.NoError(f.t, err)
		assert.LessOrEqual(f.t, strings.Count(string(log), `"msg":"the intents cannot be written"`), 1, "said once, not at each look")

		require.NoError(f.t, os.MkdirAll(f.StateDir(), 0o700))
		f.readmitHeavy()
	})
}

func TestFault13_ALongDrainDelaysNoOtherTier(t *testing.T) {
	faults(t, "13 a long drain of heavy", worldOptions{}, func(f *fault) {
		stream := f.endless()
		f.quiesceHeavy()
		drained := make(chan int, 1)
		go func() {
			_, _, code := f.CLI(f.t.Context(), "drain", "heavy", "--timeout", "90s")
			drained <- code
		}()
		// Before fast's turn the drain has gone on for a while, and in make soak for long.
		long := time.Duration(times(30)) * time.Second
		for began := time.Now(); time.Since(began) < long; {
			f.settle(f.heavyTraffic, 20)
		}
		f.fastTraffic.rule.Store(either)
		began := time.Now()
		f.verb(0, "quiesce", "fast", "--reason", "swap")
		quiesced := time.Since(began)
		began = time.Now()
		f.verb(0, "readmit", "fast", "--wait", "2s")
		readmitted := time.Since(began)
		f.fastTraffic.rule.Store(mustServe)
		select {
		case <-drained:
			guarantee.T(f.t).Error("the drain was over before")
		default:
		}
		f.t.Logf("quiesce of fast: %v, readmit: %v", quiesced, readmitted)
		f.heavy.Hurry()
		assert.Zero(f.t, <-drained)
		require.NoError(f.t, <-stream.Ended)
		f.readmitHeavy()
	})
}

// A client that a cookie binds to a server goes on reaching a drained one; the
// checks' "down" ends that.
func TestFault15_CookiePersistentClientsAreRefused(t *testing.T) {
	cookie := func(_ lab.Options, text string) string {
		return strings.Replace(text, "    server h1 \"${TIER_HEAVY_H1}\"",
			"    cookie TIER insert indirect nocache\n    server h1 \"${TIER_HEAVY_H1}\" cookie h1", 1)
	}
	faults(t, "15 cookie-persistent clients", worldOptions{config: cookie}, func(f *fault) {
		ask := func() int {
			f.t.Helper()
			req, err := http.NewRequestWithContext(f.t.Context(), http.MethodGet, f.URL("/heavy/v1/models"), nil)
			require.NoError(f.t, err)
			req.AddCookie(&http.Cookie{Name: "TIER", Value: "h1"})
			client := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
			res, err := client.Do(req)
			require.NoError(f.t, err)
			defer res.Body.Close()
			return res.StatusCode
		}
		require.Equal(f.t, http.StatusOK, ask())
		f.quiesceHeavy()
		require.NoError(f.t, lab.Within(15*time.Second, func() error {
			if ask() != http.StatusServiceUnavailable {
				return assert.AnError
			}
			return nil
		}), "until the next agent-check")
		for range 50 {
			assert.Equal(guarantee.T(f.t), http.StatusServiceUnavailable, ask())
		}
		f.readmitHeavy()
		assert.Equal(f.t, http.StatusOK, ask())
	})
}
