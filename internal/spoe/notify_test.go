package spoe

import (
	"bytes"
	"fmt"
	"maps"
	"math"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tier-agent/test/guarantee"
)

// Every NOTIFY that can be taken apart gets one ACK, of its own stream and frame,
// whatever is in it.
//
// Negative controls: without the case of no message, of an unknown one, of no tier
// or of maxName in read, or of !known in verdict, the rows of that name failed;
// with the type left unchecked, a server that is a number was admitted; without *to != nil
// the last tier counted; with maxMessages 31 the 32 were a violation; with the
// server not handed on, the tier's answer was given.
func TestNOTIFY(t *testing.T) {
	gold, lead, s1 := pair("tier", str("gold")), pair("tier", str("lead")), pair("server", str("be/s1"))
	ours := func(args ...[]byte) []byte { return msg("tier-readiness", args...) }
	var many [][]byte
	for i := range 254 {
		many = append(many, pair(fmt.Sprint("a", i), num(5, 1<<40)))
	}
	all := [][]byte{
		pair("n", null), pair("t", yes), pair("f", no), pair("i", num(2, 1)), pair("u", num(3, 1)), pair("I", num(4, math.MaxUint64)),
		pair("U", num(5, 1)), pair("4", []byte{6, 192, 0, 2, 1}), pair("6", append([]byte{7}, make([]byte, 16)...)), pair("", bin("\x00")), gold,
	}
	long := strings.Repeat("g", 200) // longer than names are; the source has it for all that
	src := maps.Clone(tiers)
	src[long], src[long[:130]], src[long[:129]] = ready, ready, ready
	kindOf := map[string]Kind{
		"ready": Admitted, "probe_stale": Refused, "unknown_tier": UnknownTier, "internal_error": Panicked,
		"no_message": BadMessage, "unknown_message": BadMessage, "bad_argument": BadMessage,
	}
	bad, unknown, other := Verdict{Reason: "bad_argument"}, Verdict{Reason: "unknown_tier"}, Verdict{Reason: "unknown_message"}
	for name, tt := range map[string]struct {
		payload []byte
		want    Verdict
	}{
		"admitted":                 {ours(gold), ready},
		"refused":                  {ours(lead), stale},
		"a server, admitted":       {ours(gold, s1), ready},
		"the server first":         {ours(s1, gold), ready},
		"a server, refused":        {ours(gold, pair("server", str("be/s2"))), stale},
		"another tier's server":    {ours(lead, s1), unknown},
		"a server of none":         {ours(gold, pair("server", str("be/s9"))), unknown},
		"no message":               {nil, Verdict{Reason: "no_message"}},
		"another message":          {msg("check", gold), other},
		"a longer name":            {msg("tier-readiness2", gold), other},
		"no name":                  {msg("", gold), other},
		"no argument":              {ours(), bad},
		"no tier":                  {ours(s1), bad},
		"an argument without name": {ours(pair("", str("gold"))), bad},
		"tier NULL":                {ours(pair("tier", null)), bad},
		"tier true":                {ours(pair("tier", yes)), bad},
		"tier a number":            {ours(pair("tier", num(3, 7))), bad},
		"tier a binary":            {ours(pair("tier", bin("gold"))), bad},
		"tier an address":          {ours(pair("tier", []byte{6, 192, 0, 2, 1})), bad},
		"tier empty":               {ours(pair("tier", str(""))), bad},
		"tier of 200 bytes":        {ours(pair("tier", str(long))), unknown},
		"tier of 130 bytes":        {ours(pair("tier", str(long[:130]))), unknown},
		"tier of 129 bytes":        {ours(pair("tier", str(long[:129]))), ready},
		"tier twice":               {ours(gold, lead), bad},
		"the same tier twice":      {ours(gold, gold), bad},
		"tier unknown":             {ours(pair("tier", str("tin"))), unknown},
		"tier in capitals":         {ours(pair("tier", str("GOLD"))), unknown},
		"tier with a NUL":          {ours(pair("tier", str("gold\x00"))), unknown},
		"server NULL":              {ours(gold, pair("server", null)), ready}, // a variable that is not set
		"server a number":          {ours(gold, pair("server", num(3, 7))), bad},
		"server empty":             {ours(gold, pair("server", str(""))), bad},
		"server twice":             {ours(gold, s1, s1), bad},
		"server of 200 bytes":      {ours(gold, pair("server", str(strings.Repeat("s", 200)))), unknown},
		"two messages":             {append(msg("check", lead), ours(gold)...), ready},
		"two of ours":              {append(ours(gold), ours(lead)...), ready},
		"32 messages":              {append([]byte(strings.Repeat(string(msg("check")), 31)), ours(gold)...), ready},
		"255 arguments":            {ours(append(many, gold)...), ready},
		"each type":                {ours(all...), ready},
		"a source that panics":     {ours(pair("tier", str("bad"))), Verdict{Reason: "internal_error"}},
	} {
		t.Run(name, func(t *testing.T) {
			nc, kinds := talk(t, src, Options{RetryAfter: 7 * time.Second}, greet(), build(notify, flagFIN, 300, 70000, tt.payload), askTier(1, "gold"))
			out := split(t, nc.written())
			require.Len(t, out, 3)
			assert.EqualValues(t, 300, out[1].stream)
			assert.EqualValues(t, 70000, out[1].id)
			want := map[string]any{"admit": tt.want.Admit, "reason": tt.want.Reason, "generation": ""}
			if tt.want.HasEvidence {
				want["generation"], want["age_ms"] = tt.want.Generation.String(), tt.want.Age.Milliseconds()
			}
			if !tt.want.Admit {
				want["retry_after"] = int64(7)
			}
			assert.Equal(guarantee.T(t), want, out[1].vars(t))
			assert.Equal(t, true, out[2].vars(t)["admit"], "the next is answered as ever")
			wantKinds := map[string]int{"admitted": 1, "closed": 1}
			wantKinds[kindOf[tt.want.Reason].String()]++
			assert.Equal(t, wantKinds, kinds)
		})
	}
}

