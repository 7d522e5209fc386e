package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tier-agent/internal/httpapi"
	"tier-agent/test/guarantee"
)

// reply is what came of a connection.
type reply struct{ agent, http, admin string }

// connect asks at all three doors at once, as HAProxies and an operator do in
// the moment after a restart.
func connect(t testing.TB, d *running) <-chan reply {
	t.Helper()
	agent, err := net.Dial("tcp", d.agent)
	require.NoError(t, err)
	http, err := net.Dial("tcp", d.http)
	require.NoError(t, err)
	// Sent at once: a connection on which no request comes within a second is closed.
	const request = "GET /readyz/heavy/h1 HTTP/1.0\r\n\r\n"
	_, err = io.WriteString(http, request)
	require.NoError(t, err)
	replies := make(chan reply, 1)
	admin := make(chan string, 1)
	go func() {
		st, err := d.client().Status(context.Background())
		if err != nil {
			admin <- err.Error()
			return
		}
		admin <- st.Tiers[0].Reason
	}()
	go func() {
		defer agent.Close()
		defer http.Close()
		r := reply{agent: exchange(agent, "heavy/h1\n")}
		all := exchange(http, "")
		r.http = all[:min(len(all), len(ok))]
		r.admin = <-admin
		replies <- r
	}()
	return replies
}

// G9: whoever connects before the first round of probes has ended waits for it,
// and hears of the evidence, not of its lack: that would evict a healthy server
// at every restart.
//
// Control: with awaitFirstRound returning at once, the replies came before the
// barrier was opened: "down # probe_pending", 503, probe_pending.
func TestG9_NoAnswerBeforeTheFirstRound(t *testing.T) {
	e := newEngine(t)
	release := e.hold("/heavy/v1/models")
	d := start(t, twoTiers(t, e))
	replies := connect(t, d)
	<-e.asks // the probe is out, and light's has no barrier
	select {
	case r := <-replies:
		guarantee.T(t).Errorf("answered without evidence: %+v", r)
		guarantee.T(t).FailNow()
	case <-time.After(100 * time.Millisecond): // only makes the control sharper
	}
	assert.NotContains(t, d.log.String(), `"msg":"serving"`)
	release()
	assert.Equal(t, reply{"ready up 100%\n", ok, "identity_passed"}, <-replies)
	assert.Equal(t, "ready up 50%\n", d.poll("light/l1"))
	assert.Equal(t, "ready up\n", d.poll("light"), "a tier has no weight of its own")
	assert.Equal(t, ok, d.check("/readyz"))
	d.end(t)
}

// A first round that does not end holds nothing up beyond its budget.
func TestStartBudget(t *testing.T) {
	e := newEngine(t)
	release := e.hold("/heavy/v1/models")
	cfg := twoTiers(t, e)
	cfg.StartBudget = time.Millisecond
	d := start(t, cfg)
	assert.Equal(t, reply{"down # probe_pending\n", unavailable[:len(ok)], "probe_pending"}, <-connect(t, d))
	assert.Contains(t, d.log.String(), `"msg":"the first round of probes has not ended in its budget; servers without evidence are answered probe_pending","start_budget":"1ms"`)
	release()
	d.awaitReady(t, "heavy")
	assert.Equal(t, "ready up 100%\n", d.poll("heavy/h1"))
	d.end(t)
}

// G11: whoever connects before it is known where HAProxy sends to waits for that. A
// start beside one that sends elsewhere would else admit on evidence about another
// address, for as long as a look takes.
//
// Control: with compared not awaited in awaitFirstRound, the answer was 200, at once.
func TestG11_NoAnswerBeforeHAProxysAddressesAreKnown(t *testing.T) {
	e, h := newEngine(t), newEdge(t)
	h.fills("s1", "127.0.0.1:9")
	release := h.hold()
	defer release()
	d := start(t, configure(t, fmt.Sprintf(`
haproxy: [{name: edge, runtime: "unix:%s"}]
tiers:
  - {name: heavy, servers: [{server: gpu/s1, url: "%s"}]}
`, h.path, e.url)))
	d.awaitLog(t, `"msg":"evidence changed","tier":"heavy","server":"gpu/s1","ready":true`)
	answer := make(chan string, 1)
	go func() { answer <- d.check("/readyz/gpu/s1") }()
	select {
	case got := <-answer:
		guarantee.T(t).Errorf("answered without a look at HAProxy: %s", got)
		guarantee.T(t).FailNow()
	case <-time.After(100 * time.Millisecond): // only makes the control sharper
	}
	release()
	assert.Equal(guarantee.T(t), unavailable, <-answer)
	assert.Equal(t, "down # address_mismatch\n", d.poll("gpu/s1"))
	d.end(t)
}

