package integration

import (
	"fmt"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tier-agent/test/lab"
)

// beside is a configuration of nine servers that answer. The black holes join their
// tier by an edit of the marked line.
const beside = `state_dir: {{.StateDir}}
listen: {agent_check: '127.0.0.1:{{.Ports.AgentCheck}}', http: '127.0.0.1:{{.Ports.HTTP}}', spoe: {address: '127.0.0.1:{{.Ports.SPOE}}'}, admin: {path: {{.AdminSocket}}}}
probe: {interval: 200ms, timeout: 5s, max_age: 30s}
tiers:
  - name: heavy
    admission: agent-check
    identity: {id: big-70b}
    servers:
      # holes
%s  - {name: fast, admission: agent-check, servers: [{server: fast/f1, url: 'http://127.0.0.1:{{.Ports.Fast}}'}], identity: {id: small-8b}}
`

const (
	// bound is the requirement, for the slowest answer of a hundred. One that waits for a
	// probe takes a hundred times as long.
	bound = 50 * time.Millisecond
	// slower is how many times as long it may take as from a tier-agent without black
	// holes, on a machine so busy that this one's are above the bound, or near it.
	slower = 4
)

// answers is how many of each face are measured.
const answers = 1000

// One member swallows the packets of every connection, another takes each and
// never says a word. What tier-agent says of all others comes as fast as from one that
// has neither.
//
// Negative control: with one lock held over each probe and each answer, the measure
// had not ended after two minutes.
func TestABlackHoleDelaysNobodyElsesAnswer(t *testing.T) {
	var members strings.Builder
	var addresses []string
	w := bareWorld(t, "", "")
	for n := range 8 {
		addresses = append(addresses, fmt.Sprintf("127.0.1.%d:%d", n+1, w.Ports.Heavy))
		fmt.Fprintf(&members, "      - {server: heavy/h%d, url: 'http://%s'}\n", n+1, addresses[n])
	}
	w.AgentYAML = fmt.Sprintf(beside, members.String())
	serveEngineOn(t, lab.HeavyModel, addresses)
	serveEngine(t, w.Ports.Fast, lab.FastModel)
	other := bareWorld(t, "", w.AgentYAML)
	other.Ports.Heavy, other.Ports.Fast = w.Ports.Heavy, w.Ports.Fast
	for _, one := range []*world{w, other} {
		require.NoError(t, one.StartAgent(t.Context()))
		require.NoError(t, lab.Within(15*time.Second, func() error {
			if code, err := one.readyz("/readyz/heavy/h8"); code != 200 {
				return fmt.Errorf("%d %w", code, err)
			}
			return nil
		}))
	}

	f := &fault{world: w}
	f.edit("      # holes\n", fmt.Sprintf("      - {server: heavy/deaf, url: 'http://%s'}\n      - {server: heavy/mute, url: 'http://%s'}\n", deaf(t), mute(t)))
	f.reload(0) // returns when both have been asked, or start_budget is over
	inFlight := func() int {
		n := 0
		for _, s := range w.status().Tiers[0].Servers {
			if strings.HasSuffix(s.Name, "/deaf") || strings.HasSuffix(s.Name, "/mute") {
				n += s.Probing
			}
		}
		return n
	}
	require.NoError(t, lab.Within(10*time.Second, func() error {
		if n := inFlight(); n != 2 {
			return fmt.Errorf("%d of 2 probes hang", n)
		}
		return nil
	}))
	for face, ask := range map[string]func(of *world, n int) error{
		"/readyz": func(of *world, n int) error {
			path := []string{"/readyz", "/readyz/heavy", "/readyz/fast", fmt.Sprintf("/readyz/heavy/h%d", n%8+1)}[n%4]
			code, err := of.readyz(path)
			if err == nil && code != 200 {
				err = fmt.Errorf("%s: %d", path, code)
			}
			return err
		},
		"agent-check": func(of *world, n int) error {
			server := fmt.Sprintf("heavy/h%d", n%8+1)
			if n%2 == 1 {
				server = "fast/f1"
			}
			said, err := of.agentCheck(server)
			if err == nil && !strings.HasPrefix(said, "ready up") {
				err = fmt.Errorf("%s: %q", server, said)
			}
			return err
		},
	} {
		with, without := timed(t, answers, func(n int) error { return ask(w, n) }, func(n int) error { return ask(other, n) })
		t.Logf("%s: with two black holes %v; without %v", face, with, without)
		assert.Less(t, with.p99, max(bound, slower*without.p99), "%s, p99 with two black holes; without it was %v at the same time", face, without.p99)
	}
	require.NoError(t, lab.Within(15*time.Second, func() error {
		for _, name := range []string{"heavy/deaf", "heavy/mute"} {
			if said, err := w.agentCheck(name); err != nil || !strings.Contains(said, "probe_timeout") {
				return fmt.Errorf("%s: %q %w", name, said, err)
			}
		}
		return nil
	}), "they themselves are not ready")
}

// mute accepts every connection and is silent.
func mute(t *testing.T) (address string) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		var kept []net.Conn
		for {
			c, err := ln.Accept()
			if err != nil {
				break
			}
			kept = append(kept, c)
		}
		for _, c := range kept {
			_ = c.Close()
		}
	}()
	t.Cleanup(func() {
		_ = ln.Close()
		<-done
	})
	return ln.Addr().String()
}

// deaf is an address whose packets go nowhere: it listens, its queue is full, and
// nobody takes from it, so that the system drops what else comes.
func deaf(t *testing.T) (address string) {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	t.Cleanup(func() { _ = syscall.Close(fd) })
	require.NoError(t, syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	require.NoError(t, syscall.Listen(fd, 0))
	name, err := syscall.Getsockname(fd)
	require.NoError(t, err)
	address = fmt.Sprintf("127.0.0.1:%d", name.(*syscall.SockaddrInet4).Port)
	for range 16 {
		c, err := net.DialTimeout("tcp", address, 300*time.Millisecond)
		if err != nil {
			return address
		}
		t.Cleanup(func() { _ = c.Close() })
	}
	require.Fail(t, "its queue does not fill")
	return ""
}
