package spoe

import (
	"encoding/binary"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/negasus/haproxy-spoe-go/varint"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// What HAProxy sends, and a reading of what it gets that shares nothing with the
// package: SPOE.txt, 3.1 and 3.2.

func vint(n uint64) []byte {
	var b [10]byte
	return b[:varint.PutUvarint(b[:], n)]
}

// build makes a frame with its length.
func build(kind byte, flags uint32, stream, id uint64, payload ...[]byte) []byte {
	b := binary.BigEndian.AppendUint32([]byte{kind}, flags)
	b = slices.Concat(b, vint(stream), vint(id), slices.Concat(payload...))
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(b))), b...)
}

func text(s string) []byte { return slices.Concat(vint(uint64(len(s))), []byte(s)) }

// Typed values.
var null, yes, no = []byte{0}, []byte{0x11}, []byte{0x01}

func str(s string) []byte               { return slices.Concat([]byte{8}, text(s)) }
func bin(s string) []byte               { return slices.Concat([]byte{9}, text(s)) }
func num(kind byte, n uint64) []byte    { return slices.Concat([]byte{kind}, vint(n)) }
func pair(name string, v []byte) []byte { return slices.Concat(text(name), v) }

// msg is a message of a NOTIFY, with pairs for arguments.
func msg(name string, args ...[]byte) []byte {
	return slices.Concat(text(name), []byte{byte(len(args))}, slices.Concat(args...))
}

// greet makes a HELLO. Given pairs take the place of those of the same name, and
// a name alone takes one away.
func greet(change ...[]byte) []byte {
	pairs := [][]byte{
		pair("supported-versions", str("2.0")), pair("max-frame-size", num(3, 16380)),
		pair("capabilities", str("pipelining,async")), pair("engine-id", str("6f1c9f9e-0000-4000-8000-000000000001")),
	}
	for _, c := range change {
		name := c[:1+int(c[0])]
		pairs = slices.DeleteFunc(pairs, func(p []byte) bool { return strings.HasPrefix(string(p), string(name)) })
		if len(c) > len(name) {
			pairs = append(pairs, c)
		}
	}
	return build(haproxyHello, flagFIN, 0, 0, pairs...)
}

// spopCheck is the HELLO of "option spop-check".
func spopCheck() []byte {
	return greet(pair("capabilities", str("")), text("engine-id"), pair("healthcheck", yes))
}

// ask is the NOTIFY of one request.
func ask(stream, id uint64, args ...[]byte) []byte {
	return build(notify, flagFIN, stream, id, msg("tier-readiness", args...))
}

func askTier(id uint64, tier string) []byte { return ask(id, 1, pair("tier", str(tier))) }

// asks are n NOTIFYs about "gold", of the streams from first on.
func asks(first, n int) []byte {
	var b []byte
	for i := range n {
		b = append(b, askTier(uint64(first+i), "gold")...)
	}
	return b
}

// received is a frame of the server's.
type received struct {
	kind       byte
	stream, id uint64
	payload    []byte
}

// reading takes bytes apart, and fails where there are too few.
type reading struct {
	tb testing.TB
	b  []byte
}

func (r *reading) take(n int) []byte {
	require.LessOrEqual(r.tb, n, len(r.b), "cut short")
	b := r.b[:n]
	r.b = r.b[n:]
	return b
}

func (r *reading) number() uint64 {
	first := r.take(1)[0]
	if first < 240 {
		return uint64(first)
	}
	sum, weight := uint64(first), uint64(16)
	for {
		b := r.take(1)[0]
		sum += uint64(b) * weight
		if b < 128 {
			return sum
		}
		weight *= 128
	}
}

func (r *reading) text() string { return string(r.take(int(r.number()))) }

// value gives a bool, int64, uint32 or string, and fails on any other type: HAProxy
// is sent no other.
func (r *reading) value() any {
	switch t := r.take(1)[0]; t {
	case 0x01, 0x11:
		return t == 0x11
	case 3:
		return uint32(r.number())
	case 4:
		return int64(r.number())
	case 8:
		return r.text()
	default:
		require.Fail(r.tb, "type of a value", "%#x", t)
		return nil
	}
}

// split fails on anything but whole frames with FIN alone.
func split(tb testing.TB, b []byte) []received {
	tb.Helper()
	var all []received
	for len(b) > 0 {
		r := &reading{tb, b}
		r = &reading{tb, r.take(int(binary.BigEndian.Uint32(r.take(4))))}
		b = b[4+len(r.b):]
		f := received{kind: r.take(1)[0]}
		require.EqualValues(tb, 1, binary.BigEndian.Uint32(r.take(4)), "flags")
		f.stream, f.id = r.number(), r.number()
		f.payload = r.b
		all = append(all, f)
	}
	return all
}

// readFrames reads n frames and not a byte more.
func readFrames(tb testing.TB, c io.Reader, n int) []received {
	tb.Helper()
	var b []byte
	for range n {
		head := make([]byte, 4)
		_, err := io.ReadFull(c, head)
		require.NoError(tb, err)
		body := make([]byte, binary.BigEndian.Uint32(head))
		_, err = io.ReadFull(c, body)
		require.NoError(tb, err)
		b = slices.Concat(b, head, body)
	}
	return split(tb, b)
}

// vars are what an ACK sets; it may do nothing else, and nothing twice.
func (f received) vars(tb testing.TB) map[string]any {
	tb.Helper()
	require.EqualValues(tb, 103, f.kind)
	set := map[string]any{}
	for r := (&reading{tb, f.payload}); len(r.b) > 0; {
		require.Equal(tb, []byte{1, 3, 2}, r.take(3), "set-var, three arguments, scope txn")
		name := r.text()
		require.NotContains(tb, set, name)
		set[name] = r.value()
	}
	return set
}

// pairs are those of a HELLO or DISCONNECT.
func (f received) pairs(tb testing.TB) map[string]any {
	tb.Helper()
	assert.Zero(tb, f.stream)
	assert.Zero(tb, f.id)
	set := map[string]any{}
	for r := (&reading{tb, f.payload}); len(r.b) > 0; {
		name := r.text()
		require.NotContains(tb, set, name)
		set[name] = r.value()
	}
	return set
}

// goodbye is the status of an AGENT-DISCONNECT.
func (f received) goodbye(tb testing.TB) status {
	tb.Helper()
	require.EqualValues(tb, 102, f.kind)
	p := f.pairs(tb)
	require.Len(tb, p, 2)
	require.IsType(tb, "", p["message"])
	return status(p["status-code"].(uint32))
}
