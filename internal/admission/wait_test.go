package admission

import (
	"context"
	"net"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tier-agent/internal/runtimeapi"
)

// master makes the HAProxies have a master's socket that answers a connection so.
func master(failure error) func(*Options, *runtimeapi.Options) {
	return func(_ *Options, ro *runtimeapi.Options) {
		ro.Master = runtimeapi.Socket{Network: "unix", Address: "/run/hap/master"}
		ro.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			if address == ro.Master.Address {
				return nil, failure
			}
			return new(net.Dialer).DialContext(ctx, network, address)
		}
	}
}

// Control: without hopeless, the drain went on to its timeout.
func TestADrainEndsWhereItsHAProxyCannotBeRead(t *testing.T) {
	for name, tc := range map[string]struct {
		failure error
		at      time.Duration // at the earliest
		says    string
	}{
		"may not be opened":   {syscall.EACCES, 0, "permission denied"},
		"is no path":          {syscall.ENOTDIR, 0, "correct the path in tier-agent's configuration"},
		"is not there":        {syscall.ENOENT, 300 * time.Millisecond, "no such file or directory"},
		"nobody listens to":   {syscall.ECONNREFUSED, 300 * time.Millisecond, "connection refused"},
		"has a full backlog ": {syscall.EAGAIN, 300 * time.Millisecond, "its listen queue is full"},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t, master(tc.failure), func(o *Options, _ *runtimeapi.Options) { o.Grace = 300 * time.Millisecond })
			l.quiesced(t, llm)
			var said []string
			r := l.drain(t, llm, func(p Progress) { said = append(said, p.Waiting) })
			assert.Equal(t, Refused, r.Outcome, r.Message)
			assert.Equal(t, CodeHAProxy, r.Code)
			assert.Contains(t, r.Message, "llm stays quiesced")
			assert.Contains(t, r.Message, "/run/hap/master: ")
			assert.Contains(t, r.Message, tc.says)
			assert.GreaterOrEqual(t, r.Seconds, tc.at.Seconds())
			require.NotEmpty(t, said)
			assert.Contains(t, said[0], "/run/hap/master: ", "what it waits for, if it waits")
			assert.True(t, l.closed(t, llm))
		})
	}
}

// A socket that is gone for a while, as in a reload or a restart, ends no drain.
//
// Control: with readable never moved on in wait, the second time ended it.
func TestADrainOutlivesASocketThatComesBack(t *testing.T) {
	failing := make(chan bool, 1)
	failing <- false
	var l *lab
	l = newLab(t, func(o *Options, ro *runtimeapi.Options) {
		o.Grace = 2 * time.Second
		o.Poll = 10 * time.Millisecond
		ro.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			bad := <-failing
			failing <- bad
			if bad && address == l.hap1.path {
				return nil, syscall.ENOENT
			}
			return new(net.Dialer).DialContext(ctx, network, address)
		}
	})
	l.quiesced(t, llm)
	l.hap2.with(func() { l.hap2.sessions["llm/gpu1"] = 1 })
	turn := func(bad bool) { <-failing; failing <- bad }
	phase, since := 0, time.Now()
	r := l.drain(t, llm, func(p Progress) {
		if time.Since(since) < 1200*time.Millisecond && phase%2 == 1 || phase == 4 {
			return
		}
		phase, since = phase+1, time.Now()
		if turn(phase%2 == 1); phase == 4 {
			l.hap2.with(func() { clear(l.hap2.sessions) })
		}
	})
	assert.Equal(t, Done, r.Outcome, r.Message)
}

