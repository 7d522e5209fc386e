package admission

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tier-agent/internal/intent"
	"tier-agent/internal/observe"
	"tier-agent/internal/runtimeapi"
	"tier-agent/test/guarantee"
)

// Control: with reclose left out of Reconcile, each of them stayed open.
func TestG7_WhatHasComeOpenIsClosedAtTheNextLook(t *testing.T) {
	for name, happens := range map[string]func(*lab){
		"a reload has lost the drains": func(l *lab) { l.hap2.reload() },
		"somebody said ready":          func(l *lab) { l.hap2.operator("llm/gpu1", "ready") },
		"an opening is applied late": func(l *lab) {
			f := l.hap2.fail(fault{action: late, on: "gpu1 state ready"})
			r := l.readmit(t, llm)
			require.Equal(t, Incomplete, r.Outcome, r.Message)
			close(f.release)
			<-f.acted
		},
	} {
		t.Run(name, func(t *testing.T) {
			var told []Result
			l := newLab(t, short, func(o *Options, _ *runtimeapi.Options) { o.Ended = func(r Result) { told = append(told, r) } })
			l.watching(t)
			l.quiesced(t, llm)
			happens(l)
			require.Equal(t, "ready", l.hap2.state("llm/gpu1").String())
			told = nil
			l.turn(t)
			l.shut(t)
			require.Len(t, told, 1)
			assert.Equal(t, []any{VerbReconcile, Done, llm}, []any{told[0].Verb, told[0].Outcome, told[0].Target})
			assert.Contains(t, told[0].Message, "haproxy hap2 has llm/gpu1 open")
			assert.Equal(t, []string{"haproxy hap2 has llm/gpu1 open"}, l.intentOf(t, llm).Drift[:1])
			l.turn(t)
			assert.Len(t, told, 1, "said once")
			assert.Empty(t, l.intentOf(t, llm).Drift)
			r := l.readmit(t, llm)
			assert.Equal(t, Done, r.Outcome, "it was ours: %s", r.Message)
		})
	}
}

// Control: with maintenance taken for open, in drift and in close, it was made
// drain, which lets persistent clients through.
func TestG10_TheReconcilerOpensNothingAndLeavesWhatOthersClosed(t *testing.T) {
	l := newLab(t)
	l.watching(t)
	l.hap2.operator("llm/gpu2", "drain")
	l.quiesced(t, llm)
	l.hap1.operator("llm/gpu1", "maint")
	l.hap1.operator("chat/a1", "drain") // no intent
	l.turn(t)
	l.turn(t)
	assert.Empty(guarantee.T(t), l.journal.with("set server"))
	require.Equal(t, Done, l.take(t, llm).Outcome)
	l.journal.clear()
	l.hap2.operator("llm/gpu2", "maint")
	l.turn(t)
	assert.Empty(guarantee.T(t), l.journal.with("set server"), "nor after the intent has ended")
}

// Control: with the look at running in try made to let it in, the reconciler
// drained what the readmit had just opened, and the readmit was not confirmed.
func TestTheReconcilerGivesWay(t *testing.T) {
	l := newLab(t)
	l.watching(t)
	l.quiesced(t, llm)
	f := l.hap2.fail(fault{action: hold, on: "gpu1 state ready"})
	readmit := inBackground(func() Result { return l.readmit(t, llm) })
	<-f.met
	soon(t, "hap1 is open", func() bool { return l.hap1.state("llm/gpu2") == 0 })
	l.watcher.Turn(t.Context(), "hap1")
	assert.Empty(t, l.journal.with("state drain"), "to a readmit")
	close(f.release)
	require.Equal(t, Done, (<-readmit).Outcome)

	f = l.hap2.fail(fault{action: hold, on: "gpu1 state drain"})
	quiesce := inBackground(func() Result { return l.quiesce(t, llm, "again") })
	<-f.met
	soon(t, "hap1 is closed", func() bool { return l.hap1.state("llm/gpu2") != 0 })
	l.hap1.operator("llm/gpu2", "ready")
	l.journal.clear()
	l.watcher.Turn(t.Context(), "hap1")
	assert.Empty(t, l.journal.with("hap1 set server"), "to a quiesce")
	close(f.release)
	require.Equal(t, Done, (<-quiesce).Outcome)
	l.watcher.Turn(t.Context(), "hap1")
	l.shut(t)
}

