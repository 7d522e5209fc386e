package lab

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// Answer is what a client saw of one request.
type Answer struct {
	Status int
	Model  string // X-Engine-Model; empty where HAProxy answered itself
	Retry  string // Retry-After
	Body   string
}

// Refusal is what the gate tells a client that it refuses.
type Refusal struct {
	Reason, Generation string
	GateError          int    `json:"gate_error"` // where there was no verdict
	Retry              string `json:"-"`          // Retry-After
}

// Refusal reads an answer that is to be one.
func (a Answer) Refusal() (Refusal, error) {
	var body struct {
		Error struct {
			Refusal
			Type string
		}
	}
	if a.Status != http.StatusServiceUnavailable || a.Retry == "" {
		return Refusal{}, fmt.Errorf("answered %d as %q, Retry-After %q: %s", a.Status, a.Model, a.Retry, a.Body)
	}
	if err := json.Unmarshal([]byte(a.Body), &body); err != nil {
		return Refusal{}, fmt.Errorf("%w: %s", err, a.Body)
	}
	if body.Error.Type != "tier_unavailable" {
		return Refusal{}, fmt.Errorf("not the gate's: %s", a.Body)
	}
	body.Error.Retry = a.Retry
	return body.Error.Refusal, nil
}

var plain = &http.Client{
	Timeout: 10 * time.Second,
	// A new connection each time: HAProxy decides anew for each.
	Transport: &http.Transport{DisableKeepAlives: true},
}

// Ask sends one completion that is not streamed to a tier, through the first
// HAProxy.
func (l *Lab) Ask(ctx context.Context, tier string) (Answer, error) {
	return l.HAProxies[0].Ask(ctx, tier)
}

// Ask is Lab.Ask through this HAProxy.
func (h *HAProxy) Ask(ctx context.Context, tier string) (Answer, error) {
	res, err := h.post(ctx, tier, map[string]any{"messages": []any{}, "max_tokens": 2}, nil)
	if err != nil {
		return Answer{}, err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	return Answer{
		Status: res.StatusCode, Model: res.Header.Get("X-Engine-Model"),
		Retry: res.Header.Get("Retry-After"), Body: string(body),
	}, err
}

// Stream is a streamed completion under way.
type Stream struct {
	Started <-chan struct{} // closed when the first token has come
	Ended   <-chan error    // nil where the stream came whole
}

// Stream asks a tier for so many tokens, each so long after the one before.
func (l *Lab) Stream(ctx context.Context, tier string, tokens int, pace time.Duration) *Stream {
	started, ended := make(chan struct{}), make(chan error, 1)
	go func() { ended <- l.stream(ctx, tier, tokens, pace, started) }()
	return &Stream{Started: started, Ended: ended}
}

func (l *Lab) stream(ctx context.Context, tier string, tokens int, pace time.Duration, started chan<- struct{}) error {
	ask := map[string]any{"messages": []any{}, "max_tokens": tokens, "stream": true}
	res, err := l.HAProxies[0].post(ctx, tier, ask, http.Header{"X-Token-Delay": {pace.String()}})
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("the stream was answered with %d", res.StatusCode)
	}
	chunks, done := 0, false
	for lines := bufio.NewScanner(res.Body); lines.Scan(); {
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		if !ok {
			continue
		}
		if chunks == 0 {
			close(started)
		}
		if chunks++; data == "[DONE]" {
			done = true
		}
	}
	if !done {
		return fmt.Errorf("the stream was cut after %d chunks", chunks)
	}
	return nil
}

func (h *HAProxy) post(ctx context.Context, tier string, ask map[string]any, header http.Header) (*http.Response, error) {
	body, err := json.Marshal(ask)
	if err != nil {
		return nil, err
	}
	url := h.URL("/" + tier + "/v1/chat/completions")
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(string(body)))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	client := plain
	if header != nil { // a stream is bounded by its context instead
		req.Header["X-Token-Delay"] = header["X-Token-Delay"]
		client = &http.Client{Transport: plain.Transport}
	}
	return client.Do(req)
}
