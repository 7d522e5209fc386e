package probe

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// Negative controls: without the case for "error" in answered its rows passed, without the one for
// "object" so did that one; with h != nothing in place of h == more in choice, the numbers counted;
// with holds in place of chosen in answered, an empty choice passed; without the look at the token
// in list or object, what is none was an empty one; without Trim, blank bodies were malformed;
// without a reasoning name in choice, its row was empty; without TrimSpace in holds those of
// blanks passed, and without vouches those of another model or of a completion that was given up.
func TestAnswer(t *testing.T) {
	message := func(s string) string { return `{"id":"c","choices":[{"index":0,"message":` + s + `}]}` }
	for _, c := range []struct {
		body string
		want error
	}{
		{completion, nil},
		{" \r\n\t" + completion + "\n", nil},
		{`{"choices":[{"text":"Hi"}]}`, nil},
		{`{"choices":[{"text":"\ufffd"}]}`, nil}, // one token may be half a character
		{`{"choices":[{"text":"\ud83d"}]}`, nil},
		{`{"choices":[{"text":""},{"text":"Hi"},{"text":""}]}`, nil},
		{`{"choices":[{"text":null,"message":{"content":"Hi"}}]}`, nil},
		{`{"choices":[null,{"text":"Hi"}]}`, nil},
		{message(`{"content":[{"type":"text","text":"Hi"}]}`), nil},
		{message(`{"content":null,"tool_calls":[{"id":"1"}]}`), nil},
		{message(`{"content":null,"function_call":{"name":"f"}}`), nil},
		{message(`{"content":"","reasoning_content":"Hm"}`), nil},
		{message(`{"content":null,"reasoning":"Hm"}`), nil},
		{message(`{"content":null,"refusal":"No"}`), nil},
		{`{"error":null,"choices":[{"text":"Hi"}]}`, nil},
		{`{"error":"","response":"Hi"}`, nil},
		{`{"response":"Hi"}`, nil},
		{`{"response":"","done":false}`, nil},
		{`{"data":[{"embedding":[0.5]}]}`, nil},
		{`{"model":"m1","choices":[{"text":"Hi","finish_reason":"length"}]}`, nil},
		{`{"model":"served-m1","choices":[{"text":"Hi","finish_reason":null}]}`, nil},
		{`{"model":null,"choices":[{"text":"Hi","finish_reason":{}}]}`, nil},

		{``, errEmpty},
		{" \r\n\t", errEmpty},
		{`{"choices":[{"text":" "}]}`, errEmpty},
		{`{"choices":[{"text":" \n\t\u00a0\u3000"}]}`, errEmpty},
		{message(`{"content":"\n"}`), errEmpty},
		{message(`{"content":" ","reasoning":" "}`), errEmpty},
		{`{"response":" "}`, errEmpty},
		{`{}`, errEmpty},
		{`{"response":"","a":null,"b":[],"c":{}}`, errEmpty},
		{`{"object":"text_completion"}`, errEmpty},
		{`{"id":"c","choices":[]}`, errEmpty},
		{`{"id":"c","choices":null}`, errEmpty},
		{`{"id":"c","choices":[{}]}`, errEmpty},
		{`{"id":"c","choices":[{"text":""}]}`, errEmpty},
		{`{"id":"c","choices":[{"text":5}]}`, errEmpty},
		{`{"id":"c","choices":[{"text":true}]}`, errEmpty},
		{`{"id":"c","choices":[{"Text":"Hi"}]}`, errEmpty},
		{`{"id":"c","choices":[{"delta":{"content":"Hi"}}]}`, errEmpty}, // a piece of a stream
		{`{"id":"c","choices":[{"content":"Hi"}]}`, errEmpty},
		{`{"text":"Hi","choices":[{"text":""}]}`, errEmpty},
		{message(`{"role":"assistant"}`), errEmpty},
		{message(`{"role":"assistant","content":""}`), errEmpty},
		{message(`{"content":null,"tool_calls":[],"reasoning":"","refusal":null}`), errEmpty},
		{message(`{"content":0}`), errEmpty},
		{message(`null`), errEmpty},

		{`Hi`, errMalformed},
		{`"Hi"`, errMalformed},
		{`null`, errMalformed},
		{`["Hi"]`, errMalformed},
		{"\x00", errMalformed},
		{completion + completion, errMalformed},
		{`{"response":"H"}` + "\n" + `{"response":"i"}` + "\n", errMalformed}, // one object a line
		{"data: " + completion + "\n\ndata: [DONE]\n\n", errMalformed},
		{completion[:len(completion)-1], errMalformed},
		{`{"choices":[{"text":"` + "\xff" + `"}]}`, errMalformed},
		{`{"choices":[{"text":"Hi"}],"choices":[]}`, errMalformed},
		{`{"choices":[{"text":"","text":"Hi"}]}`, errMalformed},
		{`{"choices":{"text":"Hi"}}`, errMalformed},
		{`{"choices":"Hi"}`, errMalformed},
		{`{"choices":["Hi"]}`, errMalformed},
		{message(`"Hi"`), errMalformed},
		{message(`[{"content":"Hi"}]`), errMalformed},
		{`{"error":{"message":"loading"}}`, errMalformed},
		{`{"error":"loading","response":"Hi"}`, errMalformed},
		{`{"error":true}`, errMalformed},
		{`{"error":503}`, errMalformed},
		{`{"choices":[{"text":"Hi"}],"error":{"code":1}}`, errMalformed},
		{`{"object":"error","message":"no such model","code":404}`, errMalformed},
		{`{"choices":[{"text":"Hi","finish_reason":"error"}]}`, errMalformed},
		{`{"choices":[{"text":"Hi"},{"text":"Hi","finish_reason":"Abort"}]}`, errMalformed},
		{`{"response":"Hi","finish_reason":"error"}`, errMalformed},
		{`{"response":"Hi","model":"m2"}`, errMismatch},
		{`{"choices":[{"text":"Hi"}],"model":""}`, errMismatch},
		{strings.Repeat("[", 1<<20), errMalformed},
	} {
		assert.Equal(t, c.want, judgeAnswer(t.Context(), []byte(c.body), "", []string{"m1", "served-m1"}), "%.80q", c.body)
	}
}

