package probe

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"math/big"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

type verdict string

const (
	yes       verdict = "matches"
	no        verdict = "mismatch"
	malformed verdict = "malformed"
)

func judge(matched bool, err error) verdict {
	switch {
	case err != nil && !matched:
		return malformed
	case err != nil:
		return "matched and malformed"
	case matched:
		return yes
	}
	return no
}

// depth is n arrays, or objects under "a", one in another.
func depth(n int, open, shut string) string {
	return strings.Repeat(open, n) + "1" + strings.Repeat(shut, n)
}

// Negative controls: with json.Unmarshal into a struct first, the rows of other case and the
// duplicates matched; without utf8.Valid in newDocument the invalid UTF-8 passed; without
// json.Valid the trailing data; without ContainsRune in same, the lone surrogate.
func TestMatchIdentity(t *testing.T) {
	for _, c := range []struct {
		body string
		want verdict
	}{
		{`{"data":[{"id":"m1"}]}`, yes},
		{`[{"id":"m1"}]`, yes},
		{" \r\n\t[{\"id\" : \"m1\"} ] \n", yes},
		{`{"object":"list","data":[{"id":"m0","x":{"id":"m2"}},{"x":[1,{"id":"m2"}],"id":"m1"},{"id":"m3"}],"z":1}`, yes},
		{`{"data":[{"id":"\u006d1"}]}`, yes},
		{`{"d\u0061ta":[{"id":"m1"}]}`, yes},

		{`[]`, no},
		{`{"data":[]}`, no},
		{`[{}]`, no},
		{`[{"id":"M1"}]`, no},
		{`[{"id":"m1 "}]`, no},
		{`[{"id":"m1\u0000"}]`, no},
		{`[{"ID":"m1"}]`, no},
		{`{"data":[{"Id":"m1"}]}`, no},
		{`[{"id":["m1"]},{"id":{"id":"m1"}},{"id":null},{"id":1},{"id":true}]`, no},
		{`[{"x":{"id":"m1"}}]`, no},
		{`{"data":[{"x":1}],"id":"m1"}`, no},

		{`{"Data":[{"ID":"m1"}]}`, malformed},
		{`{"Data":[{"id":"m1"}]}`, malformed},
		{`{"DATA":[{"id":"m1"}],"id":"m1"}`, malformed},
		{`{"id":"m1"}`, malformed},
		{`{"data":{"id":"m1"}}`, malformed},
		{`{"data":null}`, malformed},
		{`{"data":"m1"}`, malformed},
		{`{"data":{"data":[{"id":"m1"}]}}`, malformed},
		{`[["m1"]]`, malformed},
		{`["m1"]`, malformed},
		{`[{"id":"m1"},null]`, malformed},
		{`"m1"`, malformed},
		{`null`, malformed},
		{`m1`, malformed},
		{``, malformed},
		{`{}`, malformed},
		{`[{"id":"m1"}`, malformed},
		{`[{"id":"m1"},]`, malformed},
		{`[{"id":"m1",}]`, malformed},
		{`[{id:"m1"}]`, malformed},
		{`[{'id':'m1'}]`, malformed},
		{`[{"id":"m1"}]x`, malformed},
		{`[{"id":"m1"}][]`, malformed},
		{`[{"id":"m1"}]` + "\x00", malformed},
		{"\ufeff" + `[{"id":"m1"}]`, malformed},
		{`[{"id":"m1","x":NaN}]`, malformed},
		{`[{"id":"m1","x":01}]`, malformed},
		{`[{"id":"m1","x":"` + "\xff" + `"}]`, malformed},
		{`[{"id":"m1","x":"` + "\n" + `"}]`, malformed},
		{`[{"id":"m1","id":"m1"}]`, malformed},
		{`[{"id":"m1","id":"m0"}]`, malformed},
		{`[{"id":"m1","\u0069d":"m0"}]`, malformed},
		{`[{"id":"m1"},{"a":1,"b":2,"a":3}]`, malformed},
		{`{"data":[{"id":"m1"}],"data":[]}`, malformed},
		{`{"a":1,"data":[{"id":"m1"}],"a":[]}`, malformed},
		{`[{"id":"m1","x":` + depth(20000, "[", "]") + `}]`, malformed},
		{strings.Repeat("[", 1<<20), malformed},
		{strings.Repeat(`{"data":`, 1<<17), malformed},
	} {
		name := c.body
		if len(name) > 80 {
			name = name[:80]
		}
		assert.Equal(t, c.want, judge(matchIdentity(t.Context(), []byte(c.body), "m1")), "%q", name)
	}
	assert.Equal(t, no, judge(matchIdentity(t.Context(), []byte(`[{"id":"\ud800"}]`), "\ufffd")), "half a surrogate pair")
	assert.Equal(t, yes, judge(matchIdentity(t.Context(), []byte(`[{"id":""}]`), "")))
}

func matchMetadata(ctx context.Context, body []byte, fields map[string]any) (bool, error) {
	_, err := readMetadata(ctx, body, Metadata{Fields: fields})
	if errors.Is(err, errMismatch) {
		return false, nil
	}
	return err == nil, err
}

