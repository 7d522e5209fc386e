package integration

import (
	"fmt"
	"net/http"
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

// Control: with HasMaster made false, the drain was refused as haproxy_reloaded
// at once; with the old workers left out of load's sum, it ended before the
// stream did.
func TestFault09_ADrainWaitsForTheOldWorkersStream(t *testing.T) {
	faults(t, "9 a stream in an old worker", worldOptions{}, func(f *fault) {
		patience := "3s"
		if times(20) == 20 {
			patience = "20s"
		}
		stream := f.endless()
		f.quiesceHeavy()
		require.NoError(f.t, f.Reload())
		f.waitStat("heavy", "h1", func(row map[string]string) bool { return row["scur"] == "0" }, "the new worker does not see it")
		assert.Contains(f.t, f.drainOutlasted(stream, patience), "in old worker")
		f.readmitHeavy()
	})
}

func TestADrainThatCannotSeeOldWorkersIsRefused(t *testing.T) {
	blind := strings.Replace(lab.Head, ", master: 'unix:{{.MasterSocket}}'", "", 1) + `probe: {interval: 500ms, timeout: 2s, max_age: 5s}
tiers:
  - {name: heavy, servers: [{server: heavy/h1, url: 'http://127.0.0.1:{{.Ports.Heavy}}'}], identity: {id: big-70b}}
  - {name: fast, servers: [{server: fast/f1, url: 'http://127.0.0.1:{{.Ports.Fast}}'}], identity: {id: small-8b}}
`
	onEach(t, func(t *testing.T, haproxy string) {
		w := newWorld(t, haproxy, blind)
		w.verb(0, "quiesce", "heavy", "--reason", "swap")
		r := w.verb(1, "drain", "heavy", "--timeout", "10s")
		assert.Equal(t, "haproxy_reloaded", r.Code)
		assert.Contains(t, r.Message, "had begun shortly before tier-agent first saw it")
		r = w.verb(0, "drain", "heavy", "--timeout", "10s", "--ignore-old-workers")
		assert.Contains(t, r.Message, "cannot be seen")
		require.NoError(t, w.Reload())
		r = w.verb(1, "drain", "heavy", "--timeout", "10s")
		assert.Equal(t, "haproxy_reloaded", r.Code)
		assert.Contains(t, r.Message, "was reloaded")
		w.verb(0, "drain", "heavy", "--timeout", "10s", "--ignore-old-workers")
	})
}

// The routine edit of a port, in one place and then in the other. Controls: with
// the call of compare taken out of Reconcile, the mismatch was never seen and
// requests followed the edit; with sameAddress taken out of Readmit, HAProxy was
// opened before the mismatch closed it again, and neither address was named.
func TestFault14_AnEditedPortNeverBorrowsEvidence(t *testing.T) {
	literal := func(o lab.Options, text string) string {
		return strings.Replace(text, `server h1 "${TIER_HEAVY_H1}"`, fmt.Sprintf("server h1 127.0.0.1:%d", o.Ports.Heavy), 1)
	}
	faults(t, "14 an edited port", worldOptions{config: literal}, func(f *fault) {
		ports, err := lab.FreePorts()
		require.NoError(f.t, err)
		green := serveEngine(f.t, ports.Heavy, lab.HeavyModel)
		blue, bluePort := f.heavy, f.Ports.Heavy
		edit := func(from, to int) {
			f.t.Helper()
			text, err := os.ReadFile(f.HAProxyCfg)
			require.NoError(f.t, err)
			edited := strings.Replace(string(text), fmt.Sprintf("server h1 127.0.0.1:%d", from), fmt.Sprintf("server h1 127.0.0.1:%d", to), 1)
			require.NoError(f.t, os.WriteFile(f.HAProxyCfg, []byte(edited), 0o644))
			require.NoError(f.t, f.Reload())
		}
		probeAt := func(port int) {
			f.t.Helper()
			f.checked() // else a new worker's first check of fast may fail, and that closes it
			require.NoError(f.t, f.AgentProc.Stop(20*time.Second))
			f.Ports.Heavy = port
			require.NoError(f.t, f.StartAgent(f.t.Context()))
		}
		// Open: HAProxy follows the edit, and the evidence no longer counts.
		edit(bluePort, ports.Heavy)
		require.NoError(f.t, lab.Within(15*time.Second, func() error {
			if r := f.status().Tiers[0].Servers[0].Reason; r != "address_mismatch" {
				return fmt.Errorf("reason %s", r)
			}
			return nil
		}))
		f.waitStatus("heavy", http.StatusServiceUnavailable)
		f.settle(f.heavyTraffic, 2) // one may have been on its way to green
		asked := green.Requests(engine.Chat)
		for range 20 {
			assert.Equal(guarantee.T(f.t), http.StatusServiceUnavailable, f.ask("heavy").Status)
		}
		assert.Equal(guarantee.T(f.t), asked, green.Requests(engine.Chat))
		probeAt(ports.Heavy)
		f.waitStatus("heavy", http.StatusOK)

		// Quiesced: the state file's row keeps the old port.
		f.quiesceHeavy()
		asked = blue.Requests(engine.Chat)
		edit(ports.Heavy, bluePort)
		probeAt(bluePort)
		r := f.verb(1, "readmit", "heavy")
		assert.Equal(f.t, "address_mismatch", r.Code)
		assert.Contains(f.t, r.Message, fmt.Sprintf("sends to 127.0.0.1:%d, evidence is from 127.0.0.1:%d", ports.Heavy, bluePort))
		f.settle(f.heavyTraffic, 20)
		assert.Equal(guarantee.T(f.t), asked, blue.Requests(engine.Chat), "nobody has asked blue")

		f.heavyTraffic.rule.Store(either)
		onGreen := green.Requests(engine.Chat)
		f.verb(0, "readmit", "heavy", "--set-address", "--wait", "5s")
		f.heavyTraffic.rule.Store(mustServe)
		f.settle(f.heavyTraffic, 20)
		assert.Equal(guarantee.T(f.t), onGreen, green.Requests(engine.Chat), "all of it goes where the evidence is from")
	})
}
