// Package engine is a small OpenAI-style inference engine for the demo and the tests.
//
// Invariant: a request is counted, and what it will be answered is fixed, at the moment it
// arrives; nothing told to the engine afterwards changes that answer. So a test can hold a
// probe, turn the engine into something else, let the probe go, and know that it carries
// the old answer.
//
// It generates no text worth reading. It never refuses a model name in a request: a request
// that was sent to the wrong tier is then seen in the answer (X-Engine-Model, "model")
// and not hidden behind an error.
package engine

import (
	"crypto/rand"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"net/http"
	"sync"
	"time"
)

// Endpoint names one of the paths that an Engine counts and that a test can disturb.
type Endpoint string

const (
	Health      Endpoint = "health"      // GET /health
	Models      Endpoint = "models"      // GET /v1/models
	Info        Endpoint = "info"        // GET /info
	Chat        Endpoint = "chat"        // POST /v1/chat/completions
	Completions Endpoint = "completions" // POST /v1/completions
)

// Endpoints lists all of them.
var Endpoints = []Endpoint{Health, Models, Info, Chat, Completions}

// Early says how an engine behaves while its model is not loaded.
type Early string

const (
	EarlyUnavailable Early = ""        // health and completions answer 503
	EarlyHealthy     Early = "healthy" // health answers 200, completions 503
	EarlyEmpty       Early = "empty"   // health answers 200, completions 200 with an empty text
)

// Options configure an Engine. The zero value is a loaded engine without a name or a token.
type Options struct {
	Model         string        // the name served at /v1/models
	WeightsDigest string        // shown at /info
	LoadTime      time.Duration // counted from New
	Early         Early         // behaviour until then
	TokenDelay    time.Duration // between two streamed tokens, unless a request says otherwise
	Token         string        // bearer token that /v1/* and /info ask for; "" asks for none
	Control       bool          // serve /control (see control.go); only for a trusted listener
}

// Engine is an http.Handler. All methods are safe for concurrent use.
type Engine struct {
	instance string
	token    string
	mux      *http.ServeMux
	done     chan struct{} // closed by Close
	closing  sync.Once

	mu      sync.Mutex // protects the rest
	state   state
	rules   map[Endpoint]*rule
	holds   map[Endpoint]*hold
	hurried chan struct{} // closed, and replaced, by Hurry
	stats   Stats
}

// state is what a request copies when it arrives.
type state struct {
	model         string
	weightsDigest string
	loadedAt      time.Time
	early         Early
	tokenDelay    time.Duration
}

func (s state) loaded() bool { return !time.Now().Before(s.loadedAt) }

// Stats counts what an engine was asked.
type Stats struct {
	Requests map[Endpoint]int64 `json:"requests"` // arrived, also those refused, held or cut
	Running  int64              `json:"streams_running"`
	Finished int64              `json:"streams_finished"` // [DONE] was written
	Cut      int64              `json:"streams_cut"`      // ended before that, by either side
}

// New returns an engine with a random instance id. Close it when something may still be
// held or misbehave.
func New(opts Options) *Engine {
	e := &Engine{
		instance: rand.Text()[:12],
		token:    opts.Token,
		mux:      http.NewServeMux(),
		done:     make(chan struct{}),
		state: state{
			model:         opts.Model,
			weightsDigest: opts.WeightsDigest,
			loadedAt:      time.Now().Add(opts.LoadTime),
			early:         opts.Early,
			tokenDelay:    opts.TokenDelay,
		},
		rules:   make(map[Endpoint]*rule),
		holds:   make(map[Endpoint]*hold),
		hurried: make(chan struct{}),
		stats:   Stats{Requests: make(map[Endpoint]int64)},
	}
	e.handle("GET /health", Health, e.health)
	e.handle("GET /v1/models", Models, e.models)
	e.handle("GET /info", Info, e.info)
	e.handle("POST /v1/chat/completions", Chat, e.complete)
	e.handle("POST /v1/completions", Completions, e.complete)
	if opts.Control {
		e.mux.HandleFunc("GET /control", e.showStats)
		e.mux.HandleFunc("POST /control", e.control)
	}
	return e
}

