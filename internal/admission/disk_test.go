package admission

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tier-agent/internal/intent"
	"tier-agent/internal/runtimeapi"
	"tier-agent/test/guarantee"
)

// Controls: with the write left out where the record is the same although the last
// one was lost (in phase and in change), the second readmit opened HAProxy; with
// rewrite taken out of Reconcile, the disk never got what it had missed; without the
// look at second in also, the message ended in %!w(<nil>).
func TestADiskThatIsFullClosesAndOpensNothing(t *testing.T) {
	l := newLab(t)
	l.watching(t)
	mended := l.breakDisk(t)
	r := l.quiesce(t, llm, "swap")
	assert.Equal(t, Incomplete, r.Outcome, r.Message)
	assert.Equal(t, CodeNotDurable, r.Code)
	assert.Contains(t, r.Message, "a restart of tier-agent would forget it: the intents cannot be written: ")
	assert.NotContains(t, r.Message, "\n")
	assert.NotContains(t, r.Message, "%!")
	l.shut(t)
	l.journal.clear()
	for _, attempt := range []string{"first", "second"} {
		r = l.readmit(t, llm)
		assert.Equal(t, Refused, r.Outcome, attempt)
		assert.Equal(t, CodeNotDurable, r.Code, attempt)
		assert.Contains(t, r.Message, "llm stays quiesced")
	}
	l.turn(t)
	r = l.readmit(t, llm)
	assert.Equal(t, CodeNotDurable, r.Code, "also after the reconciler has tried to write")
	assert.Empty(guarantee.T(t), l.journal.with("set server"), "nothing was opened")
	l.shut(t)
	l.turn(t)
	assert.Equal(t, unwritten, l.intentOf(t, llm).Note)
	assert.True(t, l.intentOf(t, llm).Unwritten)

	mended()
	assert.Empty(t, l.onDisk(t))
	l.turn(t)
	st := l.intentOf(t, llm)
	assert.Empty(t, st.Note)
	assert.Equal(t, intent.Quiesced, st.Phase)
	assert.Equal(t, []intent.Record{st.Record}, l.onDisk(t))
	next := l.afterKill(t)
	assert.True(guarantee.T(t), next.closed(t, llm))
	assert.Equal(t, Done, next.readmit(t, llm).Outcome)
}

// Control: without durable's about there was a complaint at each look, since the text had
// the name of a temporary file.
func TestAFolderThatCannotBeWrittenIsComplainedOfOnce(t *testing.T) {
	var log bytes.Buffer
	l := newLab(t, func(o *Options, _ *runtimeapi.Options) { o.Log = slog.New(slog.NewTextHandler(&log, nil)) })
	l.watching(t)
	mended := l.breakDisk(t)
	l.quiesce(t, llm, "swap")
	said := func() int { return strings.Count(log.String(), `msg="the intents cannot be written"`) }
	for range 3 {
		l.turn(t)
	}
	assert.Equal(t, 1, said(), log.String())
	mended()
	l.turn(t)
	l.breakDisk(t)
	l.readmit(t, llm)
	l.turn(t)
	assert.Equal(t, 2, said(), "and again when it is new again: %s", log.String())
}

// The disk is full for the one write and has room at the next: then all is
// written, and what the quiesce says is true of its end.
func TestAQuiesceThatIsWrittenInTheEndIsDone(t *testing.T) {
	l := newLab(t)
	mended := l.breakDisk(t)
	l.hap1.with(func() { l.hap1.arrived = func(string) { mended(); l.hap1.arrived = func(string) {} } })
	require.NoError(t, os.Remove(l.hap2.path)) // or both would mend it
	r := l.Quiesce(t.Context(), QuiesceRequest{Target: llm, Reason: "swap", Without: []string{"hap2"}})
	assert.Equal(t, Done, r.Outcome, r.Message)
	assert.Len(guarantee.T(t), l.onDisk(t), 1)
}

// Whoever opens, and wherever the disk fails him: nothing is open that the disk
// says is closed.
//
// Control: with the call of back left out of ended, all of these stayed open; so
// did the rollback and the tier of closed servers as they were before ended.
func TestNothingIsOpenThatTheDiskSaysIsClosed(t *testing.T) {
	rollback := func(l *lab) Result {
		l.hap2.fail(fault{action: refuse, on: "gpu2 state drain", text: "Permission denied"})
		return l.Quiesce(t.Context(), QuiesceRequest{Target: llm, Reason: "swap", Who: "alice", Rollback: true})
	}
	readmit := func(l *lab) Result { return l.readmit(t, llm) }
	for name, c := range map[string]struct {
		quiesced func(*lab)
		do       func(*lab) Result
	}{
		"readmit":  {func(l *lab) { l.quiesced(t, llm) }, readmit},
		"rollback": {func(*lab) {}, rollback},
		"readmit of a tier whose servers are all closed": {func(l *lab) {
			l.quiesced(t, gpu1)
			l.quiesced(t, gpu2)
			l.quiesced(t, llm)
		}, readmit},
	} {
		for _, when := range []string{"put readmitting", "put rolling_back", "drop"} {
			t.Run(name+", "+when, func(t *testing.T) {
				l := newLab(t)
				l.watching(t)
				c.quiesced(l)
				var mended func()
				l.hook(func(what string, _ intent.Record) {
					if what == when && mended == nil {
						mended = l.breakDisk(t)
					}
				})
				r := c.do(l)
				if mended == nil {
					t.Skip("this one does not write that")
				}
				assert.NotEqual(t, Done, r.Outcome, r.Message)
				assert.Equal(t, CodeNotDurable, r.Code, r.Message)
				assert.True(guarantee.T(t), l.closed(t, llm))
				assert.Equal(t, "swap", r.Closure.Reason)
				l.turn(t)
				l.shut(t)
				mended()
				assert.True(guarantee.T(t), l.afterKill(t).closed(t, llm))
				l.turn(t)
				assert.Equal(t, intent.Quiesced, l.intentOf(t, llm).Phase)
				assert.Equal(t, l.intents.store.All(), l.onDisk(t))
			})
		}
	}
}

