package intent

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tier-agent/internal/durable"
	"tier-agent/test/guarantee"
	"tier-agent/test/hangfs"
)

func heavy() Record {
	return Record{
		Tier: "heavy", Reason: "swap", Who: "alice(1000)", Since: time.Unix(1_800_000_000, 0).UTC(), Phase: Quiesced,
		Found:     map[string]map[string]uint32{"edge": {"heavy/h1": 0, "heavy/h2": 5}},
		Processes: map[string]int{"edge": 42},
	}
}

func open(t testing.TB, dir string) *Store {
	t.Helper()
	s, err := Open(dir)
	require.NoError(t, err)
	return s
}

func reopen(t testing.TB, s *Store) *Store {
	t.Helper()
	require.NoError(t, s.Close())
	return open(t, s.dir)
}

// Control: with the call of write taken out of Put, the record was gone.
func TestARecordOutlivesItsProcess(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "state"))
	put, err := s.Put(heavy())
	require.NoError(t, err)
	assert.EqualValues(t, 1, put.Serial)

	s = reopen(t, s)
	assert.Equal(guarantee.T(t), []Record{put}, s.All())
	info, err := os.Stat(s.path())
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), info.Mode().Perm())

	require.NoError(t, s.Drop(put.Key(), put.Serial))
	s = reopen(t, s)
	assert.Empty(t, s.All())
	again, err := s.Put(heavy())
	require.NoError(t, err)
	assert.EqualValues(t, 2, again.Serial, "serials never go back, also over a restart and a drop")
	require.NoError(t, s.Close())
}

// Control: with the comparison of serials taken out of Drop, the second
// operator's record was dropped.
func TestDropNeedsTheRecordThatTheCallerBeganWith(t *testing.T) {
	s := open(t, t.TempDir())
	defer s.Close()
	first, err := s.Put(heavy())
	require.NoError(t, err)
	second, err := s.Put(heavy())
	require.NoError(t, err)

	assert.ErrorIs(guarantee.T(t), s.Drop(first.Key(), first.Serial), ErrMoved)
	kept, ok := s.Get(first.Key())
	require.True(t, ok)
	assert.Equal(guarantee.T(t), second, kept)
	assert.ErrorIs(t, s.Drop(Key{Tier: "other"}, 1), ErrMoved)
}

// Control: with load's error taken for an empty set, all of these opened.
func TestWhatCannotBeReadIsNeverTakenForEmpty(t *testing.T) {
	const record = `{"tier":"heavy","reason":"swap","who":"a","since":"2027-01-15T08:00:00Z","phase":"quiesced","serial":1}`
	for name, text := range map[string]string{
		"empty":            "",
		"cut off":          `{"version":1,"intents":[` + record,
		"not JSON":         "1\n# be_id be_name",
		"another version":  `{"version":2,"intents":[]}`,
		"no intents":       `{"version":1,"serial":7}`,
		"null":             `{"version":1,"serial":7,"intents":null}`,
		"unknown field":    `{"version":1,"intents":[],"extra":true}`,
		"trailing":         `{"version":1,"intents":[]} {}`,
		"no tier":          `{"version":1,"intents":[{"reason":"swap","since":"2027-01-15T08:00:00Z","phase":"quiesced","serial":1}]}`,
		"unknown phase":    `{"version":1,"intents":[{"tier":"heavy","reason":"swap","since":"2027-01-15T08:00:00Z","phase":"open","serial":1}]}`,
		"twice":            `{"version":1,"intents":[` + record + "," + record + `]}`,
		"a folder instead": "",
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			file := filepath.Join(dir, fileName)
			if name == "a folder instead" {
				require.NoError(t, os.Mkdir(file, 0o700))
			} else {
				require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
			}
			_, err := Open(dir)
			require.ErrorIs(guarantee.T(t), err, ErrCorrupt)
			assert.ErrorContains(t, err, "repair the file or move it away")
			if name != "a folder instead" {
				left, err := os.ReadFile(file)
				require.NoError(t, err)
				assert.Equal(guarantee.T(t), text, string(left), "it is left as it was found")
			}
		})
	}
}

// Control: with the call of Flock taken out, the second one opened.
func TestOneProcessAtATime(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	_, err := Open(dir)
	assert.ErrorIs(t, err, ErrLocked)
	require.NoError(t, s.Close())
	require.NoError(t, open(t, dir).Close())
}

// A folder that is gone stands for a full disk: nothing can be written.
func TestWhatCannotBeWrittenIsSaidAndHoldsInMemory(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "state"))
	defer s.Close()
	put, err := s.Put(heavy())
	require.NoError(t, err)
	require.NoError(t, os.RemoveAll(s.dir))

	other := heavy()
	other.Tier = "fast"
	lost, err := s.Put(other)
	assert.ErrorIs(guarantee.T(t), err, ErrNotDurable)
	_, held := s.Get(lost.Key())
	assert.True(guarantee.T(t), held, "closed stays closed while the process lives")
	assert.ErrorIs(t, s.Drop(put.Key(), put.Serial), ErrNotDurable)
	_, held = s.Get(put.Key())
	assert.True(guarantee.T(t), held, "and is not opened on a file that still says closed")
}

func TestADirectoryThatCannotBeMadeIsAnError(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	_, err := Open(filepath.Join(file, "state"))
	assert.ErrorIs(t, err, ErrNotDurable)
	assert.ErrorContains(t, err, "state_dir")
}

