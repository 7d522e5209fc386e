package spoeload

import (
	"encoding/binary"
	"errors"
)

// Frame types and flags (SPOE.txt of HAProxy, 3.2).
const (
	typeHello           = 1
	typeDisconnect      = 2
	typeNotify          = 3
	typeAgentHello      = 101
	typeAgentDisconnect = 102
	typeAck             = 103

	flagFIN = 1
)

// maxFrame is what HAProxy announces with its default buffers, in bytes without
// the length that precedes a frame.
const maxFrame = 16380

// head is what a frame has before its ids: length, type, flags.
const head = 4 + 1 + 4

var errTruncated = errors.New("truncated frame")

// appendFrame appends a frame of that type and those raw ids, with FIN set.
func appendFrame[B []byte | string](b []byte, kind byte, ids []byte, payload B) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(head-4+len(ids)+len(payload)))
	b = append(b, kind, 0, 0, 0, flagFIN)
	b = append(b, ids...)
	return append(b, payload...)
}

// nextFrame returns the first frame in b with its length before it, nil where b
// does not hold all of it yet.
func nextFrame(b []byte) ([]byte, error) {
	if len(b) < 4 {
		return nil, nil
	}
	n := binary.BigEndian.Uint32(b)
	if n < head-4+2 || n > maxFrame {
		return nil, errors.New("a frame's length is out of bounds")
	}
	if len(b) < 4+int(n) {
		return nil, nil
	}
	return b[:4+n], nil
}

// appendString appends a string with its length, as names have it.
func appendString(b []byte, s string) []byte {
	return append(appendVarint(b, uint64(len(s))), s...)
}

// appendVarint appends HAProxy's variable-length integer, which is not LEB128:
// each step takes off what the bytes so far can say.
func appendVarint(b []byte, n uint64) []byte {
	if n < 240 {
		return append(b, byte(n))
	}
	b = append(b, byte(n)|240)
	for n = (n - 240) >> 4; n >= 128; n = (n - 128) >> 7 {
		b = append(b, byte(n)|128)
	}
	return append(b, byte(n))
}

// varint returns the integer that b begins with and its length.
func varint(b []byte) (uint64, int, error) {
	if len(b) == 0 {
		return 0, 0, errTruncated
	}
	n := uint64(b[0])
	if n < 240 {
		return n, 1, nil
	}
	for i, shift := 1, 4; i < len(b) && i < 11; i, shift = i+1, shift+7 {
		n += uint64(b[i]) << shift
		if b[i] < 128 {
			return n, i + 1, nil
		}
	}
	return 0, 0, errTruncated
}
