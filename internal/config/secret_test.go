package config

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tier-agent/test/guarantee"
	"tier-agent/test/hangfs"
)

func TestSecretRotates(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	secret := FileSecret(path)
	old := time.Now().Add(-time.Hour)

	write(t, path, "first\n", old)
	assertValue(t, secret, "first")

	// Kept: the file looks the same in size, time and inode. Negative control:
	// without the `return last.value` branch in Value this reads "other".
	write(t, path, "other\n", old)
	assertValue(t, secret, "first")

	write(t, path, "other\n", old.Add(time.Nanosecond))
	assertValue(t, secret, "other")

	write(t, path, "longer one\r\n", old.Add(time.Nanosecond))
	assertValue(t, secret, "longer one")

	// Replaced by rename: the same size and time, another inode. Negative control:
	// without version.inode this stays "longer one".
	replacement := path + ".new"
	write(t, replacement, "equal size\r\n", old.Add(time.Nanosecond))
	require.NoError(t, os.Rename(replacement, path))
	assertValue(t, secret, "equal size")
}

// Negative control: without the settleTime condition in Value the second read
// gives "first".
func TestSecretIsReadAgainWhileItsTimeIsRecent(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	secret := FileSecret(path)
	recent := time.Now().Add(time.Hour) // stays recent however slow the test is
	write(t, path, "first", recent)
	assertValue(t, secret, "first")
	write(t, path, "other", recent)
	assertValue(t, secret, "other")
}

// Negative controls: with readSecret's error passed over where there is a last
// reading, or with any one of its three cases taken out, this fails.
func TestSecretRefusesWhatIsNoSecret(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	secret := FileSecret(path)
	old := time.Now().Add(-time.Hour)
	largest := strings.Repeat("x", MaxSecretSize)
	write(t, path, largest+"\n", old)
	assertValue(t, secret, largest)

	for content, want := range map[string]string{
		"":                      "is empty",
		"\n":                    "is empty",
		"  \n":                  "is empty",
		largest + "y":           "holds more than 8192 bytes",
		largest + largest:       "holds more than 8192 bytes",
		"hunter2\nhunter2\n":    "more than one line",
		"hunter2\n\n":           "more than one line",
		"hunter2\r":             "control characters",
		"hunter2\x00":           "control characters",
		"\x7fhunter2":           "control characters",
		"hunter2\thunter2":      "control characters",
		"-----BEGIN\r\nhunter2": "control characters",
	} {
		old = old.Add(time.Second) // equal sizes must not look like an unchanged file
		write(t, path, content, old)
		value, err := secret.Value(t.Context())
		assert.Empty(t, value)
		require.ErrorIs(t, err, ErrSecret, "%.20q", content)
		assert.ErrorContains(t, err, want)
		assert.ErrorContains(t, err, path)
		assert.NotContains(guarantee.T(t), err.Error(), "hunter2")
		assert.NotContains(guarantee.T(t), err.Error(), "xxxx")
	}

	require.NoError(t, os.Remove(path))
	_, err := secret.Value(t.Context())
	assert.ErrorIs(t, err, ErrSecret)
	assert.ErrorIs(t, err, fs.ErrNotExist)

	require.NoError(t, os.Mkdir(path, 0o700))
	_, err = secret.Value(t.Context())
	assert.ErrorContains(t, err, "not a regular file")

	// Negative control: without O_NONBLOCK this open never returns.
	require.NoError(t, os.Remove(path))
	require.NoError(t, syscall.Mkfifo(path, 0o600))
	_, err = secret.Value(t.Context())
	assert.ErrorContains(t, err, "not a regular file")
}

func TestSecretFromCredential(t *testing.T) {
	t.Setenv("CREDENTIALS_DIRECTORY", "")
	secret := CredentialSecret("engine")
	_, err := secret.Value(t.Context())
	assert.ErrorIs(t, err, ErrSecret)
	assert.ErrorContains(t, err, "$CREDENTIALS_DIRECTORY is not set")

	folder := t.TempDir()
	t.Setenv("CREDENTIALS_DIRECTORY", folder)
	write(t, filepath.Join(folder, "engine"), "hunter2\n", time.Now())
	assertValue(t, secret, "hunter2")
}

// Negative control: with the last value in String this fails.
func TestSecretDoesNotShow(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	write(t, path, "hunter2", time.Now().Add(-time.Hour))
	identity := Identity{ID: "a", Token: FileSecret(path)}
	assertValue(t, identity.Token, "hunter2")

	var out bytes.Buffer
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%d", "%x"} {
		fmt.Fprintf(&out, verb+"\n", identity)
		fmt.Fprintf(&out, verb+"\n", &identity)
		fmt.Fprintf(&out, verb+"\n", identity.Token)
	}
	slog.New(slog.NewTextHandler(&out, nil)).Info("text", "token", identity.Token, "identity", identity)
	slog.New(slog.NewJSONHandler(&out, nil)).Info("json", "token", identity.Token, "identity", identity)
	require.NoError(t, json.NewEncoder(&out).Encode(identity))
	assert.NotContains(guarantee.T(t), out.String(), "hunter2")
	assert.NotContains(guarantee.T(t), out.String(), fmt.Sprintf("%x", "hunter2"))
	assert.Contains(t, out.String(), "secret(file ")
	assert.Equal(t, "secret(none)", (*Secret)(nil).String())
}

