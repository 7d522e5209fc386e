package tier

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tier-agent/internal/fence"
	"tier-agent/internal/probe"
)

const startWindow = 30 * time.Second

// operated is fast/f1 and what happens to it. Evidence is good for 5 s.
type operated struct {
	t testing.TB
	m *Model
	n time.Time
}

func operate(t testing.TB, change ...func(*Spec)) *operated {
	t.Helper()
	spec := specs()[1]
	spec.StartWindow = startWindow
	for _, c := range change {
		c(&spec)
	}
	o := &operated{t: t, n: time.Unix(1_800_000_000, 0)}
	var err error
	o.m, err = New([]Spec{spec}, func() time.Time { return o.n })
	require.NoError(t, err)
	return o
}

// saw publishes one observation for each reason.
func (o *operated) saw(reasons ...string) {
	for _, reason := range reasons {
		o.m.fence.ProbeNow("fast/f1", func(*fence.Ticket) fence.Observation {
			return fence.Observation{Ready: strings.HasSuffix(reason, "_passed"), Reason: reason}
		})
	}
}

func (o *operated) pass(d time.Duration) { o.n = o.n.Add(d) }

func (o *operated) close(target Target) {
	_, err := o.m.Close(target, Closure{Reason: "swap"})
	require.NoError(o.t, err)
}

// Controls: with the case of starting taken out of stateOf, "still loading" was
// unreachable; with StateQuiesced taken out of server, the quiesced were what their
// evidence says.
func TestStates(t *testing.T) {
	const (
		passed  = probe.IdentityPassed
		refused = "health_transport_refused"
		never   = startWindow + 1 // the window is over
	)
	server, all := Target{Tier: "fast", Server: "fast/f1"}, Target{Tier: "fast"}
	twice := func(s *Spec) { s.Rise, s.Fall = 2, 2 }
	for name, tc := range map[string]struct {
		happens func(*operated)
		change  func(*Spec)
		want    State
	}{
		"just appeared":                       {want: StateInitializing},
		"nothing seen since it appeared":      {happens: func(o *operated) { o.pass(never) }, want: StateUnknown},
		"no window":                           {change: func(s *Spec) { s.StartWindow = 0 }, want: StateUnknown},
		"still loading":                       {happens: func(o *operated) { o.saw(refused) }, want: StateInitializing},
		"loading to the window's edge":        {happens: func(o *operated) { o.pass(startWindow); o.saw(refused) }, want: StateInitializing},
		"loading for too long":                {happens: func(o *operated) { o.pass(never); o.saw(refused) }, want: StateUnreachable},
		"loading for too long, with answers":  {happens: func(o *operated) { o.pass(never); o.saw("health_http_503") }, want: StateDegraded},
		"ready within its window":             {happens: func(o *operated) { o.saw(passed) }, want: StateReady},
		"broken after that":                   {happens: func(o *operated) { o.saw(passed, refused) }, want: StateUnreachable},
		"another model answers":               {happens: func(o *operated) { o.saw(passed, probe.IdentityMismatch) }, want: StateDegraded},
		"a prober that broke":                 {happens: func(o *operated) { o.saw(passed, ReasonFailed) }, want: StateUnknown},
		"no probe comes back":                 {happens: func(o *operated) { o.saw(passed); o.pass(6 * time.Second) }, want: StateStale},
		"nor ever did pass":                   {happens: func(o *operated) { o.saw(refused); o.pass(never) }, want: StateStale},
		"the clock was set back":              {happens: func(o *operated) { o.saw(passed); o.pass(-time.Second) }, want: StateStale},
		"invalidated":                         {happens: func(o *operated) { o.saw(passed); o.m.fence.InvalidateAll() }, want: StateUnknown},
		"HAProxy sends to another address":    {happens: func(o *operated) { o.saw(passed); o.m.SetElsewhere("fast/f1", true) }, want: StateUnknown},
		"the server is quiesced":              {happens: func(o *operated) { o.saw(passed); o.close(server) }, want: StateQuiesced},
		"the tier is quiesced":                {happens: func(o *operated) { o.saw(refused); o.close(all) }, want: StateQuiesced},
		"quiesced before it was ever ready":   {happens: func(o *operated) { o.close(all) }, want: StateQuiesced},
		"about to be quiesced":                {happens: func(o *operated) { o.saw(passed); paused(o.t, o.m, all, "swap") }, want: StateQuiesced},
		"the first fail of two":               {change: twice, happens: func(o *operated) { o.saw(passed, refused) }, want: StateReady},
		"the second":                          {change: twice, happens: func(o *operated) { o.saw(passed, refused, refused) }, want: StateUnreachable},
		"the first pass of two":               {change: twice, happens: func(o *operated) { o.saw(passed, refused, refused, passed) }, want: StateDegraded},
		"the first pass of two, never ready":  {change: twice, happens: func(o *operated) { o.saw(refused, passed) }, want: StateInitializing},
		"the second pass":                     {change: twice, happens: func(o *operated) { o.saw(refused, passed, passed) }, want: StateReady},
		"a fail that outlived the last ready": {change: twice, happens: func(o *operated) { o.saw(passed); o.pass(4 * time.Second); o.saw(refused); o.pass(2 * time.Second) }, want: StateUnreachable},
	} {
		t.Run(name, func(t *testing.T) {
			change := func(*Spec) {}
			if tc.change != nil {
				change = tc.change
			}
			o := operate(t, change)
			if tc.happens != nil {
				tc.happens(o)
			}
			a := serverOf(t, o.m, "fast/f1")
			assert.Equal(t, tc.want.String(), a.State.String(), "reason %s", a.Reason)
			assert.Equal(t, a.State, o.m.Status()[0].Servers[0].Answer.State)
			assert.Equal(t, a.State == StateReady, a.Ready && !a.Quiesced)
		})
	}
}

