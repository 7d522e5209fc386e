package admission

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tier-agent/internal/intent"
	"tier-agent/internal/runtimeapi"
	"tier-agent/internal/tier"
)

func (l *lab) forget(t testing.TB, target tier.Target) Result {
	t.Helper()
	return l.Forget(t.Context(), ForgetRequest{Target: target, Who: "carol"})
}

// named is a server as an operator reads it in status, without its tier.
func named(server string) tier.Target { return tier.Target{Server: server} }

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

// goes gives a slot a host, and has the model follow, but HAProxy left as it is.
func (p *pooled) goes(t testing.TB, slot, host string) {
	t.Helper()
	for _, h := range p.haproxies() {
		h.resolve(slot, host)
	}
	p.o.Watcher.Look(t.Context())
	p.discover(t.Context())
}

// What has left the configuration, or has come back as something else, is forgotten for
// good. HAProxy stays as it is: what is drained there is shown, as somebody else's.
//
// Control: with drop left out of forget the intent was there, and closed the tier again;
// with the closed places left out of remains the answer did not say what was left.
func TestAnIntentThatClosesNothingIsForgotten(t *testing.T) {
	for name, now := range map[string]func([]tier.Spec) []tier.Spec{
		"orphan": func(s []tier.Spec) []tier.Spec { return gone(s, "llm") },
		"stale":  func(s []tier.Spec) []tier.Spec { return at(s, "llm", "other") },
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t)
			l.watching(t)
			before := l.specs(t)
			l.quiesced(t, llm)
			l.replace(t, gone(before, "llm"))
			l.replace(t, now(before))
			r := l.forget(t, llm)
			assert.Equal(t, Done, r.Outcome, r.Message)
			assert.Equal(t, []any{llm, "carol", CodeOK}, []any{r.Target, r.By, r.Code})
			assert.Equal(t, `the intent of llm, by alice for "swap" is forgotten: it closed nothing, and what it was about is not closed again when it is back; `+
				"what HAProxy still has closed stays so, as a hold (llm/gpu1 is drain(forced) on haproxy hap1, llm/gpu2 is drain(forced) on haproxy hap1, "+
				"llm/gpu1 is drain(forced) on haproxy hap2, llm/gpu2 is drain(forced) on haproxy hap2): end it there, or with --take-hold at a readmit", r.Message)
			require.Len(t, r.HAProxy, 2)
			assert.Equal(t, ServerResult{Server: "llm/gpu1", Before: "drain(forced)", After: "drain(forced)"}, r.HAProxy[0].Servers[0])
			assert.Empty(t, l.Intents())
			assert.Empty(t, l.onDisk(t))
			assert.Equal(t, CodeUnknown, l.forget(t, llm).Code, "once")

			l.replace(t, before)
			next := l.afterKill(t)
			next.watching(t)
			for _, l := range []*lab{l, next} {
				assert.False(t, l.closed(t, llm), "nothing closes it when it is back")
				l.turn(t)
				l.drainedEverywhere(t, "llm/gpu1", "llm/gpu2")
				assert.Equal(t, []string{"llm/gpu1 is drain(forced)", "llm/gpu2 is drain(forced)"}, holdTexts(l.Holds(l.o.Watcher.Observed()[0])))
			}
			assert.Empty(t, l.journal.with("set server"))
			require.Equal(t, Done, next.quiesce(t, llm, "again").Outcome)
			assert.Equal(t, CodeHeld, next.readmit(t, llm).Code)
			assert.Equal(t, Done, next.take(t, llm).Outcome)
			assert.Equal(t, bothReady, next.states("llm/gpu1"))
		})
	}
}

// Control: with that refusal taken out of forget, the record was gone while its tier was
// closed, and a restart opened that.
func TestG7_AnIntentThatHoldsIsNotForgotten(t *testing.T) {
	l := newLab(t)
	l.quiesced(t, llm)
	l.quiesced(t, gpu1)
	for _, target := range []tier.Target{llm, gpu1, named("llm/gpu1")} {
		r := l.forget(t, target)
		assert.Equal(t, []any{Refused, CodeInForce}, []any{r.Outcome, r.Code}, r.Message)
		assert.Contains(t, r.Message, "readmit it")
	}
	assert.True(t, l.forget(t, gpu1).Quiesced)
	next := l.afterKill(t)
	assert.True(t, next.closed(t, llm))
	assert.True(t, next.closed(t, gpu1))
}

