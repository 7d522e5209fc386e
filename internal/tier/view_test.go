package tier

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tier-agent/internal/fence"
	"tier-agent/test/guarantee"
)

// moved is a configuration in which heavy/h2 has another address.
func moved() []Spec {
	next := specs()
	next[0].Servers[1].Subject = "h2 elsewhere"
	return next
}

func without(names ...string) []Spec {
	var left []Spec
	for _, s := range specs() {
		keep := true
		for _, name := range names {
			keep = keep && s.Name != name
		}
		if keep {
			left = append(left, s)
		}
	}
	return left
}

func TestReplaceKeepsTheEvidenceOfWhatStays(t *testing.T) {
	m := newModel(t)
	m.set("heavy/h1", "heavy/h2", "heavy/h3", "fast/f1")
	before := serverOf(t, m, "heavy/h1")
	out := m.fence.BeginProbe("heavy/h2")

	next := moved()
	next[0].Servers[0].Weight = 70
	require.NoError(t, m.Replace(next))

	a := serverOf(t, m, "heavy/h1")
	assert.True(t, a.Admit)
	assert.Equal(t, before.Generation, a.Generation)
	assert.Equal(t, 70, a.Weight, "what is not about the evidence is new")
	assert.True(t, serverOf(t, m, "fast/f1").Admit)
	assert.Equal(guarantee.T(t), fence.ReasonPending, serverOf(t, m, "heavy/h2").Reason, "another address has no evidence")
	assert.Equal(guarantee.T(t), fence.ReasonInvalidated, m.fence.Complete(out, fence.Observation{Ready: true}).Reason)
}

// What is quiesced stays so while its address is edited: that is how a tier is
// swapped.
//
// Control: with `t.gate = was.gate` taken out of newView, and with the copy of
// state, the edit opened them.
func TestReplaceKeepsGatesAndSuspensionsOfNamesThatStay(t *testing.T) {
	m := newModel(t)
	mon := NewMonitor(m, proberFunc(passing), nil, nil)
	heavy2 := Target{Tier: "heavy", Server: "heavy/h2"}
	for _, target := range []Target{heavy, heavy2, {Tier: "fast"}} {
		_, err := m.Close(target, Closure{Reason: "swap"})
		require.NoError(t, err)
	}
	resume := mon.Suspend([]string{"heavy/h2"})
	m.SetElsewhere("heavy/h2", true)
	require.NoError(t, m.Replace(moved()))
	for _, target := range []Target{heavy, heavy2, {Tier: "fast"}} {
		closed, err := m.Closed(target)
		require.NoError(t, err)
		assert.NotNil(guarantee.T(t), closed, "%s", target)
	}
	h2 := m.view.Load().servers["heavy/h2"]
	assert.EqualValues(t, 1, h2.suspended.Load())
	assert.True(guarantee.T(t), h2.elsewhere.Load())
	resume()
	assert.Zero(t, h2.suspended.Load(), "a suspension from before ends as it would have")
	gen, err := m.Generation(heavy)
	require.NoError(t, err)
	require.NoError(t, m.Open(heavy, gen))
	assert.Equal(guarantee.T(t), ReasonQuiesced, serverOf(t, m, "heavy/h2").Reason, "its own gate is its own still")
}

