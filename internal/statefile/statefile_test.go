package statefile

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tier-agent/internal/runtimeapi"
	"tier-agent/test/guarantee"
)

// shut gives a row to each server that is closed, as it is.
func shut(shown Shown) (rows []Row) {
	for _, s := range shown.Servers {
		if s.Admin != 0 {
			rows = append(rows, Row{Backend: s.Backend, Server: s.Server, Admin: s.Admin, Port: s.Port, Checked: true})
		}
	}
	return rows
}

// dump is gpu1 in drain, gpu2 open and gpu3 in maintenance.
func dump() *runtimeapi.ServersState {
	server := func(name string, admin runtimeapi.AdminState) runtimeapi.ServerState {
		return runtimeapi.ServerState{Backend: "llm", Server: name, Address: "127.0.0.1", Port: 8000, Admin: admin}
	}
	return &runtimeapi.ServersState{Servers: []runtimeapi.ServerState{
		server("gpu1", runtimeapi.ForcedDrain), server("gpu2", 0), server("gpu3", runtimeapi.ForcedMaint),
	}}
}

const (
	gpu1 = "0 llm 0 gpu1 - 2 8 1 1 0 6 1 0 6 0 0 0 - 8000 -\n"
	gpu3 = "0 llm 0 gpu3 - 2 1 1 1 0 6 1 0 6 0 0 0 - 8000 -\n"
)

func kept(t testing.TB, f *File, d *runtimeapi.ServersState) bool {
	t.Helper()
	wrote, err := f.Keep(d)
	require.NoError(t, err)
	return wrote
}

func text(t testing.TB, f *File) string {
	t.Helper()
	data, err := os.ReadFile(f.Path())
	require.NoError(t, err)
	return string(data)
}

func newFile(t testing.TB) *File { return New(filepath.Join(t.TempDir(), "edge.state"), shut) }

// The form is that of the state file's version 1 (management guide 9.3).
func TestTheFileHasTheRowsThatAreComposed(t *testing.T) {
	f := newFile(t)
	assert.True(t, kept(t, f, dump()))
	assert.Equal(guarantee.T(t), "1\n"+header+"\n"+gpu1+gpu3, text(t, f))
	info, err := os.Stat(f.Path())
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o644), info.Mode().Perm(), "HAProxy may run as another user")

	open := dump()
	open.Servers[0].Admin, open.Servers[2].Admin = 0, 0
	assert.True(t, kept(t, f, open))
	assert.Equal(t, "1\n"+header+"\n", text(t, f), "HAProxy takes a file without rows")
	assert.False(t, kept(t, f, open))
}

// Control: without untouched in Keep, what a reload script had dumped over it
// stayed, open servers' old ports and all.
func TestTheFileIsWrittenAgainWhenSomebodyElseHasWrittenIt(t *testing.T) {
	f := newFile(t)
	require.True(t, kept(t, f, dump()))
	want := text(t, f)
	for name, meddle := range map[string]func() error{
		"written over": func() error { return os.WriteFile(f.Path(), []byte("1\n"), 0o644) },
		"removed":      func() error { return os.Remove(f.Path()) },
		"replaced": func() error {
			if err := os.WriteFile(f.Path()+".new", []byte(want), 0o644); err != nil {
				return err
			}
			return os.Rename(f.Path()+".new", f.Path())
		},
	} {
		require.NoError(t, meddle(), name)
		assert.True(t, kept(t, f, dump()), name)
		assert.Equal(guarantee.T(t), want, text(t, f), name)
		assert.False(t, kept(t, f, dump()), name)
	}
}

// Control: with text set before the write, the second call wrote nothing.
func TestAWriteThatFailedIsMadeUpFor(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "later")
	f := New(filepath.Join(dir, "edge.state"), shut)
	_, err := f.Keep(dump())
	require.Error(t, err)
	require.NoError(t, os.Mkdir(dir, 0o755))
	assert.True(t, kept(t, f, dump()))
}

