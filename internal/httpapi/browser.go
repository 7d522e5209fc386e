package httpapi

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"
)

// unframed tells a browser that an answer is what its type says, and is shown in no page of
// somebody else's.
func unframed(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("X-Frame-Options", "DENY")
		w.Header().Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
		h.ServeHTTP(w, r)
	})
}

// named answers where the client has asked for this machine, and 421 where it has asked for a
// name that is none of its own: a page of somebody else's can make its name lead here, and
// then read what a browser in this network is answered (DNS rebinding). Such a name has a
// dot in it. Readiness is let out of it: HAProxy's checks may say any Host, and whoever asks
// has to know the tier.
func (ro *ReadOnly) named(h http.Handler) http.HandlerFunc {
	machine, _ := os.Hostname()
	own := append([]string{machine}, ro.Hosts...)
	return func(w http.ResponseWriter, r *http.Request) {
		if !ro.private && !ours(r.Host, own) {
			writeJSON(w, http.StatusMisdirectedRequest, map[string]string{"error": "this Host is not known here: ask by an address, or list the name in listen.hosts"})
			return
		}
		h.ServeHTTP(w, r)
	}
}

func ours(host string, own []string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.TrimSuffix(strings.Trim(host, "[]"), ".")
	if _, err := netip.ParseAddr(host); err == nil || !strings.Contains(host, ".") {
		return true
	}
	return slices.ContainsFunc(own, func(name string) bool { return strings.EqualFold(name, host) })
}

// hashed has each value in so many bytes of its hash: two servers can be compared by it, and
// nothing that an engine wrote gets out.
func hashed(metadata map[string]string) map[string]string {
	if metadata == nil {
		return nil
	}
	all := make(map[string]string, len(metadata))
	for name, value := range metadata {
		sum := sha256.Sum256([]byte(value))
		all[name] = "sha256:" + hex.EncodeToString(sum[:6])
	}
	return all
}

const (
	// fewAtOnce bounds the answers that are made at once: of some thousand servers each takes
	// milliseconds, which the gate and the checks would wait for.
	fewAtOnce = 2
	fewWithin = 2 * time.Second // how long a request may wait for its turn
)

// few has h make so many answers at once, and 503 of those whose turn does not come. Each is
// made whole before it is sent: a peer that reads slowly keeps nobody's turn.
func few(h http.Handler) http.HandlerFunc {
	turns := make(chan struct{}, fewAtOnce)
	return func(w http.ResponseWriter, r *http.Request) {
		late := time.NewTimer(fewWithin)
		defer late.Stop()
		select {
		case turns <- struct{}{}:
			whole := answer{header: w.Header(), code: http.StatusOK}
			func() {
				defer func() { <-turns }()
				h.ServeHTTP(&whole, r)
			}()
			w.WriteHeader(whole.code)
			_, _ = w.Write(whole.body.Bytes()) // an error is the peer's going away
		case <-r.Context().Done():
		case <-late.C:
			w.Header().Set("Retry-After", "1")
			writeJSON(w, http.StatusServiceUnavailable, map[string]string{"error": "too many ask for this at once: try again"})
		}
	}
}

// answer keeps what a handler writes.
type answer struct {
	header http.Header
	code   int
	body   bytes.Buffer
}

func (a *answer) Header() http.Header         { return a.header }
func (a *answer) WriteHeader(code int)        { a.code = code }
func (a *answer) Write(b []byte) (int, error) { return a.body.Write(b) }
