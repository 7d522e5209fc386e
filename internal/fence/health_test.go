package fence

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tier-agent/test/guarantee"
)

// What a probe says of the health check counts by itself, by the same fence as evidence.
//
// Controls: with countHealth called before complete compares the ticket, a voided probe
// counted; without the comparison of generations in Health, an invalidation voided nothing;
// without Judged in countHealth, one 503 left it up.
func TestHealthIsThatOfTheNewestAcceptedProbe(t *testing.T) {
	f := New(time.Now)
	require.NoError(t, f.Replace([]Member{{Tier: "a", Server: "a/1", Subject: "s", MaxAge: time.Minute, Fall: 2}}))
	saw := func(o Observation) { f.ProbeNow("a/1", func(*Ticket) Observation { return o }) }
	says := func(up bool, reason string) {
		t.Helper()
		gotUp, got := f.Health("a/1")
		assert.Equal(guarantee.T(t), up, gotUp)
		if !up {
			assert.Equal(t, reason, got)
		}
	}
	says(false, ReasonPending)
	saw(Observation{Reason: "identity_mismatch", Judged: true, Healthy: true})
	says(true, "")
	assert.False(guarantee.T(t), f.Current("a/1").Ready, "that is no evidence that counts")
	saw(Observation{Reason: "probe_timeout"})
	says(true, "") // as evidence, by Fall
	saw(Observation{Reason: "probe_timeout"})
	says(false, "probe_timeout")
	saw(Observation{Reason: "metadata_missing", Judged: true, Healthy: true})
	says(true, "")
	saw(Observation{Reason: "health_http_503", Judged: true})
	says(false, "health_http_503")
	saw(Observation{Ready: true, Healthy: true, Reason: "identity_passed"})
	says(true, "")

	voided := f.BeginProbe("a/1")
	_, known := f.InvalidateServer("a/1")
	require.True(t, known)
	says(false, ReasonPending)
	f.Complete(voided, Observation{Healthy: true, Reason: "identity_mismatch"})
	says(false, ReasonPending)
	early, late := f.BeginProbe("a/1"), f.BeginProbe("a/1")
	f.Complete(late, Observation{Reason: "health_http_500", Judged: true})
	f.Complete(early, Observation{Healthy: true, Reason: "identity_mismatch"})
	says(false, "health_http_500")
	f.InvalidateTier("a")
	says(false, ReasonPending)

	up, reason := f.Health("a/2")
	assert.False(t, up)
	assert.Equal(t, ReasonUnknown, reason)
}

// An engine that names another instance in each answer never has evidence. Its health is
// not asked which instance it is.
//
// Control: with countHealth taken out of the case of a restart, it was pending.
func TestHealthOfAnEngineThatNeverHasEvidence(t *testing.T) {
	f := New(time.Now)
	require.NoError(t, f.Replace([]Member{{Tier: "a", Server: "a/1", Subject: "s", MaxAge: time.Minute}}))
	for _, instance := range []string{"1", "2", "3"} {
		f.ProbeNow("a/1", func(*Ticket) Observation {
			return Observation{Ready: true, Healthy: true, Reason: "metadata_passed", Instance: instance}
		})
	}
	assert.False(guarantee.T(t), f.Current("a/1").Ready)
	up, _ := f.Health("a/1")
	assert.True(t, up)
}