// A HAProxy that hangs holds a start up for a share of its budget.
//
// Control: without late in awaitFirstRound, it served when the look had failed.
func TestG9_AHAProxyThatHangsHoldsNoStartUp(t *testing.T) {
	e, h := newEngine(t), newEdge(t)
	defer h.hold()()
	cfg := configure(t, fmt.Sprintf(`
haproxy: [{name: edge, runtime: "unix:%s"}]
tiers:
  - {name: heavy, servers: [{server: gpu/s1, url: "%s"}]}
`, h.path, e.url))
	cfg.StartBudget = 800 * time.Millisecond
	d := start(t, cfg)
	d.awaitReady(t, "heavy")
	assert.NotContains(t, d.log.String(), "haproxy cannot be read", "the look is not over")
	d.end(t)
}

// A tier-agent that is stopped before its first round has ended says nothing to
// those who wait: a "down" from it would evict a healthy server.
//
// Control: with `return true` in awaitFirstRound, as after the budget, the
// agent-check in the queue was answered "down # probe_pending" on the way out.
func TestG9_AStartBrokenOffAnswersNobody(t *testing.T) {
	e := newEngine(t)
	defer e.hold("/heavy/v1/models")()
	d := start(t, twoTiers(t, e))
	replies := connect(t, d)
	<-e.asks
	d.end(t)
	r := <-replies
	assert.NotContains(guarantee.T(t), r.agent, "down")
	assert.NotContains(guarantee.T(t), r.http, "HTTP/")
	assert.NotContains(t, r.admin, "probe_pending")
	assert.NotContains(t, d.log.String(), `"msg":"serving"`)
}

// It ends from the outside to the inside: a command that has begun is let
// finish, while the faces answer; the faces finish, while probes go on.
//
// Controls: with endFaces before commands.Wait, the faces were gone while the
// readmit ran; with endProbes before answering.Wait, no probe came any more
// while a face still had a connection.
func TestOrderOfShutdown(t *testing.T) {
	e := newEngine(t)
	d := start(t, twoTiers(t, e))
	d.awaitReady(t, "heavy")
	r, err := d.client().Run(t.Context(), "quiesce", httpapi.Command{Tier: "heavy", Reason: "swap"}, nil)
	require.NoError(t, err)
	require.Equal(t, "heavy is quiesced; HAProxy hears of it at its next agent-check, which nothing here can confirm", r.Message)
	assert.Equal(guarantee.T(t), "drain # quiesced\n", d.poll("heavy/h1"))

	release := e.hold("/heavy/v1/models")
	defer release()
	readmitted := make(chan string, 1)
	go func() {
		r, err := d.client().Run(context.Background(), "readmit", httpapi.Command{Tier: "heavy"}, nil)
		if err != nil {
			readmitted <- err.Error()
			return
		}
		readmitted <- string(r.Outcome)
	}()
	<-e.asks
	d.stop()
	d.awaitLog(t, `"msg":"stopping"`)
	taken := func(network, address string) bool {
		conn, err := net.Dial(network, address)
		if err == nil {
			_ = conn.Close() // one that says nothing would hold the end up for seconds
		}
		return err == nil
	}
	require.Eventually(t, func() bool { return !taken("unix", d.socket) }, deadline, tick, "no new command is taken")
	for range 10 {
		assert.Equal(t, "ready up 50%\n", d.poll("light/l1"))
		assert.Equal(t, ok, d.check("/readyz/light"))
		assert.Equal(guarantee.T(t), "drain # quiesced\n", d.poll("heavy/h1"))
	}

	late, err := net.Dial("tcp", d.http) // a body that is owed keeps the face at work, for 10 s
	require.NoError(t, err)
	defer late.Close()
	_, err = io.WriteString(late, "GET /readyz/light HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\n")
	require.NoError(t, err)
	require.Equal(t, ok, d.check("/readyz/light"), "accepted after it, so it is no longer in the queue")

	release()
	assert.Equal(t, "done", <-readmitted)
	require.Eventually(t, func() bool { return !taken("tcp", d.agent) }, deadline, tick, "the faces take nobody new")
	before := e.count("/light/health")
	require.Eventually(t, func() bool { return e.count("/light/health") >= before+2 }, deadline, tick, "probes go on")
	require.NoError(t, late.Close())
	d.end(t)
}

// What fails at run time ends everything, and says what it was.
//
// Control: without fail(err) in stage the other faces answered for ever.
func TestAFaceThatFailsEndsServe(t *testing.T) {
	for what, broken := range map[string]func(*running) net.Listener{
		"http":        func(d *running) net.Listener { return d.listeners.http },
		"agent-check": func(d *running) net.Listener { return d.listeners.agent },
		"admin":       func(d *running) net.Listener { return d.listeners.admin },
	} {
		d := start(t, twoTiers(t, newEngine(t)))
		d.awaitReady(t, "light")
		require.NoError(t, broken(d).Close())
		d.awaitEnd(t)
		require.ErrorIs(t, d.err, net.ErrClosed, what)
		assert.ErrorContains(t, d.err, what+": ")
		assert.Contains(t, d.log.String(), `"msg":"stopping","cause":"`+what+": ")
	}
}
