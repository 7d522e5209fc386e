package httpapi

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tier-agent/internal/runtimeapi"
	"tier-agent/test/guarantee"
)

// Control: with o.Err.Error() in place of its kind, the golden differed by the
// path of HAProxy's socket.
func TestStatusGolden(t *testing.T) {
	w := httptest.NewRecorder()
	everything().readOnly().Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/api/v1/status", nil))
	require.Equal(t, http.StatusOK, w.Code)
	var pretty bytes.Buffer
	require.NoError(t, json.Indent(&pretty, w.Body.Bytes(), "", "  "))
	golden(t, "status.json", pretty.Bytes())
	assert.NotContains(guarantee.T(t), w.Body.String(), "secret.sock")

	var back Status
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &back))
	assert.Equal(t, everything().readOnly().Status(), back, "what the client reads is what was said")
}

func TestStatusOfNothingHasNoNull(t *testing.T) {
	text, err := json.Marshal(world{}.readOnly().Status())
	require.NoError(t, err)
	assert.JSONEq(t, `{"version":"1.2.3","time":"2026-03-01T12:00:00Z","tiers":[],"haproxy":[],"intents":[],"daemon":{"name":"tier-agent","ready":false,"reason":"no_tier_ready"}}`, string(text))
}

func TestKindsOfFailure(t *testing.T) {
	assert.Equal(t, "haproxy did not answer in time", kindOf(runtimeapi.ErrTimeout))
	assert.Equal(t, "permission denied", kindOf(syscall.EACCES)[len("cannot be read: "):])
}
