package admission

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tier-agent/internal/observe"
	"tier-agent/internal/runtimeapi"
	"tier-agent/internal/tier"
)

var (
	running = observe.Server{Operational: runtimeapi.OpRunning, Weight: 100}
	tracked = observe.Server{Operational: runtimeapi.OpRunning, Weight: 100, Admin: runtimeapi.InheritedMaint}
)

// sees makes the controller's watcher have seen this of each HAProxy.
func (l *lab) sees(views ...observe.View) {
	l.o.Watcher = fixed{l.o.Watcher, views}
}

func showing(instance string, servers map[string]observe.Server) observe.View {
	return observe.View{Instance: instance, At: time.Now(), Servers: servers}
}

// A server counts for its tier as long as one HAProxy would send to it, as far as that is
// known.
//
// Control: with s.shut taken out of Model.tier, each tier was ready.
func TestAServerThatEveryHAProxyHasClosedDoesNotCountForItsTier(t *testing.T) {
	only := func(s observe.Server) map[string]observe.Server { return map[string]observe.Server{"chat/a1": s} }
	drained, dns, light, down := running, running, running, running
	drained.Admin, dns.Admin, light.Weight, down.Operational = runtimeapi.InheritedDrain, runtimeapi.DNSMaint, 0, runtimeapi.OpStopped
	for name, c := range map[string]struct {
		views  []observe.View
		counts bool
	}{
		"open":                          {[]observe.View{showing("a", only(running))}, true},
		"tracked server in maintenance": {[]observe.View{showing("a", only(tracked))}, false},
		"tracked server in drain":       {[]observe.View{showing("a", only(drained))}, false},
		"no address":                    {[]observe.View{showing("a", only(dns))}, false},
		"weight 0":                      {[]observe.View{showing("a", only(light))}, false},
		// What the checks make of it is what they hear from here.
		"down":                   {[]observe.View{showing("a", only(down))}, true},
		"open on one of two":     {[]observe.View{showing("a", only(tracked)), showing("b", only(running))}, true},
		"one of two never read":  {[]observe.View{showing("a", only(tracked)), {Instance: "b"}}, true},
		"one of two has no such": {[]observe.View{showing("a", only(tracked)), showing("b", map[string]observe.Server{})}, false},
		"no HAProxy has it":      {[]observe.View{showing("a", map[string]observe.Server{})}, false},
		"closed when last seen":  {[]observe.View{{Instance: "a", Err: observe.ErrStale, Servers: only(tracked)}}, false},
		"no HAProxy at all":      {nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t)
			require.True(t, l.monitor.ProbeNow(t.Context(), "chat/a1").Ready)
			l.sees(c.views...)
			l.judge()
			a, _ := l.model.Tier([]byte("chat"))
			assert.Equal(t, c.counts, a.Admit)
			if !c.counts {
				assert.Equal(t, tier.ReasonShut, a.Reason)
			}
			one, _ := l.model.Server([]byte("chat/a1"))
			assert.True(t, one.Up, "its own checks hear of its evidence alone")
		})
	}
}

// The last server that a HAProxy really sends to is not let go, whatever closes the others.
//
// Control: with the forced bits alone looked at in tooFew, gpu2 in inherited maintenance
// counted, and the quiesce was done.
func TestTheGuardCountsWhatHAProxySendsTo(t *testing.T) {
	for name, gpu2 := range map[string]observe.Server{
		"inherited maintenance": tracked,
		"down":                  {Operational: runtimeapi.OpStopped, Weight: 100},
		"weight 0":              {Operational: runtimeapi.OpRunning},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t)
			l.watching(t)
			for _, s := range []string{"llm/gpu1", "llm/gpu2"} {
				require.True(t, l.monitor.ProbeNow(t.Context(), s).Ready)
			}
			l.sees(showing("hap1", map[string]observe.Server{"llm/gpu1": running, "llm/gpu2": gpu2}),
				showing("hap2", map[string]observe.Server{"llm/gpu1": running, "llm/gpu2": running}))
			r := l.quiesce(t, gpu1, "swap")
			assert.Equal(t, CodeMinReady, r.Code, r.Message)
			assert.Contains(t, r.Message, "0 servers of its tier would serve on haproxy hap1")
		})
	}
}

// Controls: without exposedAfter the warning came at the first look; without complain it
// came at each.
func TestAServerThatGetsRequestsUnaskedIsWarnedAboutOnce(t *testing.T) {
	l := newLab(t)
	var log bytes.Buffer
	l.o.Log = slog.New(slog.NewTextHandler(&log, nil))
	_, err := l.model.Invalidate(chat)
	require.NoError(t, err)
	view := showing("hap1", map[string]observe.Server{"chat/a1": running})
	warnings := func() int { return strings.Count(log.String(), "a server that is not ready") }
	l.expose(view)
	assert.Zero(t, warnings(), "its checks may not have heard yet")
	for range 3 {
		view.At = view.At.Add(exposedAfter)
		l.expose(view)
	}
	assert.Equal(t, 1, warnings())
	view.Servers = map[string]observe.Server{"chat/a1": {Weight: 100}}
	l.expose(view)
	view.Servers = map[string]observe.Server{"chat/a1": running}
	for range 2 {
		view.At = view.At.Add(exposedAfter)
		l.expose(view)
	}
	assert.Equal(t, 2, warnings(), "it was down in between")
}
