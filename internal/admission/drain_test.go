package admission

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tier-agent/internal/runtimeapi"
	"tier-agent/internal/tier"
	"tier-agent/test/guarantee"
)

// each is a Progress that lets the test act after each read, by its number.
func each(do func(read int, p Progress)) func(Progress) {
	read := 0
	return func(p Progress) {
		read++
		do(read, p)
	}
}

func (l *lab) drain(t testing.TB, target tier.Target, progress func(Progress)) Result {
	t.Helper()
	return l.Drain(t.Context(), DrainRequest{Target: target, Timeout: time.Minute, Progress: progress})
}

// Control: it ended too early with zeroReads at 1, and with `zeros = 0` made to
// go back by one read only.
func TestDrainWantsThreeReadsInARowToFindNothing(t *testing.T) {
	for name, counted := range map[string]func(*haproxy) map[string]int{
		"streams": func(h *haproxy) map[string]int { return h.sessions },
		"queue":   func(h *haproxy) map[string]int { return h.queue },
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t)
			l.quiesced(t, llm)
			set := func(n int) { l.hap2.with(func() { counted(l.hap2)["llm/gpu2"] = n }) }
			set(2)
			reads := 0
			seen := []int{}
			r := l.drain(t, llm, each(func(read int, p Progress) {
				reads = read
				require.Len(t, p.HAProxy, 2)
				assert.Equal(t, InstanceLoad{Instance: "hap1", PID: 100}, p.HAProxy[0])
				seen = append(seen, p.HAProxy[1].Streams+p.HAProxy[1].Queue)
				set(map[int]int{3: 1}[read]) // after two that found nothing, one again
			}))
			assert.Equal(t, Done, r.Outcome, r.Message)
			assert.Equal(guarantee.T(t), []int{2, 0, 0, 1, 0, 0, 0}, seen)
			assert.Equal(t, 7, reads)
			assert.Equal(t, "llm is drained: no stream and no queued request in 3 reads of 2 HAProxies; old workers of hap1, hap2 cannot be seen without the master's socket", r.Message)
			assert.True(t, r.Quiesced)
			assert.Empty(t, l.journal.with("set server"), "it only reads")
		})
	}
}

// Between two tries HAProxy has a request in no count. hap2 tries one again while the
// drain waits.
//
// Control: with trying not looked at in wait, the third read ended the drain; with tried
// set only where retries were 0 before, so did the one 1.5 s after the first try.
func TestG8_DrainWaitsForARequestBetweenTwoTries(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.quiesced(t, llm)
	tries := func() { l.hap2.with(func() { l.hap2.retries["llm/gpu2"]++ }) }
	tries()
	var again, ended time.Time
	r := l.drain(t, llm, each(func(read int, p Progress) {
		if ended = time.Now(); read == 10 {
			tries()
			again = time.Now()
		}
	}))
	assert.Equal(t, Done, r.Outcome, r.Message)
	assert.GreaterOrEqual(guarantee.T(t), ended.Sub(again), betweenTries)

	l.hap2.with(func() { l.hap2.retries["llm/gpu1"]++ })
	r = l.Drain(t.Context(), DrainRequest{Target: llm, Timeout: time.Second})
	assert.Equal(guarantee.T(t), CodeDrainTimeout, r.Code)
	assert.Equal(t, "after 1s a connection had been tried again less than 1.5s before, and its request may be between two tries (retries in HAProxy's configuration); llm stays quiesced", r.Message)

	l.hap2.with(func() { l.hap2.retries = map[string]int{"chat/a1": 7} })
	reads := 0
	assert.Equal(t, Done, l.drain(t, llm, each(func(read int, _ Progress) { reads = read })).Outcome)
	assert.Equal(t, zeroReads, reads, "another tier's")
}

func TestDrainDoesNotWaitForTheBackendsOwnQueue(t *testing.T) {
	l := newLab(t)
	l.quiesced(t, gpu1)
	l.hap1.with(func() { l.hap1.queue["llm"], l.hap1.sessions["llm/gpu2"] = 7, 3 })
	var last Progress
	r := l.drain(t, gpu1, func(p Progress) { last = p })
	assert.Equal(t, Done, r.Outcome, r.Message)
	assert.Equal(t, InstanceLoad{Instance: "hap1", PID: 100, BackendQueue: 7}, last.HAProxy[0])
}

