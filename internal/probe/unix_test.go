package probe

import (
	"net"
	"net/url"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tier-agent/test/socketdir"
)

func TestAnEngineOnAUnixSocketIsProbed(t *testing.T) {
	path := filepath.Join(socketdir.New(t), "engine.sock")
	ln, err := net.Listen("unix", path)
	require.NoError(t, err)
	e := serveScript(t, ln, turn(says(ok(`{}`)), says(ok(`{"data":[{"id":"big"}]}`))))
	target := want(&url.URL{Scheme: "unix", Path: path})
	target.Identity = &Identity{Path: "/v1/models", ID: "big"}
	assert.Equal(t, Result{Ready: true, Reason: IdentityPassed, Healthy: true}, probeOnce(t, target))
	assert.Equal(t, 1, e.connections())
	assert.Equal(t, "unix:"+path, target.Address())

	target.URL = &url.URL{Scheme: "unix", Path: path + ".gone"}
	assert.Equal(t, "health_transport_refused", probeOnce(t, target).Reason)
}