// A HAProxy that does not answer, or does not run, loads the file at its next start.
//
// Control: with nothing remembered, what somebody held lost its row as soon as
// HAProxy was away.
func TestWithoutADumpTheLastOneCountsAndBeforeThatTheFile(t *testing.T) {
	f := newFile(t)
	dumped := "1\n# be_id and so on\n" +
		"4 llm 1 gpu1 127.0.0.1 0 8 100 100 3 6 3 0 6 22 0 0 - 8000 - 0 7780 - 127.0.0.1 7777\n" +
		"4 llm 3 gpu3 127.0.0.1 0 1 100 100 3 6 3 0 6 22 0 0 - 8000 - 0 7780 - 127.0.0.1 7777\n" +
		"no row\n4 llm 4 gpu4 - x 1 1 1 0 6 1 0 6 0 0 0 - 8000 -\n4 llm 5 gpu5 - 0 1 1 1 0 6 1 0 6 0 0 0 - 80000 -\n"
	require.NoError(t, os.WriteFile(f.Path(), []byte(dumped), 0o600))
	assert.True(t, kept(t, f, nil))
	assert.Equal(t, "1\n"+header+"\n"+gpu1+gpu3, text(t, f))
	assert.False(t, f.shown.Live)

	ended := dump()
	ended.Servers[2].Admin = 0
	require.True(t, kept(t, f, ended))
	require.NoError(t, os.WriteFile(f.Path(), []byte(dumped), 0o600))
	assert.True(t, kept(t, f, nil))
	assert.Equal(t, "1\n"+header+"\n"+gpu1, text(t, f), "HAProxy itself is newer than the file")
	assert.True(t, f.shown.Live)
}

func TestAFileThatIsNoneIsNotRead(t *testing.T) {
	f := New(t.TempDir(), shut) // a folder
	_, err := f.Keep(nil)
	assert.Error(t, err)
	assert.Empty(t, f.shown.Servers)
}

// started is a process that has started and shows gpu1 and gpu3 so.
func started(t testing.TB, f *File, gpu1, gpu3 runtimeapi.AdminState) {
	t.Helper()
	d := dump()
	d.Servers[0].Admin, d.Servers[2].Admin = gpu1, gpu3
	f.Started(*d)
	kept(t, f, d)
}

// Control: with the look at the row of now left out of Forgotten, the file was blamed
// for what a readmit had opened in the new process.
func TestForgottenNamesWhatTheFileClosedAndAProcessCameUpWithOpen(t *testing.T) {
	f := newFile(t)
	kept(t, f, dump())
	assert.Empty(t, f.Forgotten())

	started(t, f, runtimeapi.ForcedDrain, runtimeapi.ForcedMaint)
	assert.Empty(t, f.Forgotten())
	kept(t, f, dump())
	assert.Empty(t, f.Forgotten(), "it has loaded the file")

	started(t, f, runtimeapi.ForcedMaint, runtimeapi.ForcedMaint)
	kept(t, f, dump())
	assert.Empty(t, f.Forgotten(), "closed otherwise is closed")

	// A readmit has opened gpu1 before the process was seen.
	started(t, f, 0, runtimeapi.ForcedMaint)
	assert.Empty(t, f.Forgotten())
	d := dump()
	d.Servers[0].Admin = 0
	kept(t, f, d)
	assert.Empty(t, f.Forgotten(), "it is to be open")
	kept(t, f, dump())
	assert.Empty(t, f.Forgotten(), "nor when it is closed again later")

	// The file was not loaded, and gpu3 is closed again, as it is to be.
	started(t, f, runtimeapi.ForcedDrain, 0)
	assert.Empty(t, f.Forgotten(), "not yet: it may have been opened since")
	kept(t, f, dump())
	assert.Equal(t, "llm/gpu3", f.Forgotten())
	d = dump()
	d.Servers[2].Admin = 0
	kept(t, f, d)
	assert.Equal(t, "llm/gpu3", f.Forgotten(), "as long as that process runs")

	kept(t, f, dump())
	started(t, f, runtimeapi.ForcedDrain, runtimeapi.ForcedMaint)
	kept(t, f, dump())
	assert.Empty(t, f.Forgotten(), "the next one has")
}

func TestAServerThatTheConfigurationHasNoLongerIsNotForgotten(t *testing.T) {
	f := newFile(t)
	kept(t, f, dump())
	d := dump()
	d.Servers = d.Servers[:2]
	f.Started(*d)
	kept(t, f, d)
	kept(t, f, d)
	assert.Empty(t, f.Forgotten())
}
