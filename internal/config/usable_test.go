package config

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const withToken = `tiers:
  - name: heavy
    servers: [{server: heavy/h1, url: "http://127.0.0.1:9001"}]
    admission: agent-check
    identity: {id: m1, %s}
`

// A secret that cannot be used is a mistake in the file, where it is named. The message
// has neither its path nor what is in it.
//
// Controls: without the call of usable, each of them was valid; with err of Value in the
// message it had the path.
func TestASecretThatCannotBeUsedIsAProblem(t *testing.T) {
	folder := t.TempDir()
	for content, want := range map[string]string{
		"absent":                                 "cannot be opened: no such file or directory",
		"folder":                                 "is not a regular file",
		"pipe":                                   "is not a regular file",
		"below":                                  "cannot be opened: not a directory",
		"":                                       "is empty",
		"two\nhunter2\n":                         "holds control characters or more than one line",
		strings.Repeat("hunter2", MaxSecretSize): "holds more than 8192 bytes",
	} {
		path := filepath.Join(folder, "zz-path-zz")
		require.NoError(t, os.RemoveAll(path))
		switch content {
		case "absent":
		case "folder":
			require.NoError(t, os.Mkdir(path, 0o700))
		case "pipe":
			require.NoError(t, syscall.Mkfifo(path, 0o600))
		case "below":
			require.NoError(t, os.WriteFile(path, nil, 0o600))
			path = filepath.Join(path, "zz-path-zz")
		default:
			require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
		}
		file := filepath.Join(t.TempDir(), "a.yaml")
		require.NoError(t, os.WriteFile(file, fmt.Appendf(nil, withToken, "token_file: "+path), 0o600))
		for _, load := range []func(string) (*Config, error){Load, Check} {
			cfg, err := load(file)
			assert.Nil(t, cfg)
			assert.EqualError(t, err, file+":5:36: tiers[0].identity.token_file: the file with the token "+want+
				"; make it a file that tier-agent's user can read, with the token as its one line", "%.20q", content)
		}
	}
}

// Outside of the service nothing can be said of its credentials, unless their folder is
// named.
func TestACredentialIsAProblemOfTheServiceAlone(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a.yaml")
	require.NoError(t, os.WriteFile(file, fmt.Appendf(nil, withToken, "token_credential: engine"), 0o600))
	t.Setenv("CREDENTIALS_DIRECTORY", "")
	_, err := Load(file)
	assert.EqualError(t, err, file+":5:42: tiers[0].identity.token_credential: $CREDENTIALS_DIRECTORY is not set; load the credential with LoadCredential= in the service")
	cfg, err := Check(file)
	require.NoError(t, err)
	assert.Equal(t, file+":5:42: tiers[0].identity.token_credential: the credential cannot be looked at outside of the service; set CREDENTIALS_DIRECTORY to a folder that has it, to have it checked", cfg.Remarks.Error())

	folder := t.TempDir()
	t.Setenv("CREDENTIALS_DIRECTORY", folder)
	for _, load := range []func(string) (*Config, error){Load, Check} {
		_, err = load(file)
		assert.ErrorContains(t, err, "the file with the token cannot be opened: no such file or directory")
	}
	require.NoError(t, os.WriteFile(filepath.Join(folder, "engine"), []byte("hunter2\n"), 0o600))
	for _, load := range []func(string) (*Config, error){Load, Check} {
		cfg, err = load(file)
		require.NoError(t, err)
		assert.Empty(t, cfg.Remarks)
	}
}

// A mount that hangs costs one wait, and one goroutine, whatever the number of secrets.
func TestSecretsAreTriedForSoLong(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(path, []byte("hunter2"), 0o600))
	text := fmt.Appendf(nil, withToken, "token_file: "+path)
	_, err := parse("f", text, secrets{tried: true, until: time.Now().Add(-time.Second)})
	assert.ErrorContains(t, err, "tiers[0].identity.token_file: the file with the token was not read in time; ")
	_, err = parse("f", text, secrets{tried: true})
	assert.NoError(t, err)
}
