package main

import (
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tier-agent/internal/admission"
	"tier-agent/internal/httpapi"
	"tier-agent/internal/members"
	"tier-agent/internal/observe"
	"tier-agent/internal/tier"
	"tier-agent/test/guarantee"
)

const pooled = `
haproxy: [{name: edge, runtime: "tcp:127.0.0.1:1"}]
tiers:
  - {name: pool, members: {backend: gpu, max: 2}}
  - {name: other, members: {backend: cpu}}
  - {name: listed, servers: [{server: b/h1, url: "http://127.0.0.1:9001"}]}
`

func placed(pairs ...string) map[string]observe.Server {
	all := map[string]observe.Server{}
	for n := 0; n < len(pairs); n += 2 {
		all[pairs[n]] = observe.Server{Address: netip.MustParseAddrPort(pairs[n+1])}
	}
	return all
}

func TestShown(t *testing.T) {
	cfg := configure(t, pooled)
	one := observe.View{Instance: "edge", Servers: placed("gpu/s1", "192.0.2.1:9", "gpu/s2", "192.0.2.2:9", "gpu/s3", "192.0.2.3:9", "b/h1", "192.0.2.4:9")}
	found := shown(cfg, []observe.View{one}, nil)
	assert.Equal(t, map[string]members.Found{
		"pool":  {Members: []members.Member{{Server: "s1", Address: one.Servers["gpu/s1"].Address}, {Server: "s2", Address: one.Servers["gpu/s2"].Address}}, LeftOut: 1},
		"other": {},
	}, found)
	assert.Nil(t, shown(configure(t, wired), []observe.View{one}, nil), "no tier has members")
	assert.Empty(t, shown(cfg, []observe.View{{Instance: "edge"}}, nil)["pool"].Members, "it has not been read yet")
}

// Everything that a member is made of comes from its address.
func TestSpecsOfMembers(t *testing.T) {
	cfg := configure(t, strings.Replace(pooled, "backend: gpu,", "backend: gpu, url: 'https://{address}:8443/e',", 1))
	of := func(address string) tier.Spec {
		one := observe.View{Servers: placed("gpu/s1", address)}
		return specs(cfg, shown(cfg, []observe.View{one}, nil))[0]
	}
	a, b := of("192.0.2.1:9"), of("192.0.2.2:9")
	s := a.Servers[0]
	assert.Equal(t, []any{"gpu/s1", 100, "192.0.2.1:9", "https://192.0.2.1:8443/e"}, []any{s.FullName(), s.Weight, s.Address.String(), s.Target.URL.String()})
	assert.NotEqual(guarantee.T(t), s.Subject, b.Servers[0].Subject, "evidence about another host is void")
	assert.NotEqual(guarantee.T(t), s.Subject, of("192.0.2.1:10").Servers[0].Subject)
	assert.Equal(t, &tier.Members{Backend: "gpu"}, a.Members)
	assert.Nil(t, specs(cfg, nil)[2].Members)
}

func newPoolFile(t testing.TB, h *edge, tiers ...string) *file {
	t.Helper()
	f := newFile(t)
	f.head += "haproxy: [{name: edge, runtime: 'unix:" + h.path + "'}]\n"
	f.tiers(t, tiers...)
	return f
}

const gpuPool = "  - {name: pool, members: {backend: gpu}, probe: {interval: 50ms, timeout: 5s, max_age: 30s}}\n"