// Control: with the servers that are quiesced on their own account left out of
// a drain, as they are out of a readmit, the tier was drained over gpu1's
// stream.
func TestG8_DrainOfATierCountsServersThatWereQuiescedBefore(t *testing.T) {
	l := newLab(t)
	l.quiesced(t, gpu1)
	l.quiesced(t, llm)
	l.hap1.with(func() { l.hap1.sessions["llm/gpu1"] = 1 })
	var streams []int
	r := l.drain(t, llm, each(func(read int, p Progress) {
		if streams = append(streams, p.HAProxy[0].Streams); read == 4 {
			l.hap1.with(func() { clear(l.hap1.sessions) })
		}
	}))
	assert.Equal(t, Done, r.Outcome)
	assert.Equal(guarantee.T(t), []int{1, 1, 1, 1, 0, 0, 0}, streams)
}

func TestDrainEndsAtItsTimeoutAndStaysQuiesced(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.quiesced(t, llm)
	l.hap1.with(func() { l.hap1.sessions["llm/gpu1"], l.hap1.queue["llm/gpu2"] = 2, 1 })
	r := l.Drain(t.Context(), DrainRequest{Target: llm, Timeout: time.Second})
	assert.Equal(guarantee.T(t), TimedOut, r.Outcome)
	assert.Equal(t, CodeDrainTimeout, r.Code)
	assert.Equal(t, "after 1s 3 streams and queued requests are left; llm stays quiesced", r.Message)
	assert.True(t, r.Quiesced)
	assert.True(guarantee.T(t), l.closed(t, llm))
	assert.Equal(guarantee.T(t), bothDrained, l.states("llm/gpu1"))
}

// Control: with the read under ctx instead of under the timeout's context, the
// drain ended only with its caller; with the counts read all the same after the
// timeout, it was hap1 that was blamed.
func TestDrainEndsAtItsTimeoutThoughHAProxyHangs(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.quiesced(t, llm)
	l.hap2.fail(fault{action: hang, times: -1})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	r := l.Drain(ctx, DrainRequest{Target: llm, Timeout: 2 * time.Second})
	assert.Equal(guarantee.T(t), TimedOut, r.Outcome, r.Message)
	assert.Contains(t, r.Message, "could not be counted (haproxy hap2: ")
	assert.True(guarantee.T(t), l.closed(t, llm))
}

func TestDrainEndsWithItsCallerAndStaysQuiesced(t *testing.T) {
	l := newLab(t)
	l.quiesced(t, llm)
	l.hap1.with(func() { l.hap1.sessions["llm/gpu1"] = 1 })
	ctx, cancel := context.WithCancel(t.Context())
	r := l.Drain(ctx, DrainRequest{Target: llm, Timeout: time.Hour, Progress: func(Progress) { cancel() }})
	assert.Equal(guarantee.T(t), Refused, r.Outcome)
	assert.Equal(t, CodeStopped, r.Code)
	assert.Contains(t, r.Message, "llm stays quiesced")
	assert.True(t, r.Quiesced)
	assert.True(guarantee.T(t), l.closed(t, llm))
}

// Control: with now.err left out of the condition, a HAProxy that could not be
// read counted as one without streams.
func TestDrainTakesWhatItCannotReadForNoZero(t *testing.T) {
	for name, f := range map[string]fault{
		"streams":         {action: cut, on: "show stat", times: 5},
		"states":          {action: cut, on: "show servers state", times: 5},
		"half the answer": {action: half, on: "show stat", times: 5},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t)
			l.quiesced(t, llm)
			l.hap2.fail(f)
			failed := 0
			zeros := 0
			r := l.drain(t, llm, func(p Progress) {
				assert.Empty(t, p.HAProxy[0].Error)
				if zeros++; p.HAProxy[1].Error != "" {
					assert.Regexp(t, "haproxy hap2: at .*: incomplete answer", p.HAProxy[1].Error)
					failed, zeros = failed+1, 0
				}
			})
			assert.Equal(t, Done, r.Outcome)
			assert.NotZero(t, failed)
			assert.Equal(guarantee.T(t), zeroReads, zeros)
		})
	}
	t.Run("a server that is gone", func(t *testing.T) {
		l := newLab(t)
		l.quiesced(t, llm)
		l.hap2.with(func() { l.hap2.order = []string{"llm/gpu1"} })
		ctx, cancel := context.WithCancel(t.Context())
		r := l.Drain(ctx, DrainRequest{Target: llm, Timeout: time.Minute, Progress: each(func(read int, p Progress) {
			if assert.Contains(t, p.HAProxy[1].Error, "haproxy hap2: no such server: llm/gpu2"); read == 5 {
				cancel()
			}
		})})
		assert.Equal(guarantee.T(t), CodeStopped, r.Code)
	})
}

