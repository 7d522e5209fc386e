package probe

import (
	"encoding/json"
	"math"
	"math/big"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// Negative control: with text(w) == text(token's value) in place of equal in oneOf, the four rows
// about types matched, among others.
func TestOneOf(t *testing.T) {
	type fields = map[string]any
	type list = []any
	for _, c := range []struct {
		body   string
		fields fields
		want   verdict
	}{
		{`{"a":"x"}`, fields{"a": list{"w", "x"}}, yes},
		{`{"a":2.0}`, fields{"a": list{"2", true, int64(2)}}, yes},
		{`{"a":"2"}`, fields{"a": list{"2", int64(3)}}, yes},
		{`{"a":false}`, fields{"a": list{false}}, yes},
		{`{"m":{"a":1,"b":"y"}}`, fields{"m.a": int64(1), "m.b": list{"x", "y"}}, yes},

		{`{"a":42}`, fields{"a": list{"42", "43"}}, no},
		{`{"a":"42"}`, fields{"a": list{int64(42), uint64(42), 42.0}}, no},
		{`{"a":true}`, fields{"a": list{"true", int64(1)}}, no},
		{`{"a":"true"}`, fields{"a": list{true}}, no},
		{`{"a":"X"}`, fields{"a": list{"x"}}, no},
		{`{"a":"z"}`, fields{"a": list{"x", "y"}}, no},
		{`{}`, fields{"a": list{"x"}}, no},
		{`{"a":null}`, fields{"a": list{nil}}, no},
		{`{"a":"x"}`, fields{"a": list{}}, no},
		{`{"a":["x"]}`, fields{"a": list{"x"}}, no},
		{`{"a":"x"}`, fields{"a": list{list{"x"}}}, no},
		{`{"a":"x","b":1}`, fields{"a": list{"x"}, "b": int64(2)}, no},

		{`{"a":"x","a":"x"}`, fields{"a": list{"x"}}, malformed},
	} {
		assert.Equal(t, c.want, judge(matchMetadata(t.Context(), []byte(c.body), c.fields)), "%q %v", c.body, c.fields)
	}
}

// Negative controls: without same in canonical, half a surrogate pair was collected; with its text
// cut to the bound in collect, "too long" passed; with missing looked for before mismatch in
// readMetadata, the row of both failed; with names counted in place of fields in tree, so did the
// one that is named twice; without MaxCollect in readMetadata, 17 passed.
func TestCollect(t *testing.T) {
	names := func(n int) (names []string, body string) {
		values := map[string]int{}
		for i := range n {
			names = append(names, "f"+strconv.Itoa(i))
			values[names[i]] = i
		}
		b, err := json.Marshal(values)
		require.NoError(t, err)
		return names, string(b)
	}
	most, mostBody := names(MaxCollect)
	tooMany, tooManyBody := names(MaxCollect + 1)
	long := strings.Repeat("é", maxText/2)
	type seen = map[string]string
	for _, c := range []struct {
		name, body string
		collect    []string
		fields     map[string]any
		seen       seen
		err        error
	}{
		{name: "each type", body: `{"s":"sha256:0a","i":-42,"f":2.50,"b":true}`, collect: []string{"s", "i", "f", "b"},
			seen: seen{"s": "sha256:0a", "i": "-42", "f": "2.5", "b": "true"}},
		{name: "nested", body: `{"m":{"n":{"id":"x"}},"m.n.id":"y"}`, collect: []string{"m.n.id"}, seen: seen{"m.n.id": "x"}},
		{name: "named twice", body: `{"a":1}`, collect: []string{"a", "a"}, seen: seen{"a": "1"}},
		{name: "required too", body: `{"a":"42","b":"y"}`, collect: []string{"a"}, fields: map[string]any{"a": "42", "b": []any{"x", "y"}},
			seen: seen{"a": `"42"`, "b": "y"}},
		{name: "nothing asked", body: `{"a":1}`, seen: seen{}},
		{name: "longest", body: `{"a":"` + long + `"}`, collect: []string{"a"}, seen: seen{"a": long}},

		{name: "not there", body: `{"A":1}`, collect: []string{"a"}, err: errMissing},
		{name: "one of two", body: `{"a":1}`, collect: []string{"a", "b"}, err: errMissing},
		{name: "null", body: `{"a":null}`, collect: []string{"a"}, err: errMissing},
		{name: "empty string", body: `{"a":""}`, collect: []string{"a"}, err: errMissing},
		{name: "list", body: `{"a":["x"]}`, collect: []string{"a"}, err: errMissing},
		{name: "object", body: `{"a":{"b":1}}`, collect: []string{"a"}, err: errMissing},
		{name: "object with another below", body: `{"a":{"b":1}}`, collect: []string{"a", "a.b"}, err: errMissing},
		{name: "below a list", body: `{"a":[{"b":1}]}`, collect: []string{"a.b"}, err: errMissing},
		{name: "half a surrogate pair", body: `{"a":"x\ud800"}`, collect: []string{"a"}, err: errMissing},
		{name: "exponent", body: `{"a":1e99999999999}`, collect: []string{"a"}, err: errMissing},
		{name: "too long", body: `{"a":"` + long + `x"}`, collect: []string{"a"}, err: errOversized},
		{name: "too long in quotes", body: `{"a":"\n` + strings.Repeat("x", maxText-3) + `"}`, collect: []string{"a"}, err: errOversized},
		{name: "too long a number", body: `{"a":` + strings.Repeat("1", maxText+1) + `}`, collect: []string{"a"}, err: errOversized},
		{name: "mismatch and missing", body: `{"a":1}`, collect: []string{"b"}, fields: map[string]any{"a": int64(2)}, err: errMismatch},
		{name: "mismatch and too long", body: `{"a":"` + long + `x"}`, collect: []string{"a"}, fields: map[string]any{"a": "y"}, err: errMismatch},
		{name: "twice", body: `{"a":1,"a":1}`, collect: []string{"a"}, err: errMalformed},
		{name: "no object", body: `["a"]`, collect: []string{"a"}, err: errMalformed},

		{name: "as many as may be", body: mostBody, collect: most, seen: seen{
			"f0": "0", "f1": "1", "f2": "2", "f3": "3", "f4": "4", "f5": "5", "f6": "6", "f7": "7",
			"f8": "8", "f9": "9", "f10": "10", "f11": "11", "f12": "12", "f13": "13", "f14": "14", "f15": "15"}},
		{name: "one more", body: tooManyBody, collect: tooMany, err: errMissing},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := readMetadata(t.Context(), []byte(c.body), Metadata{Fields: c.fields, Collect: c.collect})
			assert.Equal(t, c.err, err)
			assert.Equal(t, c.seen, got)
		})
	}
}