// Control: with VerbDrain taken out of try, hap2 stayed open until the drain was
// over.
func TestTheReconcilerRunsBesideADrain(t *testing.T) {
	l := newLab(t)
	l.watching(t)
	l.quiesced(t, llm)
	f := l.hap1.fail(fault{action: hold, on: "show stat -1"})
	drain := inBackground(func() Result { return l.drain(t, llm, nil) })
	<-f.met
	l.hap2.operator("llm/gpu1", "ready")
	l.watcher.Turn(t.Context(), "hap2")
	assert.Equal(guarantee.T(t), bothDrained, l.states("llm/gpu1"))
	close(f.release)
	assert.Equal(t, Done, (<-drain).Outcome)
}

// Control: with settled left out, the phase stayed quiescing; with note left out
// of close, the drain of hap2 was somebody else's.
func TestAnInstanceThatComesBackIsClosed(t *testing.T) {
	l := newLab(t)
	l.watching(t)
	l.hap2.fail(fault{action: cut, times: -1})
	require.Equal(t, Incomplete, l.quiesce(t, llm, "swap").Outcome)
	for range 2 {
		l.turn(t)
		st := l.intentOf(t, llm)
		assert.Equal(t, intent.Quiescing, st.Phase)
		assert.Equal(t, []string{"haproxy hap2 cannot be read"}, st.Drift)
	}
	l.hap2.heal()
	l.turn(t)
	l.shut(t)
	l.turn(t)
	st := l.intentOf(t, llm)
	assert.Equal(t, intent.Quiesced, st.Phase)
	assert.Empty(t, st.Drift)
	assert.Equal(t, intent.Quiesced, l.onDisk(t)[0].Phase)
	r := l.readmit(t, llm)
	assert.Equal(t, Done, r.Outcome, "no --take-hold is needed: %s", r.Message)
}

// hap2 was seen open, could not be read at the quiesce, and somebody drained it
// there meanwhile. Nothing of ours ever reached it.
//
// Control: with what the watcher saw last noted as found, as close once did, the
// readmit opened it.
func TestG10_WhatWasDrainedWhileWeCouldNotReadIsAHold(t *testing.T) {
	l := newLab(t)
	l.watching(t)
	l.hap2.fail(fault{action: cut, times: -1})
	require.Equal(t, Incomplete, l.quiesce(t, llm, "swap").Outcome)
	l.hap2.operator("llm/gpu2", "drain")
	l.hap2.heal()
	l.turn(t)
	assert.Equal(t, []string{"llm/gpu2 is drain(forced)"}, holdTexts(l.Holds(l.o.Watcher.Views()[1])))
	r := l.readmit(t, llm)
	assert.Equal(guarantee.T(t), CodeHeld, r.Code, r.Message)
	assert.NotContains(t, r.Message, "gpu1", "that one was closed by us")
}

// Control: with lastSeen left out of close, the drain was done over the streams
// of the worker that ran at the quiesce.
func TestG8_AnInstanceThatWasReplacedBeforeItCouldBeClosedIsNotDrained(t *testing.T) {
	l := newLab(t)
	l.watching(t)
	l.hap2.fail(fault{action: cut, times: -1})
	require.Equal(t, Incomplete, l.quiesce(t, llm, "swap").Outcome)
	l.hap2.reload()
	l.hap2.heal()
	l.turn(t)
	next := l.afterKill(t) // whose watcher knows of no reload
	next.watching(t)
	r := next.drain(t, llm, nil)
	assert.Equal(guarantee.T(t), CodeReloaded, r.Code, r.Message)
	assert.Contains(t, r.Message, "haproxy hap2 was reloaded")
}

// Control: with Without not looked at in Reconcile, hap2 was closed.
func TestInstancesThatAreLeftOutAreLeftAlone(t *testing.T) {
	l := newLab(t)
	l.watching(t)
	r := l.Quiesce(t.Context(), QuiesceRequest{Target: llm, Reason: "swap", Without: []string{"hap2"}})
	require.Equal(t, Done, r.Outcome, r.Message)
	l.turn(t)
	l.turn(t)
	assert.Empty(t, l.journal.with("hap2 set server"))
	assert.Equal(t, [2]string{"drain(forced)", "ready"}, l.states("llm/gpu1"))
	assert.Empty(t, l.intentOf(t, llm).Drift)
	assert.Equal(t, intent.Quiesced, l.intentOf(t, llm).Phase)
}