// Control: with the close taken out of left, the server stayed open and the
// drain went on to its timeout.
func TestDrainClosesAgainWhatWasReopened(t *testing.T) {
	l := newLab(t)
	l.quiesced(t, llm)
	reads := 0
	r := l.drain(t, llm, each(func(read int, _ Progress) {
		if reads = read; read == 2 {
			l.hap2.operator("llm/gpu2", "ready")
		}
	}))
	assert.Equal(t, Done, r.Outcome, r.Message)
	assert.Equal(t, 6, reads, "the count begins anew")
	assert.Equal(guarantee.T(t), bothDrained, l.states("llm/gpu2"))
	assert.Equal(t, []string{"hap2 set server llm/gpu2 state drain"}, l.journal.with("set server"))
}

// Control: without the look at the pids the drain of a reloaded HAProxy was
// done, over the streams of its old worker.
func TestG8_DrainDoesNotTrustAReload(t *testing.T) {
	for name, when := range map[string]int{"before the drain": 0, "during the drain": 2} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t)
			l.quiesced(t, llm)
			l.hap1.with(func() { l.hap1.sessions["llm/gpu1"] = 1 })
			reload := func(read int) {
				if read == when {
					l.hap1.reload()
				}
			}
			reload(0)
			r := l.drain(t, llm, each(func(read int, _ Progress) { reload(read) }))
			assert.Equal(guarantee.T(t), Refused, r.Outcome)
			assert.Equal(t, CodeReloaded, r.Code)
			assert.Contains(t, r.Message, "haproxy hap1 was reloaded")
			assert.True(t, r.Quiesced)
			assert.Equal(guarantee.T(t), bothDrained, l.states("llm/gpu1"), "the reload had lost the drain")

			r = l.Drain(t.Context(), DrainRequest{Target: llm, Timeout: time.Minute, IgnoreOldWorkers: true})
			assert.Equal(t, Done, r.Outcome, r.Message)
		})
	}
}

// Control: with only those processes known that the quiesce had seen, the
// reload in the middle of the drain was not noticed.
func TestG8_DrainNoticesAReloadOfAHAProxyThatTheQuiesceNeverSaw(t *testing.T) {
	l := newLab(t, short)
	l.hap1.operator("llm/gpu1", "drain")
	l.hap1.operator("llm/gpu2", "drain")
	f := l.hap1.fail(fault{action: cut, times: -1})
	require.Equal(t, Incomplete, l.quiesce(t, llm, "swap").Outcome)
	<-f.met
	l.hap1.heal()
	l.hap1.with(func() { l.hap1.sessions["llm/gpu1"] = 1 })
	r := l.drain(t, llm, each(func(read int, _ Progress) {
		if read == 2 {
			l.hap1.with(func() { l.hap1.pid++; clear(l.hap1.sessions) }) // a state file kept the drain
		}
	}))
	assert.Equal(guarantee.T(t), CodeReloaded, r.Code, r.Message)
}

func TestDrainRefusesWhatItCannotDo(t *testing.T) {
	l := newLab(t)
	for _, timeout := range []time.Duration{0, -time.Second} {
		r := l.Drain(t.Context(), DrainRequest{Target: llm, Timeout: timeout})
		assert.Equal(t, CodeInvalid, r.Code)
		assert.Contains(t, r.Message, "give a positive duration")
	}
	r := l.drain(t, llm, nil)
	assert.Equal(t, Refused, r.Outcome)
	assert.Equal(t, CodeNotQuiesced, r.Code)
	l.quiesced(t, words)
	r = l.drain(t, words, nil)
	assert.Equal(t, Refused, r.Outcome)
	assert.Equal(t, CodeNoRuntimeAPI, r.Code)
	assert.Empty(t, l.journal.with("hap"))

	none := newLab(t, func(o *Options, _ *runtimeapi.Options) {})
	none.o.HAProxy = runtimeapi.NewSet()
	require.Equal(t, Done, none.quiesce(t, llm, "swap").Outcome)
	assert.Equal(t, CodeNoRuntimeAPI, none.drain(t, llm, nil).Code, "no HAProxy at all has no streams to show")
}
