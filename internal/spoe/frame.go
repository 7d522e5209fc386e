package spoe

import (
	"encoding/binary"

	"github.com/negasus/haproxy-spoe-go/varint"
)

// Frame types (SPOE.txt, 3.2).
const (
	haproxyHello      = 1
	haproxyDisconnect = 2
	notify            = 3
	agentHello        = 101
	agentDisconnect   = 102
	ack               = 103
)

const (
	flagFIN   = 1
	flagABORT = 2

	lengthSize   = 4   // of a frame's length, which does not count itself
	minFrame     = 7   // type, flags, and two ids of a byte each
	minFrameSize = 256 // what a peer has to take at least (SPOE.txt, 3.2.4)

	// helloSize is the most that the first frame may have. HAProxy's has about 120.
	helloSize = 1024
)

// frame is one whole frame; ids and payload lie in the connection's buffer.
type frame struct {
	kind    byte
	ids     []byte // of the stream and of the frame, as they came: an ACK has the same
	payload []byte
}

// noIDs are those of frames that are about the connection itself.
var noIDs = []byte{0, 0}

// whole looks for a frame at the start of b, of at most most bytes without its
// length. need is how many bytes it has with its length, or how many tell that,
// and is more than b has where it is not all there yet.
func whole(b []byte, most int) (need int, wrong status) {
	if len(b) < lengthSize {
		return lengthSize, 0
	}
	n := binary.BigEndian.Uint32(b)
	switch {
	case n < minFrame:
		return 0, statusInvalid
	case int64(n) > int64(most):
		return 0, statusTooBig
	}
	return lengthSize + int(n), 0
}

// parseFrame reads a whole frame's header. b is without the length, which has been
// found to be minFrame at least.
func parseFrame(b []byte) (frame, status) {
	flags, rest := binary.BigEndian.Uint32(b[1:]), b[5:]
	_, n := uvarint(rest)
	_, m := uvarint(rest[n:])
	if n == 0 || m == 0 {
		return frame{}, statusInvalid
	}
	f := frame{kind: b[0], ids: rest[:n+m], payload: rest[n+m:]}
	// HAProxy cannot receive fragments, so no version of it sends them to who does
	// not announce that either.
	if flags&flagFIN == 0 || flags&flagABORT != 0 {
		return f, statusFragmented
	}
	return f, 0
}

// beginFrame appends a frame's header; endFrame is to be given its offset.
func beginFrame(dst []byte, kind byte, ids []byte) []byte {
	dst = append(dst, 0, 0, 0, 0, kind, 0, 0, 0, flagFIN)
	return append(dst, ids...)
}

// endFrame fills in the length of the frame that begins at from.
func endFrame(b []byte, from int) {
	binary.BigEndian.PutUint32(b[from:], uint32(len(b)-from-lengthSize))
}

func appendVarint(dst []byte, v uint64) []byte {
	var buf [maxVarint]byte
	return append(dst, buf[:varint.PutUvarint(buf[:], v)]...)
}
