package admission

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tier-agent/internal/fence"
	"tier-agent/internal/probe"
	"tier-agent/internal/runtimeapi"
	"tier-agent/internal/tier"
	"tier-agent/test/guarantee"
)

var notReady = probe.Result{Reason: "health_http_503"}

// Control: without Invalidate in verify the probes ran in the old generation;
// with Model.Open moved above everywhere the gate was open when HAProxy was
// opened; without confirm the readmit was done while gpu2 was down on hap2; with one
// confirmation it was done between two checks, one of them from before.
func TestG6_ReadmitInvalidatesProbesOpensAndConfirms(t *testing.T) {
	l := newLab(t)
	l.quiesced(t, llm)
	before := l.generation(t, llm)
	inspect := func(ctx context.Context) probe.Result {
		assert.NotEqual(guarantee.T(t), before, l.generation(t, llm), "invalidated before it is probed")
		assert.Equal(guarantee.T(t), bothDrained, l.states("llm/gpu1"))
		assert.Equal(guarantee.T(t), bothDrained, l.states("llm/gpu2"))
		return passed
	}
	l.prober.set("llm/gpu1", inspect)
	l.prober.set("llm/gpu2", inspect)
	var reads atomic.Int32
	l.hap2.with(func() {
		l.hap2.arrived = func(line string) {
			switch {
			case strings.Contains(line, "set server"):
				assert.True(guarantee.T(t), l.closed(t, llm), "HAProxy is opened first")
			case strings.Contains(line, "show stat"):
				assert.False(t, l.closed(t, llm))
				reads.Add(1)
			}
		}
		// The agent's word reaches this one late, and behind it a check from before.
		l.hap2.agent = func(name string) bool {
			late := reads.Load() < 3 || reads.Load() == 4
			return l.admits(name) && (name != "llm/gpu2" || !late)
		}
	})
	r := l.readmit(t, llm)
	assert.Equal(t, Done, r.Outcome, r.Message)
	assert.Equal(t, CodeOK, r.Code)
	assert.Equal(t, "llm is open again: 2 servers of 2 ready", r.Message)
	assert.False(t, r.Quiesced)
	assert.Nil(t, r.Closure)
	assert.EqualValues(t, 6, reads.Load(), "confirmed by the first two reads in a row that show it up")
	assert.Equal(t, l.generation(t, gpu1), r.Evidence[0].Generation)
	assert.Equal(t, Evidence{Server: "llm/gpu1", Ready: true, Reason: "identity_passed", Generation: r.Evidence[0].Generation}, r.Evidence[0])
	assert.Equal(t, bothReady, l.states("llm/gpu1"))
	assert.Equal(t, bothReady, l.states("llm/gpu2"))
	assert.True(t, l.admits("llm/gpu1"))

	order := l.journal.with("probe ", "hap2 set server", "hap2 show stat")
	require.Len(t, order, 10)
	assert.ElementsMatch(t, []string{"probe llm/gpu1", "probe llm/gpu2"}, order[:2])
	assert.Equal(t, []string{"hap2 set server llm/gpu1 state ready", "hap2 set server llm/gpu2 state ready"}, order[2:4])
	assert.Equal(t, "hap2 show stat llm 6 -1", order[4])
}

func TestReadmitOnMetadataAlone(t *testing.T) {
	l := newLab(t)
	l.quiesced(t, chat)
	l.prober.says("chat/a1", probe.Result{Ready: true, Reason: probe.MetadataPassed, Metadata: map[string]string{"revision": "7"}})
	r := l.readmit(t, chat)
	assert.Equal(t, Done, r.Outcome)
	assert.Equal(t, map[string]string{"revision": "7"}, r.Evidence[0].Metadata)
}

// Control: with the count of ready servers taken out of verify, HAProxy was
// opened, and the tier stayed open where one server was ready.
func TestG6_ReadmitStaysQuiescedWithoutReadyEvidence(t *testing.T) {
	for name, reason := range map[string]string{
		"not healthy":    "health_http_503",
		"wrong identity": probe.IdentityMismatch,
		"wrong metadata": probe.MetadataMismatch,
		"not reached":    "health_transport_refused",
		"too slow":       probe.Timeout,
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t)
			l.quiesced(t, llm)
			before := l.generation(t, llm)
			l.prober.says("llm/gpu2", probe.Result{Reason: reason})
			r := l.readmit(t, llm)
			assert.Equal(t, Refused, r.Outcome)
			assert.Equal(t, CodeNotReady, r.Code)
			assert.Equal(t, "llm stays quiesced: 1 of 2 servers are ready (llm/gpu2: "+reason+")", r.Message)
			assert.True(t, r.Quiesced)
			assert.Equal(t, "swap", r.Closure.Reason)
			assert.True(guarantee.T(t), l.closed(t, llm))
			assert.NotEqual(t, before, r.Generation)
			assert.Empty(guarantee.T(t), l.journal.with("set server", "show stat"), "HAProxy is not touched")
			assert.Equal(guarantee.T(t), bothDrained, l.states("llm/gpu1"))
		})
	}
}

