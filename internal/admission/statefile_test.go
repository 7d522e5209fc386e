package admission

import (
	"bytes"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tier-agent/internal/intent"
	"tier-agent/internal/observe"
	"tier-agent/internal/runtimeapi"
	"tier-agent/internal/statefile"
	"tier-agent/internal/tier"
	"tier-agent/test/guarantee"
)

// files is a watcher that keeps a server-state file of each HAProxy.
type files struct {
	*lab
	dir string
}

func keeping(t testing.TB, l *lab, change ...func(*observe.Options)) files {
	t.Helper()
	f := files{lab: l, dir: filepath.Join(t.TempDir(), "state")}
	require.NoError(t, os.Mkdir(f.dir, 0o700))
	for _, s := range []string{"llm/gpu1", "llm/gpu2", "chat/a1", "bare/b1"} {
		require.True(t, l.monitor.ProbeNow(t.Context(), s).Ready)
	}
	l.watching(t, append(change, func(o *observe.Options) {
		o.StateFiles = map[string]string{"hap1": f.path("hap1"), "hap2": f.path("hap2")}
		o.Rows = func(shown statefile.Shown) []statefile.Row { return statefile.Compose(l.model, shown) }
	})...)
	return f
}

func (f files) path(instance string) string { return filepath.Join(f.dir, instance) }

func (f files) text(t testing.TB, instance string) string {
	t.Helper()
	text, err := os.ReadFile(f.path(instance))
	require.NoError(t, err)
	return string(text)
}

// rows are the names of the servers that the file has.
func (f files) rows(t testing.TB, instance string) []string {
	t.Helper()
	names := []string{}
	for _, line := range strings.Split(strings.TrimSuffix(f.text(t, instance), "\n"), "\n")[2:] {
		fields := strings.Fields(line)
		names = append(names, fields[1]+"/"+fields[3])
	}
	return names
}

func (f files) wrong(instance int) string { return f.o.Watcher.Views()[instance].StateFile }

// Control: with kept left out of Quiesce the files had no row when it was done;
// left out of Readmit, they still had them.
func TestG7_TheStateFilesFollowBeforeACommandIsDone(t *testing.T) {
	l := newLab(t)
	f := keeping(t, l)
	l.watcher.KeepFiles()
	l.o.Watcher.Look(t.Context())
	assert.Empty(t, f.rows(t, "hap1"))
	require.Equal(t, Done, l.quiesce(t, llm, "swap").Outcome)
	for _, name := range []string{"hap1", "hap2"} {
		assert.Equal(guarantee.T(t), []string{"llm/gpu1", "llm/gpu2"}, f.rows(t, name), "and of what is open, none")
	}
	assert.Contains(t, f.text(t, "hap1"), "\n0 llm 0 gpu1 - 0 8 1 1 0 6 1 0 6 0 0 0 - 18081 -\n", "with nothing that its line says")
	require.Equal(t, Done, l.readmit(t, llm).Outcome)
	assert.Empty(t, f.rows(t, "hap1"))
	assert.Empty(t, f.rows(t, "hap2"))
}

// A reload in the middle of a readmit comes up closed, since the readmit may fail yet.
//
// Control: with the model's quiesce left out of Compose, the rows were gone as soon as
// a look had seen hap1 open.
func TestG7_AReadmitThatClosesAgainLeavesItsRows(t *testing.T) {
	l := newLab(t)
	f := keeping(t, l)
	l.watcher.KeepFiles()
	l.quiesced(t, llm)
	held := l.hap2.fail(fault{action: hold, on: "gpu2 state ready"})
	readmit := inBackground(func() Result { return l.readmit(t, llm) })
	<-held.met
	soon(t, "hap1 is open", func() bool { return l.hap1.state("llm/gpu2") == 0 })
	l.o.Watcher.LookAt(t.Context(), func(name string) bool { return name == "hap1" })
	assert.Equal(guarantee.T(t), []string{"llm/gpu1", "llm/gpu2"}, f.rows(t, "hap1"))
	l.Invalidate(llm)
	close(held.release)
	require.NotEqual(t, Done, (<-readmit).Outcome)
	assert.Equal(guarantee.T(t), []string{"llm/gpu1", "llm/gpu2"}, f.rows(t, "hap1"))
}

