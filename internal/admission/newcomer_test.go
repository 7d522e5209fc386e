package admission

import (
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tier-agent/internal/members"
	"tier-agent/internal/probe"
	"tier-agent/internal/runtimeapi"
	"tier-agent/test/guarantee"
)

var wrongModel = probe.Result{Reason: "identity_mismatch"}

// Negative control: with the evidence not asked in member, the wrong model was opened.
func TestANewcomerIsOpenedOnEvidenceAlone(t *testing.T) {
	p := newPool(t)
	p.resolve(t, "gpu/s1", hostA)
	p.prober.says(hostA+"/", wrongModel)
	p.prove(t, "gpu/s1")
	p.is(t, "gpu/s1", asStarted)
	assert.Empty(guarantee.T(t), p.journal.with("set server gpu/s1 state"))

	p.prober.says(hostA+"/", passed)
	p.prove(t, "gpu/s1")
	p.is(t, "gpu/s1", asOpened)
	p.turn(t)
	assert.Len(t, p.journal.with("set server gpu/s1 state"), 2, "once on each")
	require.Len(t, p.told, 2)
	assert.Contains(t, p.told[0].Message, "gpu/s1 is open on haproxy hap1: it is new there")

	p.resolve(t, "gpu/s2", hostB) // would pass, and has not been asked
	p.is(t, "gpu/s2", asStarted)
}

func TestANewcomerIsOpenedOnEachHAProxyByItself(t *testing.T) {
	p := newPool(t)
	p.serving(t, hostA)
	p.hap2.reload()
	p.watcher.Turn(t.Context(), "hap1")
	assert.Equal(t, [2]string{asOpened, asStarted}, p.states("gpu/s1"))
	p.watcher.Turn(t.Context(), "hap2")
	p.is(t, "gpu/s1", asOpened)

	p.hap1.resolve("gpu/s2", hostB) // the other one's name server has not heard of it
	p.turn(t)
	p.prove(t, "gpu/s2")
	assert.Equal(t, [2]string{asOpened, "maint(forced,config,dns)"}, p.states("gpu/s2"))
}

// In a container the worker has the same process id after every restart.
//
// Negative control: with processes told apart by their id alone, the slot was taken for
// held and stayed closed, and agent-send was not set again.
func TestAHAProxyThatStartsAgainUnderTheSameProcessID(t *testing.T) {
	p := newPool(t)
	p.serving(t, hostA)
	p.hap1.restart()
	p.turn(t)
	p.is(t, "gpu/s1", asOpened)
	assert.Equal(t, "gpu/s1", p.hap1.sends["gpu/s1"], "what the agent-check sends")
}

// Negative control: with the evidence asked alone, and not the gate, it was opened.
func TestANewcomerWaitsForWhoIsQuiesced(t *testing.T) {
	for name, target := range map[string]string{"its tier": "", "it": "gpu/s1"} {
		t.Run(name, func(t *testing.T) {
			p := newPool(t)
			p.resolve(t, "gpu/s1", hostA)
			aim := pool
			aim.Server = target
			p.quiesced(t, aim)
			p.prove(t, "gpu/s1")
			p.is(t, "gpu/s1", asStarted)
			assert.Empty(guarantee.T(t), p.journal.with("set server gpu/s1 state"))

			r := p.readmit(t, aim)
			assert.Equal(t, Done, r.Outcome, r.Message)
			p.is(t, "gpu/s1", asOpened)
		})
	}
}

// Negative control: with that case taken out of member, the slot stayed open.
func TestAnOpenSlotThatAnotherHostComesTo(t *testing.T) {
	p := newPool(t)
	p.serving(t, hostA)
	p.resolve(t, "gpu/s1", hostB)
	p.is(t, "gpu/s1", asStarted)
	p.turn(t)
	p.is(t, "gpu/s1", asStarted)
	p.prove(t, "gpu/s1")
	p.is(t, "gpu/s1", asOpened)
	assert.Len(t, p.journal.with("set server gpu/s1 state"), 4, "maint and ready, once on each")

	// With evidence about the new one there first, nothing is to be done.
	p.journal.clear()
	p.hap1.resolve("gpu/s1", hostC)
	p.hap2.resolve("gpu/s1", hostC)
	p.o.Watcher.Look(t.Context())
	p.discover(t.Context())
	p.prove(t, "gpu/s1")
	p.is(t, "gpu/s1", asOpened)
	assert.Empty(t, p.journal.with("set server gpu/s1 state"))
}

// Negative control: with that case taken out of empty, the next host found it open.
func TestASlotThatItsHostHasLeftIsClosed(t *testing.T) {
	p := newPool(t)
	p.serving(t, hostA, hostB)
	p.resolve(t, "gpu/s1", "")
	p.hap1.resolve("gpu/s1", hostC)
	assert.Equal(guarantee.T(t), asStarted, p.hap1.state("gpu/s1").String(), "before the next look")
	p.is(t, "gpu/s2", asOpened)
}

