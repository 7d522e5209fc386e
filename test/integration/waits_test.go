package integration

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tier-agent/internal/admission"
	"tier-agent/test/guarantee"
	"tier-agent/test/lab"
)

// A second backend has a server that tracks heavy's, for another kind of client, and a
// stream there. The drain of heavy waits for it and says where it is; status counts it.
//
// Control: with nothing counted on servers that track, the drain was done in 0.4 s, over
// the stream.
func TestADrainCountsAStreamOfAServerThatTracks(t *testing.T) {
	onEach(t, func(t *testing.T, haproxy string) {
		batch, err := lab.FreePorts()
		require.NoError(t, err)
		w := newWorldWith(t, haproxy, worldOptions{config: func(o lab.Options, text string) string {
			return text + fmt.Sprintf(`
frontend batch from tiers
    bind 127.0.0.1:%d
    default_backend heavy-batch

backend heavy-batch from tiers
    server b1 127.0.0.1:%d no-check no-agent-check track heavy/h1
`, batch.Front, o.Ports.Heavy)
		}})
		body := strings.NewReader(`{"messages":[],"max_tokens":600,"stream":true}`)
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, fmt.Sprintf("http://127.0.0.1:%d/v1/chat/completions", batch.Front), body)
		require.NoError(t, err)
		req.Header.Set("X-Token-Delay", "200ms")
		res, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
		require.NoError(t, err)
		defer res.Body.Close()
		require.Equal(t, http.StatusOK, res.StatusCode)
		w.verb(0, "quiesce", "heavy", "--reason", "swap")
		w.waitLeft("draining", 1)
		out, progress, code := w.CLI(t.Context(), "drain", "heavy", "--timeout", "3s")
		require.Equal(guarantee.T(t), 3, code, out+progress)
		assert.Contains(t, progress, "1 stream, 0 queued (1 of them on heavy-batch/b1, which tracks)")
		w.heavy.Hurry()
		w.verb(0, "drain", "heavy", "--timeout", "60s")
		_, err = io.Copy(io.Discard, res.Body)
		require.NoError(t, err)
		w.waitLeft("quiesced", 0)
	})
}

// A check that takes twelve of its intervals to bring a server up is waited for, and what
// is waited for is said.
//
// Control: with a confirmation of 10 s, as it once was, the readmit was not_confirmed and
// the tier closed again, each time.
func TestAReadmitWaitsForSlowChecks(t *testing.T) {
	mostlyWaits(t)
	onEach(t, func(t *testing.T, haproxy string) {
		w := newWorldWith(t, haproxy, worldOptions{config: func(_ lab.Options, text string) string {
			line := `server h1 "${TIER_HEAVY_H1}" agent-send "heavy/h1\n"`
			return strings.Replace(text, line, line+" inter 5s fastinter 1s downinter 1s fall 1 rise 12", 1)
		}})
		w.verb(0, "quiesce", "heavy", "--reason", "swap")
		w.waitStat("heavy", "h1", func(row map[string]string) bool { return row["check_health"] == "0" }, "the check has brought it down")
		out, progress, code := w.CLI(t.Context(), "readmit", "heavy", "--wait", "5s")
		require.Zero(t, code, out+progress)
		assert.Contains(t, progress, `waits for HAProxy to have every server up: haproxy edge shows heavy/h1 as "`)
		assert.Equal(t, http.StatusOK, w.ask("heavy").Status)

		w.verb(0, "quiesce", "heavy", "--reason", "swap")
		w.waitStat("heavy", "h1", func(row map[string]string) bool { return row["check_health"] == "0" }, "the check has brought it down")
		r := w.verb(1, "readmit", "heavy", "--wait", "5s", "--confirm", "2s")
		assert.Equal(t, admission.CodeNotConfirmed, r.Code, r.Message)
		assert.True(t, r.Quiesced)
	})
}

// The master's socket lets tier-agent's user not in: the drain ends at once and says what
// to change.
//
// Control: without hopeless in the drain's wait it went on to its timeout, and said nothing
// after its first line.
func TestADrainEndsWhereTheMastersSocketLetsNobodyIn(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give tier-agent another user")
	}
	onEach(t, func(t *testing.T, haproxy string) {
		dir := t.TempDir()
		for d := dir; d != os.TempDir() && d != "/"; d = filepath.Dir(d) {
			require.NoError(t, os.Chmod(d, 0o755))
		}
		// A link: a file that was just written may be busy when it is to be run.
		require.NoError(t, os.Link(binaries.agent, filepath.Join(dir, "tier-agent")))
		// As nobody; its configuration is written for its owner alone.
		script := filepath.Join(dir, "as-nobody")
		require.NoError(t, os.WriteFile(script, []byte(`#!/bin/sh
for a in "$@"; do if [ -f "$a" ]; then chmod 644 "$a"; fi; done
exec setpriv --reuid=65534 --regid=65534 --clear-groups `+dir+`/tier-agent "$@"
`), 0o755))
		w := newWorldWith(t, haproxy, worldOptions{agent: script, config: func(o lab.Options, text string) string {
			require.NoError(t, os.Chmod(o.Dir, 0o777|os.ModeSticky))
			return strings.Replace(text, "mode 660 level admin", "mode 666 level admin", 1)
		}})
		w.verb(0, "quiesce", "heavy", "--reason", "swap")
		began := time.Now()
		r := w.verb(1, "drain", "heavy", "--timeout", "10m")
		assert.Less(t, time.Since(began), 10*time.Second)
		assert.Equal(t, admission.CodeHAProxy, r.Code)
		for _, text := range []string{w.HAProxies[0].MasterSocket(), "permission denied", "belongs to root(0)", "this is nobody(65534)", "group"} {
			assert.Contains(t, r.Message, text)
		}
		assert.True(t, r.Quiesced)
	})
}
