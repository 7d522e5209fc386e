package httpapi

import "github.com/prometheus/client_golang/prometheus"

// GateMetrics counts what the SPOE gate does.
type GateMetrics struct{ answers, ends *prometheus.CounterVec }

// Gate adds the gate's metrics. answers and ends are the kinds of each, so that
// each has a series from the start; connections says how many there are now.
func (m *Metrics) Gate(answers, ends []string, connections func() int) *GateMetrics {
	g := &GateMetrics{
		answers: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tier_agent_gate_answers_total", Help: "Requests that HAProxy has asked about, by what it was told.",
		}, []string{"kind"}),
		ends: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tier_agent_gate_connections_ended_total", Help: "Connections of HAProxy's stream processing engines, by how they ended.",
		}, []string{"kind"}),
	}
	m.registry.MustRegister(g.answers, g.ends, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "tier_agent_gate_connections", Help: "Connections of HAProxy's stream processing engines.",
	}, func() float64 { return float64(connections()) }))
	for _, kind := range answers {
		g.answers.WithLabelValues(kind)
	}
	for _, kind := range ends {
		g.ends.WithLabelValues(kind)
	}
	return g
}

// Answered counts n answers of a kind.
func (g *GateMetrics) Answered(kind string, n int) { g.answers.WithLabelValues(kind).Add(float64(n)) }

// Ended counts the end of a connection.
func (g *GateMetrics) Ended(kind string) { g.ends.WithLabelValues(kind).Inc() }
