package admission

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tier-agent/internal/intent"
	"tier-agent/internal/tier"
	"tier-agent/test/guarantee"
)

// The intent of a member goes with its address.
//
// Negative control: without follow the intent stayed behind and closed nothing.
func TestAnIntentFollowsItsMember(t *testing.T) {
	p := newPool(t)
	p.serving(t, hostA, hostB)
	p.quiesced(t, slot1)

	// To another slot, which was open for somebody else.
	for _, h := range p.haproxies() {
		h.resolve("gpu/s1", "")
		h.resolve("gpu/s2", hostA)
	}
	p.turn(t)
	p.intentsAre(t, "gpu/s2 "+hostA)
	assert.True(guarantee.T(t), p.closed(t, slot2))
	p.turn(t)
	for _, h := range p.haproxies() {
		assert.NotZero(guarantee.T(t), h.state("gpu/s2")&forced, "closed on %s", h.name)
	}
	p.prove(t, "gpu/s2")
	a, _ := p.model.Server([]byte("gpu/s2"))
	assert.False(guarantee.T(t), a.Admit)

	// Nowhere.
	p.resolve(t, "gpu/s2", "")
	p.intentsAre(t, "gpu/s2 "+hostA+" gone")
	assert.Equal(t, hostA, p.intentOf(t, slot2).Host)

	// And back, in a third slot.
	p.resolve(t, "gpu/s3", hostA)
	p.intentsAre(t, "gpu/s3 "+hostA)
	p.prove(t, "gpu/s3")
	p.is(t, "gpu/s3", asStarted)
	target := pool
	target.Server = "gpu/s3"
	r := p.readmit(t, target)
	assert.Equal(t, Done, r.Outcome, r.Message)
	p.is(t, "gpu/s3", asOpened)
	p.intentsAre(t)

	// Nor is anything left of it in the slots that it has been in.
	p.resolve(t, "gpu/s1", hostB)
	p.resolve(t, "gpu/s2", hostC)
	p.prove(t, "gpu/s1", "gpu/s2")
	p.is(t, "gpu/s1", asOpened)
	p.is(t, "gpu/s2", asOpened)
}

// Negative control: without the case of a member in align, the next host was quiesced.
func TestAnIntentThatIsNowhereHoldsAgain(t *testing.T) {
	p := newPool(t)
	p.serving(t, hostA)
	p.quiesced(t, slot1)
	p.resolve(t, "gpu/s1", hostB)
	st := p.intentOf(t, slot1)
	assert.True(t, st.Stale)
	assert.Equal(t, "swap", st.Reason)
	assert.False(t, p.closed(t, slot1))
	p.prove(t, "gpu/s1")
	p.is(t, "gpu/s1", asOpened)

	q := p.next(t) // a start in between changes nothing
	q.prove(t, "gpu/s1")
	q.intentsAre(t, "gpu/s1 "+hostA+" gone")
	q.is(t, "gpu/s1", asOpened)

	q.resolve(t, "gpu/s1", hostA)
	q.intentsAre(t, "gpu/s1 "+hostA)
	assert.True(guarantee.T(t), q.closed(t, slot1))
	q.turn(t)
	for _, h := range q.haproxies() {
		assert.NotZero(guarantee.T(t), h.state("gpu/s1")&forced, "closed on %s", h.name)
	}
}

// Who has the slot next may be quiesced as well: both intents stand.
//
// Negative controls: without makeRoom the first was forgotten, and its host served when it
// was back; without what it hands over, readmitting the second was refused as held.
func TestTwoHostsOfOneSlotAreQuiesced(t *testing.T) {
	p := newPool(t)
	p.serving(t, hostA)
	p.quiesced(t, slot1)
	for _, h := range p.haproxies() { // it is drained still, for the first
		h.resolve("gpu/s1", hostB)
	}
	p.o.Watcher.Look(t.Context())
	p.discover(t.Context())
	p.quiesced(t, slot1)
	assert.ElementsMatch(t, []string{hostA, ""}, []string{p.Intents()[0].Host, p.Intents()[1].Host})

	r := p.readmit(t, slot1)
	assert.Equal(t, Done, r.Outcome, r.Message)
	p.is(t, "gpu/s1", asOpened)
	p.resolve(t, "gpu/s2", hostA)
	p.prove(t, "gpu/s2")
	assert.True(guarantee.T(t), p.closed(t, slot2))
	p.intentsAre(t, "gpu/s2 "+hostA)
}

