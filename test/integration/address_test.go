package integration

import (
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tier-agent/test/guarantee"
	"tier-agent/test/lab"
)

// HAProxy sends to a unix socket, and does not show which: evidence from elsewhere opens
// nothing, unless that is said to be meant.
//
// Control: with the address that cannot be compared held to be the same, heavy was ready
// by fast's engine.
func TestG11_AUnixSocketIsNoMatchForAnAddress(t *testing.T) {
	onEach(t, func(t *testing.T, haproxy string) {
		o := labOptions(t, haproxy)
		socket := filepath.Join(o.Dir, "engine.sock")
		tiers := func(url, more string) string {
			return lab.Head + fmt.Sprintf(`probe: {interval: 200ms, timeout: 2s, max_age: 10s}
tiers:
  - {name: heavy, servers: [{server: heavy/h1, url: '%s'%s}], identity: {id: %s}}
`, url, more, lab.FastModel)
		}
		o.AgentYAML = tiers("http://127.0.0.1:{{.Ports.Fast}}", "")
		configure(t, &o, func(o lab.Options, text string) string {
			return strings.Replace(text, `server h1 "${TIER_HEAVY_H1}"`, "server h1 unix@"+socket, 1)
		})
		l, err := lab.New(o)
		require.NoError(t, err)
		w := &world{Lab: l, t: t}
		ln, err := net.Listen("unix", socket)
		require.NoError(t, err)
		serveEngineThrough(t, ln, lab.HeavyModel)
		serveEngine(t, o.Ports.Fast, lab.FastModel)
		t.Cleanup(func() { require.NoError(t, l.Close()) })
		require.NoError(t, l.StartAgent(t.Context()))
		require.NoError(t, l.StartHAProxy(t.Context()))
		require.NoError(t, lab.Within(15*time.Second, func() error {
			if s := w.status().Tiers[0].Servers[0]; s.Reason != "address_mismatch" || s.Evidence != "identity_passed" {
				return fmt.Errorf("%s, %s", s.Reason, s.Evidence)
			}
			return nil
		}))
		w.waitStatus("heavy", http.StatusServiceUnavailable)

		// The same socket, and said to be meant.
		text := strings.ReplaceAll(tiers("unix:"+socket, ", address: separate"), lab.FastModel, lab.HeavyModel)
		require.NoError(t, l.Rewrite(text))
		_, errs, code := w.CLI(t.Context(), "reload")
		require.Zero(t, code, errs)
		w.waitStatus("heavy", http.StatusOK)
		assert.Equal(guarantee.T(t), lab.HeavyModel, w.ask("heavy").Model)
	})
}
