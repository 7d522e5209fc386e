package observe

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"tier-agent/internal/runtimeapi"
	"tier-agent/test/guarantee"
)

// With several HAProxies it cannot be told which of them asks: none counts as asking the
// gate, nor by a health check that goes where the engine is.
//
// Controls: without Several in Asks, B's way in was not named; without HealthElsewhere, its
// server was held to be closed by its checks.
func TestWhoAsksWhereThereAreSeveral(t *testing.T) {
	now := time.Now()
	on := runtimeapi.Check{Configured: true, Enabled: true}
	v := View{Info: runtimeapi.Info{StartTime: now.Add(-time.Hour)}, Servers: map[string]Server{
		"b/ours":   {Health: on, HealthElsewhere: true},
		"b/engine": {Health: on},
		"b/agent":  {Agent: on},
	}}
	for _, several := range []bool{false, true} {
		p := &Polls{Several: several}
		p.SetNames([]string{"b", "b/ours", "b/engine", "b/agent"})
		for _, name := range []string{"b/ours", "b/engine", "b/agent"} {
			assert.Zero(t, p.Asking(v, name, "b", now), "nobody has asked")
			p.Note(HealthCheck, []byte(name), now)
			p.Note(AgentCheck, []byte(name), now)
		}
		p.Note(Gate, []byte("b"), now)
		assert.Equal(guarantee.T(t), !several, p.Asks(v, Gate, "b", now))
		assert.Equal(guarantee.T(t), Asking{Health: !several, HealthOwn: !several}, p.Asking(v, "b/engine", "b", now))
		assert.Equal(t, Asking{Health: true, HealthOwn: true}, p.Asking(v, "b/ours", "b", now))
		assert.Equal(t, Asking{Agent: true}, p.Asking(v, "b/agent", "b", now))
	}
}
