package integration

import (
	"encoding/pem"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tier-agent/test/engine"
	"tier-agent/test/lab"
)

// sends waits until the first HAProxy sends heavy's requests for a server to a port.
func (f *fault) sends(server string, port int) {
	f.t.Helper()
	require.NoError(f.t, lab.Within(10*time.Second, func() error {
		out, err := f.Runtime("show servers state heavy")
		if err != nil {
			return err
		}
		for row := range strings.Lines(out) {
			if p := strings.Fields(row); len(p) > 18 && p[3] == server && p[18] == fmt.Sprint(port) {
				return nil
			}
		}
		return fmt.Errorf("no %s with port %d in %s", server, port, out)
	}))
}

// An engine dies, nobody quiesces, and it comes back on another port: both files are
// edited, and each is loaded once.
//
// Control: with HAProxy's port in the row, address_mismatch stayed for good.
func TestRows_AnEngineComesBackOnAnotherPort(t *testing.T) {
	faults(t, "rows: another port, not ready", worldOptions{config: literal}, func(f *fault) {
		require.NoError(f.t, f.heavyPort.Close())
		f.waitStat("heavy", "h1", isDown, "the engine is gone")
		f.waitRow(" heavy 0 h1 - 0 0 ")
		now := freePort(f.t)
		serveEngine(f.t, now, lab.HeavyModel)
		f.edit(port(f.Ports.Heavy), port(now))
		f.editHAProxy(h1Line(f.Ports.Heavy), h1Line(now))
		f.reload(0)
		require.NoError(f.t, f.Reload())
		f.sends("h1", now)
		f.waitStatus("heavy", http.StatusOK)
		f.heavyTraffic.rule.Store(mustServe)
		f.settle(f.heavyTraffic, 20)
	})
}

// The same, and HAProxy is reloaded before tier-agent knows the port: that is named, and
// the next reload takes the port over.
func TestRows_HAProxyIsReloadedBeforeTierAgent(t *testing.T) {
	faults(t, "rows: another port, HAProxy first", worldOptions{config: literal}, func(f *fault) {
		require.NoError(f.t, f.heavyPort.Close())
		f.waitRow(" heavy 0 h1 - 0 0 ")
		now := freePort(f.t)
		serveEngine(f.t, now, lab.HeavyModel)
		f.edit(port(f.Ports.Heavy), port(now))
		f.editHAProxy(h1Line(f.Ports.Heavy), h1Line(now))
		require.NoError(f.t, f.Reload())
		f.sends("h1", f.Ports.Heavy)
		f.reload(0)
		assert.Equal(f.t, "address_mismatch", f.status().Tiers[0].Servers[0].Reason)
		f.heavyTraffic.rule.Store(mustRefuse)
		f.settle(f.heavyTraffic, 20)
		f.heavyTraffic.rule.Store(either)
		require.NoError(f.t, f.Reload())
		f.sends("h1", now)
		f.waitStatus("heavy", http.StatusOK)
	})
}

// The same while heavy is quiesced, and with a start of both instead of two reloads:
// tier-agent writes the row before HAProxy runs.
//
// Control: with the file left alone until HAProxy has been read, the row of before
// brought the old port back.
func TestRows_AnotherPortWhileBothAreStopped(t *testing.T) {
	faults(t, "rows: another port, both stopped", worldOptions{}, func(f *fault) {
		f.quiesceHeavy()
		f.waitRow(fmt.Sprintf(" heavy 0 h1 - 0 8 1 1 0 6 1 0 6 0 0 0 - %d -", f.Ports.Heavy))
		f.fastTraffic.rule.Store(either)
		require.NoError(f.t, f.AgentProc.Kill())
		require.NoError(f.t, f.HAProxies[0].Kill())
		f.Ports.Heavy = freePort(f.t)
		serveEngine(f.t, f.Ports.Heavy, lab.HeavyModel)
		require.NoError(f.t, f.StartAgent(f.t.Context()))
		f.waitRow(fmt.Sprintf(" heavy 0 h1 - 0 8 1 1 0 6 1 0 6 0 0 0 - %d -", f.Ports.Heavy))
		require.NoError(f.t, f.HAProxies[0].Start(f.t.Context()))
		f.sends("h1", f.Ports.Heavy)
		f.settle(f.heavyTraffic, 20)
		f.readmitHeavy()
	})
}

// The engine is replaced by one behind TLS on the same port, and both files say so: after
// the readmit requests go out as HAProxy's says.
//
// Control: with all fields of the dump in the row, requests went out in clear to the TLS
// port, each a 400, until one more reload.
func TestRows_TheEngineGoesBehindTLS(t *testing.T) {
	ca := filepath.Join(t.TempDir(), "ca.pem")
	some := httptest.NewTLSServer(http.NotFoundHandler())
	some.Close()
	require.NoError(t, os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: some.Certificate().Raw}), 0o600))
	faults(t, "rows: TLS", worldOptions{config: literal, agentEnv: []string{"SSL_CERT_FILE=" + ca}}, func(f *fault) {
		f.quiesceHeavy()
		f.waitRow(" heavy 0 h1 - 0 8 ")
		require.NoError(f.t, f.heavyPort.Close())
		serveTLS(f.t, at(f.Ports.Heavy))
		f.edit("http://"+port(f.Ports.Heavy), "https://"+port(f.Ports.Heavy))
		f.editHAProxy(h1Line(f.Ports.Heavy), h1Line(f.Ports.Heavy)+" ssl verify none")
		f.reload(0)
		require.NoError(f.t, f.Reload())
		f.settle(f.heavyTraffic, 20)
		f.readmitHeavy()
	})
}

// serveTLS serves heavy's model behind TLS at an address that another listener has left.
func serveTLS(t *testing.T, address string) {
	t.Helper()
	eng := engine.New(engine.Options{Model: lab.HeavyModel, TokenDelay: 50 * time.Millisecond})
	srv := httptest.NewUnstartedServer(eng)
	require.NoError(t, srv.Listener.Close())
	require.NoError(t, lab.Within(10*time.Second, func() (err error) {
		srv.Listener, err = net.Listen("tcp", address)
		return err
	}))
	srv.StartTLS()
	t.Cleanup(func() {
		eng.Close()
		srv.Close()
	})
}