// What is collected comes back with a probe that passed, and with no other.
func TestCollectedByAProbe(t *testing.T) {
	target := want(nil).withMetadata()
	target.Metadata.Collect = []string{"instance"}
	for _, c := range []struct {
		info string
		want Result
	}{
		{`{"model":{"size":2},"instance":"i-1"}`,
			Result{Ready: true, Reason: MetadataPassed, Healthy: true, Metadata: map[string]string{"model.size": "2", "instance": "i-1"}}},
		{`{"model":{"size":3},"instance":"i-1"}`, Result{Reason: MetadataMismatch, Healthy: true}},
		{`{"model":{"size":2}}`, Result{Reason: MetadataMissing, Healthy: true}},
		{`{"model":{"size":2},"instance":"` + strings.Repeat("i", maxText+1) + `"}`, Result{Reason: MetadataOversized, Healthy: true}},
	} {
		target.URL = startEngine(t, turn(says(ok("")), says(ok(c.info)))).url
		assert.Equal(t, c.want, probeOnce(t, target), c.info)
	}
}

// value is a scalar of JSON, and what it is exactly.
type value struct {
	json string
	is   any
}

func values() *rapid.Generator[value] {
	number := rapid.OneOf(
		rapid.StringMatching(`-?(0|[1-9][0-9]{0,24})(\.[0-9]{1,12})?([eE][+-]?[0-9]{1,2})?`),
		rapid.SampledFrom([]string{"2", "2.0", "20e-1", "0", "-0"}))
	text := rapid.OneOf(
		rapid.StringOf(rapid.SampledFrom([]rune("ab10.e-\"\\{ \n\x01\u202e\u00a0é"))), number,
		rapid.SampledFrom([]string{"true", "null", `"a"`, `"a`, `"\"a\""`, "[1]", " 1"}))
	return rapid.OneOf(
		rapid.Map(text, func(s string) value {
			b, _ := json.Marshal(s)
			return value{string(b), s}
		}),
		rapid.Map(number, func(s string) value {
			r, _ := new(big.Rat).SetString(s)
			return value{s, "number " + r.RatString() + "\x00"} // no text ends like that
		}),
		rapid.Map(rapid.Bool(), func(b bool) value { return value{strconv.FormatBool(b), b} }),
	)
}