// Every reason that a probe can give is one of two states, or ready.
func TestEveryReasonOfAProbeHasAState(t *testing.T) {
	for _, reason := range probe.Reasons() {
		want := StateDegraded
		switch {
		case strings.HasSuffix(reason, "_passed"):
			continue
		case reason == "probe_timeout":
			want = StateUnreachable
		case strings.Contains(reason, "_transport_") && !strings.HasSuffix(reason, "_credential"):
			want = StateUnreachable
		}
		assert.Equal(t, want.String(), stateOf(false, reason, false).String(), reason)
	}
	assert.Equal(t, StateDegraded, stateOf(false, "identity_transport_credential", false), "health has answered")
	assert.Equal(t, StateUnknown, stateOf(false, fence.ReasonUnknown, false))
}

func TestWhatOnlyHAProxyShows(t *testing.T) {
	for s := StateUnknown; s <= StateStale; s++ {
		draining, held := s, StateHeld
		if s == StateQuiesced {
			draining, held = StateDraining, StateQuiesced
		}
		assert.Equal(t, s, s.With(false, false))
		assert.Equal(t, draining, s.With(true, false), "%s", s)
		assert.Equal(t, held, s.With(false, true), "%s", s)
	}
	assert.Equal(t, StateDraining, StateQuiesced.With(true, true))
}

func TestStatesHaveNamesOfTheirOwn(t *testing.T) {
	var failing []string
	names := map[string]bool{}
	for s := StateUnknown; s <= StateStale; s++ {
		names[s.String()] = true
		if s.Failing() {
			failing = append(failing, s.String())
		}
	}
	assert.Len(t, names, 9)
	assert.Equal(t, []string{"degraded", "unreachable", "stale"}, failing)
	assert.Equal(t, "unknown", State(-1).String())
	assert.Equal(t, "unknown", (StateStale + 1).String())
}

func TestAStateAllocatesNothing(t *testing.T) {
	o := operate(t)
	o.pass(startWindow + 1)
	name := []byte("fast/f1")
	for _, reason := range []string{probe.IdentityPassed, "identity_transport_refused", "metadata_mismatch"} {
		o.saw(reason)
		assert.Zero(t, testing.AllocsPerRun(100, func() { o.m.Server(name) }))
	}
}

// fall forgives no answer that was wrong. Where an engine has been exercised, a port that
// nobody listens on says that the process has ended.
//
// Negative control: without the look at the exercise in judged, what came back after one
// refused probe was ready by the exercise of its predecessor.
func TestWhatCountsAsAWrongAnswer(t *testing.T) {
	plain, exercised := &server{}, &server{exercise: "fast/f1 exercise"}
	for _, reason := range append(probe.Reasons(), ReasonFailed) {
		if strings.HasSuffix(reason, "_passed") {
			continue
		}
		silent := reason == probe.Timeout || strings.Contains(reason, "_transport_")
		assert.Equal(t, !silent, plain.judged(reason), reason)
		assert.Equal(t, !silent || strings.HasSuffix(reason, "_refused"), exercised.judged(reason), reason)
	}
}
