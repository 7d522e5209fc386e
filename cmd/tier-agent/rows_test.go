package main

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tier-agent/internal/admission"
)

// HAProxy may be reloaded as soon as tier-agent serves, or has said that a reload is done.
//
// Controls: without the look in serveOn there was no file yet; without the one in Reload
// it still had the port of before.
func TestTheStateFileSaysSoBeforeAStartOrAReloadIsDone(t *testing.T) {
	h := newEdge(t)
	h.fills("s1", "127.0.0.1:1")
	state := filepath.Join(t.TempDir(), "server-state")
	f := newFile(t)
	f.head += fmt.Sprintf("haproxy: [{name: edge, runtime: 'unix:%s', state_file: %s}]\n", h.path, state)
	listed := func(port int) string { // nobody listens there
		return fmt.Sprintf("  - {name: pool, servers: [{server: gpu/s1, url: 'http://127.0.0.1:%d'}], probe: {interval: 1m, timeout: 50s, max_age: 5m}}\n", port)
	}
	row := func(port int) string { return fmt.Sprintf(" %d -\n", port) }
	says := func() string {
		text, err := os.ReadFile(state)
		require.NoError(t, err)
		return string(text)
	}
	f.tiers(t, listed(1))
	d := f.start(t)
	d.awaitLog(t, `"msg":"serving"`)
	assert.Contains(t, says(), row(1))
	f.tiers(t, listed(2))
	require.Equal(t, admission.Done, d.reload(t).Outcome)
	assert.Contains(t, says(), " gpu 0 s1 ")
	assert.Contains(t, says(), row(2))
	d.end(t)
}
