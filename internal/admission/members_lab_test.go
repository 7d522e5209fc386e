package admission

import (
	"context"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tier-agent/internal/members"
	"tier-agent/internal/observe"
	"tier-agent/internal/probe"
	"tier-agent/internal/runtimeapi"
	"tier-agent/internal/tier"
	"tier-agent/test/guarantee"
)

var (
	pool  = tier.Target{Tier: "pool"} // the slots gpu/s1 to gpu/s3
	slot1 = tier.Target{Tier: "pool", Server: "gpu/s1"}
	slot2 = tier.Target{Tier: "pool", Server: "gpu/s2"}
)

const hostA, hostB, hostC = "192.0.2.1:9000", "192.0.2.2:9000", "192.0.2.3:9000"

const (
	asStarted = "maint(forced,config)"
	asOpened  = "ready [config]"
	asDrained = "drain(forced) [config]"
)

// pooled is a lab with the tier pool, whose members are what the HAProxies show in
// the backend gpu. All its slots start disabled, and have no host yet.
type pooled struct {
	*lab
	dir      string // of the openings
	openings *members.Openings
	found    map[string]members.Found
	told     []Result
}

func newPool(t testing.TB, change ...func(*Options, *runtimeapi.Options)) *pooled {
	t.Helper()
	p := &pooled{dir: t.TempDir()}
	p.lab = newLab(t, append(change, p.keeping(t))...)
	for _, h := range p.haproxies() {
		for _, name := range []string{"gpu/s1", "gpu/s2", "gpu/s3"} {
			h.with(func() { h.order, h.disabled[name] = append(h.order, name), true })
			h.operator(name, "maint")
			h.with(func() { h.admin[name] |= runtimeapi.ConfigMaint })
			h.resolve(name, "")
		}
	}
	p.replace(t, p.withMembers())
	p.seeing(t)
	return p
}

// keeping gives the controller the openings that are on disk.
func (p *pooled) keeping(t testing.TB) func(*Options, *runtimeapi.Options) {
	t.Helper()
	var err error
	p.openings, err = members.Open(p.dir)
	require.NoError(t, err)
	return func(o *Options, _ *runtimeapi.Options) {
		o.Openings = p.openings
		o.Ended = func(r Result) { p.told = append(p.told, r) }
	}
}

func (p *pooled) seeing(t testing.TB) {
	t.Helper()
	p.watching(t, func(o *observe.Options) {
		o.Looked = func(ctx context.Context, i *runtimeapi.Instance, o observe.View) {
			p.discover(ctx)
			p.Reconcile(ctx, i, o)
		}
	})
}

// discover is what the daemon does with what was seen.
func (p *pooled) discover(ctx context.Context) {
	var shown []map[string]netip.AddrPort
	for _, o := range p.o.Watcher.Views() {
		shown = append(shown, o.Addresses())
	}
	was := p.found
	p.found = members.Of([]members.Want{{Tier: "pool", Backend: "gpu", Max: 9}}, shown, was, 9)
	if _, err := p.Replace(p.withMembers()); err != nil {
		p.found = was
	}
}

func (p *pooled) withMembers() []tier.Spec {
	spec := tier.Spec{
		Name: "pool", Identified: true, MinReady: 1, Interval: 5 * time.Millisecond, MaxAge: time.Hour,
		Members: &tier.Members{Backend: "gpu"},
	}
	for _, m := range p.found["pool"].Members {
		spec.Servers = append(spec.Servers, tier.ServerSpec{
			Backend: "gpu", Name: m.Server, Weight: 100, Address: m.Address, Subject: m.Server + "|" + m.Address.String(),
			Target: probe.Target{URL: &url.URL{Scheme: "http", Host: m.Address.String()}},
		})
	}
	var all []tier.Spec
	for _, name := range []string{"llm", "chat", "bare", "words"} {
		if one, err := p.model.Spec(name); err == nil {
			all = append(all, one)
		}
	}
	return append(all, spec)
}

// resolve gives a slot a host on both HAProxies, and has that seen; "" for none.
func (p *pooled) resolve(t testing.TB, slot, host string) {
	t.Helper()
	for _, h := range p.haproxies() {
		h.resolve(slot, host)
	}
	p.turn(t)
}

// prove takes evidence about whoever is in the slot, and has what it says seen.
func (p *pooled) prove(t testing.TB, slots ...string) {
	t.Helper()
	for _, slot := range slots {
		p.monitor.ProbeNow(t.Context(), slot)
	}
	p.turn(t)
}

// serving brings hosts to the slots from s1 on, and has them opened.
func (p *pooled) serving(t testing.TB, hosts ...string) {
	t.Helper()
	for n, host := range hosts {
		slot := []string{"gpu/s1", "gpu/s2", "gpu/s3"}[n]
		p.resolve(t, slot, host)
		p.prove(t, slot)
		p.is(t, slot, asOpened)
	}
	p.journal.clear()
}

// is asserts how a slot is on both HAProxies.
func (p *pooled) is(t testing.TB, slot, state string) {
	t.Helper()
	assert.Equal(guarantee.T(t), [2]string{state, state}, p.states(slot), slot)
}

// intentsAre asserts what the intents are about, as "server address", with "gone" where
// they close nothing.
func (p *pooled) intentsAre(t testing.TB, want ...string) {
	t.Helper()
	got := []string{}
	for _, r := range p.intents.store.All() {
		got = append(got, strings.TrimSpace(r.Server+" "+r.Addresses[r.Server]+map[bool]string{true: " gone"}[r.Gone]))
	}
	assert.ElementsMatch(guarantee.T(t), want, got)
}

// next is the pool after a kill, over what is on disk. As the daemon does it asks who
// the members are first, and then which of them are closed.
func (p *pooled) next(t testing.TB) *pooled {
	t.Helper()
	q := &pooled{dir: t.TempDir()}
	q.lab = &lab{
		prober: p.prober, journal: p.journal, clock: p.clock,
		hap1: p.hap1, hap2: p.hap2, hap3: p.hap3, stateDir: t.TempDir(),
	}
	for from, to := range map[string]string{p.dir: q.dir, p.stateDir: q.stateDir} {
		require.NoError(t, os.CopyFS(filepath.Join(to, "."), os.DirFS(from)))
	}
	q.start(t, q.keeping(t))
	require.NoError(t, q.model.Replace(q.withMembers()))
	q.seeing(t)
	q.discover(t.Context())
	q.Restore()
	return q
}

// logged is a log that a test can ask.
type logged struct{ journal }

func (l *logged) Write(line []byte) (int, error) {
	l.add(string(line))
	return len(line), nil
}
