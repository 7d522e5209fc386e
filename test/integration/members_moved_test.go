package integration

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tier-agent/test/engine"
	"tier-agent/test/guarantee"
	"tier-agent/test/lab"
)

// slotOf is the server of heavy that HAProxy has an address in; empty for none.
func (f *fleet) slotOf(ip string) string {
	f.t.Helper()
	out, err := f.Runtime("show servers state heavy")
	require.NoError(f.t, err)
	for line := range strings.Lines(out) {
		if p := strings.Fields(line); len(p) > 4 && p[4] == ip {
			return "heavy/" + p[3]
		}
	}
	return ""
}

// Hosts that are quiesced one by one stay so where HAProxy gives them each other's
// slots, as it does when it starts without its state file.
//
// Negative control: with the records moved one by one, each over the one that was
// there, two or three of the four got 276 to 499 requests each.
func TestMembers_QuiescedHostsChangePlaces(t *testing.T) {
	discovered(t, 4, func(f *fleet) {
		hosts := map[string]*engine.Engine{"127.0.0.2": f.heavy}
		var ips []string
		for n := 5; n >= 2; n-- {
			ip := fmt.Sprintf("127.0.0.%d", n)
			if n > 2 {
				hosts[ip] = f.host(ip, lab.HeavyModel)
			}
			// One at a time, so that the slots are not in the order of the addresses.
			ips = append(ips, ip)
			require.NoError(t, f.dns.Set(heavyName, ips...))
			f.shows(fmt.Sprintf("heavy/h%d", len(ips)), "ready [config]")
		}
		for ip := range hosts {
			f.verb(0, "quiesce", "heavy", "--server", f.slotOf(ip), "--force", "--reason", ip)
		}
		require.NoError(t, f.HAProxies[0].Kill())
		require.NoError(t, os.WriteFile(f.HAProxies[0].StateFile(), []byte("1\n"), 0o644))
		before := map[string]int64{}
		for ip, e := range hosts {
			before[ip] = int64(e.Stats().Requests[engine.Chat])
		}
		require.NoError(t, f.StartHAProxy(t.Context()))
		heavy := f.traffic("heavy")
		heavy.rule.Store(mustRefuse)
		f.waitMembers(4)
		f.settle(heavy, 500)
		heavy.stop()
		assert.Zero(guarantee.T(t), heavy.reached.Load())
		for ip, e := range hosts {
			assert.Equal(guarantee.T(t), before[ip], int64(e.Stats().Requests[engine.Chat]), "requests at %s", ip)
			f.member(f.slotOf(ip), "quiesced")
		}
		for ip := range hosts {
			f.verb(0, "readmit", "heavy", "--server", f.slotOf(ip), "--wait", "2s")
			f.shows(f.slotOf(ip), "ready [config]")
		}
	})
}

// A host leaves while its tier is quiesced: the next one in its slot, after the
// readmit, is nobody's hold.
//
// Negative control: without vacant it stayed in our drain, as held by somebody else.
func TestMembers_AHostLeavesAQuiescedTier(t *testing.T) {
	discovered(t, 2, func(f *fleet) {
		f.host("127.0.0.3", lab.HeavyModel)
		f.host("127.0.0.4", lab.HeavyModel)
		require.NoError(t, f.dns.Set(heavyName, "127.0.0.2", "127.0.0.3"))
		f.shows("heavy/h1", "ready [config]")
		f.shows("heavy/h2", "ready [config]")
		slot := f.slotOf("127.0.0.3")
		f.verb(0, "quiesce", "heavy", "--reason", "rollout")
		require.NoError(t, f.dns.Set(heavyName, "127.0.0.2"))
		f.waitMembers(1)
		require.NoError(t, lab.Within(15*time.Second, func() error {
			out, err := f.Runtime("show servers state heavy")
			if err == nil && strings.Contains(out, " 44 ") {
				err = fmt.Errorf("an empty slot is still drained: %s", out)
			}
			return err
		}))
		f.verb(0, "readmit", "heavy", "--wait", "2s")
		require.NoError(t, f.dns.Set(heavyName, "127.0.0.2", "127.0.0.4"))
		f.member(slot, "ready")
		f.shows(slot, "ready [config]")
	})
}