func TestReadmitTakesTheEvidenceOfNoOtherMoment(t *testing.T) {
	l := newLab(t)
	require.True(t, l.monitor.ProbeNow(t.Context(), "llm/gpu1").Ready)
	require.True(t, l.monitor.ProbeNow(t.Context(), "llm/gpu2").Ready)
	l.quiesced(t, llm)
	require.True(t, l.monitor.ProbeNow(t.Context(), "llm/gpu2").Ready, "after the quiesce, before the readmit")
	l.prober.says("llm/gpu2", notReady)
	r := l.readmit(t, llm)
	assert.Equal(t, CodeNotReady, r.Code)
	assert.True(guarantee.T(t), l.closed(t, llm))
}

// A probe of before is held until after the refusal; it then passes and counts
// for nothing.
//
// Control: with unsettled taken out of verify, the readmit was done while it
// was out.
func TestReadmitIsRefusedWhileAnOldProbeIsOut(t *testing.T) {
	l := newLab(t, func(o *Options, _ *runtimeapi.Options) { o.Settle = 5 * time.Millisecond })
	entered, release := l.prober.hold("llm/gpu2")
	old := make(chan fence.Verdict, 1)
	go func() { old <- l.monitor.ProbeNow(t.Context(), "llm/gpu2") }()
	<-entered
	l.prober.set("llm/gpu2", nil) // what comes after it passes at once
	l.quiesced(t, llm)
	r := l.readmit(t, llm)
	assert.Equal(t, Refused, r.Outcome)
	assert.Equal(t, CodePending, r.Code)
	assert.Equal(t, "probe_pending", r.Code)
	assert.Contains(t, r.Message, "a probe of llm/gpu2 from before is still out")
	assert.True(guarantee.T(t), l.closed(t, llm))
	assert.Empty(t, l.journal.with("set server", "probe llm/gpu1"), "nothing was begun")

	release <- passed
	assert.Equal(guarantee.T(t), fence.ReasonInvalidated, (<-old).Reason)
	assert.False(guarantee.T(t), l.admits("llm/gpu2"))
	assert.Equal(t, Done, l.readmit(t, llm).Outcome, "and when it has ended all is well")
}

// A probe that ends within Settle is waited for, so that the monitor's own do
// not make a readmit fail at random.
func TestReadmitWaitsBrieflyForAnOldProbe(t *testing.T) {
	l := newLab(t)
	entered, release := l.prober.hold("llm/gpu2")
	old := make(chan fence.Verdict, 1)
	go func() { old <- l.monitor.ProbeNow(t.Context(), "llm/gpu2") }()
	<-entered
	l.quiesced(t, llm)
	before := l.generation(t, llm)
	ended := make(chan Result, 1)
	go func() { ended <- l.readmit(t, llm) }()
	soon(t, "the readmit invalidates", func() bool { return l.generation(t, llm) != before })
	l.prober.set("llm/gpu2", nil)
	release <- notReady
	assert.Equal(guarantee.T(t), fence.ReasonInvalidated, (<-old).Reason)
	assert.Equal(t, Done, (<-ended).Outcome)
}

// Control: with `e.Reason` in refusalCode made CodeNotReady, the code did not
// tell.
func TestG1_ReadmitWhoseProbeIsInvalidatedIsRefused(t *testing.T) {
	for name, target := range map[string]tier.Target{"tier": llm, "server": gpu2, "everything": {}} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t)
			l.quiesced(t, llm)
			entered, release := l.prober.hold("llm/gpu2")
			ended := make(chan Result, 1)
			go func() { ended <- l.readmit(t, llm) }()
			<-entered
			// The other probe first, so that only one is invalidated.
			soon(t, "the probe of gpu1 counts", func() bool { a, _ := l.model.Server([]byte("llm/gpu1")); return a.Ready })
			require.Equal(t, Done, l.Invalidate(target).Outcome)
			release <- passed
			r := <-ended
			assert.Equal(t, Refused, r.Outcome)
			assert.Equal(t, "probe_invalidated", r.Code)
			assert.Contains(t, r.Message, "llm/gpu2: probe_invalidated")
			assert.True(t, r.Quiesced)
			assert.True(guarantee.T(t), l.closed(t, llm))
			assert.Empty(guarantee.T(t), l.journal.with("set server"))
		})
	}
}

// Control: with the generation compared no more in Model.Open, the gate opened
// on evidence that an invalidation had ended, until nothing came up.
func TestReadmitIsRefusedWhenTheGenerationMovesAfterTheProbes(t *testing.T) {
	l := newLab(t, briefly)
	l.quiesced(t, llm)
	f := l.hap1.fail(fault{action: hold, on: "gpu1 state ready"})
	ended := make(chan Result, 1)
	go func() { ended <- l.readmit(t, llm) }()
	<-f.met
	l.Invalidate(llm)
	close(f.release)
	r := <-ended
	assert.Equal(t, Refused, r.Outcome)
	assert.Equal(t, CodeMoved, r.Code)
	assert.True(guarantee.T(t), l.closed(t, llm))
	assert.Equal(guarantee.T(t), bothDrained, l.states("llm/gpu1"), "closed again")
	assert.Equal(guarantee.T(t), bothDrained, l.states("llm/gpu2"))
}

