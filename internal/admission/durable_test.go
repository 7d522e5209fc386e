package admission

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tier-agent/internal/intent"
	"tier-agent/internal/runtimeapi"
	"tier-agent/test/guarantee"
)

// Control: with begin moved below close in Quiesce the file was empty at the
// first line; with note called after the change in visit, Found lacked what was
// about to be drained.
func TestAnIntentIsOnDiskBeforeHAProxyHearsOfIt(t *testing.T) {
	l := newLab(t)
	l.hap2.operator("llm/gpu2", "maint")
	type moment struct {
		haproxy, line string
		disk          []byte
	}
	var mu sync.Mutex // protects moments
	var moments []moment
	for _, h := range l.haproxies() {
		h.with(func() {
			h.arrived = func(line string) {
				disk, err := os.ReadFile(filepath.Join(l.stateDir, "intents.json"))
				assert.NoError(t, err)
				mu.Lock()
				defer mu.Unlock()
				moments = append(moments, moment{h.name, line, disk})
			}
		})
	}
	require.Equal(t, Done, l.quiesce(t, llm, "swap").Outcome)
	before := map[string]map[string]uint32{
		"hap1": {"llm/gpu1": 0, "llm/gpu2": 0}, "hap2": {"llm/gpu1": 0, "llm/gpu2": 1},
	}
	require.NotEmpty(t, moments)
	for _, m := range moments {
		if strings.Contains(m.line, "show stat") {
			continue // the look at the queues, before anything is written
		}
		records := recordsIn(t, m.disk)
		require.Len(guarantee.T(t), records, 1, m.line)
		r := records[0]
		assert.Equal(t, []any{"llm", "swap", "alice", intent.Quiescing}, []any{r.Tier, r.Reason, r.Who, r.Phase}, m.line)
		if strings.Contains(m.line, "set server") {
			assert.Equal(guarantee.T(t), before[m.haproxy], r.Found[m.haproxy], m.line)
			assert.Equal(t, 100, r.Processes[m.haproxy])
		}
	}
	assert.Equal(t, intent.Quiesced, l.onDisk(t)[0].Phase)
	assert.Equal(t, before, l.onDisk(t)[0].Found)
}

// Control: with the call of Model.Close taken out of Restore, the tier was open
// and its server admitted on the first evidence.
func TestG7_ARestartIsClosedBeforeAnythingAnswers(t *testing.T) {
	l := newLab(t)
	l.quiesced(t, llm)
	was, _ := l.model.Closed(llm)
	next := l.afterKill(t)
	is, err := next.model.Closed(llm)
	require.NoError(t, err)
	assert.Equal(guarantee.T(t), was, is, "reason, who and since when")
	assert.False(t, next.closed(t, chat))
	require.True(t, next.monitor.ProbeNow(t.Context(), "llm/gpu1").Ready)
	assert.False(guarantee.T(t), next.admits("llm/gpu1"), "whatever the evidence")
	assert.Empty(t, next.intentOf(t, llm).Note, "nothing was half done")

	require.Equal(t, Done, next.readmit(t, llm).Outcome)
	assert.Equal(t, bothReady, next.states("llm/gpu1"), "the findings have outlived the process, too")
	assert.False(t, next.afterKill(t).closed(t, llm), "nor does an intent that has ended come back")
}