// Control: with the fence's Replace left to the first view alone, the tier that
// came back was ready on the evidence of its former life.
func TestATierThatComesBackInheritsNothing(t *testing.T) {
	m := newModel(t)
	m.set("heavy/h1", "heavy/h2", "heavy/h3", "fast/f1")
	_, err := m.Close(heavy, Closure{Reason: "swap"})
	require.NoError(t, err)
	_, err = m.Close(heavy1, Closure{Reason: "disk"})
	require.NoError(t, err)
	m.SetElsewhere("heavy/h1", true)
	before, err := m.Generation(heavy)
	require.NoError(t, err)
	mon := NewMonitor(m, proberFunc(passing), nil, nil)
	resume := mon.Suspend([]string{"heavy/h1"})

	require.NoError(t, m.Replace(without("heavy")))
	_, known := m.Tier([]byte("heavy"))
	assert.False(t, known)
	_, known = m.Server([]byte("heavy/h1"))
	assert.False(t, known)
	_, err = m.Close(heavy, Closure{})
	require.ErrorIs(t, err, ErrUnknownTier)
	assert.True(t, serverOf(t, m, "fast/f1").Admit)
	assert.Len(t, m.Status(), 1)

	require.NoError(t, m.Replace(specs()))
	resume()
	h1 := m.view.Load().servers["heavy/h1"]
	assert.Zero(t, h1.suspended.Load(), "a suspension of its former life")
	a := serverOf(t, m, "heavy/h1")
	assert.Equal(guarantee.T(t), fence.ReasonPending, a.Reason)
	assert.False(t, a.Quiesced)
	after, err := m.Generation(heavy)
	require.NoError(t, err)
	assert.Greater(t, after.Tier, before.Tier, "nor does a generation come back")
}

// A server that goes over to another tier is judged by that tier's gate from the
// same moment on.
func TestAServerThatChangesItsTierIsAnother(t *testing.T) {
	m := newModel(t)
	m.set("heavy/h1", "fast/f1")
	_, err := m.Close(heavy1, Closure{Reason: "disk"})
	require.NoError(t, err)
	next := specs()
	next[1].Servers = append(next[1].Servers, next[0].Servers[0])
	next[0].Servers = next[0].Servers[1:]
	require.NoError(t, m.Replace(next))
	a := serverOf(t, m, "heavy/h1")
	assert.False(guarantee.T(t), a.Ready)
	assert.False(t, a.Quiesced)
	_, err = m.Closed(heavy1)
	require.ErrorIs(t, err, ErrUnknownServer)
}

func TestReplaceThatIsRefusedChangesNothing(t *testing.T) {
	m := newModel(t)
	m.set("heavy/h1", "fast/f1")
	was, version := m.view.Load(), m.Version()

	assert.EqualError(t, m.Replace(append(moved(), specs()[0])), `tier "heavy" is named twice`)
	shared := moved()
	shared[1].Servers = append(shared[1].Servers, shared[0].Servers[0])
	require.ErrorContains(t, m.Replace(shared), `"heavy/h1" is named twice`)
	ageless := moved()
	ageless[0].MaxAge = 0
	require.ErrorContains(t, m.Replace(ageless), "maximum age")

	assert.Same(t, was, m.view.Load())
	assert.Equal(t, version, m.Version())
	assert.True(t, serverOf(t, m, "heavy/h1").Ready)
	require.NoError(t, m.Replace(moved()))
	assert.Equal(t, version+1, m.Version())
}

func TestChanges(t *testing.T) {
	m := newModel(t)
	assert.Empty(t, m.Changes(specs()).All())
	next := specs()
	next[0], next[1] = next[1], next[0]
	assert.Empty(t, m.Changes(next).All(), "order is not content")

	next = append([]Spec{{Name: "new", MaxAge: time.Second}}, moved()[0])
	c := m.Changes(next)
	assert.Equal(t, Changes{Added: []string{"new"}, Removed: []string{"fast"}, Changed: []string{"heavy"}}, c)
	assert.Equal(t, []string{"fast", "heavy", "new"}, c.All())
	for what, change := range map[string]func(*Spec){
		"a weight":        func(s *Spec) { s.Servers[0].Weight++ },
		"a manner":        func(s *Spec) { s.Servers[0].Manner = "slower" },
		"min_ready":       func(s *Spec) { s.MinReady++ },
		"the interval":    func(s *Spec) { s.Interval++ },
		"a server less":   func(s *Spec) { s.Servers = s.Servers[1:] },
		"the maximum age": func(s *Spec) { s.MaxAge++ },
		"rise":            func(s *Spec) { s.Rise++ },
		"the activation":  func(s *Spec) { s.ActivationMin++ },
	} {
		next := specs()
		change(&next[0])
		assert.Equal(t, []string{"heavy"}, m.Changes(next).Changed, what)
	}
	assert.True(t, same(specs()[0], specs()[0]))
}
