package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The files of the config package and what it says about them, through the
// command.
func TestCheckConfig(t *testing.T) {
	t.Chdir("../../internal/config") // the goldens name the files from there
	files, err := filepath.Glob("testdata/*.yaml")
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(files), 16)
	for _, file := range files {
		if file == "testdata/valid-full.yaml" {
			file = withSecrets(t, file)
		}
		text, asJSON := cli("check-config", "-c", file), cli("check-config", "--config", file, "--json")
		assert.Empty(t, asJSON.err, file)
		var checked struct {
			Valid             bool
			Problems, Remarks []map[string]any
		}
		require.NoError(t, json.Unmarshal([]byte(asJSON.out), &checked), file)
		assert.NotNil(t, checked.Problems, file)
		assert.NotNil(t, checked.Remarks, file)
		if strings.Contains(file, "/valid-") {
			assert.Equal(t, exitDone, text.code, file)
			assert.Regexp(t, `/valid-\w+\.yaml is valid: [1345] tiers?, [123] HAProxy instances?, \d+ remarks\n$`, text.out)
			assert.Len(t, checked.Remarks, strings.Count(text.err, ": remark: "), file)
			assert.Equal(t, strings.Count(text.err, "\n"), strings.Count(text.err, file+":"), "each line is a remark")
			assert.Equal(t, said{exitFailed, text.out, text.err}, cli("check-config", "-c", file, "--strict"))
			assert.Equal(t, exitFailed, cli("check-config", "-c", file, "--strict", "--json").code)
			assert.Equal(t, exitDone, asJSON.code, file)
			assert.True(t, checked.Valid, file)
			assert.Empty(t, checked.Problems, file)
			continue
		}
		want, err := os.ReadFile(strings.TrimSuffix(file, ".yaml") + ".golden")
		require.NoError(t, err)
		assert.Equal(t, said{exitFailed, "", string(want)}, text, file)
		assert.Equal(t, exitFailed, asJSON.code, file)
		assert.False(t, checked.Valid, file)
		assert.Len(t, checked.Problems, strings.Count(string(want), "\n"), file)
		for _, p := range checked.Problems {
			assert.Equal(t, file, p["file"])
			assert.NotZero(t, p["line"])
			assert.NotEmpty(t, p["message"])
			assert.NotEmpty(t, p["remedy"])
		}
	}
}

// withSecrets is a copy of the file in which every token_file is one that can be used.
func withSecrets(t testing.TB, file string) string {
	t.Helper()
	folder := t.TempDir()
	token := filepath.Join(folder, "token")
	require.NoError(t, os.WriteFile(token, []byte("hunter2\n"), 0o600))
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	text = regexp.MustCompile(`(?m)token_file: .*$`).ReplaceAll(text, []byte("token_file: "+token))
	copied := filepath.Join(folder, filepath.Base(file))
	require.NoError(t, os.WriteFile(copied, text, 0o600))
	return copied
}

// What is shipped passes --strict, as CI has it.
func TestStrictOnWhatIsShipped(t *testing.T) {
	for _, file := range []string{"../../haproxy/tier-agent.yaml", "../../compose/tier-agent.yaml"} {
		s := cli("check-config", "-c", file, "--strict")
		assert.Equal(t, said{exitDone, file + " is valid: 2 tiers, 1 HAProxy instance\n", ""}, s)
	}
}

// With --live a HAProxy that does not answer is one remark for each of its sockets.
func TestLiveWithoutHAProxy(t *testing.T) {
	s := cli("check-config", "-c", "../../haproxy/tier-agent.yaml", "--live")
	assert.Equal(t, exitDone, s.code)
	assert.Equal(t, "../../haproxy/tier-agent.yaml is valid: 2 tiers, 1 HAProxy instance, 2 remarks\n", s.out)
	assert.Contains(t, s.err, `: remark: haproxy[0].master: haproxy edge: master at /run/haproxy/master.sock: haproxy is unreachable: connect: no such file or directory; see that the path is that of -S`)
	assert.Contains(t, s.err, `: remark: haproxy[0].runtime: haproxy edge: at /run/haproxy/admin.sock: haproxy is unreachable: connect: no such file or directory; see that`)
	assert.Equal(t, exitFailed, cli("check-config", "-c", "../../haproxy/tier-agent.yaml", "--live", "--strict").code)
}

// A file that is not there is no problem of its content. serve says the same.
func TestMissingConfig(t *testing.T) {
	want := said{exitFailed, "", "tier-agent: configuration file \"/nonexistent.yaml\" does not exist: create it or name another one: open /nonexistent.yaml: no such file or directory\n"}
	assert.Equal(t, want, cli("check-config", "-c", "/nonexistent.yaml"))
	assert.Equal(t, want, cli("serve", "-c", "/nonexistent.yaml"))
	text := strings.TrimSuffix(strings.TrimPrefix(want.err, "tier-agent: "), "\n")
	assert.Equal(t, said{exitFailed, errorJSON(t, text), want.err}, cli("check-config", "-c", "/nonexistent.yaml", "--json"))
}

func TestServeWithAnInvalidConfig(t *testing.T) {
	t.Chdir("../../internal/config")
	want, err := os.ReadFile("testdata/invalid-servers.golden")
	require.NoError(t, err)
	assert.Equal(t, said{exitFailed, "", string(want)}, cli("serve", "-c", "testdata/invalid-servers.yaml"))
}

// A pipe is a file too, as in -c <(...).
func TestConfigFromAPipe(t *testing.T) {
	text, err := os.ReadFile("../../internal/config/testdata/valid-minimal.yaml")
	require.NoError(t, err)
	pipe := filepath.Join(t.TempDir(), "pipe")
	require.NoError(t, syscall.Mkfifo(pipe, 0o600))
	written := make(chan error, 1)
	go func() { written <- os.WriteFile(pipe, text, 0) }()
	s := cli("check-config", "-c", pipe)
	require.NoError(t, <-written)
	assert.Equal(t, exitDone, s.code, s.err)
}

// A pipe to which nobody writes is waited for, and one signal ends that.
//
// Control: with signals called at the start of run, as for the verbs that heed a
// context, the process stayed.
func TestOneSignalEndsTheWaitForAPipe(t *testing.T) {
	for _, verb := range []string{"check-config", "serve"} {
		pipe := filepath.Join(t.TempDir(), "pipe")
		require.NoError(t, syscall.Mkfifo(pipe, 0o600))
		cmd := exec.CommandContext(t.Context(), os.Args[0], verb, "-c", pipe)
		cmd.Env = append(os.Environ(), "TIER_AGENT_TEST_MAIN=1")
		require.NoError(t, cmd.Start())
		var writer *os.File
		require.Eventually(t, func() (open bool) {
			var err error
			// It can be opened once there is a reader.
			writer, err = os.OpenFile(pipe, os.O_WRONLY|syscall.O_NONBLOCK, 0)
			return err == nil
		}, deadline, tick)
		require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
		ended := make(chan error, 1)
		go func() { ended <- cmd.Wait() }()
		select {
		case err := <-ended:
			var exit *exec.ExitError
			require.ErrorAs(t, err, &exit)
			assert.Equal(t, syscall.SIGTERM, exit.Sys().(syscall.WaitStatus).Signal(), verb)
		case <-time.After(deadline):
			_ = cmd.Process.Kill()
			assert.Error(t, nil, "%s goes on after the signal: %v", verb, <-ended)
		}
		require.NoError(t, writer.Close())
	}
}