// hap1 answers reads and hangs on the drain.
//
// Control: with VerbReconcile taken out of try, hap2 stayed open until hap1 had
// answered; with the look at waiting left out, hap2 was reconciled ahead of a
// readmit that waited.
func TestAnInstanceThatHangsDelaysNoOther(t *testing.T) {
	l := newLab(t)
	l.watching(t)
	l.quiesced(t, llm)
	for _, h := range l.haproxies() {
		h.reload()
	}
	f := l.hap1.fail(fault{action: hold, on: "gpu1 state drain"})
	ended := make(chan struct{})
	go func() { defer close(ended); l.watcher.Turn(t.Context(), "hap1") }()
	<-f.met
	l.watcher.Turn(t.Context(), "hap2")
	assert.Equal(guarantee.T(t), "drain(forced)", l.hap2.state("llm/gpu1").String())
	assert.Equal(guarantee.T(t), "drain(forced)", l.hap2.state("llm/gpu2").String())

	// Who waits for the reconciler is not overtaken by it.
	readmit := inBackground(func() Result { return l.readmit(t, llm) })
	lane := l.lane("llm")
	soon(t, "the readmit waits", func() bool { lane.mu.Lock(); defer lane.mu.Unlock(); return lane.waiting == 1 })
	l.hap2.operator("llm/gpu1", "ready")
	l.watcher.Turn(t.Context(), "hap2")
	assert.Equal(t, "ready", l.hap2.state("llm/gpu1").String())
	close(f.release)
	<-ended
	r := <-readmit
	assert.Equal(t, Done, r.Outcome, r.Message)
	assert.Zero(t, lane.waiting)
}

// Control: with Each taken out of read, or recover out of tell, the test's
// process died.
func TestAPanicOfOneInstanceDelaysNoOther(t *testing.T) {
	var l *lab
	var once sync.Once
	panicked := make(chan struct{})
	l = newLab(t, func(_ *Options, ro *runtimeapi.Options) {
		ro.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			if address == l.hap1.path {
				panic("a bug")
			}
			return new(net.Dialer).DialContext(ctx, network, address)
		}
	})
	w := observe.New(observe.Options{
		HAProxy: l.o.HAProxy, Every: time.Millisecond, Log: slog.New(slog.DiscardHandler),
		Looked: func(context.Context, *runtimeapi.Instance, observe.View) {
			once.Do(func() { close(panicked); panic("another") })
		},
	})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	<-panicked
	l.hap2.operator("llm/gpu1", "maint")
	soon(t, "hap2 is read on", func() bool { return w.Views()[1].Servers["llm/gpu1"].Admin.Maint() })
	soon(t, "hap1 is tried on", func() bool { return w.Views()[0].Err != nil })
	assert.ErrorIs(t, w.Views()[0].Err, runtimeapi.ErrPanicked)
	cancel()
	assert.NoError(t, <-ended)
}

// Control: with the comparison taken out of complain, it was logged at each look.
func TestTheReconcilerComplainsOnce(t *testing.T) {
	var log bytes.Buffer
	l := newLab(t, func(o *Options, _ *runtimeapi.Options) { o.Log = slog.New(slog.NewTextHandler(&log, nil)) })
	l.watching(t)
	l.quiesced(t, llm)
	l.hap2.with(func() { l.hap2.order = []string{"llm/gpu2"} }) // gpu1 was renamed there
	said := func() int { return strings.Count(log.String(), "could not be restored") }
	for range 3 {
		l.turn(t)
	}
	assert.Equal(t, 1, said(), log.String())
	assert.Equal(t, []string{"haproxy hap2 has no server llm/gpu1"}, l.intentOf(t, llm).Drift)
	l.hap2.with(func() { l.hap2.order = []string{"llm/gpu1", "llm/gpu2"} })
	l.hap2.operator("llm/gpu1", "ready")
	l.turn(t)
	l.shut(t)
	l.hap2.with(func() { l.hap2.order = []string{"llm/gpu2"} })
	l.turn(t)
	assert.Equal(t, 2, said(), "and again when it is new again")
}
