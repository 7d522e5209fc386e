package admission

import (
	"context"
	"net/url"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tier-agent/internal/intent"
	"tier-agent/internal/runtimeapi"
	"tier-agent/internal/tier"
)

// specs are the lab's, as the model has them now.
func (l *lab) specs(t testing.TB) []tier.Spec {
	t.Helper()
	var all []tier.Spec
	for _, name := range []string{"llm", "chat", "bare", "words"} {
		if spec, err := l.model.Spec(name); err == nil {
			spec.Servers = slices.Clone(spec.Servers)
			all = append(all, spec)
		}
	}
	return all
}

// at moves every server of a tier to an address of that host.
func at(specs []tier.Spec, name, host string) []tier.Spec {
	specs = slices.Clone(specs)
	for n, spec := range specs {
		if spec.Name != name {
			continue
		}
		servers := slices.Clone(spec.Servers)
		for m, s := range servers {
			servers[m].Target.URL = &url.URL{Scheme: "http", Host: host, Path: s.Name}
			servers[m].Subject = host + " " + s.Name
		}
		specs[n].Servers = servers
	}
	return specs
}

func gone(specs []tier.Spec, name string) []tier.Spec {
	return slices.DeleteFunc(slices.Clone(specs), func(s tier.Spec) bool { return s.Name == name })
}

func (l *lab) replace(t testing.TB, specs []tier.Spec) {
	t.Helper()
	_, err := l.Replace(specs)
	require.NoError(t, err)
}

// Control: with freeze giving every lane, the configuration was replaced under the
// drain; with all lanes asked for instead of those that change, the reload of chat
// was refused.
func TestATierWithATransitionIsNotReplaced(t *testing.T) {
	l := newLab(t)
	before := l.specs(t)
	l.quiesced(t, llm)
	l.hap1.with(func() { l.hap1.sessions["llm/gpu1"] = 1 })
	ctx, cancel := context.WithCancel(t.Context())
	waits := make(chan struct{}, 1)
	drained := inBackground(func() Result {
		return l.Drain(ctx, DrainRequest{Target: llm, Timeout: time.Hour, Progress: func(Progress) {
			select {
			case waits <- struct{}{}:
			default:
			}
		}})
	})
	<-waits
	version := l.model.Version()
	for _, next := range [][]tier.Spec{gone(before, "llm"), at(before, "llm", "other"), gone(gone(before, "chat"), "llm")} {
		_, err := l.Replace(next)
		require.ErrorIs(t, err, ErrTierBusy)
		assert.EqualError(t, err, `a transition is under way: a drain of tier "llm"`)
	}
	assert.Equal(t, version, l.model.Version())
	assert.Equal(t, Done, l.quiesce(t, chat, "swap").Outcome, "no lane is kept")

	changes, err := l.Replace(at(before, "chat", "other"))
	require.NoError(t, err)
	assert.Equal(t, tier.Changes{Changed: []string{"chat"}}, changes)
	<-waits
	<-waits // it goes on
	cancel()
	assert.Equal(t, CodeStopped, (<-drained).Code)
	l.replace(t, gone(before, "llm"))
}

// The gate of a tier that does not change is a readmit's own affair.
//
// Control: with every intent aligned, not those of the changed tiers alone, the
// gate that the readmit had opened was closed behind its back.
func TestAReplacementLeavesARunningReadmitAlone(t *testing.T) {
	l := newLab(t)
	before := l.specs(t)
	l.quiesced(t, llm)
	f := l.hap1.fail(fault{action: hold, on: "show stat"}) // the gate is open, and HAProxy is to confirm
	done := inBackground(func() Result { return l.readmit(t, llm) })
	<-f.met
	require.False(t, l.closed(t, llm))
	l.replace(t, at(before, "chat", "other"))
	assert.False(t, l.closed(t, llm))
	close(f.release)
	r := <-done
	assert.Equal(t, Done, r.Outcome, r.Message)
	assert.False(t, l.closed(t, llm))
}

// Who waited for the lane sees the tier as it is then.
//
// Control: without the second look in inLane the quiesce drained the servers of
// before alone.
func TestAQuiesceThatWaitedForAReplacementCoversTheNewServers(t *testing.T) {
	l := newLab(t)
	before := l.specs(t)
	small := slices.Clone(before)
	small[0].Servers = before[0].Servers[:1]
	l.replace(t, small)
	thaw, err := l.freeze([]string{"llm"})
	require.NoError(t, err)
	done := inBackground(func() Result { return l.quiesce(t, llm, "swap") })
	soon(t, "it waits", func() bool {
		lane := l.lane("llm")
		lane.mu.Lock()
		defer lane.mu.Unlock()
		return lane.waiting == 1
	})
	require.NoError(t, l.model.Replace(before))
	thaw()
	require.Equal(t, Done, (<-done).Outcome)
	l.drainedEverywhere(t, "llm/gpu1", "llm/gpu2")
	assert.Len(t, l.onDisk(t)[0].Addresses, 2)
}

// What cannot be written about a tier that goes holds in memory, and is written
// when it can be.
func TestAReplacementWhileTheDiskIsBroken(t *testing.T) {
	l := newLab(t)
	before := l.specs(t)
	l.quiesced(t, llm)
	mended := l.breakDisk(t)
	l.replace(t, gone(before, "llm"))
	mended()
	assert.False(t, l.onDisk(t)[0].Gone)
	l.watching(t)
	l.turn(t)
	assert.True(t, l.onDisk(t)[0].Gone)
	assert.Equal(t, intent.Quiesced, l.onDisk(t)[0].Phase)
}

func TestAReplacementThatIsWrongChangesNothing(t *testing.T) {
	l := newLab(t)
	before := l.specs(t)
	_, err := l.Replace(append(slices.Clone(before), before[0]))
	require.EqualError(t, err, `tier "llm" is named twice`)
	l.quiesced(t, llm) // no lane is kept
	assert.Equal(t, runtimeapi.ForcedDrain, l.hap1.state("llm/gpu1"))
}