// Negative control: without max(v.Age, 0) HAProxy read a negative number.
func TestAge(t *testing.T) {
	for name, tt := range map[string]struct {
		age      time.Duration
		evidence bool
		want     any
	}{
		"none":               {time.Second, false, nil},
		"negative":           {-time.Second, true, int64(0)},
		"0":                  {0, true, int64(0)},
		"less than 1 ms":     {time.Millisecond - 1, true, int64(0)},
		"1 ms":               {time.Millisecond, true, int64(1)},
		"a day":              {24 * time.Hour, true, int64(86_400_000)},
		"the least negative": {math.MinInt64, true, int64(0)},
	} {
		src := table{"gold": {Admit: true, Age: tt.age, HasEvidence: tt.evidence}}
		nc, _ := talk(t, src, Options{}, greet(), askTier(1, "gold"))
		assert.Equal(t, tt.want, split(t, nc.written())[1].vars(t)["age_ms"], name)
	}
}

// flicker gives another reason each time.
type flicker int

func (f *flicker) SPOEVerdict([]byte, []byte) (Verdict, bool) {
	*f++
	return Verdict{Reason: fmt.Sprint("reason_", *f)}, true
}

// A question that comes again in one batch is asked once, and anew in the next:
// there was no answer yet when the last of a batch was sent.
//
// Negative controls: with asked forgotten neither in makeRoom nor in flush the
// second batch got the first one's answers; without the comparison "lead" got
// those of "gold"; with nothing found the source was asked seven times.
func TestSameQuestionInABatch(t *testing.T) {
	lead := ask(9, 1, pair("tier", str("lead")))
	nc, kinds := talk(t, new(flicker), Options{}, greet(), slices.Concat(asks(1, 3), lead, asks(5, 1)), asks(6, 2))
	var got []any
	for _, f := range split(t, nc.written())[1:] {
		got = append(got, f.vars(t)["reason"])
	}
	assert.Equal(guarantee.T(t), []any{"reason_1", "reason_1", "reason_1", "reason_2", "reason_1", "reason_3", "reason_3"}, got)
	assert.Equal(t, map[string]int{"refused": 7, "closed": 1}, kinds)
}

