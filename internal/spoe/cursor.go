package spoe

import (
	"github.com/negasus/haproxy-spoe-go/typeddata"
)

// maxVarint is the most bytes that a 64-bit value takes (SPOE.txt, 3.1): four
// bits in the first and seven in each other.
const maxVarint = 10

// cursor reads bytes that nobody has checked. After the first miss it is bad, and
// every read gives nothing.
type cursor struct {
	b   []byte
	bad bool
}

func (c *cursor) take(n uint64) []byte {
	if c.bad || n > uint64(len(c.b)) {
		c.bad = true
		return nil
	}
	taken := c.b[:n:n]
	c.b = c.b[n:]
	return taken
}

func (c *cursor) byte() byte {
	if b := c.take(1); b != nil {
		return b[0]
	}
	return 0
}

// varint reads one of at most ten bytes whose value fits 64 bits.
func (c *cursor) varint() uint64 {
	if c.bad {
		return 0
	}
	v, n := uvarint(c.b)
	if n == 0 {
		c.bad = true
		return 0
	}
	c.b = c.b[n:]
	return v
}

// uvarint reads an integer of HAProxy's own encoding (SPOE.txt, 3.1) from the start
// of b; n is how many bytes it takes, and 0 where it does not end in time or does
// not fit. Every value has one encoding only.
func uvarint(b []byte) (v uint64, n int) {
	if len(b) == 0 {
		return 0, 0
	}
	if v = uint64(b[0]); v < 240 {
		return v, 1
	}
	shift := uint(4)
	for n = 1; n < min(maxVarint, len(b)); n++ {
		next := uint64(b[n])
		part := next << shift
		if part>>shift != next || v+part < v {
			break
		}
		v += part
		if next < 128 {
			return v, n + 1
		}
		shift += 7
	}
	return 0, 0
}

// bytes reads a length and that many bytes.
func (c *cursor) bytes() []byte { return c.take(c.varint()) }

// typed is a value with its type. data is set for strings and binaries, number
// for integers and booleans.
type typed struct {
	kind   byte
	number uint64
	data   []byte
}

func (t typed) isInteger() bool {
	return t.kind >= typeddata.TypeInt32 && t.kind <= typeddata.TypeUInt64
}

// typed reads one typed value (SPOE.txt, 3.1).
func (c *cursor) typed() typed {
	b := c.byte()
	t := typed{kind: b & 0x0f}
	switch t.kind {
	case typeddata.TypeNull:
	case typeddata.TypeBoolean:
		t.number = uint64(b >> 4 & 1)
	case typeddata.TypeInt32, typeddata.TypeUInt32, typeddata.TypeInt64, typeddata.TypeUInt64:
		t.number = c.varint()
	case typeddata.TypeIPv4:
		c.take(4)
	case typeddata.TypeIPv6:
		c.take(16)
	case typeddata.TypeString, typeddata.TypeBinary:
		t.data = c.bytes()
	default:
		c.bad = true
	}
	return t
}

// maxMessages is how many a NOTIFY may hold. HAProxy sends those of one event or
// group; one of them is ours.
const maxMessages = 32

// wellFormed reports whether the library can read payload as a list of messages:
// every length in it holds, and there are not many.
func wellFormed(payload []byte) bool {
	c := cursor{b: payload}
	for n := 0; len(c.b) > 0 && !c.bad; n++ {
		if n == maxMessages {
			return false
		}
		c.bytes() // the name
		for args := c.byte(); args > 0 && !c.bad; args-- {
			c.bytes()
			c.typed()
		}
	}
	return !c.bad
}
