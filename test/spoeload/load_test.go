package spoeload

import (
	"bytes"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var tiers = []string{"heavy", "light"}

func load(network, addr string, conns, depth int) Load {
	return Load{
		Network: network, Addr: addr, Conns: conns, Depth: depth,
		Warmup: 20 * time.Millisecond, Measure: 100 * time.Millisecond, Tiers: tiers,
	}
}

// Every frame has the same length, so the bytes that the agent has read say how
// many there were.
func TestCountsAreRight(t *testing.T) {
	for _, network := range []string{"tcp", "unix"} {
		for _, size := range []struct{ conns, depth int }{{1, 1}, {1, 20}, {4, 1}, {4, 20}, {1, maxDepth}} {
			t.Run(fmt.Sprintf("%s %dx%d", network, size.conns, size.depth), func(t *testing.T) {
				var read atomic.Int64
				addr := listen(t, network, func(c net.Conn) net.Conn { return counted{c, &read} })
				r, err := Run(t.Context(), load(network, addr, size.conns, size.depth))
				require.NoError(t, err)

				frame := len(newSession(nil, Load{Depth: 1, Tiers: tiers}).slots[0].frame)
				hello := hellos(t)
				require.Zero(t, (int(read.Load())-size.conns*hello)%frame)
				assert.Equal(t, (int(read.Load())-size.conns*hello)/frame, r.Total)
				assert.Less(t, r.Measured, r.Total, "the end at least is not measured")
				assert.InDelta(t, float64(r.Measured)/0.1, r.PerSecond, 0.01)
			})
		}
	}
}

func TestOnlyTheMeasuredTimeCounts(t *testing.T) {
	tallies := make([]tally, 2)
	for i := range tallies {
		tallies[i].clock = window{from: 10 * time.Second, until: 12 * time.Second}
		for _, at := range []time.Duration{9, 10, 11, 12, 13} {
			tallies[i].note((at-1)*time.Second, at*time.Second)
		}
	}
	r := sum(tallies)
	assert.Equal(t, 10, r.Total)
	assert.Equal(t, 4, r.Measured)
	assert.InDelta(t, 2, r.PerSecond, 1e-9)
	assert.InEpsilon(t, time.Second, r.P50, 1.0/steps)
	assert.InEpsilon(t, time.Second, r.P99, 1.0/steps)
}

// hellos is the length of what hello sends.
func hellos(t *testing.T) int {
	t.Helper()
	here, there := net.Pipe()
	defer here.Close()
	go func() { _ = newSession(here, Load{}).hello() }()
	buf := make([]byte, maxFrame)
	n, err := there.Read(buf)
	require.NoError(t, err)
	require.NoError(t, there.Close())
	return n
}

func TestAFrameIDComesRoundAgain(t *testing.T) {
	addr := listen(t, "unix", nil)
	c, err := net.Dial("unix", addr)
	require.NoError(t, err)
	defer c.Close()
	// There are more frames at once than ids are left, so that the ids come round however
	// little time there is.
	s := newSession(c, Load{Depth: 40, Tiers: tiers})
	s.next = maxID - 30
	rest := bytes.Clone(s.slots[0].frame[head+2*idSize:])
	require.NoError(t, s.hello())
	ta := tally{clock: window{start: time.Now(), until: 50 * time.Millisecond}}
	require.NoError(t, s.loop(&ta))
	assert.GreaterOrEqual(t, ta.total, 40)
	assert.Equal(t, rest, s.slots[0].frame[head+2*idSize:], "an id has taken more than its place")
}

// Also in a slot that is not sent again, as at the end of a turn.
func TestAnAnsweredSlotIsFree(t *testing.T) {
	s := newSession(nil, Load{Depth: 1, Tiers: tiers})
	s.send(0, 0)
	ack := appendFrame(nil, typeAck, s.slots[0].frame[head:head+2*idSize], bareActions)
	_, err := s.answered(ack)
	require.NoError(t, err)
	_, err = s.answered(ack)
	require.ErrorIs(t, err, ErrAnswer)
}

// With a check of session.go taken out, its rows pass unnoticed or, where it is the
// one of a length, end in a panic.
func TestAWrongAnswerIsAnError(t *testing.T) {
	ids := func(stream, frame byte) func([]byte) []byte {
		return func(b []byte) []byte { // three bytes each; their low bits are in the first
			b[head] += stream
			b[head+idSize] += frame
			return b
		}
	}
	for _, tc := range []struct {
		name        string
		hello, acks func([]byte) []byte
		want        string
	}{
		{"stream id", nil, ids(1, 0), "is not in flight"},
		{"frame id", nil, ids(0, 1), "is not in flight"},
		{"one ACK twice", nil, func(b []byte) []byte { return append(b, b...) }, "is not in flight"},
		{"no FIN", nil, func(b []byte) []byte { b[head-1] = 0; return b }, "flags"},
		{"aborted", nil, func(b []byte) []byte { b[head-1] = 3; return b }, "flags"},
		{"another type", nil, func(b []byte) []byte { b[4] = typeAgentDisconnect; return b }, "type 102"},
		{"not admitted", nil, func(b []byte) []byte {
			return bytes.Replace(b, []byte("admit\x11"), []byte("admit\x01"), 1)
		}, "actions"},
		{"another action first", nil, func(b []byte) []byte {
			return bytes.Replace(b, []byte("admit"), []byte("ADMIT"), 1)
		}, "actions"},
		{"no action", nil, func([]byte) []byte {
			return appendFrame(nil, typeAck, appendVarint(appendVarint(nil, minID), minID), "")
		}, "actions"},
		{"a length of 0", nil, func(b []byte) []byte { copy(b, []byte{0, 0, 0, 0}); return b }, "out of bounds"},
		{"a length beyond a frame", nil, func(b []byte) []byte { b[0] = 1; return b }, "out of bounds"},
		{"ids cut off", nil, func([]byte) []byte { return appendFrame(nil, typeAck, []byte{255, 255}, "") }, "truncated"},
		{"closed", nil, func([]byte) []byte { return nil }, "1 frames without an answer"},
		{"HELLO without pipelining", func(b []byte) []byte {
			return bytes.Replace(b, []byte("pipelining"), []byte("piplelning"), 1)
		}, nil, "to HELLO"},
		{"an ACK for a HELLO", func(b []byte) []byte { b[4] = typeAck; return b }, nil, "to HELLO"},
		{"no HELLO", func([]byte) []byte { return nil }, nil, "no AGENT-HELLO"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			addr := listen(t, "unix", func(c net.Conn) net.Conn {
				return &tampered{Conn: c, hello: tc.hello, acks: tc.acks}
			})
			_, err := Run(t.Context(), load("unix", addr, 1, 1))
			require.ErrorContains(t, err, tc.want)
		})
	}
}

