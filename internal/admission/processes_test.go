package admission

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tier-agent/internal/observe"
	"tier-agent/internal/runtimeapi"
	"tier-agent/test/guarantee"
)

// again is a restart of tier-agent, over the same files.
func (l *lab) again(t *testing.T) {
	t.Helper()
	var err error
	l.o.Processes, err = Processes(l.stateDir)
	require.NoError(t, err)
	l.Controller = New(l.o)
	l.Restore()
	l.watching(t)
	l.turn(t)
}

// A reload before a restart of tier-agent may have left streams in a worker that nothing
// shows, also where the quiesce comes after it.
//
// Control: with the file left out of Processes, the drain was done.
func TestG8_ARestartRemembersAReload(t *testing.T) {
	l := newLab(t)
	l.again(t)
	l.hap1.reload()
	l.turn(t)
	l.again(t)
	l.quiesced(t, llm)
	r := l.drain(t, llm, nil)
	assert.Equal(guarantee.T(t), CodeReloaded, r.Code, r.Message)
	assert.Contains(t, r.Message, "haproxy hap1 was reloaded")
}

// It may also have come while tier-agent was not running.
func TestG8_AReloadWithoutTierAgentIsNoticed(t *testing.T) {
	l := newLab(t)
	l.again(t)
	l.hap1.reload()
	l.again(t)
	l.quiesced(t, llm)
	assert.Equal(guarantee.T(t), CodeReloaded, l.drain(t, llm, nil).Code)
}

// What is younger than its old workers may be, when it is first seen, may have some.
//
// Control: without the limit in noteWorker, the drain was done.
func TestG8_OfAYoungProcessThePastIsNotKnown(t *testing.T) {
	l := newLab(t, func(o *Options, _ *runtimeapi.Options) {
		o.HardStopAfter = map[string]time.Duration{"hap1": 1 << 62}
	})
	l.again(t)
	l.quiesced(t, llm)
	r := l.drain(t, llm, nil)
	assert.Equal(guarantee.T(t), CodeReloaded, r.Code)
	assert.Contains(t, r.Message, "haproxy hap1 had begun shortly before tier-agent first saw it: an old worker may")
}

// The master that another one has replaced is known after a restart, too.
//
// Control: with successions left out, the drain was done.
func TestG8_ARestartRemembersTheMasterBefore(t *testing.T) {
	l, m := overseen(t)
	l.o.Processes, _ = Processes(l.stateDir)
	l.turn(t)
	m.taken(l, unknown)
	l.turn(t)
	var err error
	l.o.Processes, err = Processes(l.stateDir)
	require.NoError(t, err)
	l.Controller = New(l.o)
	l.watching(t)
	l.turn(t)
	l.quiesced(t, llm)
	r := l.drain(t, llm, nil)
	assert.Equal(guarantee.T(t), CodeReloaded, r.Code, r.Message)
	assert.Contains(t, r.Message, "haproxy hap1 has another master than before, 50")
}

// A process that takes over while a readmit waits has read the row of before.
//
// Control: without the opening in confirm, the readmit waited for what nobody would open.
func TestAReadmitOpensTheProcessThatTakesOver(t *testing.T) {
	l := newLab(t)
	l.watching(t)
	l.ready(t)
	l.quiesced(t, llm)
	opened := false
	l.hap1.with(func() {
		l.hap1.arrived = func(line string) {
			if l.admits("llm/gpu1") && !opened { // the gate is open: HAProxy is waited for
				opened = true
				l.hap1.with(func() {
					l.hap1.pid++
					l.hap1.admin["llm/gpu1"], l.hap1.admin["llm/gpu2"] = runtimeapi.ForcedDrain, runtimeapi.ForcedDrain
				})
			}
		}
	})
	r := l.readmit(t, llm)
	assert.Equal(t, Done, r.Outcome, r.Message)
	assert.Equal(t, bothReady, l.states("llm/gpu1"))
	assert.Equal(t, bothReady, l.states("llm/gpu2"))
	assert.True(t, opened)
}

