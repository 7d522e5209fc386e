package admission

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tier-agent/internal/intent"
	"tier-agent/internal/tier"
)

// leftSlot is a pool in which the host of slot1 was quiesced and has left. Nothing is done
// about its slot yet, which has the next host, or none.
func leftSlot(t *testing.T, next string) *pooled {
	t.Helper()
	p := newPool(t)
	p.serving(t, hostA)
	p.quiesced(t, slot1)
	p.goes(t, "gpu/s1", next)
	require.Equal(t, hostA, p.intentOf(t, slot1).Host)
	p.is(t, "gpu/s1", map[bool]string{true: asDrained, false: "maint(config,dns)+drain(forced)"}[next != ""])
	return p
}

// quiescedInTurn is a pool in which the first host of slot1 was quiesced, then the next.
func quiescedInTurn(t *testing.T) *pooled {
	t.Helper()
	p := newPool(t)
	p.serving(t, hostA)
	p.quiesced(t, slot1)
	p.resolve(t, "gpu/s1", hostB)
	p.prove(t, "gpu/s1")
	p.quiesced(t, slot1)
	return p
}

// goes gives a slot a host, and has the model follow, but HAProxy left as it is.
func (p *pooled) goes(t testing.TB, slot, host string) {
	t.Helper()
	for _, h := range p.haproxies() {
		h.resolve(slot, host)
	}
	p.o.Watcher.Look(t.Context())
	p.discover(t.Context())
}

// Controls: with the address left out of names, the names with one were of nothing; with
// the tier not asked for in names, "" was the tier that was left.
func TestAMemberThatIsGoneIsForgottenByItsAddress(t *testing.T) {
	p := quiescedInTurn(t)
	p.resolve(t, "gpu/s1", hostC)
	p.prove(t, "gpu/s1")
	p.is(t, "gpu/s1", asOpened)
	p.intentsAre(t, "gpu/s1 "+hostB+" gone", "gpu/s1@"+hostA+" "+hostA+" gone")
	p.told, p.journal.lines = nil, nil

	_, err := p.intents.store.Put(intent.Record{Tier: "old", Reason: "swap", Who: "alice", Since: time.Now(), Phase: intent.Quiesced, Gone: true})
	require.NoError(t, err)
	_, err = p.intents.store.Put(intent.Record{Tier: "old", Server: "old/o1", Reason: "swap", Who: "alice", Since: time.Now(), Phase: intent.Quiesced, Gone: true})
	require.NoError(t, err)
	for _, wrong := range []string{"", "@", "old/o1@", "gpu/s1@" + hostC, "gpu/s1@", "gpu/s2@" + hostA, "@" + hostA, "gpu"} {
		r := p.forget(t, named(wrong))
		assert.Equal(t, []any{Refused, CodeUnknown}, []any{r.Outcome, r.Code}, wrong)
	}
	require.Len(t, p.onDisk(t), 4)
	for _, old := range []tier.Target{{Tier: "old"}, named("old/o1")} {
		require.Equal(t, Done, p.forget(t, old).Outcome)
	}
	for _, verb := range []func(tier.Target) Result{
		func(target tier.Target) Result { return p.readmit(t, target) },
		func(target tier.Target) Result { return p.quiesce(t, target, "swap") },
		p.Invalidate,
	} {
		assert.Equal(t, CodeUnknown, verb(tier.Target{Tier: "pool", Server: "gpu/s1@" + hostA}).Code, "such a name is for forget alone")
	}
	p.told = nil
	r := p.forget(t, named("gpu/s1@"+hostA))
	assert.Equal(t, Done, r.Outcome, r.Message)
	assert.Equal(t, tier.Target{Tier: "pool", Server: "gpu/s1@" + hostA}, r.Target)
	p.intentsAre(t, "gpu/s1 "+hostB+" gone")
	r = p.forget(t, tier.Target{Tier: "pool", Server: "gpu/s1@" + hostB})
	assert.Equal(t, Done, r.Outcome, r.Message)
	assert.Contains(t, r.Message, "while it was "+hostB)
	p.intentsAre(t)
	assert.Empty(t, p.told, "no transition: it is not counted as one")
	assert.Empty(t, p.journal.with("set server"))
	p.turn(t)
	p.is(t, "gpu/s1", asOpened)

	q := p.next(t)
	q.resolve(t, "gpu/s2", hostA)
	q.prove(t, "gpu/s2")
	assert.False(t, q.closed(t, slot2))
	q.is(t, "gpu/s2", asOpened)
}

// The host whose record had made room is back in the slot, and the next one's makes room.
//
// Control: with the last loop left out of assign, the second had the first one's address in
// its name, and was forgotten in its place.
func TestAHostIsForgottenByNoOthersAddress(t *testing.T) {
	p := quiescedInTurn(t)
	p.resolve(t, "gpu/s1", hostA)
	p.intentsAre(t, "gpu/s1 "+hostA, "gpu/s1@"+hostB+" "+hostB+" gone")
	p.resolve(t, "gpu/s1", hostC)
	p.turn(t)
	r := p.forget(t, named("gpu/s1@"+hostA))
	assert.Equal(t, Done, r.Outcome, r.Message)
	assert.Contains(t, r.Message, "while it was "+hostA)
	p.intentsAre(t, "gpu/s1@"+hostB+" "+hostB+" gone")
}

