package admission

import (
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tier-agent/internal/observe"
	"tier-agent/internal/tier"
	"tier-agent/test/guarantee"
)

// fixed is a watcher that has seen what the test says.
type fixed struct {
	Watcher
	views []observe.View
}

func (f fixed) Views() []observe.View { return f.views }

// watchingAddresses gives the controller a watcher that has seen one HAProxy send
// chat's requests to port 9001 and bare's to 9003; specs come to probe chat there.
func (l *lab) watchingAddresses(t testing.TB) (specs []tier.Spec) {
	t.Helper()
	specs = at(at(l.specs(t), "chat", "127.0.0.1:9001"), "bare", "127.0.0.1:9003")
	for _, n := range []int{1, 2} {
		specs[n].Servers[0].Separate = false
	}
	l.replace(t, specs)
	l.watching(t)
	views := l.watcher.Views()
	for name, at := range map[string]string{"chat/a1": "127.0.0.1:9001", "bare/b1": "127.0.0.1:9003"} {
		s := views[0].Servers[name]
		s.Address = netip.MustParseAddrPort(at)
		views[0].Servers[name] = s
	}
	views[1].Servers = nil
	l.o.Watcher = fixed{l.watcher, views}
	return specs
}

// proven probes chat/a1 and returns the answer for it.
func (l *lab) proven(t testing.TB) tier.Answer {
	t.Helper()
	require.True(t, l.monitor.ProbeNow(t.Context(), "chat/a1").Ready)
	a, known := l.model.Server([]byte("chat/a1"))
	require.True(t, known)
	return a
}

// G11: a server that is probed elsewhere from now on is held against what HAProxy
// last showed before anything may speak for it.
//
// Control: with the call of compare taken out of Replace, it was admitted until
// the next look.
func TestG11_AnEditedAddressIsComparedAtOnce(t *testing.T) {
	l := newLab(t)
	before := l.watchingAddresses(t)
	assert.True(t, l.proven(t).Admit)
	l.replace(t, at(before, "chat", "127.0.0.1:9002"))
	a := l.proven(t)
	assert.Equal(t, tier.ReasonElsewhere, a.Reason)
	assert.False(guarantee.T(t), a.Admit)
	l.replace(t, before)
	assert.True(t, l.proven(t).Admit)
}

// Of two looks the later one counts, whichever has been compared first.
//
// Control: with the times not compared the mismatch was forgotten until the next look.
func TestG11_AnEarlierLookEndsNoMismatch(t *testing.T) {
	l := newLab(t)
	l.watchingAddresses(t)
	earlier := l.o.Watcher.Views()[0]
	later := earlier
	later.At = earlier.At.Add(time.Second)
	later.Servers = map[string]observe.Server{"chat/a1": {Address: netip.MustParseAddrPort("127.0.0.1:9002")}}
	l.compare(later)
	l.compare(earlier)
	assert.Equal(guarantee.T(t), tier.ReasonElsewhere, l.proven(t).Reason)
	l.compare(later)
	later.At, later.Servers = later.At.Add(time.Second), earlier.Servers
	l.compare(later)
	assert.True(t, l.proven(t).Admit)
}