// Negative controls: without the case for a wanted string among numbers in equal, 2 equalled "2";
// with strconv.ParseFloat at the head of decimalOf, the big integers one apart were equal; without
// the look into seen in members, the duplicates passed; without same in match, so did the key
// that is half a surrogate pair.
func TestMatchMetadata(t *testing.T) {
	type fields = map[string]any
	const big = int64(1<<53 + 1)
	for _, c := range []struct {
		body   string
		fields fields
		want   verdict
	}{
		{`{}`, fields{}, yes},
		{`{"a":"x","b":true,"c":-5,"d":18446744073709551615,"e":0.1,"f":null}`,
			fields{"a": "x", "b": true, "c": int64(-5), "d": uint64(math.MaxUint64), "e": 0.1}, yes},
		{`{"m":{"n":{"o":"x"},"p":[1]},"m.n.o":"y"}`, fields{"m.n.o": "x"}, yes},
		{`{"m":{"a":1,"b":2}}`, fields{"m.a": int64(1), "m.b": int64(2)}, yes},
		{`{"":{"":1}}`, fields{".": int64(1)}, yes},
		{`{"a":2.0}`, fields{"a": int64(2)}, yes},
		{`{"a":2}`, fields{"a": 2.0}, yes},
		{`{"a":20e-1}`, fields{"a": uint64(2)}, yes},
		{`{"a":0.00002E+5}`, fields{"a": uint64(2)}, yes},
		{`{"a":-0.0e7}`, fields{"a": int64(0)}, yes},
		{`{"a":0e99999999999999999999}`, fields{"a": int64(0)}, yes},
		{`{"a":9007199254740993}`, fields{"a": big}, yes},
		{`{"a":1e23}`, fields{"a": 1e23}, yes},
		{`{"a":5e-324}`, fields{"a": math.SmallestNonzeroFloat64}, yes},

		{`{"a":9007199254740992}`, fields{"a": big}, no},
		{`{"a":9007199254740993.0000000000000001}`, fields{"a": big}, no},
		{`{"a":0.1000000000000000055}`, fields{"a": 0.1}, no},
		{`{"a":18446744073709551616}`, fields{"a": uint64(math.MaxUint64)}, no},
		{`{"a":1e999999999}`, fields{"a": int64(1)}, no},
		{`{"a":1e99999999999999999999}`, fields{"a": int64(1)}, no},
		{`{"a":1e-99999999999999999999}`, fields{"a": int64(0)}, no},
		{`{"a":-2}`, fields{"a": int64(2)}, no},
		{`{"a":20}`, fields{"a": int64(2)}, no},
		{`{"a":0}`, fields{"a": math.NaN()}, no},
		{`{"a":1e400}`, fields{"a": math.Inf(1)}, no},
		{`{"a":"2"}`, fields{"a": int64(2)}, no},
		{`{"a":2}`, fields{"a": "2"}, no},
		{`{"a":1}`, fields{"a": true}, no},
		{`{"a":"true"}`, fields{"a": true}, no},
		{`{"a":true}`, fields{"a": "true"}, no},
		{`{"a":false}`, fields{"a": true}, no},
		{`{"a":null}`, fields{"a": ""}, no},
		{`{"a":null}`, fields{"a": nil}, no},
		{`{"a":2}`, fields{"a": 2}, no}, // int is not one of the five
		{`{"A":"x"}`, fields{"a": "x"}, no},
		{`{"a":"X"}`, fields{"a": "x"}, no},
		{`{"a":{"b":1}}`, fields{"a": int64(1)}, no},
		{`{"a":{"b":1}}`, fields{"a": int64(1), "a.b": int64(1)}, no},
		{`{"a":[{"b":1}]}`, fields{"a.b": int64(1)}, no},
		{`{"a":1,"c":3}`, fields{"a.b": int64(1), "c": int64(3)}, no},
		{`{"a.b":1}`, fields{"a.b": int64(1)}, no},
		{`{"a":1}`, fields{"a": int64(1), "b": int64(2)}, no},
		{`{"a":"\ud800"}`, fields{"a": "\ufffd"}, no},
		{`{"\ud800":1}`, fields{"\ufffd": int64(1)}, no},

		{`{"a":1,"a":1}`, fields{"a": int64(1)}, malformed},
		{`{"a":1,"b":1,"b":1}`, fields{"a": int64(1)}, malformed},
		{`{"a":{"b":1,"x":1,"x":2}}`, fields{"a.b": int64(1)}, malformed},
		{`{"a":{"b":1},"a":{"b":1}}`, fields{"a.b": int64(1)}, malformed},
		{`{"a":1}{}`, fields{"a": int64(1)}, malformed},
		{`{"a":1}]`, fields{"a": int64(1)}, malformed},
		{`{"a":1,"x":"` + "\xc3\x28" + `"}`, fields{"a": int64(1)}, malformed},
		{`{"a":NaN}`, fields{"a": math.NaN()}, malformed},
		{`{"a":Infinity}`, fields{"a": math.Inf(1)}, malformed},
		{`{"a":+1}`, fields{"a": int64(1)}, malformed},
		{`{"a":1.}`, fields{"a": int64(1)}, malformed},
		{`[{"a":1}]`, fields{"a": int64(1)}, malformed},
		{`1`, fields{}, malformed},
		{``, fields{}, malformed},
		{depth(20000, `{"a":`, "}"), fields{"a.a": int64(1)}, malformed},
	} {
		assert.Equal(t, c.want, judge(matchMetadata(t.Context(), []byte(c.body), c.fields)), "%.80q %v", c.body, c.fields)
	}
	// Below the way to a field, a document may say what it likes twice.
	assert.Equal(t, yes, judge(matchMetadata(t.Context(), []byte(`{"a":1,"x":{"y":1,"y":2}}`), fields{"a": int64(1)})))
}