// A slot that is drained still for the host that has left is met so by the next one:
// without the record nothing would say that this is no hold.
//
// Control: with that refusal taken out of remains, the next host was held for ever.
func TestG10_ADrainThatOnlyTheIntentExplainsKeepsIt(t *testing.T) {
	for name, next := range map[string]string{"the next host is there": hostB, "nobody is": ""} {
		t.Run(name, func(t *testing.T) {
			p := leftSlot(t, next)
			r := p.forget(t, slot1)
			assert.Equal(t, []any{Refused, CodeStillDrained}, []any{r.Outcome, r.Code}, r.Message)
			assert.Contains(t, r.Message, "gpu/s1 is "+p.hap1.state("gpu/s1").String()+" on haproxy hap1")
			p.intentsAre(t, "gpu/s1 "+hostA+" gone")
			p.turn(t)
			assert.Equal(t, Done, p.forget(t, slot1).Outcome)
			p.resolve(t, "gpu/s1", hostB)
			p.prove(t, "gpu/s1")
			p.is(t, "gpu/s1", asOpened)
		})
	}
	t.Run("its tier is quiesced", func(t *testing.T) {
		p := leftSlot(t, hostB)
		p.quiesced(t, pool)
		p.turn(t)
		assert.Equal(t, CodeStillDrained, p.forget(t, slot1).Code, "as long as that is so")
		r := p.readmit(t, pool)
		require.Equal(t, Done, r.Outcome, r.Message)
		p.turn(t)
		p.is(t, "gpu/s1", asOpened)
		assert.Equal(t, Done, p.forget(t, slot1).Outcome)
	})
}

// Control: with false in alsoFound, the tier had to be readmitted first.
func TestADrainThatAnotherIntentExplainsKeepsNoIntent(t *testing.T) {
	p := newPool(t)
	p.serving(t, hostA)
	p.quiesced(t, slot1)
	p.quiesced(t, pool)
	p.goes(t, "gpu/s1", hostB)
	r := p.forget(t, slot1)
	require.Equal(t, Done, r.Outcome, r.Message)
	assert.NotContains(t, r.Message, "hold")
	p.is(t, "gpu/s1", asDrained)
	p.prove(t, "gpu/s1")
	r = p.readmit(t, pool)
	assert.Equal(t, Done, r.Outcome, r.Message)
	p.is(t, "gpu/s1", asOpened)
}

// The intent of a whole tier explains nothing to a host that has come to one of its slots.
// What is drained there was a hold before, and is told.
//
// Control: with the drain of a slot left out of what is closed in remains, it was not.
func TestForgettingATierWhoseMembersAreOthers(t *testing.T) {
	p := newPool(t)
	p.serving(t, hostA)
	p.quiesced(t, pool)
	p.replace(t, gone(p.withMembers(), "pool"))
	p.goes(t, "gpu/s1", hostB)
	require.True(t, p.intentOf(t, pool).Stale)
	held := holdTexts(p.Holds(p.o.Watcher.Views()[0]))
	r := p.forget(t, pool)
	require.Equal(t, Done, r.Outcome, r.Message)
	assert.Contains(t, r.Message, "as a hold (gpu/s1 is drain(forced) [config] on haproxy hap1, gpu/s1 is drain(forced) [config] on haproxy hap2)")
	assert.Equal(t, []string{"gpu/s1 is drain(forced) [config]"}, held)
	assert.Equal(t, held, holdTexts(p.Holds(p.o.Watcher.Views()[0])))
}

// Control: with the error not looked at in remains, the slot's intent was forgotten, and
// the next host was held when HAProxy was back.
func TestForgettingBesideAHAProxyThatCannotBeRead(t *testing.T) {
	p := leftSlot(t, "")
	p.hap2.fail(fault{action: cut, on: "show servers state", times: -1})
	p.watcher.Turn(t.Context(), "hap1")
	r := p.forget(t, slot1)
	assert.Equal(t, []any{Refused, CodeHAProxy}, []any{r.Outcome, r.Code}, r.Message)
	assert.Contains(t, r.Message, "haproxy hap2 cannot be read")

	// Of a tier that is no longer there nobody is kept out by it.
	before := p.specs(t)
	p.hap2.heal()
	p.quiesced(t, llm)
	p.hap2.fail(fault{action: cut, on: "show servers state", times: -1})
	p.replace(t, gone(append(before, p.withMembers()[len(before)]), "llm"))
	r = p.forget(t, llm)
	assert.Equal(t, Done, r.Outcome, r.Message)
	assert.Contains(t, r.Message, "; what is still closed on haproxy hap2 is not known")
	require.Len(t, r.HAProxy, 2)
	assert.NotEmpty(t, r.HAProxy[1].Error)

	p.hap2.heal()
	p.turn(t)
	assert.Equal(t, Done, p.forget(t, slot1).Outcome)
	p.resolve(t, "gpu/s1", hostB)
	p.prove(t, "gpu/s1")
	p.is(t, "gpu/s1", asOpened)
}
