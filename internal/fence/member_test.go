package fence

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tier-agent/test/guarantee"
)

func TestReplaceKeepsWhatStaysAndFencesWhatChanges(t *testing.T) {
	f, _ := newFence(t)
	publish(t, f, h1, ready("one"))
	publish(t, f, h2, ready("two"))
	publish(t, f, f1, ready("small"))
	out := f.BeginProbe(h2)

	next := members()
	next[1].Subject = "another address"
	next[2].Tier = "other"
	require.NoError(t, f.Replace(next))

	assert.True(t, f.Current(h1).Ready, "an unchanged member keeps its evidence")
	assert.Equal(guarantee.T(t), ReasonPending, f.Current(h2).Reason, "a new subject has none")
	assert.Equal(guarantee.T(t), ReasonPending, f.Current(f1).Reason, "nor has a server in another tier")
	assertRefused(t, f.Complete(out, ready("two")), ReasonInvalidated)
}

func TestReplaceAppliesANewMaximumAgeToTheEvidenceThatStands(t *testing.T) {
	f, c := newFence(t)
	publish(t, f, h1, ready("one"))
	c.step(5 * time.Second)
	next := members()
	next[0].MaxAge = 4 * time.Second
	require.NoError(t, f.Replace(next))
	assert.Equal(guarantee.T(t), ReasonStale, f.Current(h1).Reason)
}

func TestReplaceRefusesAndChangesNothing(t *testing.T) {
	f, _ := newFence(t)
	publish(t, f, h1, ready("one"))

	err := f.Replace(append(members(), members()[0]))
	assert.EqualError(t, err, `fence: server "heavy/h1" is named twice`)
	err = f.Replace([]Member{{Tier: "heavy", Server: h1}})
	assert.EqualError(t, err, `fence: server "heavy/h1": maximum age 0s is not positive`)

	assert.True(t, f.Current(h1).Ready)
	assert.Equal(t, ReasonPending, f.Current(f1).Reason)
}

func TestUnknownServers(t *testing.T) {
	f, _ := newFence(t)
	never := func(*Ticket) Observation { panic("no probe for an unknown server") }
	assertRefused(t, f.Current("no/such"), ReasonUnknown)
	assertRefused(t, f.CurrentBytes([]byte("no/such")), ReasonUnknown)
	assertRefused(t, f.Check("no/such", never), ReasonUnknown)
	assertRefused(t, f.ProbeNow("no/such", never), ReasonUnknown)
	assert.Zero(t, f.Outstanding("no/such"))
	<-f.WhenIdle("no/such")
	_, ok := f.InvalidateServer("no/such")
	assert.False(t, ok)
	_, ok = f.TierGeneration("nosuch")
	assert.False(t, ok)
}

func TestAPanickingProbeGivesItsPlaceBack(t *testing.T) {
	f, _ := newFence(t)
	publish(t, f, h1, ready("one"))
	assert.Panics(t, func() { f.Check(h1, func(*Ticket) Observation { panic("bug in a prober") }) })
	assert.Zero(t, f.Outstanding(h1))
	assert.True(t, f.Current(h1).Ready)
	assert.True(t, f.Check(h1, func(*Ticket) Observation { return ready("two") }).Ready)
}

func TestWhenIdleClosesWithTheLastTicket(t *testing.T) {
	f, _ := newFence(t)
	<-f.WhenIdle(h1)
	one, two := f.BeginProbe(h1), f.BeginProbe(h1)
	idle := f.WhenIdle(h1)
	open := func() bool {
		select {
		case <-idle:
			return false
		default:
			return true
		}
	}
	f.InvalidateServer(h1)
	f.Complete(one, failed())
	f.Complete(one, failed()) // ending twice counts once
	assert.True(t, open())
	two.Abandon()
	assert.False(t, open())
}

func TestGenerationShowsItsEpochsWidestFirst(t *testing.T) {
	assert.Equal(t, "1.14.9", Generation{Global: 1, Tier: 14, Server: 9}.String())
	assert.Equal(t, "1.14", Generation{Global: 1, Tier: 14}.String())
	assert.Equal(t, "1", Generation{Global: 1}.String())
	most := ^uint64(0)
	assert.Equal(t, fmt.Sprintf("%d.%d.%d", most, most, most), Generation{most, most, most}.String())
	assert.True(t, Generation{}.IsZero())
}