// Readers meet a file that is replaced under them; each must see one whole value.
// Negative control: with `last` a plain pointer, -race reports it.
func TestSecretUnderConcurrentRotation(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	valid := map[string]bool{}
	replace := func(i int) {
		next := path + ".new"
		require.NoError(t, os.WriteFile(next, []byte(strings.Repeat(string(rune('a'+i%26)), i+1)), 0o600))
		require.NoError(t, os.Rename(next, path))
	}
	for i := range 100 {
		valid[strings.Repeat(string(rune('a'+i%26)), i+1)] = true
	}
	replace(0)
	secret := FileSecret(path)
	var readers sync.WaitGroup
	for range 8 {
		readers.Go(func() {
			for range 200 {
				value, err := secret.Value(t.Context())
				if !assert.NoError(t, err) || !assert.True(t, valid[value], "%q", value) {
					return
				}
			}
		})
	}
	for i := range 100 {
		replace(i)
	}
	readers.Wait()
	assertValue(t, secret, strings.Repeat(string(rune('a'+99%26)), 100))
}

// write replaces the content in place, so that the inode stays.
func write(t testing.TB, path, content string, modified time.Time) {
	t.Helper()
	require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
	require.NoError(t, os.Chtimes(path, modified, modified))
}

func assertValue(t testing.TB, secret *Secret, want string) {
	t.Helper()
	value, err := secret.Value(t.Context())
	require.NoError(t, err)
	assert.Equal(t, want, value)
}

// A file on a mount that hangs costs one thread, however often it is wanted, and nobody
// more than the time that they have.
//
// Control: with a read of its own for each, there were 20.
func TestOneReadOfAFileThatHangs(t *testing.T) {
	dir := t.TempDir()
	heal := hangfs.Mount(t, dir)
	path := filepath.Join(dir, "token")
	under := func() int {
		all := make([]byte, 1<<20)
		return strings.Count(string(all[:runtime.Stack(all, true)]), "(*Secret).read(")
	}
	for range 20 { // as after 20 reloads
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
		_, err := FileSecret(path).Value(ctx)
		cancel()
		require.ErrorIs(t, err, ErrSecret)
		assert.ErrorContains(t, err, path+" was not read in time")
	}
	assert.Equal(guarantee.T(t), 1, under())
	heal()
	require.NoError(t, os.WriteFile(path, []byte("s3cret\n"), 0o600))
	require.Eventually(t, func() bool { return under() == 0 }, 10*time.Second, time.Millisecond)
	value, err := FileSecret(path).Value(t.Context())
	require.NoError(t, err)
	assert.Equal(t, "s3cret", value)
}

// A token that cannot be read ends no start: the other tiers are to be served.
//
// Control: with it reported at a start, too, there was no configuration.
func TestATokenThatHangsIsARemarkAtAStart(t *testing.T) {
	dir := t.TempDir()
	hangfs.Mount(t, dir)
	file := filepath.Join(t.TempDir(), "f.yaml")
	require.NoError(t, os.WriteFile(file, []byte(fmt.Sprintf(`tiers:
  - {name: a, admission: agent-check, identity: {id: m, token_file: %s/token}, servers: [{server: a/s, url: "http://127.0.0.1:1"}]}
`, dir)), 0o600))
	cfg, err := Start(file)
	require.NoError(guarantee.T(t), err)
	assert.Contains(t, fmt.Sprint(cfg.Remarks), "the file with the token was not read in time; see to it")
	_, err = Load(file)
	assert.ErrorContains(t, err, "the file with the token was not read in time", "a reload has something to lose")
}

// What hung may be gone, while its read never comes back: after a while it is given up.
//
// Control: without Forget, the file was never read again.
func TestAReadThatNeverComesBackIsGivenUp(t *testing.T) {
	r := readers{of: map[string]*hangs{}}
	stuck := make(chan struct{})
	defer close(stuck)
	try := func(do func() (any, error)) error {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		_, err := r.read(ctx, "f", do)
		return err
	}
	hang := func() (any, error) { <-stuck; return nil, nil }
	well := func() (any, error) { return "text", nil }
	require.ErrorIs(t, try(hang), errSlow)
	require.ErrorIs(t, try(well), errSlow, "it waits for the one that hangs")
	for lost := range 3 {
		r.of["f"].since = time.Now().Add(-time.Second << lost)
		require.ErrorIs(t, try(hang), errSlow)
		assert.Equal(t, lost+1, r.of["f"].lost, "one more at each time")
		if lost < 2 {
			require.ErrorIs(t, try(hang), errSlow)
		}
	}
	require.NoError(t, try(well))
	assert.Empty(t, r.of)
}