// Whatever the step at which tier-agent is killed: the next start is closed, says
// what was under way, and brings every HAProxy to closed, also where what was on
// its way to HAProxy when the kill came is applied only then.
//
// Control: with the phase Readmitting not written, status did not explain the
// four kills of a readmit; with note left out, no readmit came after (held); with
// reclose left out, HAProxy stayed open.
func TestAKillAtAnyStepEndsClosed(t *testing.T) {
	type stop func(*lab) (reached <-chan struct{}, goOn func())
	atLine := func(on string) stop {
		return func(l *lab) (<-chan struct{}, func()) {
			f := l.hap2.fail(fault{action: hold, on: on})
			return f.met, func() { close(f.release) }
		}
	}
	atWrite := func(what string, nth int32) stop {
		return func(l *lab) (<-chan struct{}, func()) { return l.stopAt(what, nth) }
	}
	quiesce := func(l *lab) Result {
		return l.Quiesce(t.Context(), QuiesceRequest{Target: llm, Reason: "swap", Who: "alice"})
	}
	readmit := func(l *lab) Result { return l.Readmit(t.Context(), ReadmitRequest{Target: llm}) }
	rollback := func(l *lab) Result {
		l.hap1.fail(fault{action: refuse, on: "gpu2 state drain", text: "Permission denied"})
		return l.Quiesce(t.Context(), QuiesceRequest{Target: llm, Reason: "swap", Who: "alice", Rollback: true})
	}
	carriedOn, undone, notRolledBack := "it is carried on", "it is undone", "a rollback was under way"
	for name, c := range map[string]struct {
		do   func(*lab) Result
		stop stop
		note string
	}{
		"quiesce, before HAProxy is read":           {quiesce, atLine("show servers state llm"), carriedOn},
		"quiesce, before what is found is written":  {quiesce, atWrite("put quiescing", 2), carriedOn},
		"quiesce, before the first server's drain":  {quiesce, atLine("gpu1 state drain"), carriedOn},
		"quiesce, between two drains":               {quiesce, atLine("gpu2 state drain"), carriedOn},
		"quiesce, before it is written as done":     {quiesce, atWrite("put quiesced", 1), carriedOn},
		"readmit, before it is written":             {readmit, atWrite("put readmitting", 1), ""},
		"readmit, before the first server's ready":  {readmit, atLine("gpu1 state ready"), undone},
		"readmit, between two servers":              {readmit, atLine("gpu2 state ready"), undone},
		"readmit, open here, not confirmed":         {readmit, atLine("show stat"), undone},
		"readmit, confirmed, the intent not ended":  {readmit, atWrite("drop", 1), undone},
		"rollback, before it is written":            {rollback, atWrite("put rolling_back", 1), carriedOn},
		"rollback, between two servers":             {rollback, atLine("gpu2 state ready"), notRolledBack},
		"rollback, open here, the intent not ended": {rollback, atWrite("drop", 1), notRolledBack},
	} {
		t.Run(name, func(t *testing.T) {
			var dead atomic.Bool
			l := newLab(t, func(o *Options, r *runtimeapi.Options) {
				mortal(&dead)(o, r)
				if !strings.Contains(name, ", confirmed") { // that one has to come
					briefly(o, r)
				}
			})
			if strings.HasPrefix(name, "readmit") {
				l.quiesced(t, llm)
			}
			reached, goOn := c.stop(l)
			ended := inBackground(func() Result { return c.do(l) })
			select {
			case <-reached:
			case r := <-ended:
				require.Fail(t, "it never came there", r.Message)
			}
			dead.Store(true)
			next := l.afterKill(t)
			assert.True(guarantee.T(t), next.closed(t, llm))
			st := next.intentOf(t, llm)
			assert.Equal(t, "swap", st.Reason)
			assert.Contains(t, st.Note, c.note)
			if c.note == "" {
				assert.Empty(t, st.Note)
			}
			require.True(t, next.monitor.ProbeNow(t.Context(), "llm/gpu1").Ready)
			assert.False(guarantee.T(t), next.admits("llm/gpu1"))
			goOn()
			<-ended
			for _, h := range l.haproxies() {
				h.heal()
			}

			next.watching(t)
			next.turn(t)
			next.turn(t)
			next.drainedEverywhere(t, "llm/gpu1", "llm/gpu2")
			st = next.intentOf(t, llm)
			assert.Equal(t, intent.Quiesced, st.Phase)
			assert.Empty(t, st.Drift)
			assert.Contains(t, st.Note, c.note, "status still explains")
			r := next.readmit(t, llm)
			assert.Equal(t, Done, r.Outcome, r.Message)
			require.Equal(t, Done, next.quiesce(t, llm, "again").Outcome)
			assert.Empty(t, next.intentOf(t, llm).Note, "that was about another intent")
		})
	}
}

func TestAKillBeforeAnythingIsWrittenHasDoneNothing(t *testing.T) {
	var dead atomic.Bool
	l := newLab(t, mortal(&dead))
	reached, goOn := l.stopAt("put quiescing", 1)
	ended := inBackground(func() Result { return l.quiesce(t, llm, "swap") })
	<-reached
	assert.True(guarantee.T(t), l.closed(t, llm), "closed here before the disk is waited for")
	assert.Empty(t, l.journal.with("set server"))
	dead.Store(true)
	next := l.afterKill(t)
	assert.False(t, next.closed(t, llm))
	goOn()
	<-ended
	assert.Empty(t, l.journal.with("set server"))
}

// A kill in the middle of an opening that was to end somebody's maintenance too.
//
// Control: with inMaint taken out of reclose, the server was left in drain, where
// persistent clients reach it.
func TestG10_AKillInAReadmitThatTookAHoldPutsItBack(t *testing.T) {
	var dead atomic.Bool
	l := newLab(t, briefly, mortal(&dead))
	l.hap2.operator("llm/gpu1", "maint")
	l.quiesced(t, llm)
	f := l.hap2.fail(fault{action: hold, on: "gpu2 state ready"})
	ended := inBackground(func() Result { return l.take(t, llm) })
	<-f.met
	require.Equal(t, "ready", l.hap2.state("llm/gpu1").String())
	dead.Store(true)
	next := l.afterKill(t)
	close(f.release)
	<-ended
	next.watching(t)
	next.turn(t)
	assert.Equal(guarantee.T(t), [2]string{"drain(forced)", "maint(forced)"}, next.states("llm/gpu1"))
	assert.Equal(guarantee.T(t), bothDrained, next.states("llm/gpu2"))
	assert.Equal(guarantee.T(t), CodeHeld, next.readmit(t, llm).Code, "it is still theirs")
}

func TestIntentsThatTheConfigurationDoesNotNameAreKeptAndReported(t *testing.T) {
	l := newLab(t)
	l.quiesced(t, llm)
	for _, orphan := range []intent.Record{{Tier: "gone"}, {Tier: "chat", Server: "chat/a9"}} {
		orphan.Reason, orphan.Phase, orphan.Since = "swap", intent.Quiesced, l.intentOf(t, llm).Since
		_, err := l.intents.store.Put(orphan)
		require.NoError(t, err)
	}
	next := l.afterKill(t)
	next.watching(t)
	require.NoError(t, os.Remove(next.hap1.path)) // hap1 cannot be read: nobody's drift
	next.turn(t)
	orphans := map[string]bool{}
	for _, st := range next.Intents() {
		if orphans[st.Tier] = st.Orphan; st.Orphan {
			assert.Empty(t, st.Drift)
		}
	}
	assert.Equal(t, map[string]bool{"gone": true, "chat": true, "llm": false}, orphans)
	assert.False(t, next.closed(t, chat))
	require.Equal(t, Done, next.quiesce(t, words, "swap").Outcome)
	assert.Len(guarantee.T(t), next.onDisk(t), 4, "a write keeps them")
}
