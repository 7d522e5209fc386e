package admission

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tier-agent/internal/runtimeapi"
	"tier-agent/test/guarantee"
)

// What an operator has put in maintenance stays so (G10), whoever comes to have the
// slot, and whichever process looks.
//
// Negative control: without Held in member, the next host was opened.
func TestG10_AMemberInMaintenanceIsHeld(t *testing.T) {
	p := newPool(t)
	p.serving(t, hostA, hostB)
	p.hap1.operator("gpu/s1", "maint")
	p.turn(t)
	held := [2]string{asStarted, asOpened}
	assert.Equal(guarantee.T(t), held, p.states("gpu/s1"))
	require.Len(t, p.Holds(p.o.Watcher.Views()[0]), 1)
	assert.Empty(t, p.Holds(p.o.Watcher.Views()[1]))

	p.resolve(t, "gpu/s1", "")
	p.resolve(t, "gpu/s1", hostC)
	p.prove(t, "gpu/s1")
	assert.Equal(guarantee.T(t), held, p.states("gpu/s1"), "another host")
	p.hap1.reload()
	p.turn(t)
	p.is(t, "gpu/s2", asOpened)
	assert.Equal(guarantee.T(t), held, p.states("gpu/s1"), "another HAProxy")

	q := p.next(t)
	q.prove(t, "gpu/s1", "gpu/s2")
	assert.Equal(guarantee.T(t), held, q.states("gpu/s1"), "another tier-agent")

	q.hap1.operator("gpu/s1", "ready")
	q.turn(t)
	q.resolve(t, "gpu/s1", hostA)
	q.prove(t, "gpu/s1")
	q.is(t, "gpu/s1", asOpened)
}

// HAProxy puts no slot that was open into maintenance by itself, so somebody has, also
// where the host has changed, or left, before the next look.
//
// Negative controls: with the address compared as well in wasOpen, the other host was
// opened; with what is known of an empty slot forgotten in absent, the one that came to
// it.
func TestG10_MaintenanceThatAnotherHostComesWith(t *testing.T) {
	for name, then := range map[string]func(t *testing.T, p *pooled){
		"at once": func(_ *testing.T, p *pooled) {
			p.hap1.operator("gpu/s1", "maint")
			p.hap1.resolve("gpu/s1", hostB)
			p.hap2.resolve("gpu/s1", hostB)
		},
		"to the empty slot": func(t *testing.T, p *pooled) {
			p.hap1.resolve("gpu/s1", "")
			p.hap2.resolve("gpu/s1", "")
			p.hap1.operator("gpu/s1", "maint")
			p.turn(t)
			p.resolve(t, "gpu/s1", hostB)
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPool(t)
			p.serving(t, hostA)
			then(t, p)
			p.turn(t)
			p.prove(t, "gpu/s1")
			p.turn(t)
			assert.Equal(guarantee.T(t), [2]string{asStarted, asOpened}, p.states("gpu/s1"))
			require.Len(t, p.Holds(p.o.Watcher.Views()[0]), 1)
			p.hap1.operator("gpu/s1", "ready")
			p.turn(t)
			p.is(t, "gpu/s1", asOpened)
		})
	}
}

// What HAProxy shows without an address, and DNS has nothing to do with, may be a unix
// socket.
//
// Negative control: with the address asked instead of DNSMaint, it was closed.
func TestG10_AServerWithoutAnIPAddressIsLeftAlone(t *testing.T) {
	p := newPool(t)
	p.serving(t, hostA)
	p.hap1.with(func() { p.hap1.admin["gpu/s3"] = runtimeapi.ConfigMaint })
	p.turn(t)
	assert.Equal(guarantee.T(t), asOpened, p.hap1.state("gpu/s3").String())
}

