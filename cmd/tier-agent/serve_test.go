package main

import (
	"bytes"
	"debug/elf"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tier-agent/internal/admission"
	"tier-agent/test/socketdir"
)

// From the command line to the exit code, with everything between real but for
// HAProxy: a file, a signal, and the other verbs against the admin socket.
func TestServeFromEndToEnd(t *testing.T) {
	e, folder := newEngine(t), socketdir.New(t)
	file, socket := filepath.Join(folder, "tier-agent.yaml"), filepath.Join(folder, "run", "admin.sock")
	require.NoError(t, os.WriteFile(file, fmt.Appendf(nil, `
start_budget: 1m
tiers:
  - name: heavy
    servers: [{server: heavy/h1, url: "%s/heavy"}]
    identity: {path: /v1/models, id: m1}
    admission: agent-check
    probe: {interval: 50ms, timeout: 5s, max_age: 30s}
listen: {agent_check: "127.0.0.1:0", http: "127.0.0.1:0", spoe: {address: "127.0.0.1:0"}, admin: {path: %s, mode: "0600"}}
state_dir: %s
`, e.url, socket, folder), 0o600))

	log, code := new(journal), make(chan int, 1)
	var out bytes.Buffer
	go func() {
		code <- run([]string{"serve", "-c", file, "--log-level", "debug"}, strings.NewReader(""), &out, log)
	}()
	d := &running{socket: socket, log: log}
	d.awaitLog(t, `"msg":"serving"`)
	var starting struct {
		Agent string `json:"agent_check"`
		HTTP  string `json:"http"`
	}
	for line := range strings.Lines(log.String()) {
		if strings.Contains(line, `"msg":"starting"`) {
			require.NoError(t, json.Unmarshal([]byte(line), &starting))
		}
	}
	d.agent, d.http = starting.Agent, starting.HTTP
	assert.Equal(t, "ready up 100%\n", d.poll("heavy/h1"))
	assert.Equal(t, ok, d.check("/readyz/heavy/h1"))

	verb := func(args string) said {
		return cli(append([]string{"--socket", socket}, strings.Fields(args)...)...)
	}
	for _, c := range []struct {
		args string
		code int
		says string
	}{
		{"status", exitDone, "heavy/h1  yes "},
		{"readmit heavy", exitFailed, "code not_quiesced"},
		{"quiesce heavy --reason " + strings.Repeat("x", 129), exitUsage, "give 1 to 128 of the characters A-Z a-z 0-9 _ . -"},
		{"quiesce heavy --reason with,comma", exitUsage, `--reason "with,comma": give 1 to 128 of the characters A-Z a-z 0-9 _ . -`},
		{"readmit " + strings.Repeat("x", 20_000), exitUsage, "the command is too large: it may have 16384 bytes"},
		{"quiesce heavvy --reason swap", exitFailed, `refused: unknown tier "heavvy" (did you mean heavy?)`},
		{"quiesce heavy --reason swap --server heavy/h9", exitFailed, `refused: unknown server "heavy/h9" (did you mean heavy/h1?) in tier "heavy"`},
		{"quiesce heavy --reason swap", exitDone, "done: heavy is quiesced"},
		{"status", exitDone, "heavy is quiesced since "},
		{"drain heavy", exitFailed, "code no_runtime_api"},
		{"readmit heavy", exitDone, "heavy/h1: ready (identity_passed)"},
		{"invalidate --all", exitDone, "done: everything is invalidated"},
	} {
		s := verb(c.args)
		assert.Equal(t, c.code, s.code, "%.60s", c.args)
		assert.Contains(t, s.out+s.err, c.says, "%.60s", c.args)
	}
	var r admission.Result
	require.NoError(t, json.Unmarshal([]byte(verb("quiesce heavy --reason swap --json").out), &r))
	assert.Contains(t, r.Closure.Who, fmt.Sprintf("(%d)", os.Getuid()))

	require.NoError(t, syscall.Kill(syscall.Getpid(), syscall.SIGTERM))
	assert.Equal(t, exitDone, <-code)
	assert.Empty(t, out.String())
	assert.Contains(t, log.String(), `"msg":"stopping","cause":"terminated signal received"`)
	assert.NoFileExists(t, socket)
	assert.Equal(t, exitFailed, verb("status").code)
	for line := range strings.Lines(log.String()) {
		assert.True(t, json.Valid([]byte(line)), line)
	}
}

func TestServeOnATakenPort(t *testing.T) {
	file, address := filepath.Join(t.TempDir(), "tier-agent.yaml"), taken(t)
	require.NoError(t, os.WriteFile(file, fmt.Appendf(nil, `
tiers: [{name: heavy, servers: [{server: heavy/h1, url: "http://127.0.0.1:1"}], admission: agent-check}]
listen: {agent_check: "127.0.0.1:0", http: "%s", spoe: {address: "127.0.0.1:0"}, admin: {path: %s.sock}}
state_dir: %s
`, address, file, t.TempDir()), 0o600))
	assert.Equal(t, said{exitFailed, "", "tier-agent: listen.http: listen tcp " + address + ": bind: address already in use\n"}, cli("serve", "-c", file))
	assert.NoFileExists(t, file+".sock")
}

// One file that runs on any Linux of its processor, in an image without a libc.
func TestTheBinaryIsStatic(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the whole program")
	}
	binary := filepath.Join(t.TempDir(), "tier-agent")
	build := exec.CommandContext(t.Context(), "go", "build", "-ldflags", "-X main.version=9.9.9", "-o", binary, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	text, err := build.CombinedOutput()
	require.NoError(t, err, string(text))
	f, err := elf.Open(binary)
	require.NoError(t, err)
	defer f.Close()
	for _, p := range f.Progs {
		assert.NotEqual(t, elf.PT_INTERP, p.Type, "it names an interpreter")
		assert.NotEqual(t, elf.PT_DYNAMIC, p.Type)
	}
	said, err := exec.CommandContext(t.Context(), binary, "version").Output()
	require.NoError(t, err)
	assert.Contains(t, string(said), "tier-agent 9.9.9 (go")
}