// Negative control: with the first name of the path taken for all of it in has, what is empty or
// missing below was there.
func TestAnswerField(t *testing.T) {
	for _, c := range []struct {
		body string
		want error
	}{
		{`{"a":{"b":"Hi"}}`, nil},
		{`{"a":{"b":0}}`, nil},
		{`{"a":{"b":false}}`, nil},
		{`{"a":{"b":[0]}}`, nil},
		{`{"a":{"x":"","b":{"c":""},"y":""},"z":""}`, nil},
		{`{"error":"of the past","choices":[],"a":{"b":"Hi"}}`, nil},
		{`{"choices":"none","a":{"b":"Hi"},"model":"any"}`, nil},
		{`{"choices":[1,[{"finish_reason":"error"}]],"a":{"b":"Hi"},"finish_reason":{"finish_reason":"error"}}`, nil},

		{`{"a":{"b":""}}`, errEmpty},
		{`{"a":{"b":" "}}`, errEmpty},
		{`{"a":{"b":null}}`, errEmpty},
		{`{"a":{"b":[]}}`, errEmpty},
		{`{"a":{"b":{}}}`, errEmpty},
		{`{"a":{"B":"Hi"}}`, errEmpty},
		{`{"a":{},"b":"Hi"}`, errEmpty},
		{`{"a":[{"b":"Hi"}]}`, errEmpty},
		{`{"a":"Hi"}`, errEmpty},
		{`{"a":null}`, errEmpty},
		{`{"a.b":"Hi"}`, errEmpty},
		{`{"x":{"a":{"b":"Hi"}}}`, errEmpty},
		{completion, errEmpty},
		{`{}`, errEmpty},
		{``, errEmpty},

		{`[{"a":{"b":"Hi"}}]`, errMalformed},
		{`{"a":{"b":"Hi"},"choices":[{"finish_reason":"error"}]}`, errMalformed},
		{`{"a":{"b":"Hi"}}{}`, errMalformed},
		{`{"a":{"b":"Hi","b":""}}`, errMalformed},
		{`{"a":{"b":"Hi"},"a":{}}`, errMalformed},
		{`{"a":{"b":"` + "\xff" + `"}}`, errMalformed},
	} {
		assert.Equal(t, c.want, judgeAnswer(t.Context(), []byte(c.body), "a.b", nil), "%q", c.body)
	}
}

// The field "choices" is judged as such.
//
// Negative control: with has for it too, what is blank passed.
func TestChoicesForAField(t *testing.T) {
	for body, want := range map[string]error{
		completion: nil,
		`{"choices":[{"text":" "}],"usage":{"a":1}}`: errEmpty,
		`{"response":"Hi"}`:                          errEmpty,
		`{"choices":["Hi"]}`:                         errMalformed,
	} {
		assert.Equal(t, want, judgeAnswer(t.Context(), []byte(body), "choices", nil), body)
	}
}

func TestTheModelThatARequestAsksFor(t *testing.T) {
	for body, want := range map[string]string{
		chat: "m1", `{}`: "", ``: "", `[]`: "", `{"model":5}`: "", `{"a":{"model":"m2"}}`: "", `{"messages":[{}],"model":"m3"}`: "m3",
	} {
		assert.Equal(t, want, modelOf(t.Context(), []byte(body)), body)
	}
}

// Negative controls: without the look at the context in list, and then in members, its row was
// judged to the end.
func TestJudgingAnAnswerEndsWithTheContext(t *testing.T) {
	late, cancel := context.WithCancel(t.Context())
	cancel()
	d, err := newDocument(late, []byte(`[{},{}]`))
	assert.NoError(t, err)
	assert.ErrorIs(t, d.list(nil), context.Canceled)
	assert.ErrorIs(t, judgeAnswer(late, []byte(`{"choices":[]}`), "", nil), context.Canceled)
	assert.ErrorIs(t, judgeAnswer(late, []byte(`{"a":1}`), "a", nil), context.Canceled)
}

// FuzzAnswer holds the judgement against encoding/json's own, looser reading: an answer that is
// taken has to be an object that has what it was taken for.
func FuzzAnswer(f *testing.F) {
	for _, s := range []string{completion, `{"choices":[{"text":"Hi"}]}`, `{"error":null,"r":"Hi"}`, `{"object":"error"}`,
		`{"choices":[{"message":{"tool_calls":[{}]}}]}`, `{"Choices":[],"choices":null}`, `{"r":[{"a":1,"a":2}]}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		if judgeAnswer(t.Context(), body, "", nil) != nil {
			return
		}
		var top map[string]json.RawMessage
		if err := json.Unmarshal(body, &top); err != nil {
			t.Fatalf("%q is no object", body)
		}
		compact := func(key string) string {
			var b bytes.Buffer
			_ = json.Compact(&b, top[key])
			return b.String()
		}
		if !slices.Contains([]string{"", "null", `""`, "[]", "{}"}, compact("error")) ||
			slices.Contains([]string{"null", "[]", "[{}]"}, compact("choices")) || compact("object") == `"error"` {
			t.Fatalf("%q was taken", body)
		}
	})
}
