package httpapi

import (
	"encoding/json"
	"net/http"
	"path"
	"strings"
	"time"

	"tier-agent/internal/admission"
	"tier-agent/internal/horizon"
	"tier-agent/internal/observe"
	"tier-agent/internal/tier"
)

// Model is what the read-only side reads.
type Model interface {
	Server(name []byte) (tier.Answer, bool)
	Tier(name []byte) (tier.Answer, bool)
	Status() []tier.Status
	StatusOf(tier []byte) (tier.Status, bool)
}

// Intents tells what is to stay quiesced.
type Intents interface {
	Intents() []admission.IntentStatus
	Holds(observe.View) []admission.Hold
	Unasked(observe.View) []string
	Unlisted(tier string) []string
	Ways(...tier.Target) map[tier.Target][]admission.WayIn
}

// Watcher tells what the HAProxies last showed.
type Watcher interface{ Views() []observe.View }

// ReadOnly answers GET and HEAD from published memory.
type ReadOnly struct {
	Model   Model
	Watcher Watcher
	Polls   *observe.Polls // who is asked about, and when
	Intents Intents
	Metrics http.Handler
	Version string
	Judge   func() (v horizon.Verdict, correlated int) // on tier-agent as a whole
	Gate    func() (connections int, asked time.Time)  // nil where there is none
	// LastChange is when a tier's row last changed; may be nil.
	LastChange func(tier string) (at time.Time, known bool)
	Now        func() time.Time // nil: time.Now
	// Hosts are the names, besides this machine's, that status and metrics may be asked by.
	Hosts []string

	private bool // for the admin socket alone, where errors are shown whole
}

// Handler routes /livez, /readyz, /readyz/<tier>, /readyz/<backend>/<server>,
// /metrics and /api/v1/status. Everything else is 404, other methods are 405.
func (ro *ReadOnly) Handler() http.Handler {
	mux := http.NewServeMux()
	ro.route(mux)
	return exact(unframed(mux))
}

func (ro *ReadOnly) route(mux *http.ServeMux) {
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, map[string]string{"status": "alive"})
	})
	mux.HandleFunc("GET /readyz", ro.daemon)
	mux.HandleFunc("GET /readyz/{tier}", func(w http.ResponseWriter, r *http.Request) {
		name, ask := r.PathValue("tier"), ro.tier
		if byHAProxy(r) {
			ro.Polls.Note(observe.HealthCheck, []byte(name), time.Now())
			ask = ro.Model.Tier
		}
		ro.ready(w, name, ask, "unknown_tier")
	})
	mux.HandleFunc("GET /readyz/{backend}/{server}", func(w http.ResponseWriter, r *http.Request) {
		name := r.PathValue("backend") + "/" + r.PathValue("server")
		if byHAProxy(r) {
			ro.Polls.Note(observe.HealthCheck, []byte(name), time.Now())
		}
		ro.ready(w, name, ro.Model.Server, "unknown_server")
	})
	mux.HandleFunc("GET /api/v1/status", ro.named(few(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, ro.Status())
	}))))
	mux.Handle("GET /metrics", ro.named(few(ro.Metrics)))
}

// exact answers 404 where ServeMux would redirect to a tidier path. HAProxy
// takes a redirect for a passed check (configuration manual, "option httpchk";
// measured on 2.6, 3.0 and 3.2), and its Location would repeat what came from
// the wire.
func exact(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked := r.URL.EscapedPath()
		tidy := path.Clean(asked)
		if tidy != "/" && strings.HasSuffix(asked, "/") {
			tidy += "/"
		}
		if asked != tidy {
			http.NotFound(w, r)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// daemon is ready while some tier serves and no live one fails to serve what it
// once served.
func (ro *ReadOnly) daemon(w http.ResponseWriter, _ *http.Request) {
	r := ro.whole()
	code := http.StatusServiceUnavailable
	if r.Ready {
		code = http.StatusOK
	}
	writeJSON(w, code, r)
}

func (ro *ReadOnly) whole() DaemonReadiness {
	v, correlated := ro.Judge()
	return DaemonReadiness{Name: "tier-agent", Verdict: v, CorrelatedFailure: correlated}
}

func (ro *ReadOnly) ready(w http.ResponseWriter, name string, ask func([]byte) (tier.Answer, bool), unknown string) {
	a, known := ask([]byte(name))
	if !known {
		// Not the name: it came from the wire.
		writeJSON(w, http.StatusNotFound, Readiness{Reason: unknown})
		return
	}
	code := http.StatusServiceUnavailable
	if a.Up {
		code = http.StatusOK
	}
	writeJSON(w, code, readiness(name, a))
}

func readiness(name string, a tier.Answer) Readiness {
	r := Readiness{Name: name, Ready: a.Admit, Up: a.Up && !a.Admit, Reason: a.Reason, Generation: a.Generation.String()}
	if a.HasEvidence {
		r.AgeMS = milliseconds(a.Age)
	}
	return r
}

func writeJSON(w http.ResponseWriter, code int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store") // an old readiness is worse than none
	w.WriteHeader(code)
	// An error here is the peer's going away; there is nobody left to tell.
	_ = json.NewEncoder(w).Encode(body)
}
