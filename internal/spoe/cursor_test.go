package spoe

import (
	"bytes"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"pgregory.net/rapid"
)

// Every number is read as the library writes it, to its last byte and no
// further, and is bad where any of its bytes is missing.
//
// Negative controls: with maxVarint 9, and with shift one more at the start, it
// failed; with take not checking the length, it panicked.
func TestVarint(t *testing.T) {
	numbers := rapid.OneOf(rapid.Uint64(), rapid.Map(rapid.IntRange(0, 64), func(bits int) uint64 { return 1<<bits - 1 }),
		rapid.SampledFrom([]uint64{0, 239, 240, 2287, 2288, 264431, 264432, 33818863, 33818864, 4328786159, 4328786160, math.MaxUint64}))
	rapid.Check(t, func(t *rapid.T) {
		n := numbers.Draw(t, "n")
		b := vint(n)
		c := cursor{b: append(b, 0xff, 0xff)}
		assert.Equal(t, n, c.varint())
		assert.False(t, c.bad)
		assert.Len(t, c.b, 2)
		assert.LessOrEqual(t, len(b), maxVarint)
		assert.Equal(t, b, appendVarint(nil, n))
		for short := range b {
			c := cursor{b: b[:short]}
			c.varint()
			assert.True(t, c.bad)
		}
	})
}

// Negative controls: without the check of part, the ones above 2^64 in their last
// byte were read; without that of the sum, the one whose sum overflows was. A
// byte that goes on after the ninth is above 2^64 too, so maxVarint and the check
// of part each refuse eleven bytes; without both, they were read.
func TestVarintTooLong(t *testing.T) {
	with := func(first, each byte, last ...byte) []byte {
		return slices.Concat([]byte{first}, bytes.Repeat([]byte{each}, 8), last)
	}
	above := vint(math.MaxUint64) // begins 0xff 0xf0
	above[0], above[1] = 0xf0, 0xf1
	for name, tt := range map[string]struct {
		b  []byte
		ok bool
	}{
		"the largest":                 {vint(math.MaxUint64), true},
		"ten bytes":                   {with(0xf0, 0x80, 0x00), true},
		"one above the largest":       {above, false},
		"ten bytes, 2^64":             {with(0xf0, 0x80, 0x10), false},
		"ten bytes, a sum above 2^64": {with(0xff, 0xff, 0x0f), false},
		"ten bytes, all ones":         {with(0xff, 0xff, 0x7f), false},
		"ten bytes, no end":           {with(0xff, 0xff, 0xff), false},
		"eleven bytes":                {with(0xf0, 0x80, 0x80, 0x00), false},
		"eleven bytes, all ones":      {with(0xff, 0xff, 0xff, 0x7f), false},
		"a hundred bytes":             {bytes.Repeat([]byte{0xff}, 100), false},
	} {
		c := cursor{b: tt.b}
		c.varint()
		assert.Equal(t, tt.ok, !c.bad, name)
	}
}

// A cursor that has missed once gives nothing more, though there are bytes.
func TestCursorStaysBad(t *testing.T) {
	c := cursor{b: []byte{5, 'a', 'b', 1, 2, 3}}
	assert.Nil(t, c.take(7))
	assert.Zero(t, c.byte())
	assert.Zero(t, c.varint())
	assert.Nil(t, c.bytes())
	assert.Zero(t, c.typed().number)
	assert.True(t, c.bad)

	huge := cursor{b: append(vint(math.MaxUint64), 'a')}
	assert.Nil(t, huge.bytes(), "a length that no int holds")
	assert.True(t, huge.bad)
}

// Every type, in full, is read to its end, and is bad where a byte is missing.
//
// Negative controls: with take(16) read as take(4), an address ended early;
// without the default case the types above 9 were taken.
func TestTyped(t *testing.T) {
	for name, b := range map[string][]byte{
		"null": null, "true": yes, "false": no, "int32": num(2, 300), "uint32": num(3, 300), "int64": num(4, math.MaxUint64),
		"uint64": num(5, 1<<40), "IPv4": {6, 1, 2, 3, 4}, "IPv6": append([]byte{7}, make([]byte, 16)...),
		"string": str("abc"), "binary": bin("abc"), "empty": str(""), "flags of a string": append([]byte{0xf8}, text("abc")...),
	} {
		c := cursor{b: append(b[:len(b):len(b)], 0xff)}
		c.typed()
		assert.False(t, c.bad, name)
		assert.Len(t, c.b, 1, name)
		for short := range b {
			c := cursor{b: b[:short]}
			c.typed()
			assert.True(t, c.bad, "%s, %d bytes", name, short)
		}
	}
	for kind := byte(10); kind < 16; kind++ {
		c := cursor{b: []byte{kind, 0, 0, 0, 0}}
		c.typed()
		assert.True(t, c.bad, kind)
	}
}
