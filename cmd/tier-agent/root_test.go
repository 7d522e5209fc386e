package main

import (
	"encoding/json"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The help is the manual that is always at hand.
func TestHelp(t *testing.T) {
	var all strings.Builder
	for _, verb := range []string{"", "serve", "status", "quiesce", "drain", "readmit", "invalidate", "forget", "reload", "check-config", "version"} {
		args := append(strings.Fields(verb), "--help")
		s := cli(args...)
		assert.Equal(t, exitDone, s.code, verb)
		assert.Empty(t, s.err, verb)
		all.WriteString("$ tier-agent " + strings.Join(args, " ") + "\n" + s.out + "\n")
		if verb != "" {
			assert.Equal(t, s.out, cli("help", verb).out)
		}
	}
	assert.Equal(t, cli("--help"), cli())
	golden(t, "help.txt", all.String())
}

// What is wrong with a command line is told before anything else happens, with
// what would be right, on stderr alone.
//
// Controls: with Set of serverFlag or socketFlag accepting "", their rows were
// asked of tier-agent, or failed otherwise; with reasons taken out of quiesce, its
// rows were asked; without printable the escape sequence reached the terminal; with
// cobra's own help, help of an unknown verb was done.
func TestUsageErrors(t *testing.T) {
	f := newFakeAgent(t)
	for _, c := range []struct{ args, says string }{
		{"stauts", `unknown verb "stauts" (did you mean status?); tier-agent --help lists them`},
		{"re", `unknown verb "re" (did you mean readmit or reload?); tier-agent --help lists them`},
		{"dance", `unknown verb "dance"; tier-agent --help lists them`},
		{"help stauts", `unknown verb "stauts" (did you mean status?); tier-agent --help lists them`},
		{"help dance now", `unknown verb "dance"; tier-agent --help lists them`},
		{"status --version", `unknown flag: --version; see tier-agent status --help`},
		{"--version now", `unknown verb "now"; tier-agent --help lists them`},
		{"--bogus", `unknown flag: --bogus; see tier-agent --help`},
		{"status heavy light", `tier-agent status takes one tier or server at most, by its name; see tier-agent status --help`},
		{"status --json=maybe", `invalid argument "maybe" for "--json" flag: strconv.ParseBool: parsing "maybe": invalid syntax; see tier-agent status --help`},
		{"version now", `tier-agent version takes no arguments, not 1; see tier-agent version --help`},
		{"check-config a.yaml", `tier-agent check-config takes no arguments, not 1; see tier-agent check-config --help`},
		{"check-config -c", `flag needs an argument: 'c' in -c; see tier-agent check-config --help`},
		{"serve now", `tier-agent serve takes no arguments, not 1; see tier-agent serve --help`},
		{"serve --log-level loud", `--log-level "loud": give debug, info, warn or error`},
		{"serve --log-format xml", `--log-format "xml": give json or text`},
		{"quiesce", `tier-agent quiesce takes 1 argument (TIER), not 0; see tier-agent quiesce --help`},
		{"quiesce heavy light --reason x", `tier-agent quiesce takes 1 argument (TIER), not 2; see tier-agent quiesce --help`},
		{"quiesce heavy", `--reason is missing: say why, in 1 to 128 of the characters A-Z a-z 0-9 _ . -`},
		{"drain", `tier-agent drain takes 1 argument (TIER), not 0; see tier-agent drain --help`},
		{"drain heavy --timeout soon", `--timeout "soon": give a positive duration with its unit, such as 10m, of at most 2562047h`},
		{"drain heavy --timeout 10", `--timeout "10": give a positive duration with its unit, such as 10m, of at most 2562047h`},
		{"drain heavy --timeout 0s", `--timeout "0s": give a positive duration with its unit, such as 10m, of at most 2562047h`},
		{"drain heavy --timeout=-1m", `--timeout "-1m": give a positive duration with its unit, such as 10m, of at most 2562047h`},
		{"drain heavy --timeout 99999999h", `--timeout "99999999h": give a positive duration with its unit, such as 10m, of at most 2562047h`},
		{"quiesce heavy --reason=", `--reason "": give 1 to 128 of the characters A-Z a-z 0-9 _ . -`},
		{"quiesce heavy --reason a,b", `--reason "a,b": give 1 to 128 of the characters A-Z a-z 0-9 _ . -`},
		{"quiesce heavy --reason x --server=", `invalid argument "" for "--server" flag: give "backend/server", or leave --server out for the whole tier; see tier-agent quiesce --help`},
		{"drain heavy --server=", `invalid argument "" for "--server" flag: give "backend/server", or leave --server out for the whole tier; see tier-agent drain --help`},
		{"readmit heavy --server=", `invalid argument "" for "--server" flag: give "backend/server", or leave --server out for the whole tier; see tier-agent readmit --help`},
		{"invalidate heavy --server=", `invalid argument "" for "--server" flag: give "backend/server", or leave --server out for the whole tier; see tier-agent invalidate --help`},
		{"status --socket=", `invalid argument "" for "--socket" flag: give the path of tier-agent's admin socket; see tier-agent status --help`},
		{"status --\x1b[2J\xff", `unknown flag: --\x1b[2J\xff; see tier-agent status --help`},
		{"drain heavy --reason x", `unknown flag: --reason; see tier-agent drain --help`},
		{"readmit", `tier-agent readmit takes 1 argument (TIER), not 0; see tier-agent readmit --help`},
		{"reload now", `tier-agent reload takes no arguments, not 1; see tier-agent reload --help`},
		{"invalidate", `give either one tier or --all; see tier-agent invalidate --help`},
		{"invalidate heavy --all", `give either one tier or --all; see tier-agent invalidate --help`},
		{"invalidate heavy light", `give either one tier or --all; see tier-agent invalidate --help`},
		{"forget", `give at least one target, each a tier, backend/server or backend/server@address; see tier-agent forget --help`},
		{"forget heavy light --server heavy/h1", `--server goes with one argument, its tier, not 2; see tier-agent forget --help`},
		{"forget --server heavy/h1", `--server goes with one argument, its tier, not 0; see tier-agent forget --help`},
		{"forget heavy/h1 --server heavy/h1", `--server goes with its tier, and "heavy/h1" is a server; see tier-agent forget --help`},
		{"forget heavy --server=", `invalid argument "" for "--server" flag: give "backend/server", or leave --server out for the whole tier; see tier-agent forget --help`},
		{"invalidate --all --server heavy/h1", `--server and --all exclude each other; see tier-agent invalidate --help`},
	} {
		s := f.cli(strings.Fields(c.args)...)
		assert.Equal(t, said{exitUsage, "", "tier-agent: " + c.says + "\n"}, s, c.args)
	}
	assert.Empty(t, f.requests(), "nothing was asked of tier-agent")
}

func TestVersion(t *testing.T) {
	for _, version := range []string{"version", "--version"} {
		assert.Equal(t, said{exitDone, "tier-agent dev (" + runtime.Version() + ")\n", ""}, cli(version))
		var v map[string]string
		require.NoError(t, json.Unmarshal([]byte(cli(version, "--json").out), &v))
		assert.Equal(t, map[string]string{"version": "dev", "go": runtime.Version()}, v)
	}
}

func TestSocketFromTheEnvironment(t *testing.T) {
	f := newFakeAgent(t)
	t.Setenv("TIER_AGENT_SOCKET", f.path)
	assert.Equal(t, exitDone, cli("status").code)
	s := cli("status", "--socket", "/nonexistent/admin.sock")
	assert.Equal(t, said{exitFailed, "", "tier-agent: there is no admin socket at /nonexistent/admin.sock: is tier-agent running, and is this the path in its configuration?\n"}, s)
}

// What was given is repeated in a form that does nothing to a terminal.
func TestControlCharactersAreEscaped(t *testing.T) {
	s := cli("status", "--socket", "/nonexistent/\x1b[31m\n.sock")
	assert.Equal(t, "tier-agent: there is no admin socket at /nonexistent/\\x1b[31m\\n.sock: is tier-agent running, and is this the path in its configuration?\n", s.err)
	s = cli("check-config", "-c", "/nonexistent/\a")
	assert.NotContains(t, s.err, "\a")
	for text, want := range map[string]string{
		"plain \"quoted\" \\ é 漢": "plain \"quoted\" \\ é 漢",
		"\x1b\x00\u202e\xff\r":    `\x1b\x00\u202e\xff\r`,
	} {
		assert.Equal(t, want, printable(text))
	}
}

// Controls: TestLate in httpapi says when; without Late in client this panicked.
func TestLateIsSaidOnStderr(t *testing.T) {
	var out, errs strings.Builder
	(&app{out: &out, err: &errs, socket: "/run/x.sock"}).client().Late()
	assert.Empty(t, out.String())
	assert.Equal(t, "tier-agent has not answered yet at /run/x.sock: it waits for its first round of probes (start_budget), is stopped, or hangs; still waiting\n", errs.String())
}
