package admission

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tier-agent/test/guarantee"
)

// Control: with `return true` in meets, or the look at Gone taken out of align, the
// tier that came back with another address was closed; with Close taken out of
// align, the one with the same address was open.
func TestAnIntentIsOfAnAddress(t *testing.T) {
	l := newLab(t)
	before := l.specs(t)
	l.quiesced(t, llm)
	assert.Equal(t, map[string]string{"llm/gpu1": "llm:80", "llm/gpu2": "llm:80"}, l.onDisk(t)[0].Addresses)

	l.replace(t, gone(before, "llm"))
	st := l.intentOf(t, llm)
	assert.Equal(t, []bool{true, false, true}, []bool{st.Orphan, st.Stale, l.onDisk(t)[0].Gone})
	l.drainedEverywhere(t, "llm/gpu1", "llm/gpu2")

	l.replace(t, at(before, "llm", "other"))
	assert.False(t, l.closed(t, llm))
	st = l.intentOf(t, llm)
	assert.Equal(t, []any{false, true, "swap", "alice"}, []any{st.Orphan, st.Stale, st.Reason, st.Who})
	assert.Empty(t, st.Drift)

	l.replace(t, before)
	assert.True(guarantee.T(t), l.closed(t, llm), "what was quiesced is there again")
	closure, err := l.model.Closed(llm)
	require.NoError(t, err)
	assert.Equal(t, "alice", closure.Who)
	assert.False(t, l.onDisk(t)[0].Gone)
	assert.Equal(t, Done, l.readmit(t, llm).Outcome)
	assert.Equal(t, bothReady, l.states("llm/gpu1"), "as it was found, long ago")
	assert.Empty(t, l.Intents())
}

// The same where tier-agent was restarted in between.
func TestAnIntentIsOfAnAddressOverARestart(t *testing.T) {
	l := newLab(t)
	before := l.specs(t)
	l.quiesced(t, llm)
	l.replace(t, gone(before, "llm"))
	next := l.afterKill(t)
	assert.True(guarantee.T(t), next.closed(t, llm), "the same address")
	assert.False(t, next.onDisk(t)[0].Gone)

	next.replace(t, gone(before, "llm"))
	next.replace(t, at(before, "llm", "other"))
	require.False(t, next.closed(t, llm))
	assert.True(guarantee.T(t), next.afterKill(t).closed(t, llm), "the file has the first address again")
}

// Closed is the safe side: an intent follows the address of a name that stays.
func TestWhatIsQuiescedStaysSoWhileItsAddressIsEdited(t *testing.T) {
	l := newLab(t)
	before := l.specs(t)
	l.quiesced(t, llm)
	l.quiesced(t, gpu1)
	l.replace(t, at(before, "llm", "other"))
	assert.True(guarantee.T(t), l.closed(t, llm))
	assert.True(guarantee.T(t), l.closed(t, gpu1))
	for _, r := range l.onDisk(t) {
		assert.Equal(t, "other:80", r.Addresses["llm/gpu1"])
	}
	// It is about the new address now.
	l.replace(t, gone(before, "llm"))
	l.replace(t, before)
	assert.False(t, l.closed(t, llm))
	l.replace(t, at(before, "llm", "other"))
	assert.True(guarantee.T(t), l.closed(t, llm))
	assert.True(guarantee.T(t), l.closed(t, gpu1))
}

// Of a record from before addresses were written nobody knows.
func TestAnIntentWithoutAnAddressHolds(t *testing.T) {
	l := newLab(t)
	before := l.specs(t)
	l.quiesced(t, llm)
	r, _ := l.intents.store.Get(key(llm))
	r.Addresses = nil
	_, err := l.intents.store.Put(r)
	require.NoError(t, err)
	l.replace(t, gone(before, "llm"))
	l.replace(t, at(before, "llm", "other"))
	assert.True(guarantee.T(t), l.closed(t, llm))
}

// Control: with get made a plain look at the store, the newcomer's quiesce was the
// old one's, its drain in HAProxy counted as ours, and its reason was the old one.
func TestAQuiesceOfANewcomerTakesTheOldIntentsPlace(t *testing.T) {
	l := newLab(t)
	before := l.specs(t)
	l.quiesced(t, llm)
	l.replace(t, gone(before, "llm"))
	l.replace(t, at(before, "llm", "other"))
	l.watching(t)
	l.turn(t)
	assert.False(t, l.closed(t, llm), "and the reconciler leaves it alone")
	assert.Equal(t, []string{"llm/gpu1 is drain(forced)", "llm/gpu2 is drain(forced)"},
		holdTexts(l.Holds(l.o.Watcher.Views()[0])), "what closes it in HAProxy is nobody's now")
	assert.Equal(t, CodeNotQuiesced, l.readmit(t, llm).Code)

	require.Equal(t, Done, l.quiesce(t, llm, "again").Outcome)
	records := l.onDisk(t)
	require.Len(t, records, 1)
	assert.Equal(t, []any{"again", false, "other:80"}, []any{records[0].Reason, records[0].Gone, records[0].Addresses["llm/gpu1"]})
	assert.Equal(guarantee.T(t), CodeHeld, l.readmit(t, llm).Code)
	r := l.Readmit(t.Context(), ReadmitRequest{Target: llm, Who: "bob", TakeHold: true})
	assert.Equal(t, Done, r.Outcome, r.Message)
	assert.Empty(t, l.Intents())
}
