package integration

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tier-agent/test/guarantee"
	"tier-agent/test/lab"
)

var resolvers atomic.Int32

// startResolver is a name server on port 53, and a tier-agent that asks it: in a mount
// namespace of its own, with a resolv.conf that names it. That takes root; without it the
// test is skipped, or in CI fails.
func startResolver(t *testing.T) (dns *lab.DNS, agent string) {
	t.Helper()
	if os.Getuid() != 0 {
		why := "a resolv.conf for one process takes root"
		if os.Getenv("CI") != "" {
			t.Fatal(why)
		}
		t.Skip(why)
	}
	var ip string
	require.NoError(t, lab.Within(10*time.Second, func() (err error) {
		ip = fmt.Sprintf("127.0.53.%d", 1+resolvers.Add(1)%250)
		dns, err = lab.StartDNSAt(ip + ":53")
		return err
	}))
	t.Cleanup(func() { require.NoError(t, dns.Close()) })
	dir := t.TempDir()
	conf, agent := filepath.Join(dir, "resolv.conf"), filepath.Join(dir, "tier-agent")
	require.NoError(t, os.WriteFile(conf, []byte("nameserver "+ip+"\noptions timeout:1 attempts:1\n"), 0o644))
	script := fmt.Sprintf("#!/bin/sh\nexec unshare -m sh -c 'mount --bind %s /etc/resolv.conf && exec \"$@\"' sh %s \"$@\"\n", conf, binaries.agent)
	require.NoError(t, os.WriteFile(agent, []byte(script), 0o755))
	return dns, agent
}

const namedHeavy = lab.Head + `probe: {interval: 100ms, timeout: 2s, max_age: 5s}
tiers:
  - {name: heavy, servers: [{server: heavy/h1, url: 'http://heavy.test:{{.Ports.Heavy}}'}], identity: {id: big-70b}}
`

// The name that is probed gives other addresses than HAProxy sends to, in turn or at once.
// What is open is what a probe of that very address has seen.
//
// Control: with v.Address not compared in sentElsewhere, the wrong model answered.
func TestG11_ANameThatChangesBorrowsNoEvidence(t *testing.T) {
	mostlyWaits(t)
	onEach(t, func(t *testing.T, haproxy string) {
		dns, agent := startResolver(t)
		require.NoError(t, dns.Set("heavy.test", "127.0.0.1"))
		w := newWorldWith(t, haproxy, worldOptions{agentYAML: namedHeavy, agent: agent, bare: true})
		serveEngineAt(t, fmt.Sprintf("127.0.0.5:%d", w.Ports.Heavy), lab.FastModel) // the wrong one
		g := wiring{backend: wiredBoth, h1: `agent-send "heavy/h1\n"`}
		text := strings.Replace(g.config(), `server h2 "${TIER_FAST_F1}"`, "# ", 1)
		require.NoError(t, os.WriteFile(w.HAProxyCfg, []byte(text), 0o644))
		require.NoError(t, w.HAProxies[0].Start(t.Context()))

		// HAProxy sends to the right one: also where the name has both.
		require.NoError(t, dns.Set("heavy.test", "127.0.0.5", "127.0.0.1"))
		w.waitStatus("heavy", http.StatusOK)
		assert.Equal(t, lab.HeavyModel, w.ask("heavy").Model)

		// And now to the wrong one.
		_, err := w.Runtime(fmt.Sprintf("set server heavy/h1 addr 127.0.0.5 port %d", w.Ports.Heavy))
		require.NoError(t, err)
		w.waitStatus("heavy", http.StatusServiceUnavailable)
		for round, answer := range [][]string{{"127.0.0.1"}, {"127.0.0.1", "127.0.0.5"}, {"127.0.0.5"}, {"127.0.0.5", "127.0.0.1"}} {
			for flip := range 4 {
				require.NoError(t, dns.Set("heavy.test", answer...))
				asked := dns.Asked("heavy.test")
				require.NoError(t, lab.Within(10*time.Second, func() error {
					if dns.Asked("heavy.test") < asked+2 {
						return fmt.Errorf("no probe has come")
					}
					return nil
				}))
				if flip%2 == 1 {
					require.NoError(t, dns.Set("heavy.test", "127.0.0.1"))
				}
				assert.NotEqual(guarantee.T(t), lab.FastModel, w.ask("heavy").Model, "%d: %v", round, answer)
			}
		}
		require.NoError(t, dns.Set("heavy.test", "127.0.0.1"))
		require.NoError(t, lab.Within(10*time.Second, func() error {
			if s := w.status().Tiers[0].Servers[0]; s.Reason != "address_mismatch" || s.Evidence != "identity_passed" {
				return fmt.Errorf("%s, %s", s.Reason, s.Evidence)
			}
			return nil
		}))

		// A resolver that says nothing holds up neither looks nor commands.
		dns.Mute(true)
		w.commands("set server heavy/h1 state drain")
		w.looks(3)
		began := time.Now()
		w.verb(0, "quiesce", "heavy", "--reason", "swap")
		assert.Less(t, time.Since(began), 10*time.Second)
		dns.Mute(false)
	})
}