// ServeHTTP implements http.Handler.
func (e *Engine) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	e.mu.Lock()
	model := e.state.model
	e.mu.Unlock()
	w.Header().Set("X-Engine-Instance", e.instance)
	w.Header().Set("X-Engine-Model", model)
	e.mux.ServeHTTP(w, r)
}

// Instance returns the random id, which is also in each response.
func (e *Engine) Instance() string { return e.instance }

// Stats returns a copy of the counters.
func (e *Engine) Stats() Stats {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := e.stats
	s.Requests = make(map[Endpoint]int64, len(Endpoints))
	for _, at := range Endpoints {
		s.Requests[at] = e.stats.Requests[at]
	}
	return s
}

// Requests returns how many requests have arrived at one endpoint.
func (e *Engine) Requests(at Endpoint) int64 { return e.Stats().Requests[at] }

// Streams returns how many streams are running now.
func (e *Engine) Streams() int64 { return e.Stats().Running }

// Close lets go of everything held and ends every misbehaviour and stream, so that a
// server in front of the engine can be closed without waiting. It may be called again.
func (e *Engine) Close() { e.closing.Do(func() { close(e.done) }) }

// call is one request with the answer that was fixed for it.
type call struct {
	at Endpoint
	state
	rule Behaviour
}

// answer is what an endpoint says when it behaves well.
type answer func(http.ResponseWriter, *http.Request, call)

func (e *Engine) handle(pattern string, at Endpoint, answer answer) {
	e.mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
		c, gates := e.arrive(at)
		w.Header().Set("X-Engine-Model", c.model)
		// The body is taken first: net/http notices a client that goes away only once
		// nothing of the request is left to read.
		if err := slurp(w, r); err != nil {
			status := http.StatusBadRequest
			if tooLarge := new(http.MaxBytesError); errors.As(err, &tooLarge) {
				status = http.StatusRequestEntityTooLarge
			}
			fail(w, status, "the request body cannot be read, or is too large")
			return
		}
		if !e.pass(r.Context(), c, gates) {
			return
		}
		switch {
		case at != Health && !e.authorised(r):
			fail(w, http.StatusUnauthorized, "a valid bearer token is needed")
		case c.rule.Fault != "" && c.rule.Fault != Hang && !c.rule.Fault.worded():
			e.misbehave(w, r, c, answer)
		case c.rule.Status != 0:
			fail(w, c.rule.Status, "told to fail")
		default:
			answer(w, r, c)
		}
	})
}

// arrive counts the request and fixes its answer.
func (e *Engine) arrive(at Endpoint) (call, []<-chan struct{}) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.stats.Requests[at]++
	c := call{at: at, state: e.state}
	var gates []<-chan struct{}
	if h := e.holds[at]; h != nil {
		gates = append(gates, h.released)
		h.arrived()
	}
	if r := e.rules[at]; r != nil {
		c.rule = r.Behaviour
		if c.rule.Fault == Hang {
			gates = append(gates, r.replaced)
		}
	}
	return c, gates
}

func (e *Engine) authorised(r *http.Request) bool {
	want := "Bearer " + e.token
	return e.token == "" || subtle.ConstantTimeCompare([]byte(r.Header.Get("Authorization")), []byte(want)) == 1
}

func (e *Engine) health(w http.ResponseWriter, _ *http.Request, c call) {
	if !c.loaded() && c.early == EarlyUnavailable {
		reply(w, http.StatusServiceUnavailable, map[string]string{"status": "loading"})
		return
	}
	reply(w, http.StatusOK, map[string]string{"status": "ok"})
}

func (e *Engine) models(w http.ResponseWriter, _ *http.Request, c call) {
	reply(w, http.StatusOK, map[string]any{"object": "list", "data": []any{
		map[string]any{"id": c.model, "object": "model", "owned_by": "test"},
	}})
}

func (e *Engine) info(w http.ResponseWriter, _ *http.Request, c call) {
	reply(w, http.StatusOK, map[string]any{
		"instance": e.instance, "model": c.model,
		"weights_digest": c.weightsDigest, "loaded": c.loaded(),
	})
}

func reply(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // a client that has gone needs no answer
}

func fail(w http.ResponseWriter, status int, message string) {
	reply(w, status, map[string]any{"error": map[string]any{"message": message, "code": status}})
}
