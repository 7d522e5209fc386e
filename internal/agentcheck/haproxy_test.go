package agentcheck

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tier-agent/test/guarantee"
)

// TestHAProxy takes each kind of line through real HAProxys: all those that
// scripts/haproxy.sh has installed, else the one in PATH.
func TestHAProxy(t *testing.T) {
	bins, err := filepath.Glob(filepath.Join(cmp.Or(os.Getenv("TIER_AGENT_HAPROXY_DIR"), "../../.haproxy"), "*", "haproxy"))
	require.NoError(t, err)
	if os.Getenv("CI") != "" {
		require.GreaterOrEqual(t, len(bins), 3, "scripts/haproxy.sh install 2.6 3.0 3.2 brings them")
	}
	if len(bins) == 0 {
		bin, err := exec.LookPath("haproxy")
		if err != nil {
			t.Skip("no haproxy: see scripts/haproxy.sh")
		}
		bins = []string{bin}
	}
	for _, bin := range bins {
		version, err := exec.Command(bin, "-v").Output()
		require.NoError(t, err)
		t.Run(strings.Fields(string(version))[2], func(t *testing.T) {
			t.Run("replies", func(t *testing.T) { testReplies(t, bin) })
			t.Run("admin words", func(t *testing.T) { testAdminWords(t, bin) })
			t.Run("drain lets streams finish", func(t *testing.T) { testDrainKeepsStreams(t, bin) })
			t.Run("words behind the hash", func(t *testing.T) { testWordsBehindHash(t, bin) })
		})
	}
}

// Negative controls: with "ready up" for a steady ready, the operator's drain was
// gone; without the deadline of Silence in readName, the poll without LF never came.
func testReplies(t *testing.T, bin string) {
	src := newScript()
	src.set("be/s1", State{Ready: true})
	_, agent := serveTCP(t, src, Options{})
	h := startHAProxy(t, bin, agent, `
  server s1 127.0.0.1:1 weight 100 agent-send "be/s1\n"
  server silent 127.0.0.1:1 weight 100
  server bad 127.0.0.1:1 weight 100 agent-send "two names\n"
  server nobody 127.0.0.1:1 weight 100 agent-send "be/nobody\n"`)

	assert.Equal(t, server{running, "0", "100", "via agent : up"}, h.told(src, "be/s1", "s1"))
	src.set("be/s1", State{Ready: true, Weight: 50})
	assert.Equal(t, server{running, "0", "50", "via agent : up"}, h.told(src, "be/s1", "s1"))
	src.set("be/s1", State{Reason: "probe_stale"})
	assert.Equal(t, server{stopped, "0", "50", "via agent : down (probe_stale)"}, h.told(src, "be/s1", "s1"))
	src.set("be/s1", State{Reason: strings.Repeat("r", maxReason)})
	assert.Contains(t, h.told(src, "be/s1", "s1").why, "("+strings.Repeat("r", maxReason)+")", "not cut")
	src.set("be/s1", State{Ready: true})
	assert.Equal(t, server{running, "0", "50", "via agent : up"}, h.told(src, "be/s1", "s1"), "left as it is")
	h.command("set server be/s1 weight 7")
	assert.Equal(guarantee.T(t), server{running, "0", "7", "via agent : up"}, h.told(src, "be/s1", "s1"), "an operator's stays")
	src.set("be/s1", State{Ready: true, Weight: 100})
	assert.Equal(t, server{running, "0", "100", "via agent : up"}, h.told(src, "be/s1", "s1"))
	src.set("be/s1", State{Ready: true, Quiesced: true})
	assert.Equal(t, server{stopped, "0", "100", "via agent : down (quiesced)"}, h.told(src, "be/s1", "s1"))

	// A steady "up" leaves an operator's drain and maint alone.
	src.set("be/s1", State{Ready: true})
	h.told(src, "be/s1", "s1")
	h.command("set server be/s1 state drain")
	assert.Equal(guarantee.T(t), "8", h.told(src, "be/s1", "s1").admin)
	h.command("set server be/s1 state maint")
	assert.Equal(guarantee.T(t), "1", h.told(src, "be/s1", "s1").admin)
	h.command("set server be/s1 state ready")

	// HAProxy's command line cannot put an LF into agent-send. A blank ends the name as
	// well, also that of one whose name another begins with.
	src.set("be/cli", State{Reason: "asked_without_lf"})
	h.command("set server be/s1 agent-send be/cli")
	assert.Equal(t, "via agent : down (asked_without_lf)", h.told(src, "be/cli", "s1").why)
	src.set("be/cl", State{Reason: "asked_with_a_blank"})
	h.command(`set server be/s1 agent-send be/cl\ ;show version`)
	assert.Equal(t, "via agent : down (asked_with_a_blank)", h.told(src, "be/cl", "s1").why)
	h.command("set server be/s1 agent-send be/cl")
	assert.EventuallyWithT(t, func(c *assert.CollectT) {
		assert.Equal(c, "via agent : down ("+ReasonReadTimeout+")", h.server("s1").why)
	}, 10*time.Second, 20*time.Millisecond)

	// Polls that have no name of the source's to wait for.
	for name, why := range map[string]string{"silent": ReasonNoAgentSend, "bad": ReasonBadRequest, "nobody": ReasonUnknown} {
		assert.EventuallyWithT(t, func(c *assert.CollectT) {
			assert.Equal(c, server{stopped, "0", "100", "via agent : down (" + why + ")"}, h.server(name))
		}, 10*time.Second, 20*time.Millisecond)
	}
}