// Somebody comes between the look and the change.
//
// Negative controls: with the address not compared in set, the other host was opened;
// with met kept from the first call, a slot that was drained in between was reported
// and written down as opened.
func TestWhoComesBetweenTheLookAndTheChange(t *testing.T) {
	for name, c := range map[string]struct {
		on     string // at the nth command that has it
		nth    int
		happen func(h *haproxy)
		was    string
	}{
		"a drain before the read":         {"show servers state gpu", 1, func(h *haproxy) { h.operator("gpu/s1", "drain") }, asDrained},
		"a drain after the read":          {"state ready", 1, func(h *haproxy) { h.operator("gpu/s1", "drain") }, asDrained},
		"another host before the read":    {"show servers state gpu", 1, func(h *haproxy) { h.resolve("gpu/s1", hostC) }, asStarted},
		"another host after the read":     {"state ready", 1, func(h *haproxy) { h.resolve("gpu/s1", hostC) }, asStarted},
		"another process before the read": {"show servers state gpu", 1, func(h *haproxy) { h.reload() }, asStarted},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPool(t)
			p.resolve(t, "gpu/s1", hostA)
			p.monitor.ProbeNow(t.Context(), "gpu/s1")
			left := c.nth
			p.hap1.with(func() {
				p.hap1.arrived = func(line string) {
					if strings.Contains(line, c.on) {
						if left--; left == 0 {
							c.happen(p.hap1)
						}
					}
				}
			})
			p.watcher.Turn(t.Context(), "hap1")
			require.Less(t, left, 1, "it has come")
			assert.Equal(guarantee.T(t), c.was, p.hap1.state("gpu/s1").String())
			assert.Empty(t, p.told, "nothing that was done")
			_, known := p.openings.Get(members.Place{HAProxy: "hap1", Server: "gpu/s1"})
			assert.False(t, known, "it has not been opened")
		})
	}
}

// A HAProxy that does not answer costs one complaint, and leaves nothing that is said
// to be done.
//
// Negative control: without the last complaint known, there was one at each look.
func TestAHAProxyThatDoesNotLetAMemberBeOpened(t *testing.T) {
	for name, f := range map[string]fault{
		"refuses":          {action: refuse, on: "state ready", times: -1, text: "Permission denied"},
		"hangs":            {action: hang, on: "state ready", times: -1},
		"says so, falsely": {action: ignore, on: "state ready", times: -1},
	} {
		t.Run(name, func(t *testing.T) {
			log := &logged{}
			p := newPool(t, short, func(o *Options, _ *runtimeapi.Options) { o.Log = slog.New(slog.NewTextHandler(log, nil)) })
			p.resolve(t, "gpu/s1", hostA)
			p.hap1.fail(f)
			p.prove(t, "gpu/s1")
			p.turn(t)
			assert.Equal(t, [2]string{asStarted, asOpened}, p.states("gpu/s1"))
			assert.Len(t, log.with("could not be opened or closed"), 1)
			_, known := p.openings.Get(members.Place{HAProxy: "hap1", Server: "gpu/s1"})
			assert.False(t, known)
			p.hap1.heal()
			p.turn(t)
			p.is(t, "gpu/s1", asOpened)
		})
	}
}

// Openings that cannot be written hold in memory.
func TestOpeningsThatCannotBeWritten(t *testing.T) {
	log := &logged{}
	p := newPool(t, func(o *Options, _ *runtimeapi.Options) { o.Log = slog.New(slog.NewTextHandler(log, nil)) })
	p.o.Openings = unwritable{p.openings}
	p.resolve(t, "gpu/s1", hostA)
	p.prove(t, "gpu/s1")
	p.is(t, "gpu/s1", asOpened)
	assert.NotEmpty(t, log.with("which members are open cannot be written"))
}

type unwritable struct{ Openings }

func (u unwritable) Keep(changed []members.Opening, gone []members.Place) error {
	_ = u.Openings.Keep(changed, gone)
	if len(changed)+len(gone) == 0 {
		return nil
	}
	return errors.New("no space left")
}

// A transition of the tier that opens puts a newcomer off, and no longer than that.
//
// Negative control: without try, it was opened under the readmit.
func TestABusyLanePutsANewcomerOff(t *testing.T) {
	p := newPool(t)
	p.serving(t, hostA)
	p.resolve(t, "gpu/s2", hostB)
	p.monitor.ProbeNow(t.Context(), "gpu/s2")
	_, mine, err := p.lane("pool").enter(t.Context(), VerbReadmit, pool)
	require.NoError(t, err)
	p.turn(t)
	p.is(t, "gpu/s2", asStarted)
	p.lane("pool").leave(mine)
	p.turn(t)
	p.is(t, "gpu/s2", asOpened)
}

// Each slot's agent-check sends its own name, in every process.
//
// Negative control: without introduced, it was said at every look.
func TestEachSlotSendsItsOwnName(t *testing.T) {
	p := newPool(t)
	p.turn(t)
	want := map[string]string{"gpu/s1": "gpu/s1", "gpu/s2": "gpu/s2", "gpu/s3": "gpu/s3"}
	for _, h := range p.haproxies() {
		assert.Equal(t, want, h.sends, h.name)
	}
	p.journal.clear()
	p.turn(t)
	assert.Empty(t, p.journal.with("agent-send"), "said once")
	p.hap2.reload()
	assert.Empty(t, p.hap2.sends)
	f := p.hap2.fail(fault{action: refuse, on: "agent-send", text: "agent checks are not enabled on this server."})
	p.turn(t)
	select {
	case <-f.met:
	default:
		require.Fail(t, "the new process was not told")
	}
	p.turn(t)
	assert.Equal(t, want, p.hap2.sends)
}
