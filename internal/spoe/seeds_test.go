package spoe

import (
	"bytes"
	"math"
	"slices"
	"strings"
)

// hostile are frames that a peer may send after its HELLO or in place of it: what
// the violations' table has, what has made agents and libraries panic or allocate
// (lengths, ids and types that do not hold), and every prefix of a sound frame.
func hostile() [][]byte {
	tier := pair("tier", str("gold"))
	long := bytes.Repeat([]byte{0xff}, 9)
	in := func(payload ...[]byte) []byte { return build(notify, flagFIN, 1, 1, payload...) }
	ours := func(args ...[]byte) []byte { return in(msg("tier-readiness", args...)) }
	raw := func(n uint32, b ...byte) []byte {
		return append([]byte{byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)}, b...)
	}
	all := [][]byte{
		nil, []byte("GET / HTTP/1.1\r\nHost: a\r\n\r\n"), {0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3}, []byte("be/s1\n"),
		greet(), spopCheck(), slices.Concat(greet(), greet()), slices.Concat(spopCheck(), asks(1, 2)), asks(1, 20),
		ours(tier), ours(tier, pair("server", str("be/s1"))), ours(), in(), ours(pair("tier", null)), ours(tier, tier), ours(pair("tier", bin("gold"))),
		ours(pair("tier", str(""))), ours(pair("tier", str(strings.Repeat("g", 200)))), ours(pair("tier", str("bad"))),
		in(msg("", tier)), in(msg("check", tier), msg("tier-readiness", tier)), ask(math.MaxUint64, math.MaxUint64, tier),
		// messages that end early or hold too much
		in([]byte{14}), in([]byte{0}), in([]byte{1, 'a'}), in([]byte{1, 'a', 1}), in([]byte{1, 'a', 1, 1}), in([]byte{1, 'a', 255, 0, 0}),
		in([]byte{1, 'a', 1, 1, 'b', 6, 1}), in([]byte{1, 'a', 1, 1, 'b', 7, 1, 2, 3, 4}), in([]byte{1, 'a', 1, 1, 'b', 8, 5, 'c'}), in([]byte{1, 'a', 1, 1, 'b', 9, 0xf0}),
		in([]byte{1, 'a', 1, 1, 'b', 2}), in([]byte{1, 'a', 1, 1, 'b', 10}), in([]byte{1, 'a', 1, 1, 'b', 15}),
		in(long, []byte{0x0f}), in(long, []byte{0xff, 0x7f}), in([]byte{1, 'a', 1}, long, []byte{0x7f}), in([]byte{1, 'a', 1, 1, 'b', 8}, vint(math.MaxInt64)),
		in([]byte{1, 'a', 1, 1, 'b', 8}, vint(math.MaxUint64)), in([]byte{1, 'a', 1, 1, 'b', 9}, vint(1<<63)), in(vint(1<<63), []byte{0}),
		in(bytes.Repeat(msg("a"), 32)), in(bytes.Repeat(msg("a"), 33)), in(msg("tier-readiness", slices.Repeat([][]byte{tier}, 255)...)),
		ours(tier, pair("x", str(strings.Repeat("x", 16000)))), bytes.Repeat(in(), 400),
		// ids
		raw(7, notify, 0, 0, 0, 1, 0xf0, 0), raw(7, notify, 0, 0, 0, 1, 0, 0xf0), raw(26, slices.Concat([]byte{notify, 0, 0, 0, 1}, long, []byte{0xff, 0}, long, []byte{0x7f, 0})...),
		raw(25, slices.Concat([]byte{notify, 0, 0, 0, 1}, long, []byte{0x0f}, long, []byte{0x0f})...),
		// lengths
		raw(0), raw(1), raw(1, 3), raw(6, 3, 0, 0, 0, 1, 0), raw(7, 3, 0, 0, 0, 1, 0, 0), raw(256), raw(1024), raw(1025), raw(16380), raw(16381), raw(1 << 29), raw(1 << 31), raw(1<<32 - 1), raw(1<<32 - 4),
		// the wrong types in a HELLO, and what is missing there
		greet(pair("max-frame-size", num(4, 1<<63))), greet(pair("max-frame-size", str("1"))), greet(pair("healthcheck", str("true"))), greet(pair("supported-versions", null)),
		greet(pair("capabilities", num(2, 1))), greet(text("supported-versions")), greet(text("max-frame-size")), greet(text("capabilities")),
		greet(pair("max-frame-size", num(3, 255))), greet(pair("supported-versions", str("1.0"))), build(haproxyHello, flagFIN, 0, 0, []byte{14}, []byte("max-frame-size")),
	}
	for kind := range 256 {
		if kind < 5 || kind > 99 && kind < 105 || kind == 255 {
			for _, flags := range []uint32{0, flagFIN, flagABORT, flagFIN | flagABORT, math.MaxUint32} {
				all = append(all, build(byte(kind), flags, 1, 1, msg("tier-readiness", tier)), build(byte(kind), flags, 0, 0))
			}
		}
	}
	for _, sound := range [][]byte{greet(), ours(tier, pair("server", str("be/s1")))} {
		for n := range sound {
			all = append(all, sound[:n])
			if n >= lengthSize { // the same, with a length that holds
				all = append(all, raw(uint32(n-lengthSize), sound[lengthSize:n]...))
			}
		}
	}
	return all
}
