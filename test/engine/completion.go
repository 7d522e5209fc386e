package engine

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

const (
	maxBody       = 1 << 20          // bytes of a request
	bodyTime      = 10 * time.Second // for all of them
	maxTokens     = 100_000
	defaultTokens = 16
	maxTokenDelay = time.Minute
)

// request is the part of an OpenAI request that matters here; the rest is ignored, since
// clients send many fields. Chat has messages, completions a prompt: neither is read.
type request struct {
	MaxTokens           *int `json:"max_tokens"`
	MaxCompletionTokens *int `json:"max_completion_tokens"`
	Stream              bool `json:"stream"`
}

// tokens is how many to send, at most.
func (r request) tokens() (int, error) {
	n := defaultTokens
	for _, given := range []*int{r.MaxTokens, r.MaxCompletionTokens} {
		if given != nil {
			n = *given
		}
	}
	if n < 1 || n > maxTokens {
		return 0, fmt.Errorf("max_tokens is %d; it must be between 1 and %d", n, maxTokens)
	}
	return n, nil
}

// slurp replaces the body by a copy in memory, bounded by maxBody and bodyTime.
func slurp(w http.ResponseWriter, r *http.Request) error {
	// A recorder in a test has no deadline, and needs none.
	conn := http.NewResponseController(w)
	_ = conn.SetReadDeadline(time.Now().Add(bodyTime))
	defer func() { _ = conn.SetReadDeadline(time.Time{}) }()
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	r.Body = io.NopCloser(bytes.NewReader(body))
	return err
}

func (e *Engine) complete(w http.ResponseWriter, r *http.Request, c call) {
	var req request
	if err := json.NewDecoder(r.Body).Decode(&req); err != nil {
		fail(w, http.StatusBadRequest, "the request body is not JSON of the right form")
		return
	}
	tokens, err := req.tokens()
	if err != nil {
		fail(w, http.StatusBadRequest, err.Error())
		return
	}
	delay, err := tokenDelay(r, c.tokenDelay)
	if err != nil {
		fail(w, http.StatusBadRequest, err.Error())
		return
	}
	if !c.loaded() {
		if c.early != EarlyEmpty {
			w.Header().Set("Retry-After", "1")
			fail(w, http.StatusServiceUnavailable, "the model is not loaded")
			return
		}
		tokens = 0
	}
	if req.Stream {
		e.stream(w, r, c, tokens, delay)
		return
	}
	text, finish := strings.Repeat("word ", tokens), "length"
	switch c.rule.Fault {
	case Blank:
		text = strings.Repeat(" ", tokens)
	case GaveUp:
		finish = "error"
	case OtherModel:
		c.model += "-other"
	}
	reply(w, http.StatusOK, e.envelope(c, false, text, finish, tokens))
}

func tokenDelay(r *http.Request, fallback time.Duration) (time.Duration, error) {
	given := r.Header.Get("X-Token-Delay")
	if given == "" {
		return fallback, nil
	}
	d, err := time.ParseDuration(given)
	if err != nil || d < 0 || d > maxTokenDelay {
		return 0, fmt.Errorf("X-Token-Delay is %q; it must be a duration such as 50ms, at most %v", given, maxTokenDelay)
	}
	return d, nil
}

func (e *Engine) stream(w http.ResponseWriter, r *http.Request, c call, tokens int, delay time.Duration) {
	var hurried <-chan struct{}
	e.count(func(s *Stats) { s.Running, hurried = s.Running+1, e.hurried })
	finished := false
	defer func() {
		e.count(func(s *Stats) {
			s.Running--
			if finished {
				s.Finished++
			} else {
				s.Cut++
			}
		})
	}()

	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-cache")
	send := func(data any) bool {
		// RawMessage and the envelope both encode without fail.
		text, _ := json.Marshal(data)
		_, err := fmt.Fprintf(w, "data: %s\n\n", text)
		// A recorder in a test cannot flush, and need not.
		_ = http.NewResponseController(w).Flush()
		return err == nil
	}
	for n := range tokens {
		if n > 0 && !e.wait(r.Context(), delay, hurried) || e.closed() {
			return
		}
		if !send(e.envelope(c, true, "word ", "", 0)) {
			return
		}
	}
	if !send(e.envelope(c, true, "", "length", 0)) {
		return
	}
	_, err := io.WriteString(w, "data: [DONE]\n\n")
	finished = err == nil
}

// envelope is an OpenAI answer, or one chunk of one. finish "" is null.
func (e *Engine) envelope(c call, chunk bool, text, finish string, tokens int) map[string]any {
	choice := map[string]any{"index": 0, "finish_reason": nil}
	if finish != "" {
		choice["finish_reason"] = finish
	}
	object := "text_completion"
	switch {
	case c.at == Completions:
		choice["text"] = text
	case chunk:
		object = "chat.completion.chunk"
		choice["delta"] = map[string]string{"content": text}
	default:
		object = "chat.completion"
		choice["message"] = map[string]string{"role": "assistant", "content": text}
	}
	body := map[string]any{
		"id": "cmpl-" + e.instance, "object": object, "created": time.Now().Unix(),
		"model": c.model, "choices": []any{choice},
	}
	if !chunk {
		body["usage"] = map[string]int{"prompt_tokens": 1, "completion_tokens": tokens, "total_tokens": tokens + 1}
	}
	return body
}

func (e *Engine) count(apply func(*Stats)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	apply(&e.stats)
}

func (e *Engine) closed() bool {
	select {
	case <-e.done:
		return true
	default:
		return false
	}
}