// Negative controls: without json.Valid in canonical, the string "42" was the number 42; without
// HasPrefix, a control character was what the string of its quoted form is; with v.String() in
// place of the decimal, 2 and 2.0 differed.
func TestTextsOfValues(t *testing.T) {
	for in, want := range map[string]string{
		`2`: "2", `2.0`: "2", `20e-1`: "2", `-0`: "0", `"2"`: `"2"`, `"2.0"`: `"2.0"`, `" 2"`: `" 2"`, `"02"`: "02",
		`true`: "true", `"true"`: `"true"`, `"null"`: `"null"`, `"TRUE"`: "TRUE",
		`"a é"`: "a é", `"\u0001"`: `"\x01"`, `"\"\\x01\""`: `"\"\\x01\""`, `"\u202e"`: `"\u202e"`, `"\u00a0"`: `"\u00a0"`,
		`"\"a"`: `"\"a"`, `"a\""`: `a"`, `"\"a\""`: `"\"a\""`,
	} {
		got, err := readMetadata(t.Context(), []byte(`{"a":`+in+`}`), Metadata{Collect: []string{"a"}})
		assert.NoError(t, err, in)
		assert.Equal(t, want, got["a"], in)
	}
}

// Rules compare servers by these texts, so a text must not stand for two values, nor a value have
// two texts. The negative controls of TestTextsOfValues fail here too, in some runs.
func TestTextsAreEqualWhenTheirValuesAre(t *testing.T) {
	collect := func(t *rapid.T, v value) string {
		seen, err := readMetadata(t.Context(), []byte(`{"a":`+v.json+`}`), Metadata{Collect: []string{"a"}})
		if v.is == "" {
			require.ErrorIs(t, err, errMissing)
			return ""
		}
		require.NoError(t, err, v.json)
		assert.NotContains(t, seen["a"], "\n")
		return seen["a"]
	}
	rapid.Check(t, func(t *rapid.T) {
		a, b := values().Draw(t, "a"), values().Draw(t, "b")
		x, y := collect(t, a), collect(t, b)
		assert.Equal(t, a.is == b.is, x == y, "%q %q", x, y)
		// The text of one, read as a string, must not be taken for it.
		s, _ := json.Marshal(x)
		assert.Equal(t, a.is == x, collect(t, value{string(s), x}) == x, "%q", x)
	})
}

// Negative controls: with <= in place of < in the last bound of String, or 20 in place of 21, this
// failed.
func TestDecimalString(t *testing.T) {
	for in, want := range map[string]string{
		"0": "0", "-0.0e5": "0", "42": "42", "4.20e1": "42", "-1.50": "-1.5", "0.000001": "0.000001", "0.0000001": "1e-7",
		"1e20": "100000000000000000000", "1e21": "1e21", "-12.5e-9": "-1.25e-8", "120e20": "1.2e22",
		"18446744073709551615": "18446744073709551615", "123456.789": "123456.789",
		strconv.FormatFloat(math.MaxFloat64, 'g', -1, 64): "1.7976931348623157e308",
	} {
		d, ok := decimalOf(in)
		require.True(t, ok)
		assert.Equal(t, want, d.String(), in)
	}
	t.Run("reads back", func(t *testing.T) {
		rapid.Check(t, func(t *rapid.T) {
			d, ok := decimalOf(rapid.StringMatching(`-?[0-9]{1,30}(\.[0-9]{1,30})?(e-?[0-9]{1,5})?`).Draw(t, "number"))
			require.True(t, ok)
			again, ok := decimalOf(d.String())
			assert.True(t, ok && again == d && json.Valid([]byte(d.String())), d.String())
		})
	})
}
