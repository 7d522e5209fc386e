package httpapi

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tier-agent/internal/tier"
)

// Where a tier takes nothing and HAProxy's checks are told up all the same, the
// body says both: a quiesce that watches a queue, or shows the engine's health.
func TestReadyzOfWhatIsUpAndTakesNothing(t *testing.T) {
	quiescing := world{tiers: []tier.Status{{Name: "heavy", Answer: tier.Answer{Quiesced: true, Ready: true, Up: true, Reason: tier.ReasonQuiesced}}}}
	w := httptest.NewRecorder()
	quiescing.readOnly().Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/readyz/heavy", nil))
	assert.Equal(t, http.StatusOK, w.Code)
	assert.JSONEq(t, `{"name":"heavy","ready":false,"up":true,"reason":"quiesced","generation":"0"}`, w.Body.String())
}

func TestStatusOfTheGate(t *testing.T) {
	for asked, want := range map[time.Time]string{
		{}:                            `{"connections":3}`,
		noon.Add(-1500 * time.Second): `{"connections":3,"asked_ms":1500000}`,
	} {
		ro := world{}.readOnly()
		ro.Gate = func() (int, time.Time) { return 3, asked }
		text, err := json.Marshal(ro.Status().Gate)
		require.NoError(t, err)
		assert.JSONEq(t, want, string(text))
	}
}

// Every series is there from the start.
func TestGateMetrics(t *testing.T) {
	m := NewMetrics("test", nil)
	g := m.Gate([]string{"admitted", "refused"}, []string{"closed"}, func() int { return 2 })
	g.Answered("refused", 3)
	g.Ended("closed")
	require.NoError(t, testutil.GatherAndCompare(m.registry, strings.NewReader(`
# HELP tier_agent_gate_answers_total Requests that HAProxy has asked about, by what it was told.
# TYPE tier_agent_gate_answers_total counter
tier_agent_gate_answers_total{kind="admitted"} 0
tier_agent_gate_answers_total{kind="refused"} 3
# HELP tier_agent_gate_connections Connections of HAProxy's stream processing engines.
# TYPE tier_agent_gate_connections gauge
tier_agent_gate_connections 2
# HELP tier_agent_gate_connections_ended_total Connections of HAProxy's stream processing engines, by how they ended.
# TYPE tier_agent_gate_connections_ended_total counter
tier_agent_gate_connections_ended_total{kind="closed"} 1
`), "tier_agent_gate_answers_total", "tier_agent_gate_connections", "tier_agent_gate_connections_ended_total"))
}