// Each wait of a readmit says for what it waits, again and again: a probe from before, a
// probe, HAProxy's check.
//
// Control: with start of voice returning at once, nobody said anything.
func TestAReadmitSaysForWhatItWaits(t *testing.T) {
	l := newLab(t, func(o *Options, _ *runtimeapi.Options) { o.Silence = 20 * time.Millisecond })
	l.quiesced(t, llm)
	entered, release := l.prober.hold("llm/gpu1")
	go func() { l.monitor.ProbeNow(t.Context(), "llm/gpu1") }()
	<-entered
	l.hap2.with(func() { l.hap2.agent = func(string) bool { return false } })
	var said []string
	says := func(text string) bool {
		return slices.ContainsFunc(said, func(one string) bool { return strings.Contains(one, text) })
	}
	r := l.Readmit(t.Context(), ReadmitRequest{Target: llm, Progress: func(p Progress) {
		n := len(said)
		said = append(said, p.Waiting)
		assert.Empty(t, p.HAProxy)
		switch {
		case n > 0 && said[n-1] != said[n]:
		case strings.Contains(p.Waiting, "a probe of llm/gpu1 from before to end"):
			if n == 1 {
				release <- passed
				go func() { <-entered }()
			}
		case strings.Contains(p.Waiting, "a probe of each server") && n > 2:
			select {
			case release <- passed:
			case <-time.After(time.Second):
			}
		case strings.Contains(p.Waiting, "DOWN (agent)"):
			l.hap2.with(func() { l.hap2.agent = l.admits })
		}
	}})
	assert.Equal(t, Done, r.Outcome, r.Message)
	assert.True(t, says("a probe of llm/gpu1 from before"), "%q", said)
	assert.True(t, says("a probe of each server"), "%q", said)
	assert.True(t, says(`HAProxy to have every server up: haproxy hap2 shows llm/gpu1 as "DOWN (agent)"`), "%q", said)
}

// A check that takes many intervals gets further now and then: the readmit waits for it,
// however long that is, and no longer than it does.
//
// Control: with moved set once, at the start of confirm, the readmit was undone.
func TestAReadmitWaitsAsLongAsTheChecksGetFurther(t *testing.T) {
	l := newLab(t, briefly)
	l.quiesced(t, llm)
	steps := func(until int) {
		l.hap2.with(func() {
			l.hap2.agent = func(name string) bool { return name != "llm/gpu1" || l.hap2.health[name] > 9 }
			clear(l.hap2.health)
			last := time.Now()
			l.hap2.arrived = func(line string) {
				l.hap2.with(func() {
					if n := l.hap2.health["llm/gpu1"]; strings.Contains(line, "show stat") && n < until && time.Since(last) > 150*time.Millisecond {
						l.hap2.health["llm/gpu1"], last = n+1, time.Now()
					}
				})
			}
		})
	}
	steps(10)
	r := l.readmit(t, llm)
	assert.Equal(t, Done, r.Outcome, r.Message)
	assert.Greater(t, r.Seconds, 1.5, "three times the patience")

	l.quiesced(t, llm)
	steps(4)
	r = l.readmit(t, llm)
	assert.Equal(t, CodeNotConfirmed, r.Code, r.Message)
	assert.Contains(t, r.Message, "DOWN (agent)")
	assert.Greater(t, r.Seconds, 1.1)
	l.shut(t)
}

// An operator's limit ends a confirmation, whatever gets further, and not before.
//
// Control: with limit left out, the one of 100 ms went on for Options.Confirm.
func TestAReadmitConfirmsWithinTheLimitThatItIsGiven(t *testing.T) {
	for limit, patience := range map[time.Duration]time.Duration{1200 * time.Millisecond: 500 * time.Millisecond, 100 * time.Millisecond: time.Minute} {
		l := newLab(t, func(o *Options, _ *runtimeapi.Options) { o.Confirm = patience })
		l.quiesced(t, llm)
		l.hap2.with(func() { l.hap2.agent = func(string) bool { return false } })
		r := l.Readmit(t.Context(), ReadmitRequest{Target: llm, Confirm: limit})
		assert.Equal(t, CodeNotConfirmed, r.Code, r.Message)
		assert.GreaterOrEqual(t, r.Seconds, limit.Seconds())
		assert.Less(t, r.Seconds, 30.0)
	}
}
