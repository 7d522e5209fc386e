package main

import (
	"encoding/binary"
	"io"
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/negasus/haproxy-spoe-go/payload/kv"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tier-agent/internal/config"
	"tier-agent/test/guarantee"
	"tier-agent/test/socketdir"
)

// Frame types of the SPOE specification.
const (
	haproxyHello    = 1
	agentHello      = 101
	agentDisconnect = 102
)

// withGate adds a gate on a port that the system chooses, and on a socket.
func withGate(t testing.TB, cfg *config.Config) *config.Config {
	t.Helper()
	cfg.Listen.SPOE = config.SPOE{
		Address: "127.0.0.1:0", RetryAfter: time.Second,
		Unix: config.UnixSocket{Path: filepath.Join(socketdir.New(t), "gate.sock"), Mode: 0o660},
	}
	return cfg
}

// greet opens a connection to a gate and says HELLO, as HAProxy does, or as its
// health check does.
func greet(t testing.TB, ln net.Listener, healthCheck bool) net.Conn {
	t.Helper()
	conn, err := net.Dial(ln.Addr().Network(), ln.Addr().String())
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	pairs := kv.NewKV()
	pairs.Add("supported-versions", "2.0")
	pairs.Add("max-frame-size", uint32(16380))
	pairs.Add("capabilities", "pipelining")
	pairs.Add("healthcheck", healthCheck)
	payload, err := pairs.Bytes()
	require.NoError(t, err)
	frame := append([]byte{0, 0, 0, 0, haproxyHello, 0, 0, 0, 1, 0, 0}, payload...)
	binary.BigEndian.PutUint32(frame, uint32(len(frame)-4))
	_, err = conn.Write(frame)
	require.NoError(t, err)
	return conn
}

// frameType reads a frame and gives its type; 0 where there is none.
func frameType(conn net.Conn) byte {
	var head [5]byte
	if _, err := io.ReadFull(conn, head[:]); err != nil {
		return 0
	}
	_, _ = io.CopyN(io.Discard, conn, int64(binary.BigEndian.Uint32(head[:]))-1)
	return head[4]
}

// A gate that has no evidence yet sends HAProxy to another one, and lets a
// connection that comes all the same wait for the first round.
//
// Control: with Ready left out of newGate both got an AGENT-HELLO at once.
func TestG9_TheGateAwaitsTheFirstRound(t *testing.T) {
	e := newEngine(t)
	release := e.hold("/heavy/v1/models")
	d := start(t, withGate(t, twoTiers(t, e)))
	require.Len(t, d.spoe, 2)
	<-e.asks
	waiting := make(chan byte, len(d.spoe))
	for _, ln := range d.spoe {
		assert.Equal(t, byte(agentDisconnect), frameType(greet(t, ln, true)), ln.Addr())
		conn := greet(t, ln, false)
		go func() { waiting <- frameType(conn) }()
	}
	select {
	case kind := <-waiting:
		guarantee.T(t).Errorf("answered %d without evidence", kind)
		guarantee.T(t).FailNow()
	case <-time.After(50 * time.Millisecond): // only makes the control sharper
	}
	release()
	for _, ln := range d.spoe {
		assert.Equal(t, byte(agentHello), <-waiting)
		assert.Equal(t, byte(agentHello), frameType(greet(t, ln, true)), ln.Addr())
	}
	d.end(t)
}

// At a stop HAProxy's check of the gate fails first, while the other faces answer
// and its connections stay; they end with an AGENT-DISCONNECT.
//
// Controls: without gate.Retire in daemon.go the check passed for the whole of
// linger; without the wait for linger the connection ended at once.
func TestTheGateLingers(t *testing.T) {
	cfg := withGate(t, twoTiers(t, newEngine(t)))
	cfg.Listen.SPOE.Linger = 5 * time.Second // on a busy machine, too, enough to see it linger
	d := start(t, cfg)
	d.awaitReady(t, "light")
	conn := greet(t, d.spoe[0], false)
	require.Equal(t, byte(agentHello), frameType(conn))
	ended := make(chan byte, 1)
	go func() { ended <- frameType(conn) }()
	d.stop()
	require.Eventually(t, func() bool { return frameType(greet(t, d.spoe[0], true)) == agentDisconnect }, deadline, tick)
	select {
	case kind := <-ended:
		t.Fatalf("the connection has ended with %d before its time", kind)
	default:
	}
	assert.Equal(t, ok, d.check("/readyz/light"))
	assert.Equal(t, byte(agentDisconnect), <-ended)
	d.end(t)
	assert.NoFileExists(t, cfg.Listen.SPOE.Unix.Path)
}
