package statefile

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tier-agent/internal/runtimeapi"
	"tier-agent/test/guarantee"
)

const header = "# be_id be_name srv_id srv_name srv_addr srv_op_state srv_admin_state srv_port"

func row(server string, admin runtimeapi.AdminState, text string) runtimeapi.ServerState {
	return runtimeapi.ServerState{
		Backend: "llm", Server: server, Address: "127.0.0.1", Port: 8000, Admin: admin,
		Operational: runtimeapi.OpRunning, Row: text,
	}
}

// dump is gpu1 in drain, gpu2 open and gpu3 in maintenance.
func dump() runtimeapi.ServersState {
	return runtimeapi.ServersState{
		Info: runtimeapi.Info{PID: 7}, Header: header,
		Servers: []runtimeapi.ServerState{
			row("gpu1", runtimeapi.ForcedDrain, "4 llm 1 gpu1 127.0.0.1 2 8 8000"),
			row("gpu2", 0, "4 llm 2 gpu2 127.0.0.1 2 0 8000"),
			row("gpu3", runtimeapi.ForcedMaint, "4 llm 3 gpu3 127.0.0.1 0 1 8000"),
		},
	}
}

func shut(s runtimeapi.ServerState) bool { return s.Admin != 0 }

func kept(t testing.TB, f *File, d runtimeapi.ServersState) bool {
	t.Helper()
	wrote, err := f.Keep(d, shut)
	require.NoError(t, err)
	return wrote
}

func text(t testing.TB, f *File) string {
	t.Helper()
	data, err := os.ReadFile(f.Path())
	require.NoError(t, err)
	return string(data)
}

func newFile(t testing.TB) *File { return New(filepath.Join(t.TempDir(), "edge.state")) }

// The form is that of the state file's version 1 (management guide 9.3).
//
// Control: with closed not asked, gpu2 had a row, whose port beats the
// configuration's at the next reload.
func TestTheFileHasTheRowsOfClosedServersAsTheyCame(t *testing.T) {
	f := newFile(t)
	assert.True(t, kept(t, f, dump()))
	assert.Equal(guarantee.T(t), "1\n"+header+"\n"+
		"4 llm 1 gpu1 127.0.0.1 2 8 8000\n"+
		"4 llm 3 gpu3 127.0.0.1 0 1 8000\n", text(t, f))
	info, err := os.Stat(f.Path())
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o644), info.Mode().Perm(), "HAProxy may run as another user")

	open := dump()
	open.Servers[0].Admin, open.Servers[2].Admin = 0, 0
	assert.True(t, kept(t, f, open))
	assert.Equal(t, "1\n"+header+"\n", text(t, f), "HAProxy takes a file without rows")
}

// Control: with Row in what is compared, each second brought a write; with any of
// the six left out of it, that change was not written.
func TestTheFileIsWrittenWhenItWouldSaySomethingElse(t *testing.T) {
	f := newFile(t)
	require.True(t, kept(t, f, dump()))
	older := dump()
	older.Servers[0].SinceChange, older.Servers[0].Row = time.Hour, "4 llm 1 gpu1 127.0.0.1 2 8 8000 and an age"
	assert.False(t, kept(t, f, older))
	ready := dump()
	ready.Servers[1].Operational = runtimeapi.OpStopped
	assert.False(t, kept(t, f, ready), "of a server without a row")
	for name, change := range map[string]func(*runtimeapi.ServersState){
		"address":     func(d *runtimeapi.ServersState) { d.Servers[0].Address = "127.0.0.2" },
		"port":        func(d *runtimeapi.ServersState) { d.Servers[0].Port = 8001 },
		"admin":       func(d *runtimeapi.ServersState) { d.Servers[0].Admin = runtimeapi.ForcedMaint },
		"operational": func(d *runtimeapi.ServersState) { d.Servers[0].Operational = runtimeapi.OpStopped },
		"host name":   func(d *runtimeapi.ServersState) { d.Servers[0].FQDN = "gpu1.example" },
		"columns":     func(d *runtimeapi.ServersState) { d.Header += " srvrecord" },
		"a row less":  func(d *runtimeapi.ServersState) { d.Servers = d.Servers[:2] },
	} {
		d := dump()
		change(&d)
		assert.True(t, kept(t, f, d), name)
		assert.False(t, kept(t, f, d), name)
		require.True(t, kept(t, f, dump()), "and back: %s", name)
	}
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

// Control: with the look at Stopping left out of Keep, it was written.
func TestAProcessThatIsBeingReplacedIsNoSource(t *testing.T) {
	f := newFile(t)
	d := dump()
	d.Info.Stopping = true
	_, err := f.Keep(d, shut)
	assert.ErrorContains(t, err, "process 7 is being replaced")
	assert.NoFileExists(t, f.Path())
}

// Control: with kept set before the write, the second call wrote nothing.
func TestAWriteThatFailedIsMadeUpFor(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "later")
	f := New(filepath.Join(dir, "edge.state"))
	_, err := f.Keep(dump(), shut)
	require.Error(t, err)
	require.NoError(t, os.Mkdir(dir, 0o755))
	assert.True(t, kept(t, f, dump()))
}

// Control: with the look at the row's own state left out of Forgotten, a server
// that was closed only for want of readiness was called forgotten.
func TestForgottenNamesWhatTheFileClosedAndTheDumpShowsOpen(t *testing.T) {
	f := newFile(t)
	assert.Empty(t, f.Forgotten(dump()), "nothing has been written yet")
	down := dump()
	down.Servers[1].Operational = runtimeapi.OpStopped
	_, err := f.Keep(down, func(runtimeapi.ServerState) bool { return true })
	require.NoError(t, err)
	assert.Empty(t, f.Forgotten(dump()))
	d := dump()
	d.Servers[0].Admin = runtimeapi.ForcedMaint
	assert.Empty(t, f.Forgotten(d), "closed otherwise is closed")
	d.Servers[2].Admin = 0
	assert.Equal(t, "llm/gpu3", f.Forgotten(d))
	d.Servers = d.Servers[:2]
	assert.Empty(t, f.Forgotten(d), "a server that the configuration has no longer")
}