// A tier that HAProxy has not got yet is quiesced first: the drain that its row brings is
// no hold.
//
// Control: with showing left out where there is no such backend, the readmit was refused.
func TestAQuiesceOfABackendThatIsYetToComeIsOurs(t *testing.T) {
	l := newLab(t)
	l.watching(t)
	l.ready(t)
	order := l.hap1.order
	l.hap1.with(func() { l.hap1.order = []string{"chat/a1", "bare/b1"} })
	r := l.Quiesce(t.Context(), QuiesceRequest{Target: llm, Reason: "new", Who: "alice"})
	require.Equal(t, Incomplete, r.Outcome, r.Message)
	assert.Contains(t, r.Message, "closed here, and in HAProxy as far as it has its servers")
	assert.Contains(t, r.Message, "give HAProxy that server, or take it out")
	l.hap1.with(func() {
		l.hap1.order = order
		l.hap1.pid++
		l.hap1.admin["llm/gpu1"], l.hap1.admin["llm/gpu2"] = runtimeapi.ForcedDrain, runtimeapi.ForcedDrain
	})
	l.turn(t)
	assert.Empty(t, l.held())
	r = l.readmit(t, llm)
	assert.Equal(t, Done, r.Outcome, r.Message)
}

// Of a tier over two backends, what the first one shows says nothing of the second.
//
// Control: with the backend not compared in showing, somebody's drain was taken for ours,
// and opened.
func TestG10_AHoldInTheSecondBackendOfATier(t *testing.T) {
	l := newLab(t)
	specs := l.specs(t)
	specs[0].Servers = append(specs[0].Servers[:1:1], server("chat", "a1"))
	l.replace(t, append(specs[:1:1], specs[2:]...))
	l.hap1.operator("chat/a1", "drain")
	l.quiesced(t, llm)
	r := l.readmit(t, llm)
	assert.Equal(guarantee.T(t), CodeHeld, r.Code, r.Message)
	assert.Contains(t, r.Message, "chat/a1 is drain(forced)")
}

// The guard counts what HAProxy does now, and not what it did a look ago.
//
// Control: without lookFirst the quiesce was done.
func TestTheGuardLooksFirst(t *testing.T) {
	l := newLab(t)
	l.watching(t)
	l.ready(t)
	l.turn(t)
	l.hap1.operator("llm/gpu2", "maint")
	r := l.quiesce(t, gpu1, "swap")
	assert.Equal(t, CodeMinReady, r.Code, r.Message)
	assert.Contains(t, r.Message, "0 servers of its tier would serve on haproxy hap1")
}

// A server whose agent-check asks about the one that is to be quiesced goes down with it.
//
// Control: with alone left out of tooFew the quiesce was done.
func TestTheGuardCountsNoServerThatFollowsAnother(t *testing.T) {
	l := newLab(t, func(o *Options, _ *runtimeapi.Options) { o.Polls = new(observe.Polls) })
	l.watching(t)
	l.ready(t)
	l.o.Polls.SetNames([]string{"llm", "llm/gpu1", "llm/gpu2"})
	copied := running
	copied.Agent = runtimeapi.Check{Configured: true, Enabled: true}
	view := showing("hap1", map[string]observe.Server{"llm/gpu1": copied, "llm/gpu2": copied})
	view.Info.StartTime = time.Now().Add(-time.Hour)
	l.sees(view)
	l.o.Polls.Note(observe.AgentCheck, []byte("llm/gpu1"), time.Now())
	r := l.quiesce(t, gpu1, "swap")
	assert.Equal(t, CodeMinReady, r.Code, r.Message)
	l.o.Polls.Note(observe.AgentCheck, []byte("llm/gpu2"), time.Now())
	assert.NotEqual(t, CodeMinReady, l.quiesce(t, gpu1, "swap").Code)
}

func TestServersThatNoTierListsAreNamed(t *testing.T) {
	l := newLab(t)
	l.watching(t)
	l.hap1.with(func() { l.hap1.order = append(l.hap1.order, "llm/gpu9") })
	l.turn(t)
	assert.Equal(t, []string{"llm/gpu9 on haproxy hap1"}, l.Unlisted("llm"))
	assert.Empty(t, l.Unlisted("chat"))
	assert.Empty(t, l.Unlisted("nothing"))
	r := l.quiesce(t, llm, "swap")
	assert.Contains(t, r.Message, "; not in any tier, and left as they are: llm/gpu9 on haproxy hap1")
	l.hap1.with(func() { l.hap1.queue["llm"] = 3 })
	r = l.drain(t, llm, nil)
	assert.Equal(t, Done, r.Outcome, r.Message)
	assert.Contains(t, r.Message, "; 3 requests wait in the queue of the backend, for whichever server takes requests next; ")
	assert.Contains(t, r.Message, "llm/gpu9")
}
