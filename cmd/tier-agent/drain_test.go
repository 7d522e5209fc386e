package main

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tier-agent/internal/admission"
	"tier-agent/internal/httpapi"
)

// aDrain is what a drain that ends as told says on its way.
func aDrain(outcome admission.Outcome, code, message string) []httpapi.Event {
	progress := func(seconds float64, edge, core admission.InstanceLoad) httpapi.Event {
		edge.Instance, core.Instance = "edge", "core"
		return httpapi.Event{Progress: &admission.Progress{Seconds: seconds, HAProxy: []admission.InstanceLoad{edge, core}}}
	}
	return []httpapi.Event{
		progress(0, admission.InstanceLoad{Streams: 12, Queue: 3, BackendQueue: 7}, admission.InstanceLoad{Streams: 1}),
		progress(0.21, admission.InstanceLoad{Streams: 12, Queue: 3, BackendQueue: 7}, admission.InstanceLoad{Streams: 1}),
		progress(0.4, admission.InstanceLoad{}, admission.InstanceLoad{Error: "haproxy core: haproxy did not answer in time"}),
		progress(12.6, admission.InstanceLoad{}, admission.InstanceLoad{}),
		{Result: &admission.Result{
			Verb: admission.VerbDrain, Target: heavy, Outcome: outcome, Code: code, Message: message,
			Quiesced: true, Closure: closure, Generation: "1.4", Seconds: 12.6,
		}},
	}
}

// Without a terminal: one line for each change, on stderr, so that stdout has
// the result alone.
func TestDrain(t *testing.T) {
	f := newFakeAgent(t, aDrain(admission.Done, admission.CodeOK, "heavy is drained")...)
	s := f.cli("drain", "heavy", "--timeout", "15m", "--ignore-old-workers")
	assert.Equal(t, exitDone, s.code)
	golden(t, "drained.txt", s.out)
	golden(t, "drained-progress.txt", s.err)
	assert.Equal(t, []request{{"drain", httpapi.Command{Tier: "heavy", Timeout: "15m", IgnoreOldWorkers: true}}}, f.requests())

	s = f.cli("drain", "heavy", "--json")
	assert.Equal(t, exitDone, s.code)
	golden(t, "drained-progress.txt", s.err)
	var r admission.Result
	require.NoError(t, json.Unmarshal([]byte(s.out), &r))
	assert.Equal(t, admission.Done, r.Outcome)
	assert.Equal(t, "10m", f.requests()[1].Command.Timeout)
}

func TestDrainExitCodes(t *testing.T) {
	for _, c := range []struct {
		outcome admission.Outcome
		code    string
		want    int
	}{
		{admission.Done, admission.CodeOK, exitDone},
		{admission.Refused, admission.CodeReloaded, exitFailed},
		{admission.Refused, admission.CodeInvalid, exitUsage},
		{admission.Incomplete, admission.CodeHAProxy, exitFailed},
		{admission.TimedOut, admission.CodeDrainTimeout, exitTimedOut},
		{"an outcome of the future", "x", exitFailed},
	} {
		f := newFakeAgent(t, aDrain(c.outcome, c.code, "as told")...)
		assert.Equal(t, c.want, f.cli("drain", "heavy").code, c.outcome)
		assert.Equal(t, c.want, f.cli("drain", "heavy", "--json").code, c.outcome)
	}
}

// On a terminal one line is written over and over, and ended once.
func TestProgressOnATerminal(t *testing.T) {
	var out bytes.Buffer
	p := &progress{out: &out, terminal: true}
	for _, e := range aDrain(admission.Done, admission.CodeOK, "") {
		if e.Progress != nil {
			p.tell(*e.Progress)
		}
	}
	p.done()
	const clear = "\r\x1b[K"
	assert.Equal(t, clear+"   0s  haproxy edge: 12 streams, 3 queued (7 wait in the backend); haproxy core: 1 stream, 0 queued"+
		clear+"   0s  haproxy edge: 12 streams, 3 queued (7 wait in the backend); haproxy core: 1 stream, 0 queued"+
		clear+"   0s  haproxy edge: 0 streams, 0 queued; haproxy core: haproxy did not answer in time"+
		clear+"  13s  haproxy edge: 0 streams, 0 queued; haproxy core: 0 streams, 0 queued\n", out.String())

	out.Reset()
	(&progress{out: &out, terminal: true}).done()
	assert.Empty(t, out.String(), "where nothing was told no line is ended")
	assert.False(t, newProgress(&out).terminal)
}

// An operator who gives up on a drain ends it, and hears what that means.
//
// Control: with no verb made interruptible in root the test's process died.
func TestInterruptedCommands(t *testing.T) {
	for _, c := range []struct {
		verb     string
		accepted bool
		says     string
	}{
		{"drain", true, "tier-agent: stopped waiting (interrupt signal received); the drain has ended and admission is as it was\n"},
		{"readmit", true, "tier-agent: stopped waiting (interrupt signal received); tier-agent goes on with a readmit that it has begun, look at tier-agent status\n"},
		{"drain", false, "tier-agent: stopped waiting (interrupt signal received); tier-agent had not accepted the drain, and begins none whose caller has left\n"},
		{"readmit", false, "tier-agent: stopped waiting (interrupt signal received); tier-agent had not accepted the readmit, and begins none whose caller has left\n"},
	} {
		f, left := newFakeAgent(t), make(chan struct{})
		f.answer = func(w http.ResponseWriter, r *http.Request) {
			if c.accepted {
				_ = json.NewEncoder(w).Encode(httpapi.Event{Progress: &admission.Progress{}})
				_ = http.NewResponseController(w).Flush()
			}
			_ = syscall.Kill(syscall.Getpid(), syscall.SIGINT)
			<-r.Context().Done()
			left <- struct{}{}
		}
		interrupt := func() said {
			got := make(chan said)
			go func() { got <- f.cli(c.verb, "heavy") }()
			<-left
			return <-got
		}
		got := interrupt()
		// The signal may overtake the header that accepts: they take different ways, and
		// nothing but the command itself knows when it has read the one.
		for try := 0; c.accepted && strings.Contains(got.err, "had not accepted") && try < 100; try++ {
			got = interrupt()
		}
		assert.Equal(t, said{exitFailed, "", c.says}, got)
	}
}

// What does not change is said again every ten seconds; a transition that counts nothing
// says for what it waits.
//
// Control: with anew not looked at in tell, the second and the third line were missing.
func TestProgressIsSaidAgain(t *testing.T) {
	var out bytes.Buffer
	p := newProgress(&out)
	for _, at := range []float64{0, 0.2, 9.9, 10.1, 12, 20.3} {
		p.tell(admission.Progress{Seconds: at, Waiting: "one stream to end", HAProxy: []admission.InstanceLoad{{
			Instance: "edge", Streams: 1, Tracking: map[string]int{"batch/b1": 1},
		}}})
	}
	p.tell(admission.Progress{Seconds: 21, Waiting: "HAProxy (edge) to answer"})
	p.tell(admission.Progress{Seconds: 21.5})
	p.done()
	one := "haproxy edge: 1 stream, 0 queued (1 of them on batch/b1, which tracks)\n"
	assert.Equal(t, "0.0s "+one+"10.1s "+one+"20.3s "+one+"21.0s waits for HAProxy (edge) to answer\n", out.String())
}