// Negative controls: without either look at the context, in members and in entries, its row was
// judged to the end.
func TestJudgingEndsWithTheContext(t *testing.T) {
	late, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := matchIdentity(late, []byte(`[1]`), "m1")
	assert.ErrorIs(t, err, context.Canceled)
	_, err = matchMetadata(late, []byte(`{"a":1}`), map[string]any{"a": int64(1)})
	assert.ErrorIs(t, err, context.Canceled)
}

// Negative control: without TrimRight in decimalOf, 2 and 2.0 differed.
func TestDecimalAgreesWithBigRat(t *testing.T) {
	number := rapid.StringMatching(`-?(0|[1-9][0-9]{0,20})(\.[0-9]{1,20})?([eE][+-]?[0-9]{1,2})?`)
	rapid.Check(t, func(t *rapid.T) {
		a, b := number.Draw(t, "a"), number.Draw(t, "b")
		if rapid.Bool().Draw(t, "same value") {
			r, ok := new(big.Rat).SetString(a)
			require.True(t, ok)
			b = r.FloatString(130)
		}
		require.True(t, json.Valid([]byte(a)) && json.Valid([]byte(b)))
		x, okx := new(big.Rat).SetString(a)
		y, oky := new(big.Rat).SetString(b)
		require.True(t, okx && oky)
		p, okp := decimalOf(a)
		q, okq := decimalOf(b)
		require.True(t, okp && okq)
		assert.Equal(t, x.Cmp(y) == 0, p == q, "%s %s", a, b)
	})
}

// Negative control: without the bounds in rendered and cut, this failed.
func TestRenderedIsBounded(t *testing.T) {
	fields := map[string]any{"a": strings.Repeat("é", 300), strings.Repeat("b", 300): 1.5, "0": true}
	for i := range 100 {
		fields["x"+strconv.Itoa(i)] = int64(i)
	}
	got := rendered(fields)
	assert.Len(t, got, maxFields)
	assert.Equal(t, strings.Repeat("é", 128), got["a"])
	assert.Equal(t, "1.5", got[strings.Repeat("b", maxText)])
	assert.Equal(t, "true", got["0"])
}

// The fuzz targets hold the matchers against encoding/json's own, looser reading: what matches
// has to be valid, and there when looked up in a plain map.
func FuzzMatchIdentity(f *testing.F) {
	for _, s := range []string{models, `[{"id":"m1"}]`, `{"Data":[{"ID":"m1"}]}`, `[{"id":"m1","id":"m1"}]`, `[{"id":{"a":[]}}]`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		matched, err := matchIdentity(t.Context(), body, "m1")
		if err != nil && matched {
			t.Fatal("matched and malformed")
		}
		if err == nil && !json.Valid(body) {
			t.Fatal("invalid JSON judged")
		}
		var top any
		if json.Unmarshal(body, &top) != nil {
			return
		}
		list, listed := top.([]any)
		if o, isObject := top.(map[string]any); isObject {
			list, listed = o["data"].([]any)
		}
		there := false
		for _, e := range list {
			o, isObject := e.(map[string]any)
			listed = listed && isObject
			there = there || o["id"] == "m1"
		}
		if err == nil && (!listed || matched != there) {
			t.Fatalf("matched %v, there %v, a list %v", matched, there, listed)
		}
	})
}

func FuzzMatchMetadata(f *testing.F) {
	fields := map[string]any{"a": "x", "b.c": int64(2), "b.d": 0.5, "e": true, "f": uint64(math.MaxUint64)}
	for _, s := range []string{
		`{"a":"x","b":{"c":2.0,"d":5e-1},"e":true,"f":18446744073709551615}`,
		`{"a":"x","b":{"c":2,"c":2,"d":0.5},"e":true,"f":18446744073709551615}`, `{"b":[1,{"c":2}]}`, info,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		matched, err := matchMetadata(t.Context(), body, fields)
		if err != nil && matched {
			t.Fatal("matched and malformed")
		}
		if err == nil && !json.Valid(body) {
			t.Fatal("invalid JSON judged")
		}
		if !matched {
			return
		}
		var top map[string]any
		if err := json.Unmarshal(body, &top); err != nil {
			return // a number beyond float64, elsewhere
		}
		b, _ := top["b"].(map[string]any)
		if top["a"] != "x" || b["c"] != 2.0 || b["d"] != 0.5 || top["e"] != true {
			t.Fatalf("%s does not hold the fields", body)
		}
	})
}
