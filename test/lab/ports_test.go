package lab

import (
	"fmt"
	"net"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestFreePorts_OnlyWhoAsksByNumberGetsOne(t *testing.T) {
	ports, err := FreePorts()
	require.NoError(t, err)
	for what, port := range ports.Each() {
		assert.Error(t, reserve(port), "%s: set aside a second time", what)
		ln, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		require.NoError(t, err, what)
		// As after a restart: who listened is gone, and the next one listens.
		require.NoError(t, ln.Close())
		ln, err = net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		require.NoError(t, err, what)
		require.NoError(t, ln.Close())
	}
	require.NoError(t, ports.Taken())
}
