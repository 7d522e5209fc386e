package spoe

import (
	"math"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Each violation of a peer that has or has not introduced itself: one
// AGENT-DISCONNECT with the specification's code, in the write that answers the
// rest, and the end.
//
// Negative controls: with the check of each pair's kind taken out of parseHello,
// the wrong types were another violation or none; without the check for a name
// that comes twice, those were accepted; with most set to MaxFrameSize in
// newConn, the large HELLO was read; without the check of FIN and ABORT in
// parseFrame, fragments were answered; with flush before appendDisconnect, there
// was one write more. A length below minFrame is refused twice: by whole, and as
// a header that ends early.
func TestViolations(t *testing.T) {
	with := func(name string, v []byte) []byte { return greet(pair(name, v)) }
	hi, one := greet(), askTier(1, "gold")
	for name, tt := range map[string]struct {
		sent []byte
		code status
		kind Kind
	}{
		"no version":                   {greet(text("supported-versions")), 5, NoVersion},
		"no max-frame-size":            {greet(text("max-frame-size")), 6, NoMaxFrameSize},
		"no capabilities":              {greet(text("capabilities")), 7, NoCapabilities},
		"nothing in the HELLO":         {build(1, 1, 0, 0), 5, NoVersion},
		"another version":              {with("supported-versions", str("1.0")), 8, BadVersion},
		"a later version":              {with("supported-versions", str("2.1,20,2.00")), 8, BadVersion},
		"an empty version":             {with("supported-versions", str("")), 8, BadVersion},
		"max-frame-size 255":           {with("max-frame-size", num(3, 255)), 9, BadMaxFrameSize},
		"max-frame-size 0":             {with("max-frame-size", num(3, 0)), 9, BadMaxFrameSize},
		"version a binary":             {with("supported-versions", bin("2.0")), 4, Invalid},
		"version NULL":                 {with("supported-versions", null), 4, Invalid},
		"max-frame-size a string":      {with("max-frame-size", str("16380")), 4, Invalid},
		"max-frame-size a bool":        {with("max-frame-size", yes), 4, Invalid},
		"capabilities a number":        {with("capabilities", num(3, 1)), 4, Invalid},
		"engine-id NULL":               {with("engine-id", null), 4, Invalid},
		"healthcheck a string":         {with("healthcheck", str("true")), 4, Invalid},
		"a type that does not exist":   {with("x", []byte{10}), 4, Invalid},
		"a pair twice":                 {build(1, 1, 0, 0, hi[11:], pair("max-frame-size", num(3, 256))), 4, Invalid},
		"a name that is not ended":     {build(1, 1, 0, 0, hi[11:], []byte{5, 'a'}), 4, Invalid},
		"a name without a value":       {build(1, 1, 0, 0, hi[11:], text("a")), 4, Invalid},
		"a string longer than its end": {build(1, 1, 0, 0, text("engine-id"), []byte{8, 0xff, 0xff, 0xff, 0xff, 0x7f}), 4, Invalid},
		"a HELLO of a stream":          {build(1, 1, 1, 0, hi[11:]), 4, Invalid},
		"a HELLO of a frame id":        {build(1, 1, 0, 1, hi[11:]), 4, Invalid},
		"a HELLO in fragments":         {build(1, 0, 0, 0, hi[11:]), 10, Fragmented},
		"a HELLO of 1025 bytes":        {with("x", str(strings.Repeat("x", 1025-7-len(hi[11:])-2-3))), 3, TooBig},
		"a length of 0":                {[]byte{0, 0, 0, 0}, 4, Invalid},
		"a length of 6":                {[]byte{0, 0, 0, 6, 1, 0, 0, 0, 1, 0}, 4, Invalid},
		"a length of 2^31":             {[]byte{0x80, 0, 0, 0}, 3, TooBig},
		"a length of 2^32-1":           {[]byte{0xff, 0xff, 0xff, 0xff}, 3, TooBig},
		"an id that is not ended":      {[]byte{0, 0, 0, 7, 1, 0, 0, 0, 1, 0, 0xf0}, 4, Invalid},
		"NOTIFY first":                 {one, 4, Invalid},
		"DISCONNECT first":             {build(2, 1, 0, 0), 4, Invalid},
		"AGENT-HELLO first":            {build(101, 1, 0, 0), 4, Invalid},
		"HTTP":                         {[]byte("GET / HTTP/1.1\r\nHost: a\r\n\r\n"), 3, TooBig},
		"TLS":                          {append([]byte{0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3}, make([]byte, 506)...), 3, TooBig},
		"text":                         {[]byte("be/s1\n"), 3, TooBig},

		"then a second HELLO":      {slices.Concat(hi, one, hi), 4, Invalid},
		"then AGENT-HELLO":         {slices.Concat(hi, one, build(101, 1, 0, 0)), 4, Invalid},
		"then AGENT-DISCONNECT":    {slices.Concat(hi, one, build(102, 1, 0, 0)), 4, Invalid},
		"then ACK":                 {slices.Concat(hi, one, build(103, 1, 1, 1)), 4, Invalid},
		"then UNSET":               {slices.Concat(hi, one, build(0, 1, 1, 1)), 4, Invalid},
		"then an unknown type":     {slices.Concat(hi, one, build(200, 1, 1, 1)), 4, Invalid},
		"then a fragment":          {slices.Concat(hi, one, build(3, 0, 1, 1)), 10, Fragmented},
		"then ABORT":               {slices.Concat(hi, one, build(3, 3, 1, 1)), 10, Fragmented},
		"then an UNSET fragment":   {slices.Concat(hi, one, build(0, 0, 1, 1)), 10, Fragmented},
		"then 16381 bytes":         {slices.Concat(hi, one, []byte{0, 0, 0x3f, 0xfd}), 3, TooBig},
		"then HTTP":                {slices.Concat(hi, one, []byte("GET / HTTP/1.1\r\n")), 3, TooBig},
		"then a length of 0":       {slices.Concat(hi, one, []byte{0, 0, 0, 0}), 4, Invalid},
		"then a bad message":       {slices.Concat(hi, one, build(3, 1, 1, 1, []byte{3, 'a'})), 4, Invalid},
		"then an id of 11 bytes":   {slices.Concat(hi, one, []byte{0, 0, 0, 18, 3, 0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0, 0}), 4, Invalid},
		"more than was negotiated": {slices.Concat(with("max-frame-size", num(3, 256)), one, []byte{0, 0, 1, 1}), 3, TooBig},
	} {
		t.Run(name, func(t *testing.T) {
			nc, kinds := talk(t, tiers, Options{}, tt.sent)
			out := split(t, nc.written())
			greeted := strings.HasPrefix(name, "then ") || name == "more than was negotiated"
			if greeted {
				require.Len(t, out, 3, "HELLO, ACK, DISCONNECT")
				assert.Equal(t, true, out[1].vars(t)["admit"])
				assert.Len(t, nc.writes, 2)
				assert.Equal(t, map[string]int{tt.kind.String(): 1, "admitted": 1}, kinds)
			} else {
				require.Len(t, out, 1)
				assert.Len(t, nc.writes, 1)
				assert.Equal(t, map[string]int{tt.kind.String(): 1}, kinds)
			}
			assert.Equal(t, tt.code, out[len(out)-1].goodbye(t))
		})
	}
}

// What is accepted, and the size that is agreed on. 2.6 to 3.2 announce 16380.
//
// Negative controls: with engine-id or a capability required, the health check
// was refused; without min in introduce, the larger size was agreed on.
func TestHELLO(t *testing.T) {
	for name, tt := range map[string]struct {
		hello []byte
		ours  int
		want  uint32
	}{
		"HAProxy 2.6":          {greet(), 0, 16380},
		"HAProxy 3.2":          {greet(pair("capabilities", str("pipelining"))), 0, 16380},
		"no engine-id":         {greet(text("engine-id")), 0, 16380},
		"the peer's smaller":   {greet(pair("max-frame-size", num(3, 256))), 0, 256},
		"ours smaller":         {greet(), 4096, 4096},
		"ours below the least": {greet(), 1, 256},
		"the peer's largest":   {greet(pair("max-frame-size", num(5, math.MaxUint64))), 0, 16380},
		"an int32":             {greet(pair("max-frame-size", num(2, 1000))), 0, 1000},
		"several versions":     {greet(pair("supported-versions", str("1.0, 2.0 ,3.0"))), 0, 16380},
		"more pairs":           {greet(pair("x", null), pair("y", num(5, 1<<63)), pair("", bin("z"))), 0, 16380},
		"healthcheck false":    {greet(pair("healthcheck", no)), 0, 16380},
		"1024 bytes":           {greet(pair("x", str(strings.Repeat("x", 1024-7-len(greet()[11:])-2-3)))), 0, 16380},
	} {
		t.Run(name, func(t *testing.T) {
			nc, kinds := talk(t, tiers, Options{MaxFrameSize: tt.ours}, tt.hello, askTier(1, "gold"))
			out := split(t, nc.written())
			require.Len(t, out, 2)
			assert.EqualValues(t, 101, out[0].kind)
			assert.Equal(t, map[string]any{"version": "2.0", "max-frame-size": tt.want, "capabilities": "pipelining"}, out[0].pairs(t))
			assert.Equal(t, true, out[1].vars(t)["admit"])
			assert.Equal(t, map[string]int{"admitted": 1, "closed": 1}, kinds)
		})
	}
}

// A health check gets its HELLO and nothing more, whatever it sends with it.
func TestHealthCheck(t *testing.T) {
	nc, kinds := talk(t, tiers, Options{}, slices.Concat(spopCheck(), askTier(1, "gold")))
	out := split(t, nc.written())
	require.Len(t, out, 1)
	assert.EqualValues(t, 101, out[0].kind)
	assert.Equal(t, map[string]int{"health_check": 1}, kinds)
}

// The buffer does not grow for what is refused.
//
// Negative control: with most set to 1 GiB in newConn, 64 MiB and 1025 bytes were
// waited for.
func TestLargeLengthAllocatesNothing(t *testing.T) {
	s := NewServer(tiers, Options{})
	for _, sent := range [][]byte{{4, 0, 0, 0}, {0, 0, 4, 1}, {0xff, 0xff, 0xff, 0xff}} {
		c := newConn(s, &memory{pieces: [][]byte{sent, make([]byte, 2000)}}, netip.Addr{}, time.Now())
		assert.Equal(t, TooBig, c.converse())
		assert.Len(t, c.in, readSize)
	}
}

// A DISCONNECT of HAProxy's is answered with one, after the answers.
func TestHAProxyDisconnects(t *testing.T) {
	bye := build(haproxyDisconnect, flagFIN, 0, 0, pair("status-code", num(3, 0)), pair("message", str("normal")))
	nc, kinds := talk(t, tiers, Options{}, greet(), slices.Concat(asks(1, 3), bye, asks(4, 1)))
	out := split(t, nc.written())
	require.Len(t, out, 5, "what comes after it is not answered")
	assert.Equal(t, statusNormal, out[4].goodbye(t))
	assert.Len(t, nc.writes, 2)
	assert.Equal(t, map[string]int{"admitted": 3, "closed": 1}, kinds)
}
