package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tier-agent/internal/horizon"
	"tier-agent/internal/tier"
)

// A tier that serves and then fails makes tier-agent as a whole not ready, and is
// named; the other tier stays ready.
//
// Control: with publish left out of Judge and of run, /readyz was
// "no_tier_ready" from the start.
func TestReadyzOfTheWhole(t *testing.T) {
	e := newEngine(t)
	broken := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer broken.Close()
	d := start(t, configure(t, fmt.Sprintf(`
tiers:
  - {name: heavy, servers: [{server: heavy/h1, url: "%s"}], admission: agent-check}
  - {name: light, servers: [{server: light/l1, url: "%s"}], admission: agent-check}
probe: {interval: 50ms, timeout: 5s, max_age: 30s}
`, e.url, broken.URL)))
	d.awaitReady(t, "heavy")
	d.awaitReady(t, "light")
	assert.Equal(t, ok, d.check("/readyz"))
	broken.Close()
	require.Eventually(t, func() bool { return d.check("/readyz") == unavailable }, deadline, tick)
	assert.Equal(t, ok, d.check("/readyz/heavy"))
	// The first probe that fails may be one that was out: it is reset, or closed.
	require.Eventually(t, func() bool {
		return strings.Contains(d.page(t, "/readyz/light"), "health_transport_refused")
	}, deadline, tick)
	st, err := d.client().Status(t.Context())
	require.NoError(t, err)
	assert.Equal(t, horizon.Verdict{
		Reason: horizon.ReasonFailing, Failing: []horizon.Failing{{Name: "light", Reason: "health_transport_refused"}},
	}, st.Daemon.Verdict)
	conn, err := net.Dial("tcp", d.http)
	require.NoError(t, err)
	defer conn.Close()
	_, err = io.WriteString(conn, "GET /readyz HTTP/1.0\r\n\r\n")
	require.NoError(t, err)
	answer, err := io.ReadAll(conn)
	require.NoError(t, err)
	assert.Contains(t, string(answer), `{"name":"tier-agent","ready":false,"reason":"tier_failing","failing":[{"name":"light","reason":"health_transport_refused"}]}`)
	d.end(t)
}

// What an operator has closed fails nobody: a tier, or all of its servers that do
// not serve.
func TestRowsOfTiers(t *testing.T) {
	serves := tier.ServerStatus{Answer: tier.Answer{Admit: true}}
	closed := tier.ServerStatus{Answer: tier.Answer{Quiesced: true}}
	fails := tier.ServerStatus{}
	for name, c := range map[string]struct {
		st   tier.Status
		want horizon.Row
	}{
		"serves":           {tier.Status{Answer: tier.Answer{Admit: true, Reason: "r"}, Servers: []tier.ServerStatus{serves, fails}}, horizon.Row{Serving: true, Ready: 1, Servers: 2, Reason: "r"}},
		"fails":            {tier.Status{Servers: []tier.ServerStatus{fails, fails}}, horizon.Row{Servers: 2}},
		"quiesced":         {tier.Status{Answer: tier.Answer{Quiesced: true}, Servers: []tier.ServerStatus{fails}}, horizon.Row{Quiesced: true, Servers: 1}},
		"each quiesced":    {tier.Status{Servers: []tier.ServerStatus{closed, closed}}, horizon.Row{Quiesced: true, Servers: 2}},
		"too few, closed":  {tier.Status{MinReady: 2, Servers: []tier.ServerStatus{serves, closed}}, horizon.Row{Quiesced: true, Ready: 1, Servers: 2}},
		"one has failed":   {tier.Status{Servers: []tier.ServerStatus{closed, fails}}, horizon.Row{Servers: 2}},
		"no server at all": {tier.Status{}, horizon.Row{}},
	} {
		c.want.Generation = "0"
		assert.Equal(t, c.want, rowOf(c.st), name)
	}
}

// All servers of all tiers gone at once are told as one.
//
// Control: with together left at 0 the two, found out apart, were no such failure.
func TestServersThatFailTogether(t *testing.T) {
	one := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer one.Close()
	d := start(t, configure(t, fmt.Sprintf(`
probe: {interval: 50ms, timeout: 5s, max_age: 30s}
tiers:
  - {name: heavy, servers: [{server: heavy/h1, url: "%[1]s"}], admission: agent-check}
  - {name: light, servers: [{server: light/l1, url: "%[1]s"}], admission: agent-check}
`, one.URL)))
	d.awaitReady(t, "heavy")
	d.awaitReady(t, "light")
	one.Close()
	require.Eventually(t, func() bool {
		st, err := d.client().Status(t.Context())
		return err == nil && st.Daemon.CorrelatedFailure == 2 && st.Tiers[0].Servers[0].State == "unreachable" && st.Tiers[1].Servers[0].State == "unreachable"
	}, deadline, tick)
	st, err := d.client().Status(t.Context())
	require.NoError(t, err)
	assert.Equal(t, horizon.ReasonNoTier, st.Daemon.Reason)
	d.end(t)
}
