package admission

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"tier-agent/internal/observe"
	"tier-agent/internal/runtimeapi"
)

// counting is a watcher that counts as the daemon's does.
func (l *lab) counting() *observe.Watcher {
	return observe.New(observe.Options{
		HAProxy: l.o.HAProxy, Every: time.Hour, Log: slog.New(slog.DiscardHandler),
		Quiesced: func(name string) bool { a, known := l.model.Server([]byte(name)); return known && a.Quiesced },
	})
}

// counted looks and counts, as one turn of Run does, and gives what is left by
// instance.
func counted(t testing.TB, w *observe.Watcher) (hap1, hap2 map[string]observe.InFlight) {
	t.Helper()
	w.Turn(t.Context(), "hap1")
	w.Turn(t.Context(), "hap2")
	seen := w.Views()
	return seen[0].InFlight, seen[1].InFlight
}

// Controls: with w.quiesced taken out of toCount, every backend was asked for
// though nothing was quiesced, and gpu2 was counted with gpu1; with the queue taken
// out of inFlightOn, hap2 had nothing.
func TestWatcherCountsWhatIsLeftOnQuiescedServersAlone(t *testing.T) {
	l := newLab(t)
	w := l.counting()
	hap1, hap2 := counted(t, w)
	assert.Empty(t, hap1)
	assert.Empty(t, hap2)
	assert.Empty(t, l.journal.with("show stat"), "nothing is quiesced, and nothing is asked")

	l.quiesced(t, gpu1)
	counted(t, w) // asks once, too, by what clients come back
	l.journal.clear()
	l.hap1.with(func() { l.hap1.sessions["llm/gpu1"], l.hap1.sessions["llm/gpu2"] = 2, 5 })
	l.hap2.with(func() { l.hap2.queue["llm/gpu1"], l.hap2.queue["llm"] = 3, 7 })
	hap1, hap2 = counted(t, w)
	assert.Equal(t, map[string]observe.InFlight{"llm/gpu1": {Streams: 2}}, hap1)
	assert.Equal(t, map[string]observe.InFlight{"llm/gpu1": {Queue: 3}}, hap2, "not the backend's own queue, which may go elsewhere")
	assert.ElementsMatch(t, []string{"hap1 show stat -1 6 -1", "hap2 show stat -1 6 -1"}, l.journal.with("show stat"))

	l.hap1.with(func() { clear(l.hap1.sessions) })
	hap1, _ = counted(t, w)
	assert.Equal(t, map[string]observe.InFlight{"llm/gpu1": {}}, hap1, "counted, and nothing")

	l.readmit(t, gpu1)
	hap1, hap2 = counted(t, w)
	assert.Empty(t, hap1)
	assert.Empty(t, hap2)
}

// Controls: with left begun as a copy of the last, the count of before stood; with
// now.InFlight given on by look whatever process it found, so it did after a reload;
// with the test of the process taken out of count, the new one's was published.
func TestWhatCannotBeCountedIsNotKnown(t *testing.T) {
	l := newLab(t)
	w := l.counting()
	l.quiesced(t, llm)
	l.hap1.with(func() { l.hap1.sessions["llm/gpu1"] = 2 })
	want := map[string]observe.InFlight{"llm/gpu1": {Streams: 2}, "llm/gpu2": {}}
	hap1, hap2 := counted(t, w)
	assert.Equal(t, want, hap1)
	l.hap1.fail(fault{action: cut, on: "show stat"})
	hap1, again := counted(t, w)
	assert.Empty(t, hap1)
	assert.Equal(t, hap2, again, "the other one's is")
	hap1, _ = counted(t, w)
	assert.Equal(t, want, hap1)
	w.Look(t.Context())
	assert.Equal(t, want, w.Views()[0].InFlight, "a look of its own changes nothing of it")

	l.hap1.reload()
	w.Look(t.Context())
	assert.Empty(t, w.Views()[0].InFlight, "another process")
	l.hap1.with(func() {
		l.hap1.arrived = func(line string) {
			if strings.Contains(line, "show stat") {
				l.hap1.reload()
			}
		}
	})
	w.Turn(t.Context(), "hap1")
	assert.Empty(t, w.Views()[0].InFlight, "one that the look has not seen")
	assert.Equal(t, 101, w.Views()[0].Info.PID)
}

// Control: with countWithin taken out of count, the instance's own timeout was
// waited for.
func TestCountingThatHangsHoldsUpNoLook(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	w := l.counting()
	l.quiesced(t, llm)
	l.hap1.fail(fault{action: hang, on: "show stat", times: -1})
	began := time.Now()
	w.Turn(t.Context(), "hap1")
	assert.Less(t, time.Since(began), 10*time.Second, "of 30 s")
	assert.NoError(t, w.Views()[0].Err)
	assert.Equal(t, runtimeapi.ForcedDrain, w.Views()[0].Servers["llm/gpu1"].Admin)
	assert.Empty(t, w.Views()[0].InFlight)
}