// Control: with the look at files left out of keep, there was a file at once.
func TestNoStateFileIsWrittenBeforeTheFirstRound(t *testing.T) {
	l := newLab(t)
	f := keeping(t, l)
	l.quiesced(t, llm)
	assert.NoFileExists(t, f.path("hap1"))
	l.watcher.KeepFiles()
	l.o.Watcher.Look(t.Context())
	assert.Equal(t, []string{"llm/gpu1", "llm/gpu2"}, f.rows(t, "hap1"))
}

// Control: with the age in what is compared, it was written at each look.
func TestAStateFileIsNotWrittenForWhatChangesByItself(t *testing.T) {
	l := newLab(t)
	f := keeping(t, l)
	l.watcher.KeepFiles()
	l.quiesced(t, llm)
	before, err := os.Stat(f.path("hap1"))
	require.NoError(t, err)
	l.hap1.with(func() { l.hap1.age = 3600 })
	l.o.Watcher.Look(t.Context())
	after, err := os.Stat(f.path("hap1"))
	require.NoError(t, err)
	assert.True(t, os.SameFile(before, after))
	l.hap1.operator("chat/a1", "maint")
	l.o.Watcher.Look(t.Context())
	assert.Equal(t, []string{"llm/gpu1", "llm/gpu2", "chat/a1"}, f.rows(t, "hap1"), "what others close has a row, too")
}

// Control: with Stopping not looked at in read (and in Keep), the file was made of
// the old process's servers.
func TestAStateFileIsMadeOfWholeDumpsOfTheProcessThatRuns(t *testing.T) {
	l := newLab(t)
	f := keeping(t, l)
	l.watcher.KeepFiles()
	l.quiesced(t, llm)
	before := f.text(t, "hap2")
	l.hap2.fail(fault{action: half, on: "show servers state"})
	l.o.Watcher.Look(t.Context())
	assert.ErrorIs(t, l.o.Watcher.Views()[1].Err, runtimeapi.ErrIncomplete)
	assert.Equal(guarantee.T(t), before, f.text(t, "hap2"))

	l.hap2.with(func() { l.hap2.ending = true; clear(l.hap2.admin) })
	l.o.Watcher.Look(t.Context())
	seen := l.o.Watcher.Views()[1]
	assert.ErrorContains(t, seen.Err, "process 100 is being replaced")
	assert.Empty(t, seen.StateFile, "that is no fault of the file")
	assert.Equal(t, runtimeapi.ForcedDrain, seen.Servers["llm/gpu1"].Admin, "nor anybody's opening")
	assert.Equal(guarantee.T(t), before, f.text(t, "hap2"))
}

// A reload, and a readmit before the new process has been looked at: what it shows open
// the readmit has opened.
//
// Control: with the row of now not asked for in Forgotten, status blamed the file until
// the next reload.
func TestAReadmitRightAfterAReloadIsNotBlamedOnTheStateFile(t *testing.T) {
	l := newLab(t)
	f := keeping(t, l)
	l.watcher.KeepFiles()
	l.quiesced(t, llm)
	for _, h := range l.haproxies() {
		h.with(func() { h.pid++ }) // it has loaded the file
	}
	require.Equal(t, Done, l.readmit(t, llm).Outcome)
	for range 3 {
		assert.Empty(t, f.wrong(0))
		assert.Empty(t, f.wrong(1))
		l.turn(t)
	}
}

// A server that HAProxy does not have yet has its row before a reload brings it, and the
// drain of that row is ours.
//
// Control: with the servers that are not there left out of showing, the readmit was
// refused: held.
func TestG7_AServerIsQuiescedBeforeHAProxyHasIt(t *testing.T) {
	l := newLab(t)
	f := keeping(t, l)
	l.watcher.KeepFiles()
	specs := l.specs(t)
	s := server("llm", "gpu3")
	s.Target.URL, s.Separate = &url.URL{Scheme: "http", Host: "127.0.0.1:18081"}, false
	specs[0].Servers = append(specs[0].Servers, s)
	l.replace(t, specs)
	gpu3 := tier.Target{Tier: "llm", Server: "llm/gpu3"}
	r := l.Quiesce(t.Context(), QuiesceRequest{Target: gpu3, Reason: "new", Who: "alice"})
	require.Equal(t, Incomplete, r.Outcome, "no HAProxy has confirmed it")
	assert.Contains(t, f.text(t, "hap1"), "\n0 llm 0 gpu3 - 2 8 1 1 0 6 1 0 6 0 0 0 - 18081 -\n")
	for _, h := range l.haproxies() {
		h.with(func() {
			h.pid++
			h.order = append(h.order, "llm/gpu3")
			h.admin["llm/gpu3"] = runtimeapi.ForcedDrain
		})
	}
	l.turn(t)
	assert.Empty(t, l.held())
	assert.Empty(t, l.intentOf(t, gpu3).Drift)
	r = l.readmit(t, gpu3)
	assert.Equal(t, Done, r.Outcome, r.Message)
}

