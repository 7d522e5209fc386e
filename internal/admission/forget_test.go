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
	"tier-agent/test/guarantee"
)

func (l *lab) forget(t testing.TB, target tier.Target) Result {
	t.Helper()
	return l.Forget(t.Context(), ForgetRequest{Target: target, Who: "carol"})
}

// named is a server as an operator reads it in status, without its tier.
func named(server string) tier.Target { return tier.Target{Server: server} }

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
			assert.Equal(t, `there is no intent of "lml" (did you mean llm?) to be forgotten; status lists those that there are`, l.forget(t, tier.Target{Tier: "lml"}).Message)
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
				assert.Equal(t, []string{"llm/gpu1 is drain(forced)", "llm/gpu2 is drain(forced)"}, holdTexts(l.Holds(l.o.Watcher.Views()[0])))
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
	assert.True(guarantee.T(t), next.closed(t, llm))
	assert.True(guarantee.T(t), next.closed(t, gpu1))
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
	assert.True(guarantee.T(t), l.afterKill(t).closed(t, llm), "it is there, and so is its tier again")

	l.intents.store = &forgetful{Store: l.intents.store, l: l, t: t}
	assert.Equal(t, CodeNotDurable, l.forget(t, llm).Code)
	require.Empty(t, l.onDisk(t), "the write that failed had reached the disk")
	l.intents.store = l.intents.store.(*forgetful).Store
	l.turn(t)
	assert.Len(guarantee.T(t), l.onDisk(t), 1, "what was not forgotten is there")
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
			assert.Equal(t, "a drain of pool is running; nothing was changed", r.Message)
		}
	}))
	p.intentsAre(t, "", "gpu/s1 "+hostA+" gone")

	reached, goOn := p.stopAt("drop", 1)
	ended := inBackground(func() Result { return p.forget(t, slot1) })
	<-reached
	for _, r := range []Result{p.readmit(t, pool), p.drain(t, pool, nil), p.forget(t, slot1)} {
		assert.Equal(t, "a forget of pool (gpu/s1) is running; nothing was changed", r.Message)
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
	assert.Len(guarantee.T(t), l.onDisk(t), 1)
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
		assert.True(guarantee.T(t), p.closed(t, slot1))
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
	assert.True(guarantee.T(t), l.closed(t, gpu1))
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