// The whole life of a tier with "admission: agent-check".
// Negative controls: with "drain down" for quiesced, step 3 was stopped; with
// "up" for ready, step 6 stayed in drain.
func testAdminWords(t *testing.T, bin string) {
	src := newScript()
	_, agent := serveTCP(t, src, Options{})
	h := startHAProxy(t, bin, agent, `
  server s1 127.0.0.1:1 weight 100 agent-send "be/s1\n"`)
	steps := []struct {
		st        State
		op, admin string
	}{
		{State{Ready: true}, running, "0"},
		{State{Reason: "probe_stale"}, stopped, "0"},
		{State{Ready: true}, running, "0"},
		{State{Ready: true, Quiesced: true}, running, "8"},
		{State{Quiesced: true}, running, "8"},
		{State{Reason: "probe_stale"}, stopped, "8"},
		{State{Ready: true, Weight: 50}, running, "0"},
		{State{Reason: "probe_stale"}, stopped, "0"},
		{State{Ready: true, Quiesced: true}, stopped, "8"},
		{State{Ready: true}, running, "0"},
	}
	for i, step := range steps {
		step.st.AdminWords = true
		src.set("be/s1", step.st)
		got := h.after(src, "s1")
		assert.Equal(t, [2]string{step.op, step.admin}, [2]string{got.op, got.admin}, "step %d: %+v", i, step.st)
	}
	h.command("set server be/s1 state maint")
	got := h.after(src, "s1")
	assert.Equal(t, [2]string{running, "0"}, [2]string{got.op, got.admin}, "opted in: the agent's ready undoes maint")
}

// Negative control: with "drain down" for quiesced, the stream was cut.
func testDrainKeepsStreams(t *testing.T, bin string) {
	finish := make(chan struct{})
	engine := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "first ")
		w.(http.Flusher).Flush()
		<-finish
		_, _ = io.WriteString(w, "last")
	}))
	t.Cleanup(engine.Close)
	end := sync.OnceFunc(func() { close(finish) })
	t.Cleanup(end) // runs before engine.Close, which waits for the handler

	src := newScript()
	src.set("be/s1", State{Ready: true, AdminWords: true})
	_, agent := serveTCP(t, src, Options{})
	h := startHAProxy(t, bin, agent, fmt.Sprintf(`
  server s1 %s weight 100 on-marked-down shutdown-sessions agent-send "be/s1\n"`, engine.Listener.Addr()))
	require.Equal(t, running, h.after(src, "s1").op)

	client := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", h.front)
		},
	}}
	resp, err := client.Get("http://front")
	require.NoError(t, err)
	defer resp.Body.Close()
	body := bufio.NewReader(resp.Body)
	first, err := body.ReadString(' ')
	require.NoError(t, err)
	require.Equal(t, "first ", first)

	src.set("be/s1", State{Quiesced: true, AdminWords: true})
	require.Equal(t, "8", h.after(src, "s1").admin)
	refused, err := client.Get("http://front")
	require.NoError(t, err)
	require.NoError(t, refused.Body.Close())
	assert.Equal(guarantee.T(t), http.StatusServiceUnavailable, refused.StatusCode)

	end()
	rest, err := io.ReadAll(body)
	assert.NoError(t, err)
	assert.Equal(t, "last", string(rest))
}

// HAProxy takes no word from behind "#". Ours hold none anyway.
func testWordsBehindHash(t *testing.T, bin string) {
	ln := listenLoopback(t)
	t.Cleanup(func() { _ = ln.Close() })
	polls := make(chan struct{})
	go func() {
		defer close(polls)
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			_, _ = bufio.NewReader(c).ReadString('\n')
			_, _ = io.WriteString(c, "up # drain maint ready down 0%\n")
			_ = c.Close()
			select {
			case polls <- struct{}{}:
			default:
			}
		}
	}()
	h := startHAProxy(t, bin, ln.Addr().String(), `
  server s1 127.0.0.1:1 weight 100 agent-send "be/s1\n"`)
	h.command("set server be/s1 state drain")
	for range 3 {
		<-polls
	}
	assert.Equal(t, server{running, "8", "100", "via agent : up (drain maint ready down 0%)"}, h.explained("s1"))
}
