package spoe

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/negasus/haproxy-spoe-go/message"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// FuzzConversation checks that whatever a peer sends, in whatever pieces, it gets
// whole frames: a HELLO, the ACKs of its NOTIFYs in their order, and nothing
// after an AGENT-DISCONNECT, whose code is that of the connection's end; that
// nothing panics; and that memory stays bounded.
//
// Negative control: with wellFormed true for everything, the seeds alone made the
// library panic.
func FuzzConversation(f *testing.F) {
	for _, b := range hostile() {
		f.Add(b, true, uint8(0))
		f.Add(b, false, uint8(3))
	}
	f.Fuzz(func(t *testing.T, data []byte, greeted bool, cut uint8) {
		sent := data
		if greeted {
			sent = slices.Concat(greet(), data)
		}
		nc := &memory{pieces: [][]byte{sent}}
		if cut > 0 {
			nc.pieces = slices.Collect(slices.Chunk(sent, int(cut)))
		}
		if len(sent) == 0 {
			nc.pieces = nil
		}
		o := Options{OnAnswers: func(k Kind, _ int) { assert.NotEqual(t, Panicked, k) }}
		c := newConn(NewServer(steady{}, o), nc, netip.Addr{}, time.Now())
		end := c.converse()
		require.NotEqual(t, Failed, end)

		out := split(t, nc.written())
		var bye *status
		if n := len(out); n > 0 && out[n-1].kind == agentDisconnect {
			code := out[n-1].goodbye(t)
			out, bye = out[:n-1], &code
		}
		if v, violated := violationOf(end); violated {
			require.NotNil(t, bye)
			assert.Equal(t, v, *bye)
		} else if bye != nil {
			assert.Equal(t, Closed, end)
			assert.Equal(t, statusNormal, *bye)
		}
		if len(out) > 0 {
			assert.EqualValues(t, agentHello, out[0].kind)
			out[0].pairs(t)
			out = out[1:]
		}
		asked := notifies(sent)
		require.LessOrEqual(t, len(out), len(asked))
		for i, a := range out {
			a.vars(t)
			ids := &reading{t, asked[i][5:]}
			assert.Equal(t, ids.number(), a.stream)
			assert.Equal(t, ids.number(), a.id)
		}

		assert.LessOrEqual(t, cap(c.in), lengthSize+16380)
		assert.LessOrEqual(t, len(c.encoder.heads), maxHeads)
		for _, w := range nc.writes {
			assert.LessOrEqual(t, len(w), flushAt+2*minFrameSize)
		}
	})
}

// violationOf gives the code of a violation.
func violationOf(end Kind) (status, bool) {
	for code, v := range violations {
		if v.kind == end {
			return code, true
		}
	}
	return 0, false
}

// notifies are the NOTIFYs in what was sent, without their lengths.
func notifies(b []byte) (all [][]byte) {
	for len(b) >= 4 {
		n := uint64(binary.BigEndian.Uint32(b))
		if uint64(len(b)) < 4+n {
			break
		}
		if f := b[4 : 4+n]; n > 0 && f[0] == notify {
			all = append(all, f)
		}
		b = b[4+n:]
	}
	return all
}

// FuzzMessages checks that the library reads what wellFormed lets through, in
// full: without a panic, an error, or a byte that is not the payload's.
//
// Negative control: with take that gives a byte too few where there are too few,
// the seeds alone made the library panic.
func FuzzMessages(f *testing.F) {
	for _, b := range hostile() {
		f.Add(b)
		if len(b) > 11 {
			f.Add(b[11:]) // the payload of most
		}
	}
	f.Fuzz(func(t *testing.T, payload []byte) {
		if !wellFormed(payload) {
			return
		}
		var all message.Messages
		require.NoError(t, all.Decode(slices.Clip(payload)), "a slice beyond its end would panic")
		assert.LessOrEqual(t, len(all), maxMessages)
		size := 0
		for _, m := range all {
			size += 2 + len(m.Name)
			for _, arg := range m.KV.Data() {
				size += 2 + len(arg.Name)
			}
		}
		assert.LessOrEqual(t, size, len(payload))
		var n question
		n.read(all)
		assert.LessOrEqual(t, len(n.tier), maxName)
		assert.LessOrEqual(t, len(n.server), maxName)
	})
}