// The emulator forgets its drains at a reload, as a HAProxy that loads no state
// file does.
//
// Control: with Forgotten left out of keep, nothing was said.
func TestAStateFileThatIsNotLoadedIsReported(t *testing.T) {
	var log bytes.Buffer
	l := newLab(t)
	f := keeping(t, l, func(o *observe.Options) { o.Log = slog.New(slog.NewTextHandler(&log, nil)) })
	l.watcher.KeepFiles()
	l.quiesced(t, llm)
	require.Empty(t, f.wrong(1))
	l.hap2.reload()
	l.turn(t)
	assert.Empty(t, f.wrong(1), "it may have been opened since")
	l.turn(t)
	assert.Contains(t, f.wrong(1), "not loaded: its row for llm/gpu1 was there and llm/gpu1 came up open")
	assert.Empty(t, f.wrong(0))
	l.turn(t)
	assert.Contains(t, f.wrong(1), "not loaded", "as long as that process runs")
	assert.Equal(t, 1, strings.Count(log.String(), "does not do its work"), "and logged once")
	l.hap2.with(func() { l.hap2.pid++ }) // a reload that keeps what was closed
	l.turn(t)
	assert.Empty(t, f.wrong(1))
}

// Control: with the error of Keep left out of keep, the quiesce said nothing; with
// unloaded forgotten at a failed write, the warning was gone when the disk was
// back.
func TestAStateFileThatCannotBeWrittenIsReportedAndWrittenLater(t *testing.T) {
	l := newLab(t)
	f := keeping(t, l)
	l.watcher.KeepFiles()
	l.quiesced(t, chat)
	l.hap2.reload()
	l.o.Watcher.Look(t.Context())
	l.o.Watcher.Look(t.Context())
	require.Contains(t, f.wrong(1), "not loaded")
	require.NoError(t, os.Rename(f.dir, f.dir+".away"))
	r := l.quiesce(t, llm, "swap")
	assert.Equal(t, Done, r.Outcome, "HAProxy has it closed")
	assert.Contains(t, r.Message, "; the server-state file of haproxy hap1 is not written: ")
	assert.NotContains(t, r.Message, "\n")
	wrong := f.wrong(0)
	assert.Contains(t, wrong, "not written: ")
	l.o.Watcher.Look(t.Context())
	assert.Equal(t, wrong, f.wrong(0), "the same words, which are not logged again")
	require.NoError(t, os.Rename(f.dir+".away", f.dir))
	l.o.Watcher.Look(t.Context())
	assert.Empty(t, f.wrong(0))
	assert.Contains(t, f.wrong(1), "not loaded", "that has not changed")
	assert.Equal(t, []string{"llm/gpu1", "llm/gpu2", "chat/a1"}, f.rows(t, "hap1"))
}

// waking counts how often the watcher is woken.
type waking struct {
	Watcher
	wakes int
}

func (w *waking) Wake() {
	w.wakes++
	w.Watcher.Wake()
}

// A reload that has lost the drain, with tier-agent alive: closed again, and in
// the file again.
//
// Control: with Wake left out of reclose, the file waited for the next look.
func TestTheReconcilersDoingReachesTheStateFile(t *testing.T) {
	l := newLab(t)
	f := keeping(t, l)
	l.watcher.KeepFiles()
	l.quiesced(t, llm)
	l.hap2.reload()
	spy := &waking{Watcher: l.o.Watcher}
	l.o.Watcher = spy
	l.turn(t)
	assert.Equal(t, 1, spy.wakes, "it wakes the watcher")
	l.turn(t)
	assert.Equal(t, []string{"llm/gpu1", "llm/gpu2"}, f.rows(t, "hap2"))
	assert.Equal(t, intent.Quiesced, l.intentOf(t, llm).Phase)
}