// The members are what HAProxy shows, from the start on, and as they come and go.
//
// Negative control: without Discover in the look, s2 was never opened.
func TestMembersComeAndGo(t *testing.T) {
	e, h := newEngine(t), newEdge(t)
	at := strings.TrimPrefix(e.url, "http://")
	h.fills("s1", at)
	h.fills("s2", "")
	d := newPoolFile(t, h, gpuPool).start(t)
	d.awaitReady(t, "pool")
	require.Eventually(t, func() bool { return slices.Contains(h.opens(), "s1") }, deadline, tick)
	assert.Contains(t, d.poll("gpu/s1"), "up")
	assert.Contains(t, d.log.String(), `"msg":"the members of a tier have changed","tier":"pool","members":1,"were":0`)

	h.fills("s2", at)
	require.Eventually(t, func() bool { return slices.Contains(h.opens(), "s2") }, deadline, tick)
	h.fills("s1", "")
	h.fills("s2", "")
	d.awaitLog(t, `"tier":"pool","members":0,"were":`)
	assert.Equal(guarantee.T(t), unavailable, d.check("/readyz/pool"))
	d.end(t)
}

// A reload takes members up, gives them up, and finds out who they are at once.
func TestAReloadThatIsAboutMembers(t *testing.T) {
	e, h := newEngine(t), newEdge(t)
	h.fills("s1", strings.TrimPrefix(e.url, "http://"))
	f := newPoolFile(t, h, probed("light", e, "light"))
	d := f.start(t)
	d.awaitReady(t, "light")
	assert.Empty(t, h.opens())

	f.tiers(t, probed("light", e, "light"), gpuPool)
	r := d.reload(t)
	require.Equal(t, admission.Done, r.Outcome, r.Message)
	assert.Equal(t, ok, d.check("/readyz/gpu/s1"), "its member was known and probed before the reload said that it was done")
	require.Eventually(t, func() bool { return slices.Contains(h.opens(), "s1") }, deadline, tick)

	f.tiers(t, probed("light", e, "light"), strings.Replace(gpuPool, "backend: gpu", "backend: none", 1))
	require.Equal(t, admission.Done, d.reload(t).Outcome)
	assert.Equal(guarantee.T(t), unavailable, d.check("/readyz/pool"))

	f.tiers(t, probed("light", e, "light"))
	r = d.reload(t)
	assert.Equal(t, []string{"pool"}, r.Removed)
	assert.Equal(t, ok, d.check("/readyz/light"))
	d.end(t)
}

// A transition puts the members of its own tier off, and of no other.
func TestABusyTierKeepsItsMembers(t *testing.T) {
	e, h := newEngine(t), newEdge(t)
	at := strings.TrimPrefix(e.url, "http://")
	h.fills("s1", at)
	// Probed once a minute: what is held is the readmit's own.
	d := newPoolFile(t, h, strings.Replace(gpuPool, "interval: 50ms, timeout: 5s, max_age: 30s", "interval: 1m, timeout: 50s, max_age: 5m", 1)).start(t)
	d.awaitReady(t, "pool")
	_, err := d.client().Run(t.Context(), "quiesce", httpapi.Command{Tier: "pool", Reason: "swap"}, nil)
	require.NoError(t, err)
	release := e.hold("/health")
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = d.client().Run(t.Context(), "readmit", httpapi.Command{Tier: "pool", AllowUnidentified: true, Confirm: "1s"}, nil)
	}()
	<-e.asks
	h.fills("s2", at)
	d.awaitLog(t, "they are taken over when that has ended")
	release()
	<-ended
	d.awaitLog(t, `"tier":"pool","members":2,"were":1`)
	d.end(t)
}

// What operators hold must not be guessed.
func TestServeWithOpeningsThatCannotBeRead(t *testing.T) {
	e, h := newEngine(t), newEdge(t)
	f := newPoolFile(t, h, probed("light", e, "light"))
	path := filepath.Join(filepath.Dir(f.path), "members.json")
	require.NoError(t, os.WriteFile(path, []byte(`{"version": 1, "openi`), 0o600))
	log := new(journal)
	code := run([]string{"serve", "-c", f.path}, strings.NewReader(""), io.Discard, log)
	assert.NotZero(t, code)
	assert.Contains(t, log.String(), path)
	assert.Contains(t, log.String(), "move the file away")
	assert.NoFileExists(t, filepath.Join(filepath.Dir(f.path), "admin.sock"), "nothing has been opened")
}
