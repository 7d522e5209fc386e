package integration

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tier-agent/internal/admission"
	"tier-agent/test/engine"
	"tier-agent/test/guarantee"
	"tier-agent/test/lab"
)

// A server was quiesced, and what is behind it now is not what its tier wants, and is not
// to be for a while: a replica. Its quiesce is ended, and nothing is opened by that, with
// HAProxy's checks told down or told health meanwhile, nor by a reload after it. When it
// has become what the tier wants, it serves without another word.
//
// Control: with heardDown left out, 14 requests on 2.6 and 78 on 3.0 reached the server
// before its next agent-check.
func TestAServerIsLeftToItsEvidence(t *testing.T) {
	for name, answer := range map[string]string{"quiesced_answer down": "", "quiesced_answer health": "quiesced_answer: health, "} {
		t.Run(name, func(t *testing.T) {
			onEach(t, func(t *testing.T, haproxy string) {
				yaml := lab.Head + `probe: {interval: 300ms, timeout: 2s, max_age: 5s}
tiers:
  - {name: heavy, ` + answer + `servers: [{server: heavy/h1, url: 'http://127.0.0.1:{{.Ports.Heavy}}'}], identity: {id: big-70b}}
  - {name: fast, servers: [{server: fast/f1, url: 'http://127.0.0.1:{{.Ports.Fast}}'}], identity: {id: small-8b}}
`
				w := newWorld(t, haproxy, yaml)
				w.verb(0, "quiesce", "heavy", "--reason", "failover")
				before := w.heavy.Requests(engine.Chat)
				loop := w.load("heavy")
				w.heavy.SetModel("replica")
				if answer == "" { // otherwise the checks are to be told up until the very moment
					assert.Equal(t, admission.CodeNotReady, w.verb(1, "readmit", "heavy", "--wait", "3s").Code)
				}
				r := w.verb(0, "readmit", "heavy", "--when-ready")
				assert.False(t, r.Quiesced)
				require.NoError(t, w.Reload())
				time.Sleep(2 * time.Second) // the loop asks all the while
				seen := loop.stop()
				assert.Zero(guarantee.T(t), seen[http.StatusOK], "%v", seen)
				assert.Equal(guarantee.T(t), before, w.heavy.Requests(engine.Chat), "requests reached a server without evidence")
				assert.Empty(t, w.status().Intents)
				assert.Empty(t, w.status().HAProxy[0].Holds)
				w.heavy.SetModel(lab.HeavyModel)
				w.waitStatus("heavy", http.StatusOK)
			})
		})
	}
}

// HAProxy does not ask tier-agent about the server: nothing would keep it closed.
//
// Control: with asks always true, the readmit was done, and the next request answered by
// the wrong model.
func TestAServerThatNobodyAsksAboutIsNotLeftToItsEvidence(t *testing.T) {
	onEach(t, func(t *testing.T, haproxy string) {
		w := newWorldWith(t, haproxy, worldOptions{config: func(_ lab.Options, text string) string {
			line := `server h1 "${TIER_HEAVY_H1}" agent-send "heavy/h1\n"`
			return strings.Replace(text, line, `server h1 "${TIER_HEAVY_H1}" no-agent-check no-check`, 1)
		}})
		w.verb(0, "quiesce", "heavy", "--reason", "failover")
		w.heavy.SetModel("replica")
		r := w.verb(1, "readmit", "heavy", "--when-ready")
		assert.Equal(guarantee.T(t), admission.CodeUnguarded, r.Code, r.Message)
		assert.True(t, r.Quiesced)
		assert.Equal(guarantee.T(t), http.StatusServiceUnavailable, w.ask("heavy").Status)
		out, errs, code := w.CLI(t.Context(), "readmit", "heavy", "--when-ready", "--partial")
		assert.Equal(t, 2, code, fmt.Sprint(out, errs))
	})
}
