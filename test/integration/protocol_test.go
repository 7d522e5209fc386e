package integration

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"tier-agent/test/lab"
)

// A server line whose engine is asked in HTTP/2 works with the checks as they are shipped.
//
// Control: without HTTP/2 in httpapi.Serve the health check was a SOCKERR, and the
// server never came up. Nor did it with "check-proto h1" in default-server, which no
// version hands on to the server line.
func TestAServerLineWithHTTP2(t *testing.T) {
	onEach(t, func(t *testing.T, haproxy string) {
		w := newWorldWith(t, haproxy, worldOptions{config: func(_ lab.Options, text string) string {
			return strings.Replace(text, `"${TIER_HEAVY_H1}" agent-send`, `"${TIER_HEAVY_H1}" proto h2 agent-send`, 1)
		}})
		row := w.waitStat("heavy", "h1", func(row map[string]string) bool { return row["check_status"] == "L7OK" }, "the health check")
		assert.Equal(t, "UP", row["status"])
		w.verb(0, "quiesce", "heavy", "--reason", "swap")
		assert.Equal(t, http.StatusServiceUnavailable, w.ask("heavy").Status)
		w.verb(0, "readmit", "heavy")
		assert.Equal(t, http.StatusOK, w.ask("heavy").Status)
	})
}