// Negative control: without the bound there were 101.
func TestIntentsOfHostsThatAreGoneAreBounded(t *testing.T) {
	p := newPool(t)
	since := time.Now()
	for n := range maxGone + 1 {
		server := fmt.Sprintf("gpu/s1@192.0.2.%d:1", n)
		_, err := p.intents.store.Put(intent.Record{
			Tier: pool.Tier, Server: server, Addresses: map[string]string{server: fmt.Sprintf("192.0.2.%d:1", n)},
			Reason: "swap", Who: "alice", Since: since.Add(time.Duration(n) * time.Second), Phase: intent.Quiesced, Gone: true,
		})
		require.NoError(t, err)
	}
	p.serving(t, hostA)
	all := p.intents.store.All()
	require.Len(t, all, maxGone)
	for _, r := range all {
		assert.NotEqual(t, "gpu/s1@192.0.2.0:1", r.Server, "the oldest goes")
	}
}

// A reload may give all hosts other slots: no intent is lost over that, nor the one
// that holds by the other.
//
// Negative controls: with one record moved after the other, the first was overwritten,
// and the host that it was about served; without inherit, readmitting the second was
// refused as held.
func TestIntentsOfMembersThatChangePlaces(t *testing.T) {
	for name, c := range map[string]struct {
		now  [3]string // who is in the slots after that
		want []string
	}{
		"two":                {[3]string{hostB, hostA, hostC}, []string{"gpu/s1 " + hostB, "gpu/s2 " + hostA}},
		"all":                {[3]string{hostB, hostC, hostA}, []string{"gpu/s1 " + hostB, "gpu/s3 " + hostA}},
		"all, the other way": {[3]string{hostC, hostA, hostB}, []string{"gpu/s2 " + hostA, "gpu/s3 " + hostB}},
		"one has left":       {[3]string{"", hostA, hostC}, []string{"gpu/s1 " + hostB + " gone", "gpu/s2 " + hostA}},
		"the other has":      {[3]string{hostB, "", hostC}, []string{"gpu/s1 " + hostB, "gpu/s2 " + hostA + " gone"}},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPool(t)
			p.serving(t, hostA, hostB, hostC)
			for _, target := range []string{"gpu/s1", "gpu/s2"} {
				aim := pool
				aim.Server = target
				p.quiesced(t, aim)
			}
			for n, slot := range []string{"gpu/s1", "gpu/s2", "gpu/s3"} {
				for _, h := range p.haproxies() {
					h.resolve(slot, c.now[n])
				}
			}
			p.turn(t)
			slots := []string{}
			for n, host := range c.now {
				if host != "" {
					slots = append(slots, []string{"gpu/s1", "gpu/s2", "gpu/s3"}[n])
				}
			}
			p.prove(t, slots...)
			p.turn(t)
			records := []string{}
			for _, r := range p.intents.store.All() {
				at := r.Server + " " + r.Addresses["gpu/s1"] + r.Addresses["gpu/s2"] + r.Addresses["gpu/s3"]
				if r.Gone {
					at += " gone"
				}
				records = append(records, at)
			}
			assert.ElementsMatch(guarantee.T(t), c.want, records)
			for n, slot := range []string{"gpu/s1", "gpu/s2", "gpu/s3"} {
				if c.now[n] == "" {
					continue
				}
				a, _ := p.model.Server([]byte(slot))
				assert.Equal(guarantee.T(t), c.now[n] == hostC, a.Admit, "%s has %s", slot, c.now[n])
				for _, h := range p.haproxies() {
					assert.Equal(guarantee.T(t), c.now[n] == hostC, h.state(slot)&forced == 0, "%s has %s on %s: %s", slot, c.now[n], h.name, h.state(slot))
				}
			}
			q := p.next(t)
			require.Len(guarantee.T(t), q.intents.store.All(), 2, "on disk")

			// Each is readmitted by itself, and no drain of ours counts as held.
			for n, slot := range []string{"gpu/s1", "gpu/s2", "gpu/s3"} {
				if aim := (tier.Target{Tier: "pool", Server: slot}); c.now[n] == hostA || c.now[n] == hostB {
					r := q.readmit(t, aim)
					assert.Equal(t, Done, r.Outcome, r.Message)
					q.turn(t)
				}
			}
			q.prove(t, slots...)
			for _, slot := range slots {
				q.is(t, slot, asOpened)
			}
		})
	}
}