// Controls: with the address left out of names, the names with one were of nothing; with
// the tier not asked for in names, "" was the tier that was left.
func TestAMemberThatIsGoneIsForgottenByItsAddress(t *testing.T) {
	p := newPool(t)
	p.serving(t, hostA)
	p.quiesced(t, slot1)
	p.resolve(t, "gpu/s1", hostB)
	p.prove(t, "gpu/s1")
	p.quiesced(t, slot1)
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
	p := newPool(t)
	p.serving(t, hostA)
	p.quiesced(t, slot1)
	p.resolve(t, "gpu/s1", hostB)
	p.prove(t, "gpu/s1")
	p.quiesced(t, slot1)
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
	held := holdTexts(p.Holds(p.o.Watcher.Observed()[0]))
	r := p.forget(t, pool)
	require.Equal(t, Done, r.Outcome, r.Message)
	assert.Contains(t, r.Message, "as a hold (gpu/s1 is drain(forced) [config] on haproxy hap1, gpu/s1 is drain(forced) [config] on haproxy hap2)")
	assert.Equal(t, []string{"gpu/s1 is drain(forced) [config]"}, held)
	assert.Equal(t, held, holdTexts(p.Holds(p.o.Watcher.Observed()[0])))
}

// Control: with the error not looked at in remains, the slot's intent was forgotten, and
// the next host was held when HAProxy was back.
func TestForgettingBesideAHAProxyThatCannotBeRead(t *testing.T) {
	p := leftSlot(t, "")
	p.hap2.fail(fault{action: cut, on: "show servers state", times: -1})
	p.turnOf(t, "hap1")
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

// Controls: with the error of drop taken for none, the answer was done, and the next start
// had the intent; with drop not telling wrote, what may be gone from the disk was not
// written again.
func TestADiskThatIsFullForgetsNothing(t *testing.T) {
	l := newLab(t)
	l.watching(t)
	before := l.specs(t)
	l.quiesced(t, llm)
	l.replace(t, gone(before, "llm"))
	record := l.intentOf(t, llm).Record
	mended := l.breakDisk(t)
	r := l.forget(t, llm)
	assert.Equal(t, []any{Refused, CodeNotDurable}, []any{r.Outcome, r.Code}, r.Message)
	assert.Equal(t, record, l.intentOf(t, llm).Record)
	assert.Equal(t, unwritten, l.intentOf(t, llm).Note)
	mended()
	assert.True(t, l.afterKill(t).closed(t, llm), "it is there, and so is its tier again")

	l.intents.store = &forgetful{Store: l.intents.store, l: l, t: t}
	assert.Equal(t, CodeNotDurable, l.forget(t, llm).Code)
	require.Empty(t, l.onDisk(t), "the write that failed had reached the disk")
	l.intents.store = l.intents.store.(*forgetful).Store
	l.turn(t)
	assert.Len(t, l.onDisk(t), 1, "what was not forgotten is there")
	assert.Equal(t, Done, l.forget(t, llm).Outcome)
	assert.Empty(t, l.onDisk(t))
}

// Control: with the lane not entered in forget, the record was forgotten under the drain.
func TestForgettingIsOneAtATimeWithTransitionsOfItsTier(t *testing.T) {
	p := leftSlot(t, hostB)
	p.turn(t)
	p.quiesced(t, pool)
	p.drain(t, pool, each(func(read int, _ Progress) {
		if read == 1 {
			r := p.forget(t, slot1)
			require.Equal(t, []any{Refused, CodeBusy}, []any{r.Outcome, r.Code})
			assert.Equal(t, "a drain of this tier is running; nothing was changed", r.Message)
		}
	}))
	p.intentsAre(t, "", "gpu/s1 "+hostA+" gone")

	reached, goOn := p.stopAt("drop", 1)
	ended := inBackground(func() Result { return p.forget(t, slot1) })
	<-reached
	for _, r := range []Result{p.readmit(t, pool), p.drain(t, pool, nil), p.forget(t, slot1)} {
		assert.Equal(t, "a forget of this tier is running; nothing was changed", r.Message)
	}
	goOn()
	assert.Equal(t, Done, (<-ended).Outcome)
	p.intentsAre(t, "")
}

// A quiesce is not kept waiting, and what it writes stands.
//
// Controls: with a forget among what opens, the quiesce ended it; with the serial number
// compared no more in Drop, the changed intent was forgotten, and a restart did not have it.
func TestG7_AQuiesceWhileItsOldIntentIsForgottenStands(t *testing.T) {
	l := newLab(t)
	l.watching(t)
	before := l.specs(t)
	l.quiesced(t, llm)
	l.replace(t, gone(before, "llm"))
	l.replace(t, at(before, "llm", "other"))
	f := l.hap1.fail(fault{action: hold, on: "show servers state"})
	forgetting := inBackground(func() Result { return l.forget(t, llm) })
	<-f.met
	quiescing := inBackground(func() Result { return l.quiesce(t, llm, "again") })
	soon(t, "it closes", func() bool { return l.closed(t, llm) && l.onDisk(t)[0].Reason == "again" })
	close(f.release)
	assert.Equal(t, Done, (<-quiescing).Outcome)
	r := <-forgetting
	assert.Equal(t, []any{Refused, CodeInForce}, []any{r.Outcome, r.Code}, r.Message)

	l.replace(t, gone(before, "llm"))
	store := l.intents.store
	l.hook(func(what string, r intent.Record) {
		if what == "drop" {
			mine, _ := store.Get(r.Key())
			_, err := store.Put(mine)
			assert.NoError(t, err)
		}
	})
	r = l.forget(t, llm)
	assert.Equal(t, []any{Refused, CodeMoved}, []any{r.Outcome, r.Code}, r.Message)
	assert.Len(t, l.onDisk(t), 1)
}

// The host is back before this has its turn, or while it runs. Either the intent holds
// again and stays, or it is forgotten and the host is one like any other.
//
// Controls: with the record not looked up again in the lane, the first was refused only
// for its serial number; without the lane the second was quiesced again.
func TestAHostThatComesBackWhileItIsForgotten(t *testing.T) {
	t.Run("before", func(t *testing.T) {
		p := leftSlot(t, hostB)
		p.turn(t)
		lane := p.lane("pool")
		leave, _ := lane.freeze()
		ended := inBackground(func() Result { return p.forget(t, named("gpu/s1@"+hostA)) })
		soon(t, "it waits", func() bool {
			lane.mu.Lock()
			defer lane.mu.Unlock()
			return lane.waiting > 0
		})
		p.goes(t, "gpu/s1", hostA)
		leave()
		r := <-ended
		assert.Equal(t, []any{Refused, CodeInForce}, []any{r.Outcome, r.Code}, r.Message)
		p.intentsAre(t, "gpu/s1 "+hostA)
		assert.True(t, p.closed(t, slot1))
	})
	t.Run("while", func(t *testing.T) {
		p := leftSlot(t, hostB)
		p.turn(t)
		for _, h := range p.haproxies() {
			h.resolve("gpu/s1", hostA)
		}
		p.o.Watcher.Look(t.Context())
		f := p.hap1.fail(fault{action: hold, on: "show servers state"})
		ended := inBackground(func() Result { return p.forget(t, slot1) })
		<-f.met
		p.discover(t.Context())
		close(f.release)
		r := <-ended
		assert.Equal(t, Done, r.Outcome, r.Message)
		p.turn(t)
		p.prove(t, "gpu/s1")
		assert.False(t, p.closed(t, slot1))
		p.is(t, "gpu/s1", asOpened)
		p.intentsAre(t)
	})
}

// Names of servers are the configuration's, which may have given one to another tier since.
func TestOfSeveralTiersIntentsTheOneThatClosesNothingIsForgotten(t *testing.T) {
	l := newLab(t)
	l.quiesced(t, gpu1)
	put := func(name string) {
		_, err := l.intents.store.Put(intent.Record{
			Tier: name, Server: "llm/gpu1", Reason: "swap", Who: "alice", Since: time.Now(), Phase: intent.Quiesced, Gone: true,
		})
		require.NoError(t, err)
	}
	put("old")
	r := l.forget(t, named("llm/gpu1"))
	assert.Equal(t, Done, r.Outcome, r.Message)
	assert.Equal(t, "old", r.Target.Tier)
	put("old")
	put("older")
	r = l.forget(t, named("llm/gpu1"))
	assert.Equal(t, []any{Refused, CodeInvalid}, []any{r.Outcome, r.Code}, r.Message)
	assert.Equal(t, "tiers old and older both have an intent of llm/gpu1: name the tier as well", r.Message)
	assert.Equal(t, Done, l.forget(t, tier.Target{Tier: "older", Server: "llm/gpu1"}).Outcome)
	assert.True(t, l.closed(t, gpu1))
}

// Control: without forgetLeftOf, the drain of what was forgotten was taken for one of the
// readmit before it, and opened.
func TestG10_WhatIsForgottenIsNoLeftoverOfAReadmit(t *testing.T) {
	l := newLab(t)
	l.watching(t)
	before := l.specs(t)
	l.quiesced(t, llm)
	require.Equal(t, Done, l.readmit(t, llm).Outcome)
	require.NotEmpty(t, l.leftovers)
	l.quiesced(t, llm)
	l.replace(t, gone(before, "llm"))
	l.replace(t, at(before, "llm", "other"))
	require.Equal(t, Done, l.forget(t, llm).Outcome)
	l.hap1.reload() // the file has our rows
	for _, name := range []string{"llm/gpu1", "llm/gpu2"} {
		l.hap1.with(func() { l.hap1.admin[name] = runtimeapi.ForcedDrain })
	}
	l.turn(t)
	l.drainedEverywhere(t, "llm/gpu1", "llm/gpu2")
}

// Once tier-agent is ending nothing is begun.
func TestForgettingEndsWithTierAgent(t *testing.T) {
	l := newLab(t)
	l.watching(t)
	before := l.specs(t)
	l.quiesced(t, llm)
	l.replace(t, gone(before, "llm"))
	f := l.hap1.fail(fault{action: hold, on: "show servers state"})
	ended := inBackground(func() Result { return l.forget(t, llm) })
	<-f.met
	stopped := inBackground(func() bool { l.Stop(context.WithoutCancel(t.Context())); return true })
	r := <-ended
	<-stopped
	assert.Equal(t, []any{Refused, CodeStopped}, []any{r.Outcome, r.Code}, r.Message)
	assert.Len(t, l.onDisk(t), 1)
}
