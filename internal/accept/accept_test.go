package accept

import (
	"context"
	"log/slog"
	"net"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tier-agent/test/guarantee"
)

// How a loop ends is tested where it serves, in agentcheck and spoe; this is what
// they cannot see. Negative control: without the delete in leave a listener was
// kept for each Serve.
func TestLoopKeepsNoListener(t *testing.T) {
	l := New("test", slog.New(slog.DiscardHandler))
	for range 3 {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		require.NoError(t, l.Serve(ctx, ln, func(net.Conn, *sync.WaitGroup) {}))
	}
	assert.Empty(guarantee.T(t), l.listeners)
	assert.False(t, l.IsClosing())
}