func TestRecordsShareNothingWithTheirCallers(t *testing.T) {
	s := open(t, t.TempDir())
	defer s.Close()
	mine := heavy()
	_, err := s.Put(mine)
	require.NoError(t, err)
	mine.Found["edge"]["heavy/h1"] = 99
	got, _ := s.Get(mine.Key())
	got.Found["edge"]["heavy/h2"] = 99
	again, _ := s.Get(mine.Key())
	assert.Equal(t, heavy().Found, again.Found)
}

func TestConcurrentWritersLeaveAWholeFile(t *testing.T) {
	s := open(t, t.TempDir())
	var wg sync.WaitGroup
	for n := range 8 {
		wg.Go(func() {
			for range 10 {
				r := heavy()
				r.Server = "heavy/h" + string(rune('0'+n))
				_, err := s.Put(r)
				assert.NoError(t, err)
			}
		})
	}
	wg.Wait()
	want := s.All()
	s = reopen(t, s)
	defer s.Close()
	assert.Equal(guarantee.T(t), want, s.All())
}

// A disk that hangs is waited for as long as durable.Within says, and by nobody who only
// reads. What it has missed it gets with the next write.
//
// Control: with the file written under mu, All waited for the disk.
func TestADiskThatHangsHoldsUpNobodyWhoReads(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	_, err := s.Put(heavy())
	require.NoError(t, err)
	heal := hangfs.Mount(t, dir)
	other := heavy()
	other.Tier = "light"
	ended := make(chan error, 1)
	go func() {
		_, err := s.Put(other)
		ended <- err
	}()
	require.Eventually(t, func() bool { return len(s.All()) == 2 }, durable.Within/2, time.Millisecond, "it holds in memory while it is written")
	err = <-ended
	require.ErrorIs(guarantee.T(t), err, ErrNotDurable)
	require.ErrorIs(t, err, durable.ErrSlow)
	heal()
	require.Eventually(t, func() bool {
		_, err := s.Put(other)
		return err == nil
	}, 10*time.Second, 10*time.Millisecond)
	s = reopen(t, s)
	defer s.Close()
	assert.Len(guarantee.T(t), s.All(), 2)
}

// What something else has changed closes what it closes, and opens nothing.
//
// Control: without onlyClose, what was found there was believed.
func TestAFileThatSomethingElseHasChangedOnlyCloses(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	r := heavy()
	r.Phase, r.Without = Readmitting, []string{"edge"}
	_, err := s.Put(r)
	require.NoError(t, err)
	require.NoError(t, s.Close())
	text, err := os.ReadFile(s.path())
	require.NoError(t, err)
	edited := bytes.Replace(text, []byte(`"heavy/h1": 0`), []byte(`"heavy/h1": 8`), 1)
	require.NotEqual(t, text, edited)
	require.NoError(t, os.WriteFile(s.path(), edited, 0o600))

	s, err = Open(dir)
	require.ErrorIs(guarantee.T(t), err, ErrChanged)
	assert.ErrorContains(t, err, s.path())
	require.Len(guarantee.T(t), s.All(), 1)
	one := s.All()[0]
	assert.Equal(guarantee.T(t), Quiesced, one.Phase)
	assert.Empty(guarantee.T(t), one.Found)
	assert.Empty(guarantee.T(t), one.Without)
	s = reopen(t, s)
	require.NoError(t, s.Close())
}

// A file of the version before is read, and what that version reads of this one's closes the
// same.
func TestTheIntentsOfTheVersionBefore(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, fileName)
	old := []byte(`{"version":1,"serial":7,"intents":[{"tier":"heavy","reason":"swap","who":"a","since":"2027-01-15T08:00:00Z","phase":"quiesced","serial":7}]}`)
	require.NoError(t, os.WriteFile(path, old, 0o600))
	s := open(t, dir)
	_, closed := s.Get(Key{Tier: "heavy"})
	require.True(guarantee.T(t), closed)
	other := heavy()
	other.Tier = "light"
	_, err := s.Put(other)
	require.NoError(t, err)
	require.NoError(t, s.Close())
	kept, err := os.ReadFile(path + ".old")
	require.NoError(t, err)
	assert.Equal(t, old, kept)

	// As the version before has read it.
	text, err := os.Open(path)
	require.NoError(t, err)
	defer text.Close()
	d := json.NewDecoder(text)
	d.DisallowUnknownFields()
	var f file
	require.NoError(t, d.Decode(&f))
	_, err = d.Token()
	require.ErrorIs(t, err, io.EOF)
	assert.Len(guarantee.T(t), f.Intents, 2)
}

// The lock is a file of this folder: a link would have a root process make one anywhere.
//
// Control: without O_NOFOLLOW the file was made.
func TestTheLockIsNoLink(t *testing.T) {
	dir, elsewhere := t.TempDir(), filepath.Join(t.TempDir(), "made")
	require.NoError(t, os.Symlink(elsewhere, filepath.Join(dir, lockName)))
	_, err := Open(dir)
	assert.ErrorIs(guarantee.T(t), err, ErrNotDurable)
	assert.ErrorContains(t, err, "lock is a link: remove it")
	assert.NoFileExists(guarantee.T(t), elsewhere)
}