// A batch with more questions than are remembered: each answer is its own.
//
// Negative controls: without the remainder of maxAsked it was an index out of range;
// with fresh left as it was in learn, answers were those of other tiers.
func TestManyQuestionsInABatch(t *testing.T) {
	var batch []byte
	for round := range uint64(3) {
		for tier := range uint64(maxAsked + 1) {
			batch = append(batch, ask(1+round, 1+tier, pair("tier", str(fmt.Sprint("tier", tier))))...)
		}
	}
	nc, _ := talk(t, named{}, Options{}, greet(), batch)
	frames := split(t, nc.written())[1:]
	require.Len(t, frames, 3*(maxAsked+1))
	for _, f := range frames {
		assert.Equal(guarantee.T(t), fmt.Sprint("tier", f.id-1), f.vars(t)["reason"])
	}
}

// named gives a tier's name for its reason.
type named struct{}

func (named) SPOEVerdict(tier, _ []byte) (Verdict, bool) { return Verdict{Reason: string(tier)}, true }

// A write may take seconds, so what a long batch asks after one is asked anew.
//
// Negative control: with asked not forgotten in flush, all had the same answer.
func TestSameQuestionAfterAWrite(t *testing.T) {
	large := ask(1, 1, pair("tier", str("gold")), pair("x", str(string(make([]byte, 16000)))))
	nc, _ := talk(t, new(verbose), Options{}, greet(), large, bytes.Repeat(askTier(1, "gold"), 400))
	require.Len(t, nc.writes, 4, "the batch takes two")
	for i, w := range nc.writes[1:] {
		for _, f := range split(t, w) {
			assert.Contains(guarantee.T(t), f.vars(t)["reason"], fmt.Sprint("_", i+1))
		}
	}
}

// verbose is a flicker whose answers fill a batch sooner than their questions do.
type verbose struct{ flicker }

func (f *verbose) SPOEVerdict(tier, server []byte) (Verdict, bool) {
	v, known := f.flicker.SPOEVerdict(tier, server)
	v.Reason = strings.Repeat("r", 40) + v.Reason
	return v, known
}

// What is remembered of the verdicts is neither the wrong one nor without end.
//
// Negative controls: with Reason left out of the key, each answer had the first
// one's reason; without the clear, 1000 were remembered.
func TestVerdictsThatChange(t *testing.T) {
	nc := &memory{}
	c := newConn(NewServer(new(flicker), Options{}), nc, netip.Addr{}, time.Now())
	f, _ := parseFrame(askTier(1, "gold")[4:])
	for i := range 1000 {
		c.out = c.out[:0]
		c.forget() // as a new batch
		c.answer(f)
		assert.Equal(t, fmt.Sprint("reason_", i+1), split(t, c.out)[0].vars(t)["reason"])
	}
	assert.LessOrEqual(t, len(c.encoder.heads), maxHeads)
}

// The kinds that metrics start with are all there are, with names of their own.
func TestKinds(t *testing.T) {
	seen := map[string]bool{}
	for _, k := range append(Answers(), Ends()...) {
		assert.Regexp(t, `^[a-z_]+$`, k.String())
		assert.False(t, seen[k.String()], k)
		seen[k.String()] = true
	}
	assert.Len(t, seen, int(kindsOfAll))
	for _, v := range violations {
		assert.Contains(t, Ends(), v.kind)
	}
}