// The library's agent answers from a goroutine per frame, so its answers may
// change places.
func TestAnswersMayComeInAnyOrder(t *testing.T) {
	turned := func(b []byte) []byte {
		var all [][]byte
		for len(b) > 0 {
			f, err := nextFrame(b)
			if err != nil {
				return nil
			}
			all, b = append([][]byte{f}, all...), b[len(f):]
		}
		return bytes.Join(all, nil)
	}
	addr := listen(t, "unix", func(c net.Conn) net.Conn { return &tampered{Conn: c, acks: turned} })
	_, err := Run(t.Context(), load("unix", addr, 1, 20))
	require.NoError(t, err)
}

// Also where the others' connections would go on for long.
func TestOneFailureEndsTheTurn(t *testing.T) {
	var conns atomic.Int32
	addr := listen(t, "unix", func(c net.Conn) net.Conn {
		if conns.Add(1) == 2 {
			return &tampered{Conn: c, acks: func([]byte) []byte { return nil }}
		}
		return c
	})
	l := load("unix", addr, 4, 1)
	l.Measure = time.Hour
	_, err := Run(t.Context(), l)
	require.ErrorContains(t, err, "without an answer")
}

func TestAFrameCostsNoAllocation(t *testing.T) {
	s := newSession(nil, Load{Depth: 20, Tiers: tiers})
	ack := appendFrame(nil, typeAck, []byte{240, 0, 0, 240, 0, 0}, bareActions)
	assert.Zero(t, testing.AllocsPerRun(1000, func() {
		s.out = s.out[:0]
		s.send(3, 0)
		copy(ack[head:], s.slots[3].frame[head:head+2*idSize])
		if i, err := s.answered(ack); i != 3 || err != nil {
			t.Error(i, err)
		}
	}))
}
