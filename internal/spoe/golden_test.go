package spoe

import (
	"encoding/hex"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tier-agent/internal/fence"
)

// The bytes are written out by hand from SPOE.txt, 3.1 and 3.2, and each text in
// them is spelt out.
//
// Negative controls: with scope 1 for 2 in setVar, or with generation before
// reason, each ACK differed; with "pipelining,async" announced, the HELLO did; with
// a length that counts itself, the frames could not be told apart.
func TestGoldenFrames(t *testing.T) {
	out := frameBytes(t,
		greet(), askTier(1, "gold"), ask(300, 1, pair("tier", str("lead"))), askTier(7, "tin"),
		build(agentHello, flagFIN, 0, 0))
	require.Len(t, out, 5)
	for i, want := range []string{
		// type 101, FIN, stream 0, frame 0
		"00000040 65 00000001 00 00" +
			"07 'version' 08 03 '2.0'" +
			"0e 'max-frame-size' 03 fcf006" + // 252 + 16*240 + 2048*6
			"0c 'capabilities' 08 0a 'pipelining'",
		// type 103, FIN, stream 1, frame 1
		"00000043 67 00000001 01 01" +
			"01 03 02 05 'admit' 11" +
			"01 03 02 06 'reason' 08 05 'ready'" +
			"01 03 02 0a 'generation' 08 04 '1.14'" +
			"01 03 02 06 'age_ms' 04 fc4e", // 252 + 16*78
		// stream 300
		"0000005d 67 00000001 fc03 01" +
			"01 03 02 05 'admit' 01" +
			"01 03 02 06 'reason' 08 0b 'probe_stale'" +
			"01 03 02 0a 'generation' 08 06 '1.14.9'" +
			"01 03 02 0b 'retry_after' 04 05" +
			"01 03 02 06 'age_ms' 04 f000", // 240
		// stream 7, no evidence
		"0000004a 67 00000001 07 01" +
			"01 03 02 05 'admit' 01" +
			"01 03 02 06 'reason' 08 0c 'unknown_tier'" +
			"01 03 02 0a 'generation' 08 00" +
			"01 03 02 0b 'retry_after' 04 05",
		// type 102
		"00000035 66 00000001 00 00" +
			"0b 'status-code' 03 04" +
			"07 'message' 08 16 'invalid frame received'",
	} {
		assert.Equal(t, spelt(t, want), out[i], "frame %d", i)
	}
}

// frameBytes gives the frames that a conversation brought, as bytes.
func frameBytes(t *testing.T, pieces ...[]byte) [][]byte {
	t.Helper()
	nc, _ := talk(t, tiers, Options{}, pieces...)
	var all [][]byte
	for b := nc.written(); len(b) > 0; {
		n := 4 + int(b[2])<<8 + int(b[3])
		all, b = append(all, b[:n]), b[n:]
	}
	return all
}

// spelt reads hexadecimal digits with texts between quotes.
func spelt(t *testing.T, s string) []byte {
	t.Helper()
	var out []byte
	for i, part := range strings.Split(s, "'") {
		if i%2 == 1 {
			out = append(out, part...)
			continue
		}
		b, err := hex.DecodeString(strings.ReplaceAll(part, " ", ""))
		require.NoError(t, err)
		out = append(out, b...)
	}
	return out
}

// The largest ACK fits what each peer takes at least, whatever the source says.
//
// Negative controls: without maxReason it had 365 bytes; with retry_after rounded
// up by adding almost a second first, the largest duration was negative, which
// the library cannot encode, and the connection failed.
func TestACKNeverAbove256(t *testing.T) {
	src := table{"gold": {
		Reason: strings.Repeat("r", 200), Generation: fence.Generation{Global: math.MaxUint64, Tier: math.MaxUint64, Server: math.MaxUint64},
		Age: math.MaxInt64, HasEvidence: true,
	}}
	nc, kinds := talk(t, src, Options{RetryAfter: math.MaxInt64}, greet(), ask(math.MaxUint64, math.MaxUint64, pair("tier", str("gold"))))
	assert.Equal(t, map[string]int{"refused": 1, "closed": 1}, kinds)
	require.Len(t, nc.writes, 2)
	assert.LessOrEqual(t, len(nc.writes[1])-4, 256)
	got := split(t, nc.writes[1])[0]
	assert.EqualValues(t, uint64(math.MaxUint64), got.stream)
	assert.EqualValues(t, uint64(math.MaxUint64), got.id)
	assert.Equal(t, map[string]any{
		"admit": false, "reason": strings.Repeat("r", 64), "generation": strings.Repeat("18446744073709551615.", 3)[:62],
		"retry_after": int64(math.MaxInt64/time.Second) + 1, "age_ms": int64(math.MaxInt64 / time.Millisecond),
	}, got.vars(t))
}

// Negative control: with the seconds rounded down, 1 ns and 1.5 s were one less.
func TestRetryAfterIsInWholeSeconds(t *testing.T) {
	for after, want := range map[time.Duration]int64{0: 5, 1: 1, time.Second: 1, 1500 * time.Millisecond: 2, 2 * time.Second: 2} {
		nc, _ := talk(t, tiers, Options{RetryAfter: after}, greet(), askTier(1, "lead"))
		assert.Equal(t, want, split(t, nc.written())[1].vars(t)["retry_after"], after)
	}
}
