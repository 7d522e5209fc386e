package tier

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tier-agent/internal/fence"
	"tier-agent/internal/probe"
)

// One probe a second. An outage whose reasons change is one outage, and neither a
// gate nor Fall hides what is seen.
//
// Control: with next.since always that of the last probe, each of them began the
// outage anew.
func TestSinceWhenAServerIsSeenLikeThat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		spec := specs()[1]
		spec.Fall = 3
		m, err := New([]Spec{spec}, time.Now)
		require.NoError(t, err)
		began := time.Now()
		reasons := []string{
			"identity_passed", "health_transport_refused", probe.Timeout, "health_transport_reset", "health_http_503",
			"health_transport_refused", "identity_passed", "identity_passed",
		}
		n := 0
		assert.Zero(t, m.Status()[0].Servers[0].Since)
		mon, stop := run(t, m, func(context.Context, probe.Target) probe.Result {
			n++
			return probe.Result{Ready: reasons[n-1] == "identity_passed", Reason: reasons[n-1]}
		}, nil)
		defer stop()
		<-mon.FirstRound()
		_, err = m.Close(Target{Tier: "fast"}, Closure{Reason: "swap"})
		require.NoError(t, err)
		var seen []string
		for range reasons[1:] {
			time.Sleep(time.Second)
			synctest.Wait()
			s := m.Status()[0].Servers[0]
			seen = append(seen, fmt.Sprintf("%s since %s", s.Seen, s.Since.Sub(began)))
		}
		assert.Equal(t, []string{
			"unreachable since 1s", "unreachable since 1s", "unreachable since 1s", "degraded since 4s",
			"unreachable since 5s", "ready since 6s", "ready since 6s",
		}, seen)
		m.fence.InvalidateAll()
		assert.Zero(t, m.Status()[0].Servers[0].Since, "nothing is seen that does not count")
	})
}

// Control: with the comparison of the issues taken out of saw, an earlier probe's
// was left.
func TestTheLaterIssuedProbeIsTheOneThatIsSeen(t *testing.T) {
	var s state
	var wg sync.WaitGroup
	for issue := range uint64(1000) {
		wg.Go(func() {
			seen := StateReady
			if issue == 999 {
				seen = StateDegraded
			}
			s.saw(seen, fence.Verdict{Issue: issue})
		})
	}
	wg.Wait()
	assert.Equal(t, StateDegraded, s.sight.Load().state)
	s.saw(StateReady, fence.Verdict{Issue: 1})
	assert.Equal(t, StateDegraded, s.sight.Load().state)
}

// A restart begins no outage: the engine is seen ready before and after.
func TestARestartIsNotSeen(t *testing.T) {
	m, err := New(instances(), time.Now)
	require.NoError(t, err)
	boot := int32(0)
	mon := NewMonitor(m, proberFunc(func(context.Context, probe.Target) probe.Result { return bootOf(boot) }), nil, slog.New(slog.DiscardHandler))
	mon.ProbeNow(t.Context(), "fast/f1")
	since := m.Status()[0].Servers[0].Since
	boot = 1
	require.True(t, mon.ProbeNow(t.Context(), "fast/f1").Restarted)
	mon.ProbeNow(t.Context(), "fast/f1")
	assert.Equal(t, since, m.Status()[0].Servers[0].Since)
}
