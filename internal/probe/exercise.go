package probe

import (
	"context"
	"mime"
	"net/http"
	"time"
)

// Exercise makes a server do what it is for, once: several inference engines say yes to health and
// list their models before any weights are loaded. It passes when POST Path with Body is answered
// with StatusMin to StatusMax and with a JSON answer that holds something. It has to be answered
// whole: an event stream is malformed, as is the other streaming form, one object a line.
type Exercise struct {
	Path      string                                // "": /v1/chat/completions
	Body      []byte                                // JSON, sent as it is; one that asks for "stream": true can never pass
	Token     func(context.Context) (string, error) // as in Identity
	StatusMin int                                   // both included; without either it is 200 to 299
	StatusMax int
	// Answer is a field, named as in Metadata, that has to be there and be a string, list or object
	// that is not empty, a number or a boolean. A string of blanks is empty, here and below.
	//
	// Without it, an answer that has "choices" (OpenAI's chat and completions) needs one choice with
	// a text that is not empty, or a message with content, tool calls, reasoning or a refusal that
	// is not; with "choices" for Answer the answer has to have them. Any other answer
	// needs one field at its top, beside "object", that is not empty. An answer that says it is an
	// error, by "error" that is not null or empty, or by "object" that is "error", is malformed:
	// some servers send that with status 200.
	//
	// Whatever Answer is, a "finish_reason" of "error" or "abort" is malformed, and a "model" at the
	// top is a mismatch where it is neither the one that Body asks for nor the target's Identity.
	// Where there is neither, it may be any.
	Answer  string
	Timeout time.Duration // over all of it; none is left at 0 or below
}

// Exercise sends t.Exercise and nothing else, over a connection of its own, within the bounds of
// Probe and t.MaxBody. It is never sent twice. It returns at the latest when t.Exercise.Timeout has
// passed or ctx has ended, with the connection closed, by which a server can tell that it may stop.
// The reason is exercise_empty where the answer has the shape but holds nothing, or has no field
// Answer, exercise_mismatch where another model has answered, and Timeout at the deadline. Without t.Exercise it is exercise_transport_other.
func (p *Prober) Exercise(ctx context.Context, t Target) Result {
	if t.Exercise == nil {
		return Result{Reason: transport(stepExercise, classOther)}
	}
	return p.look(ctx, t, stepExercise, t.Exercise.Timeout, (*run).exercise)
}

func (r *run) exercise() string {
	want := *r.target.Exercise
	q := question{path: want.Path, post: true, body: want.Body, last: true}
	if q.path == "" {
		q.path = "/v1/chat/completions"
	}
	accepted := statuses{want.StatusMin, want.StatusMax}
	if accepted == (statuses{}) {
		accepted = successful
	}
	return r.document(q, want.Token, accepted, func(body []byte) error {
		return judgeAnswer(r.ctx, body, want.Answer, r.models())
	})
}

// models are the names that the model of an answer may have.
func (r *run) models() (names []string) {
	if asked := modelOf(r.ctx, r.target.Exercise.Body); asked != "" {
		names = append(names, asked)
	}
	if r.target.Identity != nil {
		names = append(names, r.target.Identity.ID)
	}
	return names
}

// streamed says whether the answer calls itself an event stream, which need not end.
func streamed(answer *http.Response) bool {
	kind, _, _ := mime.ParseMediaType(answer.Header.Get("Content-Type"))
	return kind == "text/event-stream"
}
