package agentcheck

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"tier-agent/test/guarantee"
)

func TestReply(t *testing.T) {
	ready, admin := State{Ready: true}, State{Ready: true, AdminWords: true}
	with := func(st State, change func(*State)) State { change(&st); return st }
	tests := map[string]struct {
		st      State
		unknown bool
		want    string
	}{
		"ready":                        {st: ready, want: "up\n"},
		"ready, half":                  {st: with(ready, func(s *State) { s.Weight = 50 }), want: "up 50%\n"},
		"ready, least":                 {st: with(ready, func(s *State) { s.Weight = 1 }), want: "up 1%\n"},
		"ready, most":                  {st: with(ready, func(s *State) { s.Weight = 25600 }), want: "up 25600%\n"},
		"weight above the range":       {st: with(ready, func(s *State) { s.Weight = 25601 }), want: "up 25600%\n"},
		"weight below the range":       {st: with(ready, func(s *State) { s.Weight = -1 }), want: "up\n"},
		"ready, reason left over":      {st: with(ready, func(s *State) { s.Reason = "probe_stale" }), want: "up\n"},
		"not ready":                    {st: State{Reason: "probe_stale"}, want: "down # probe_stale\n"},
		"not ready, no reason":         {st: State{}, want: "down # not_ready\n"},
		"quiesced, ready":              {st: with(ready, func(s *State) { s.Quiesced = true }), want: "down # quiesced\n"},
		"quiesced, not ready":          {st: State{Quiesced: true, Reason: "probe_stale"}, want: "down # quiesced\n"},
		"unknown":                      {unknown: true, want: "down # unknown_tier\n"},
		"unknown, whatever the state":  {st: admin, unknown: true, want: "down # unknown_tier\n"},
		"admin words: ready":           {st: admin, want: "ready up\n"},
		"admin words: ready, half":     {st: with(admin, func(s *State) { s.Weight = 50 }), want: "ready up 50%\n"},
		"admin words: not ready":       {st: State{AdminWords: true, Reason: "probe_stale"}, want: "down # probe_stale\n"},
		"admin words: quiesced":        {st: with(admin, func(s *State) { s.Quiesced = true }), want: "drain # quiesced\n"},
		"admin words: quiesced, down":  {st: State{AdminWords: true, Quiesced: true, Reason: "x"}, want: "drain # quiesced\n"},
		"reason with the line's end":   {st: State{Reason: "a\r\nup\x00"}, want: "down # a__up_\n"},
		"reason with CSV and comments": {st: State{Reason: `a"b'c,d;e#f` + "`"}, want: "down # a_b_c_d_e_f_\n"},
		"reason of several words":      {st: State{Reason: "drain now\tready"}, want: "down # drain_now_ready\n"},
		"reason not ASCII":             {st: State{Reason: "über\x7f"}, want: "down # __ber_\n"},
		"reason is an admin word":      {st: State{Reason: "Maint"}, want: "down # not_ready\n"},
		"reason too long":              {st: State{Reason: strings.Repeat("r", 101)}, want: "down # " + strings.Repeat("r", 100) + "\n"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, tt.want, string(Reply(tt.st, !tt.unknown)))
			assert.Equal(t, "before "+tt.want, string(AppendReply([]byte("before "), tt.st, !tt.unknown)))
		})
	}
}

// Negative controls: without isAdminWord in appendDown a description "ready"
// came out; with plain returning its byte unchanged, line ends and quotes; without
// min(..., maxReason), descriptions over 100 bytes. Each failed here.
func TestReplyGrammar(t *testing.T) {
	reasons := rapid.OneOf(
		rapid.String(),
		rapid.Map(rapid.SliceOf(rapid.Byte()), func(b []byte) string { return string(b) }),
		rapid.SampledFrom([]string{"ready", "DRAIN", "maint", "a ready", "ready,drain", "# maint", "probe_stale"}),
		rapid.StringN(101, 3000, -1),
	)
	rapid.Check(t, func(t *rapid.T) {
		st := State{
			Quiesced:   rapid.Bool().Draw(t, "quiesced"),
			Ready:      rapid.Bool().Draw(t, "ready"),
			Reason:     reasons.Draw(t, "reason"),
			Weight:     rapid.OneOf(rapid.Int(), rapid.IntRange(0, 25600)).Draw(t, "weight"),
			AdminWords: rapid.Bool().Draw(t, "admin"),
		}
		known := rapid.Bool().Draw(t, "known")
		line := string(Reply(st, known))

		got := parseReply(t, line)
		assert.Less(t, len(line), 1024)
		assert.LessOrEqual(t, len(got.description), maxReason)
		switch {
		case known && st.AdminWords && st.Quiesced:
			assert.Equal(t, parsed{admin: "drain", description: ReasonQuiesced}, got)
		case known && st.AdminWords && st.Ready:
			assert.Equal(t, parsed{admin: "ready", health: "up", weight: got.weight}, got)
		default:
			assert.Empty(guarantee.T(t), got.admin)
			assert.Equal(guarantee.T(t), known && st.Ready && !st.Quiesced, got.health == "up")
			for _, word := range []string{"ready", "drain", "maint"} {
				assert.NotContains(guarantee.T(t), words(strings.ToLower(strings.ReplaceAll(line, "#", " "))), word)
			}
		}
		assert.Equal(t, got.health == "up" && st.Weight > 0, got.weight != "")
		assert.NotEqual(t, "0%", got.weight)
	})
}

// parsed is a reply as HAProxy's grammar takes it apart.
type parsed struct{ health, admin, weight, description string }

// parseReply fails on anything that HAProxy would skip, warn about or read twice.
func parseReply(t require.TestingT, line string) parsed {
	require.True(t, strings.HasSuffix(line, "\n"), "%q", line)
	line = strings.TrimSuffix(line, "\n")
	for _, b := range []byte(line) {
		require.True(t, b >= ' ' && b <= '~', "byte %#x in %q", b, line)
	}
	front, description, described := strings.Cut(line, "#")
	require.NotContains(t, description, "#")
	if described {
		require.True(t, strings.HasSuffix(front, " "), "no blank before # in %q", line)
		require.False(t, strings.ContainsAny(description, "\"'`,;"), "%q", line)
	}
	got := parsed{description: strings.TrimLeft(description, " ")}
	for _, w := range words(front) {
		var slot *string
		switch w {
		case "up", "down":
			slot = &got.health
		case "ready", "drain":
			slot = &got.admin
		default:
			require.Regexp(t, `^[1-9][0-9]*%$`, w)
			slot = &got.weight
		}
		require.Empty(t, *slot, "two of a kind in %q", line)
		*slot = w
	}
	require.NotEmpty(t, got.health+got.admin, "%q says nothing", line)
	return got
}

func words(s string) []string {
	return strings.FieldsFunc(s, func(r rune) bool { return r == ' ' || r == '\t' || r == ',' })
}
