package probe

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
)

// maxToken bounds a bearer token, in bytes.
const maxToken = 16 << 10

var (
	errTarget     = errors.New("target has no http or https URL with a host, nor the path of a unix socket")
	errCredential = errors.New("no usable token")
)

// run is one probe on its way.
type run struct {
	ctx     context.Context
	prober  *Prober
	target  Target
	step    step
	healthy bool              // the health step has passed
	seen    map[string]string // Result.Metadata, once metadata has passed
	line    *line             // nil: the next request opens one
	reached netip.AddrPort    // where the first connection has got to, and all others go
}

// all and the steps return the reason why they failed, or "".

func (r *run) all() string {
	t := &r.target
	if failed := r.health(); failed != "" {
		return failed
	}
	r.healthy = true
	if t.Identity != nil {
		r.step = stepIdentity
		if failed := r.identity(*t.Identity); failed != "" {
			return failed
		}
	}
	if t.Metadata != nil {
		r.step = stepMetadata
		return r.metadata(*t.Metadata)
	}
	return ""
}

func (r *run) health() string {
	h := r.target.Health
	if h.StatusMin == 0 && h.StatusMax == 0 {
		h.StatusMin, h.StatusMax = 200, 399
	}
	answer, err := r.ask(question{path: h.Path, last: r.target.Identity == nil && r.target.Metadata == nil})
	if err != nil {
		return reasonFor(r.ctx, r.step, err)
	}
	if answer.StatusCode < h.StatusMin || answer.StatusCode > h.StatusMax {
		return r.step.http(answer.StatusCode)
	}
	n, err := io.Copy(io.Discard, io.LimitReader(answer.Body, r.target.MaxBody+1))
	if err != nil {
		return reasonFor(r.ctx, r.step, r.line.broken(err))
	}
	r.keep(answer, n)
	return ""
}

func (r *run) identity(want Identity) string {
	q := question{path: want.Path, last: r.target.Metadata == nil}
	return r.document(q, want.Token, successful, func(body []byte) error {
		found, err := matchIdentity(r.ctx, body, want.ID)
		if err == nil && !found {
			return errMismatch
		}
		return err
	})
}

func (r *run) metadata(want Metadata) string {
	q := question{path: want.Path, last: true}
	return r.document(q, nil, successful, func(body []byte) (err error) {
		r.seen, err = readMetadata(r.ctx, body, want)
		return err
	})
}

// statuses are those from min to max, both included.
type statuses struct{ min, max int }

var successful = statuses{200, 299}

// document gets a whole JSON answer and has it judged; token is asked first, if there is one.
func (r *run) document(q question, token func(context.Context) (string, error), accepted statuses, judge func([]byte) error) string {
	if token != nil {
		var err error
		if q.token, err = r.token(token); err != nil {
			return reasonFor(r.ctx, r.step, err)
		}
	}
	answer, err := r.ask(q)
	if err != nil {
		return reasonFor(r.ctx, r.step, err)
	}
	if answer.StatusCode < accepted.min || answer.StatusCode > accepted.max {
		return r.step.http(answer.StatusCode)
	}
	// Neither need be read to be believed: a length that is declared too long, and a stream where
	// none was asked for, which may go on to the deadline.
	if answer.ContentLength > r.target.MaxBody {
		return r.step.flawed(errOversized)
	}
	if r.step == stepExercise && streamed(answer) {
		return r.step.flawed(errMalformed)
	}
	body, err := io.ReadAll(io.LimitReader(answer.Body, r.target.MaxBody+1))
	if int64(len(body)) > r.target.MaxBody {
		return r.step.flawed(errOversized)
	}
	if err != nil {
		return reasonFor(r.ctx, r.step, r.line.broken(err))
	}
	err = judge(body)
	if late := r.ctx.Err(); late != nil {
		return reasonFor(r.ctx, r.step, late)
	}
	if err != nil {
		return r.step.flawed(err)
	}
	r.keep(answer, int64(len(body)))
	return ""
}

// question is one request: a GET, or a POST of a JSON body.
type question struct {
	path, token string
	post        bool
	body        []byte
	last        bool // no other follows on this connection
}

// ask sends the request of one step, over the probe's connection or else over a new one.
func (r *run) ask(q question) (*http.Response, error) {
	if err := r.ctx.Err(); err != nil {
		return nil, err
	}
	if r.line == nil {
		l, err := r.open()
		if err != nil {
			return nil, err
		}
		r.line = l
	}
	request := &http.Request{
		Method: http.MethodGet, URL: r.join(q.path), Close: q.last,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		// No header at all would allow the server any coding (RFC 9110, 12.5.3).
		Header: http.Header{"User-Agent": {r.prober.userAgent}, "Accept-Encoding": {"identity"}},
	}
	if q.post {
		request.Method = http.MethodPost
		request.Header.Set("Content-Type", "application/json")
		// With a body of no bytes, net/http would send it in chunks.
		if len(q.body) > 0 {
			request.Body, request.ContentLength = io.NopCloser(bytes.NewReader(q.body)), int64(len(q.body))
		}
	}
	if q.token != "" {
		request.Header.Set("Authorization", "Bearer "+q.token)
	}
	return r.line.exchange(request)
}

// join puts path, and a query that it may carry, under the prefix of the base.
func (r *run) join(path string) *url.URL {
	path, query, _ := strings.Cut(path, "?")
	base := &url.URL{Scheme: r.target.URL.Scheme, Host: r.target.URL.Host,
		Path: r.target.URL.Path, RawPath: r.target.URL.RawPath}
	if r.target.Unix() {
		base = &url.URL{Scheme: "http", Host: "localhost"}
	}
	// JoinPath leaves a relative path relative, and a request line cannot hold one.
	if !strings.HasPrefix(base.Path, "/") {
		base.Path, base.RawPath = "/"+base.Path, ""
	}
	joined := base.JoinPath(path)
	joined.RawQuery = query
	return joined
}

// keep leaves the connection open for the next step if the server does and the answer, of which
// n body bytes were read, has been read to its end.
func (r *run) keep(answer *http.Response, n int64) {
	if answer.Close || answer.StatusCode == http.StatusSwitchingProtocols || n > r.target.MaxBody {
		r.hangUp()
	}
}

func (r *run) hangUp() {
	if r.line != nil {
		r.line.close()
		r.line = nil
	}
}

// token asks for the bearer token. The source is given the probe's time, and is to keep it.
func (r *run) token(source func(context.Context) (string, error)) (token string, err error) {
	defer func() {
		if recover() != nil {
			token, err = "", wrap(errCredential, classCredential)
		}
	}()
	token, err = source(r.ctx)
	if late := r.ctx.Err(); late != nil {
		return "", late
	}
	if err != nil || token == "" || !sendable(token) {
		return "", wrap(errCredential, classCredential)
	}
	return token, nil
}

// sendable admits visible ASCII only: a line break in a token would begin a header of its own.
func sendable(token string) bool {
	outside := func(c rune) bool { return c <= ' ' || c > '~' }
	return len(token) <= maxToken && !strings.ContainsFunc(token, outside)
}
