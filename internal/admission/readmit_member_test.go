package admission

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tier-agent/internal/tier"
	"tier-agent/test/guarantee"
)

// A slot that starts disabled is not taken for somebody's hold; one that somebody has
// put in maintenance is.
//
// Negative control: without newcomer in holds, the first readmit was refused as held.
func TestReadmitOpensNewcomers(t *testing.T) {
	p := newPool(t)
	p.serving(t, hostA)
	p.quiesced(t, pool)
	p.resolve(t, "gpu/s2", hostB)
	r := p.readmit(t, pool)
	require.Equal(t, Done, r.Outcome, r.Message)
	p.is(t, "gpu/s1", asOpened)
	p.is(t, "gpu/s2", asOpened)
	p.turn(t)

	p.hap2.operator("gpu/s2", "maint")
	p.turn(t)
	p.quiesced(t, pool)
	r = p.readmit(t, pool)
	assert.Equal(guarantee.T(t), CodeHeld, r.Code, r.Message)
	assert.Contains(t, r.Message, "gpu/s2 is maint(forced,config) on haproxy hap2")
	assert.NotContains(t, r.Message, "gpu/s1")
	r = p.take(t, pool)
	require.Equal(t, Done, r.Outcome, r.Message)
	p.is(t, "gpu/s2", asOpened)
	p.turn(t)
	p.is(t, "gpu/s2", asOpened)
}

// What a partial readmit does not need stays as it started: opened, it would have
// requests until the first check.
//
// Negative control: without that case in opening, it was opened.
func TestAPartialReadmitLeavesNewcomersThatAreNotReady(t *testing.T) {
	p := newPool(t)
	p.serving(t, hostA)
	p.quiesced(t, pool)
	p.resolve(t, "gpu/s2", hostB)
	p.prober.says(hostB+"/", wrongModel)
	r := p.Readmit(t.Context(), ReadmitRequest{Target: pool, Partial: true})
	require.Equal(t, Done, r.Outcome, r.Message)
	p.is(t, "gpu/s1", asOpened)
	p.is(t, "gpu/s2", asStarted)
	p.prober.says(hostB+"/", passed)
	p.prove(t, "gpu/s2")
	p.is(t, "gpu/s2", asOpened)
}

// A kill in the middle of a readmit leaves newcomers open; closed again, they are
// nobody's hold.
//
// Negative control: with the openings of what is quiesced written down, the readmit was
// refused as held.
func TestAKillInAReadmitLeavesNoHold(t *testing.T) {
	p := newPool(t)
	p.resolve(t, "gpu/s1", hostA)
	p.quiesced(t, pool)
	_, err := p.intents.phase(pool, "readmitting")
	require.NoError(t, err)
	p.hap1.operator("gpu/s1", "ready")
	p.hap2.operator("gpu/s1", "ready")
	q := p.next(t)
	assert.True(guarantee.T(t), q.closed(t, pool))
	q.turn(t)
	q.turn(t)
	q.is(t, "gpu/s1", asStarted)
	assert.Empty(t, q.Holds(q.o.Watcher.Views()[0]))
	r := q.readmit(t, pool)
	assert.Equal(t, Done, r.Outcome, r.Message)
	q.is(t, "gpu/s1", asOpened)
}

// A process that comes up with the drain of before has perhaps another host in the
// slot: there must be evidence about that one.
//
// Negative control: with "ready" in reopen, the next host was open until the next look.
func TestADrainThatAReloadBringsBackIsTakenOffOnEvidence(t *testing.T) {
	p := newPool(t)
	p.serving(t, hostA)
	p.quiesced(t, slot1)
	require.Equal(t, Done, p.readmit(t, slot1).Outcome)
	p.hap1.reload()
	p.hap1.resolve("gpu/s1", hostB)
	p.hap2.resolve("gpu/s1", hostB)
	p.hap1.operator("gpu/s1", "drain") // the row of before
	p.journal.clear()
	p.watcher.Turn(t.Context(), "hap1")
	p.watcher.Turn(t.Context(), "hap1")
	assert.Equal(guarantee.T(t), []string{"hap1 set server gpu/s1 state maint"}, p.journal.with("hap1 set server gpu/s1 state"))
	p.prove(t, "gpu/s1")
	p.turn(t)
	p.is(t, "gpu/s1", asOpened)
}

// A tier that has no members yet.
//
// Negative controls: before Invalidate knew of such a tier, the quiesce was refused;
// without the case in Readmit, it said that each of its servers was quiesced by itself.
func TestATierWithoutMembers(t *testing.T) {
	p := newPool(t)
	st := p.model.Status()
	last := st[len(st)-1]
	assert.Equal(t, []any{"pool", 0, false}, []any{last.Name, len(last.Servers), last.Answer.Admit})

	assert.Equal(t, CodeNotQuiesced, p.readmit(t, pool).Code)
	assert.Equal(t, CodeUnknown, p.readmit(t, slot1).Code)
	r := p.Quiesce(t.Context(), QuiesceRequest{Target: pool, Reason: "swap", Who: "alice"})
	require.Equal(t, Done, r.Outcome, r.Message)
	r = p.Drain(t.Context(), DrainRequest{Target: pool, Timeout: time.Minute})
	assert.Equal(t, Done, r.Outcome, r.Message)

	r = p.readmit(t, pool)
	assert.Equal(t, []any{Refused, CodeNotReady}, []any{r.Outcome, r.Code}, r.Message)
	assert.Contains(t, r.Message, "no member")
	assert.True(guarantee.T(t), p.closed(t, pool))

	p.resolve(t, "gpu/s1", hostA)
	p.prove(t, "gpu/s1")
	p.is(t, "gpu/s1", asStarted)
	r = p.readmit(t, pool)
	assert.Equal(t, Done, r.Outcome, r.Message)
	p.is(t, "gpu/s1", asOpened)
}

// What runs on a slot whose host has left is the tier's, too.
//
// Negative control: with the members' streams counted alone, the drain was done at once.
func TestADrainCountsTheStreamsOfWhoHasLeft(t *testing.T) {
	p := newPool(t)
	p.serving(t, hostA)
	p.quiesced(t, pool)
	p.hap1.with(func() { p.hap1.sessions["gpu/s1"] = 2 })
	p.resolve(t, "gpu/s1", "")
	_, err := p.model.Servers(tier.Target{Tier: "pool", Server: "gpu/s1"})
	require.Error(t, err)
	r := p.Drain(t.Context(), DrainRequest{Target: pool, Timeout: time.Second})
	assert.Equal(guarantee.T(t), CodeDrainTimeout, r.Code, r.Message)
	assert.Contains(t, r.Message, "2 streams")
	p.hap1.with(func() { delete(p.hap1.sessions, "gpu/s1") })
	r = p.Drain(t.Context(), DrainRequest{Target: pool, Timeout: time.Minute})
	assert.Equal(t, Done, r.Outcome, r.Message)
}