// The answer to our own maintenance is lost: that must not look like somebody's.
//
// Negative control: without the note before it in set, the slot was held for good.
func TestOurOwnMaintenanceIsNobodysHold(t *testing.T) {
	p := newPool(t)
	p.serving(t, hostA)
	p.hap1.fail(fault{action: half, on: "state maint"})
	p.resolve(t, "gpu/s1", hostB)
	p.turn(t)
	p.is(t, "gpu/s1", asStarted)
	p.prove(t, "gpu/s1")
	p.turn(t)
	p.is(t, "gpu/s1", asOpened)
}

// A drain of ours stays with the slot when its host leaves.
//
// Negative controls: without departed the drain stayed; with departed true of every
// drain, the operator's was taken off at the end.
func TestADrainForWhoHasLeft(t *testing.T) {
	for name, proven := range map[string]bool{"the next is not known": false, "the next is ready": true} {
		t.Run(name, func(t *testing.T) {
			p := newPool(t)
			p.serving(t, hostA)
			p.quiesced(t, slot1)
			p.is(t, "gpu/s1", asDrained)
			for _, h := range p.haproxies() {
				h.resolve("gpu/s1", hostB)
			}
			if proven {
				p.o.Watcher.Look(t.Context())
				p.discover(t.Context())
				p.prove(t, "gpu/s1")
				p.is(t, "gpu/s1", asOpened)
				assert.Len(t, p.journal.with("set server gpu/s1 state"), 2)
			} else {
				p.turn(t)
				p.is(t, "gpu/s1", asStarted)
				p.prove(t, "gpu/s1")
				p.is(t, "gpu/s1", asOpened)
			}
			p.intentsAre(t, "gpu/s1 "+hostA+" gone")

			// A drain from now on is somebody's own.
			p.hap1.operator("gpu/s1", "drain")
			p.turn(t)
			p.turn(t)
			assert.Equal(guarantee.T(t), [2]string{asDrained, asOpened}, p.states("gpu/s1"))
		})
	}
}

// An operator's drain is theirs, whoever leaves.
//
// Negative control: with departed true of every drain, it was taken off.
func TestG10_SomebodyElsesDrainStays(t *testing.T) {
	p := newPool(t)
	p.serving(t, hostA)
	p.hap1.operator("gpu/s1", "drain")
	p.quiesced(t, slot1)
	p.resolve(t, "gpu/s1", hostB)
	p.prove(t, "gpu/s1")
	assert.Equal(guarantee.T(t), [2]string{asDrained, asOpened}, p.states("gpu/s1"))
}

// Also where somebody has put it in maintenance in between, and then drained it.
//
// Negative control: without forget where a slot is not drained, it was taken off.
func TestG10_ADrainAfterOursHasEndedIsNotOurs(t *testing.T) {
	p := newPool(t)
	p.serving(t, hostA)
	p.quiesced(t, slot1)
	p.hap1.operator("gpu/s1", "maint")
	p.resolve(t, "gpu/s1", hostB)
	p.hap1.operator("gpu/s1", "drain")
	p.prove(t, "gpu/s1")
	assert.Equal(guarantee.T(t), [2]string{asDrained, asOpened}, p.states("gpu/s1"))
}

// The drain of a slot that is empty is nobody's any more: the next host would be
// taken for somebody's hold, once the intent has ended.
//
// Negative control: without empty, the next host stayed drained for good.
func TestADrainOfAnEmptySlotDoesNotOutlastItsIntent(t *testing.T) {
	p := newPool(t)
	p.serving(t, hostA, hostB)
	p.quiesced(t, pool)
	p.is(t, "gpu/s2", asDrained)
	p.resolve(t, "gpu/s2", "")
	p.is(t, "gpu/s2", "maint(forced,config,dns)")
	r := p.readmit(t, pool)
	require.Equal(t, Done, r.Outcome, r.Message)
	p.is(t, "gpu/s1", asOpened)

	p.resolve(t, "gpu/s2", hostC)
	p.is(t, "gpu/s2", asStarted)
	p.prove(t, "gpu/s2")
	p.is(t, "gpu/s2", asOpened)
}
