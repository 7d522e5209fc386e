package main

import (
	"bytes"
	"encoding/json"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tier-agent/internal/admission"
	"tier-agent/internal/httpapi"
	"tier-agent/internal/tier"
)

var (
	heavy   = tier.Target{Tier: "heavy"}
	closure = &tier.Closure{Reason: "swap-to-v2", Who: "alice(1000)", Since: time.Date(2026, 3, 1, 11, 0, 0, 0, time.UTC)}

	quiescedResult = admission.Result{
		Verb: admission.VerbQuiesce, Target: heavy, Outcome: admission.Done, Code: admission.CodeOK,
		Message: "heavy is quiesced and drained in HAProxy", Quiesced: true, Closure: closure, Generation: "1.4",
		HAProxy: []admission.InstanceResult{{Instance: "edge", PID: 4711, Servers: []admission.ServerResult{
			{Server: "heavy/h1", Before: "ready", After: "drain(forced)"},
			{Server: "heavy/h2", Before: "maint(forced)", After: "maint(forced)"},
		}}},
		Seconds: 0.01,
	}
	incompleteResult = admission.Result{
		Verb: admission.VerbQuiesce, Target: heavy, Outcome: admission.Incomplete, Code: admission.CodeHAProxy,
		Message: "heavy is closed here; HAProxy did not confirm", Quiesced: true, Closure: closure, Generation: "1.4",
		HAProxy: []admission.InstanceResult{{Instance: "edge", Error: "haproxy edge: haproxy is unreachable"}},
	}
	readmittedResult = admission.Result{
		Verb: admission.VerbReadmit, Target: heavy, Outcome: admission.Done, Code: admission.CodeOK,
		Message: "heavy is open again: 2 servers of 2 ready", Generation: "1.5",
		Evidence: []admission.Evidence{
			{Server: "heavy/h1", Ready: true, Reason: "identity_passed", Generation: "1.5.1"},
			{Server: "heavy/h2", Ready: true, Reason: "identity_passed", Generation: "1.5.2"},
		},
		HAProxy: []admission.InstanceResult{{Instance: "edge", PID: 4711, Servers: []admission.ServerResult{
			{Server: "heavy/h1", Before: "drain(forced)", After: "ready"},
		}}},
	}
	refusedResult = admission.Result{
		Verb: admission.VerbReadmit, Target: heavy, Outcome: admission.Refused, Code: admission.CodeNotReady,
		Message: "heavy stays quiesced: 1 of 2 servers are ready (heavy/h2: identity_mismatch)", Quiesced: true, Closure: closure, Generation: "1.6",
		Evidence: []admission.Evidence{
			{Server: "heavy/h1", Ready: true, Reason: "identity_passed", Generation: "1.6.1"},
			{Server: "heavy/h2", Reason: "identity_mismatch", Generation: "1.6.2"},
		},
	}
)

var forgottenResult = admission.Result{
	Verb: admission.VerbForget, Target: tier.Target{Tier: "heavy", Server: "heavy/h3@192.0.2.1:9000"}, Outcome: admission.Done, Code: admission.CodeOK,
	Message: `the intent of heavy (heavy/h3@192.0.2.1:9000), by alice(1000) for "swap-to-v2" is forgotten`,
	HAProxy: []admission.InstanceResult{{Instance: "edge", PID: 4711, Servers: []admission.ServerResult{
		{Server: "heavy/h3", Before: "drain(forced)", After: "drain(forced)"},
	}}},
}

func one(r admission.Result) []httpapi.Event { return []httpapi.Event{{Result: &r}} }

func TestTransitions(t *testing.T) {
	for _, c := range []struct {
		name, args string
		events     []httpapi.Event
		code       int
		command    httpapi.Command
	}{
		{"quiesced", "quiesce heavy --reason swap-to-v2", one(quiescedResult), exitDone, httpapi.Command{Tier: "heavy", Reason: "swap-to-v2"}},
		{"incomplete", "quiesce heavy --reason x --server heavy/h1", one(incompleteResult), exitFailed, httpapi.Command{Tier: "heavy", Server: "heavy/h1", Reason: "x"}},
		{
			"bad-reason", "quiesce heavy --reason odd",
			one(admission.Result{Verb: admission.VerbQuiesce, Target: heavy, Outcome: admission.Refused, Code: admission.CodeInvalid, Message: `reason "a,b": give 1 to 128 of the characters A-Z a-z 0-9 _ . -`}),
			exitUsage, httpapi.Command{Tier: "heavy", Reason: "odd"},
		},
		{"readmitted", "readmit heavy", one(readmittedResult), exitDone, httpapi.Command{Tier: "heavy"}},
		{"refused", "readmit heavy --partial --take-hold --allow-unidentified", one(refusedResult), exitFailed, httpapi.Command{Tier: "heavy", Partial: true, TakeHold: true, AllowUnidentified: true}},
		{
			"unknown", "readmit heavvy",
			one(admission.Result{Verb: admission.VerbReadmit, Target: tier.Target{Tier: "heavvy"}, Outcome: admission.Refused, Code: admission.CodeUnknown, Message: `unknown tier "heavvy"`}),
			exitFailed, httpapi.Command{Tier: "heavvy"},
		},
		{
			"forgotten", "forget heavy/h3@192.0.2.1:9000", one(forgottenResult), exitDone,
			httpapi.Command{Server: "heavy/h3@192.0.2.1:9000"},
		},
		{
			"in-force", "forget heavy",
			one(admission.Result{
				Verb: admission.VerbForget, Target: heavy, Outcome: admission.Refused, Code: admission.CodeInForce,
				Message: `the intent of heavy, by alice(1000) for "swap-to-v2" is in force`, Quiesced: true, Closure: closure, Generation: "1.4",
			}),
			exitFailed, httpapi.Command{Tier: "heavy"},
		},
		{
			"invalidated", "invalidate heavy",
			one(admission.Result{Verb: admission.VerbInvalidate, Target: heavy, Outcome: admission.Done, Code: admission.CodeOK, Message: "heavy is invalidated", Generation: "1.7"}),
			exitDone, httpapi.Command{Tier: "heavy"},
		},
		{
			"invalidated-all", "invalidate --all",
			one(admission.Result{Verb: admission.VerbInvalidate, Outcome: admission.Done, Code: admission.CodeOK, Message: "everything is invalidated", Generation: "8"}),
			exitDone, httpapi.Command{All: true},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFakeAgent(t, c.events...)
			args := strings.Fields(c.args)
			s := f.cli(args...)
			assert.Equal(t, c.code, s.code)
			assert.Empty(t, s.err)
			golden(t, c.name+".txt", s.out)
			assert.Equal(t, []request{{args[0], c.command}}, f.requests())

			s = f.cli(append(args, "--json")...)
			assert.Equal(t, c.code, s.code)
			assert.Empty(t, s.err)
			var back admission.Result
			require.NoError(t, json.Unmarshal([]byte(s.out), &back))
			assert.Equal(t, *c.events[0].Result, back)
		})
	}
}