// A write that fails after the rename has reached the disk, and the record with
// it: a folder that cannot be synced. Drop has then taken the intent from the
// disk, and the tier is closed.
//
// Control: with settled and rewrite left out of Reconcile, the next start was
// open.
func TestAnIntentThatMayBeGoneFromTheDiskIsWrittenAgain(t *testing.T) {
	l := newLab(t)
	l.watching(t)
	l.quiesced(t, llm)
	l.intents.store = &forgetful{Store: l.intents.store, l: l, t: t}
	r := l.readmit(t, llm)
	assert.Equal(t, CodeNotDurable, r.Code, r.Message)
	l.shut(t)
	require.Empty(t, l.onDisk(t))
	l.intents.store = l.intents.store.(*forgetful).Store
	l.turn(t)
	assert.True(guarantee.T(t), l.afterKill(t).closed(t, llm))
}

// forgetful says of a Drop that it failed, and the disk has it all the same;
// after that nothing can be written.
type forgetful struct {
	Store
	l    *lab
	t    *testing.T
	gone bool
}

func (f *forgetful) Drop(intent.Key, uint64) error {
	path := filepath.Join(f.l.stateDir, "intents.json")
	require.NoError(f.t, os.WriteFile(path, []byte(`{"version":1,"serial":99,"intents":[]}`), 0o600))
	f.gone = true
	return intent.ErrNotDurable
}

func (f *forgetful) Put(r intent.Record) (intent.Record, error) {
	if f.gone {
		return r, intent.ErrNotDurable
	}
	return f.Store.Put(r)
}

// Control: with the serial number compared no more in Drop, the readmit was done
// and the change lost.
func TestAnIntentThatWasChangedMeanwhileStaysClosed(t *testing.T) {
	for name, do := range map[string]func(*lab) Result{
		"readmit": func(l *lab) Result { l.quiesced(t, llm); return l.readmit(t, llm) },
		"rollback": func(l *lab) Result {
			l.hap2.fail(fault{action: refuse, on: "gpu2 state drain", text: "Permission denied"})
			return l.Quiesce(t.Context(), QuiesceRequest{Target: llm, Reason: "swap", Who: "alice", Rollback: true})
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t)
			store := l.intents.store
			l.hook(func(what string, r intent.Record) {
				if what == "drop" {
					mine, _ := store.Get(r.Key())
					_, err := store.Put(mine)
					assert.NoError(t, err)
				}
			})
			r := do(l)
			assert.Equal(t, Refused, r.Outcome, r.Message)
			assert.Equal(t, CodeMoved, r.Code)
			assert.Contains(t, r.Message, "the intent has been changed by somebody else")
			l.shut(t)
			assert.Len(guarantee.T(t), l.onDisk(t), 1)
		})
	}
}

// What a look saw before a readmit may come to be told after it.
//
// Control: with change making the record that it does not find, a record without
// a reason was written, and the next start failed on it.
func TestAnIntentThatHasEndedDoesNotComeBack(t *testing.T) {
	l := newLab(t)
	l.watching(t)
	l.hap2.fail(fault{action: refuse, on: "gpu2 state drain", text: "Permission denied"})
	require.Equal(t, Incomplete, l.quiesce(t, llm, "swap").Outcome)
	stale := l.intentOf(t, llm).Record
	require.Equal(t, intent.Quiescing, stale.Phase)
	require.Equal(t, Done, l.readmit(t, llm).Outcome)
	require.NoError(t, l.intents.settle(llm, stale.Serial))
	l.intents.note(llm, seen{place: place{"hap1", "llm/gpu1"}, process: process{pid: 1}, admin: runtimeapi.ForcedDrain})
	_, err := l.intents.phase(llm, intent.Quiesced)
	assert.ErrorIs(t, err, intent.ErrMoved)
	assert.Empty(t, l.onDisk(t))

	// Nor does it end the phase of the intent that came after it.
	l.hap2.fail(fault{action: refuse, on: "gpu2 state drain", text: "Permission denied"})
	require.Equal(t, Incomplete, l.quiesce(t, llm, "again").Outcome)
	require.NoError(t, l.intents.settle(llm, stale.Serial))
	assert.Equal(t, intent.Quiescing, l.intentOf(t, llm).Phase)
}

// Nor does it take a HAProxy for what could not be written to be tried again.
//
// Control: with rewrite left out of tend, the disk never got what it had missed.
func TestWhatCouldNotBeWrittenIsTriedAgainWithoutAHAProxy(t *testing.T) {
	l := newLab(t)
	mended := l.breakDisk(t)
	require.Equal(t, CodeNotDurable, l.quiesce(t, words, "swap").Code)
	l.tend()
	mended()
	require.Empty(t, l.onDisk(t))
	l.tend()
	require.Len(guarantee.T(t), l.onDisk(t), 1)
}