func TestReadmitNeedsAQuiescedTarget(t *testing.T) {
	l := newLab(t)
	before := l.generation(t, llm)
	r := l.readmit(t, llm)
	assert.Equal(t, Refused, r.Outcome)
	assert.Equal(t, CodeNotQuiesced, r.Code)
	assert.False(t, r.Quiesced)
	assert.Equal(t, before, l.generation(t, llm), "an open tier keeps its evidence")
	assert.Empty(t, l.journal.with("hap", "probe"))
}

// Control: with the look at Identified taken out, health alone opened the tier.
func TestReadmitOnHealthAloneHasToBeAskedFor(t *testing.T) {
	l := newLab(t)
	l.quiesced(t, bare)
	l.prober.says("bare/b1", probe.Result{Ready: true, Reason: probe.HealthPassed})
	r := l.readmit(t, bare)
	assert.Equal(t, Refused, r.Outcome)
	assert.Equal(t, CodeUnidentified, r.Code)
	assert.Contains(t, r.Message, "--allow-unidentified")
	assert.True(guarantee.T(t), l.closed(t, bare))
	assert.Empty(t, l.journal.with("hap", "probe"))

	r = l.Readmit(t.Context(), ReadmitRequest{Target: bare, AllowUnidentified: true})
	assert.Equal(t, Done, r.Outcome)
	assert.Contains(t, r.Message, "on its health alone: no identity was compared")
	l.quiesced(t, llm)
	assert.NotContains(t, l.Readmit(t.Context(), ReadmitRequest{Target: llm, AllowUnidentified: true}).Message, "health alone")
}

func TestReadmitOfATierWithoutRuntimeAPI(t *testing.T) {
	l := newLab(t)
	l.quiesced(t, words)
	l.prober.says("words/w1", notReady)
	assert.Equal(t, CodeNotReady, l.readmit(t, words).Code)
	assert.True(guarantee.T(t), l.closed(t, words))
	l.prober.set("words/w1", nil)
	r := l.readmit(t, words)
	assert.Equal(t, Done, r.Outcome)
	assert.Contains(t, r.Message, "which nothing here can confirm")
	assert.True(t, l.admits("words/w1"))
	assert.Empty(t, l.journal.with("hap"))
}

func TestReadmitPartially(t *testing.T) {
	l := newLab(t)
	l.quiesced(t, llm)
	l.prober.says("llm/gpu1", notReady)
	assert.Equal(t, CodeNotReady, l.readmit(t, llm).Code)
	r := l.Readmit(t.Context(), ReadmitRequest{Target: llm, Partial: true})
	assert.Equal(t, Done, r.Outcome, r.Message)
	assert.Equal(t, "llm is open again: 1 server of 2 ready", r.Message)
	assert.False(guarantee.T(t), l.admits("llm/gpu1"), "its own evidence keeps it out")
	assert.True(t, l.admits("llm/gpu2"))
	assert.Equal(guarantee.T(t), "DOWN (agent)", l.hap1.status("llm/gpu1"))

	l.quiesced(t, llm)
	l.prober.says("llm/gpu2", notReady)
	r = l.Readmit(t.Context(), ReadmitRequest{Target: llm, Partial: true})
	assert.Equal(t, CodeNotReady, r.Code, "none is too few")
	assert.True(guarantee.T(t), l.closed(t, llm))
}

// The monitor probes every few milliseconds. Those of its probes that were out
// are waited for, and it issues none that would supersede the readmit's own.
//
// Control: with Suspend taken out of verify, the monitor's probe stood beside
// the readmit's.
func TestReadmitBesideARunningMonitor(t *testing.T) {
	l := newLab(t)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- l.monitor.Run(ctx) }()
	defer func() { cancel(); assert.NoError(t, <-ended) }()
	<-l.monitor.FirstRound()
	l.quiesced(t, llm)
	before := l.generation(t, llm)
	entered, release := make(chan struct{}, 100), make(chan struct{})
	l.prober.set("llm/gpu1", func(context.Context) probe.Result {
		if l.generation(t, llm) != before {
			entered <- struct{}{}
			<-release
		}
		return passed
	})
	readmit := inBackground(func() Result { return l.readmit(t, llm) })
	<-entered
	l.journal.clear()
	soon(t, "the monitor goes on", func() bool { return len(l.journal.with("probe chat/a1")) > 3 })
	assert.Empty(guarantee.T(t), entered, "a second probe is out")
	close(release)
	r := <-readmit
	assert.Equal(t, Done, r.Outcome, r.Message)
	l.prober.set("llm/gpu1", nil)
	l.journal.clear()
	soon(t, "the tier is probed again", func() bool { return len(l.journal.with("probe llm/gpu1")) > 3 })
}