// A command without a result has an exit code too, and nothing on stdout but,
// with --json, the error.
//
// Control: without the json case in complain stdout was empty.
func TestTransitionsWithoutAResult(t *testing.T) {
	refuse := func(code int, text string) func(http.ResponseWriter, *http.Request) {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(code)
			_ = json.NewEncoder(w).Encode(httpapi.Event{Error: text})
		}
	}
	for _, c := range []struct {
		name   string
		answer func(http.ResponseWriter, *http.Request)
		code   int
		says   string
	}{
		{"not understood", refuse(400, `"tier" is missing`), exitUsage, `not a command: "tier" is missing`},
		{"full", refuse(503, "it is full"), exitFailed, "it is full"},
		{"panicked", refuse(500, "it failed inside"), exitFailed, "it failed inside"},
		{"gone", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, exitFailed, "at SOCKET: tier-agent closed the connection unread: nothing was begun"},
		{"nothing", func(http.ResponseWriter, *http.Request) {}, exitFailed, "at SOCKET: tier-agent went away before it had answered; look at tier-agent status before anything else"},
		{"failed on the way", func(w http.ResponseWriter, _ *http.Request) {
			_ = json.NewEncoder(w).Encode(httpapi.Event{Progress: &admission.Progress{}})
			_ = json.NewEncoder(w).Encode(httpapi.Event{Error: "it failed inside"})
		}, exitFailed, "it failed inside"},
	} {
		f := newFakeAgent(t)
		f.answer = c.answer
		c.says = strings.Replace(c.says, "SOCKET", f.path, 1)
		assert.Equal(t, said{c.code, "", "tier-agent: " + c.says + "\n"}, f.cli("readmit", "heavy"), c.name)
		s := f.cli("readmit", "heavy", "--json")
		assert.Equal(t, said{c.code, errorJSON(t, c.says), "tier-agent: " + c.says + "\n"}, s, c.name)
	}
}

// errorJSON is what --json prints of an error.
func errorJSON(t testing.TB, text string) string {
	t.Helper()
	quoted, err := json.Marshal(text)
	require.NoError(t, err)
	return "{\n  \"error\": " + string(quoted) + "\n}\n"
}

// A result that stdout does not take says on stderr what was done.
//
// Controls: with the error of printing returned by itself in transition, the done
// quiesce was "write /dev/full: no space left on device" and nothing more; with
// printResult's error dropped, the one without --json was silent.
func TestResultsThatCannotBePrinted(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	require.NoError(t, err)
	defer full.Close()
	for _, c := range []struct {
		result admission.Result
		code   int
		says   string
	}{
		{quiescedResult, exitFailed, "done: heavy is quiesced and drained in HAProxy"},
		{refusedResult, exitFailed, "refused: heavy stays quiesced: 1 of 2 servers are ready (heavy/h2: identity_mismatch)"},
		{admission.Result{Verb: admission.VerbDrain, Target: heavy, Outcome: admission.TimedOut, Message: "2 streams are left"}, exitTimedOut, "timed_out: 2 streams are left"},
	} {
		f := newFakeAgent(t, one(c.result)...)
		for _, more := range [][]string{nil, {"--json"}} {
			var errs bytes.Buffer
			args := append([]string{"--socket", f.path, "readmit", "heavy"}, more...)
			assert.Equal(t, c.code, run(args, strings.NewReader(""), full, &errs))
			assert.Equal(t, "tier-agent: "+c.says+"; but the result could not be printed: write /dev/full: no space left on device\n", errs.String())
		}
	}
	var errs bytes.Buffer
	f := newFakeAgent(t)
	f.status = picture()
	assert.Equal(t, exitFailed, run([]string{"--socket", f.path, "status"}, strings.NewReader(""), full, &errs))
	assert.Equal(t, "tier-agent: write /dev/full: no space left on device\n", errs.String())
}
