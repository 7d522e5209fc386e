package probe

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"tier-agent/test/guarantee"
)

// posted is one request as it arrived.
type posted struct {
	*http.Request
	body string
}

// posts is an engine that notes what it is asked, and answers so.
func posts(t testing.TB, answer http.HandlerFunc) (*url.URL, *[]posted) {
	var all []posted
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		all = append(all, posted{r, string(b)})
		answer(w, r)
	}))
	t.Cleanup(s.Close)
	u, err := url.Parse(s.URL)
	require.NoError(t, err)
	return u, &all
}

func completes(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, completion) }

// Nothing but the one request, byte for byte, on a connection that is the exercise's own; and not
// by Probe.
//
// Negative controls: with all in place of exercise in Exercise, the engine was asked for health;
// without last in exercise, the request did not say that it is the last; without the look at the
// length in ask, the body of no bytes came in chunks.
func TestWhatAnExerciseSends(t *testing.T) {
	u, all := posts(t, completes)
	target := want(u).withIdentity().withMetadata().withExercise()
	target.URL.Path = "/base"
	target.URL.User = url.UserPassword("user", "pass")
	target.Exercise.Body = []byte(" {\"b\":1,\n\"a\":\"é<\"}")
	p := New(Options{UserAgent: "ua/1"})
	for range 2 {
		assert.Equal(t, Result{Ready: true, Reason: ExercisePassed}, anywhere(p.Exercise(t.Context(), target)))
	}
	require.Len(t, *all, 2)
	q := (*all)[0]
	assert.Equal(t, "POST /base/v1/chat/completions", q.Method+" "+q.RequestURI)
	assert.Equal(t, string(target.Exercise.Body), q.body)
	assert.Equal(t, []string(nil), q.TransferEncoding)
	assert.True(t, q.Close)
	assert.Equal(t, http.Header{"User-Agent": {"ua/1"}, "Accept-Encoding": {"identity"}, "Connection": {"close"},
		"Content-Type": {"application/json"}, "Content-Length": {fmt.Sprint(len(target.Exercise.Body))}}, q.Header)
	assert.NotEqual(t, q.RemoteAddr, (*all)[1].RemoteAddr)

	target.Exercise = &Exercise{Path: "generate?n=1", Timeout: target.Timeout, Token: func(context.Context) (string, error) { return "s3cret", nil }}
	require.Equal(t, ExercisePassed, exerciseOnce(t, target).Reason)
	q = (*all)[2]
	assert.Equal(t, "/base/generate?n=1", q.RequestURI)
	assert.Equal(t, "Bearer s3cret", q.Header.Get("Authorization"))
	assert.Equal(t, "0", q.Header.Get("Content-Length"), "no body at all is a body of no bytes")

	target.Identity, target.Metadata = nil, nil
	require.Equal(t, HealthPassed, probeOnce(t, target).Reason)
	assert.Equal(t, "GET", (*all)[3].Method)
	assert.Len(t, *all, 4)
}

// An engine that listens, is healthy and lists its model, and has no weights yet: it refuses,
// answers nothing, says so with status 200, or just waits.
//
// Negative control: with an answer that is always good in exercise, the rows with status 200 passed.
func TestHealthyBeforeItIsLoaded(t *testing.T) {
	for _, c := range []struct{ answer, want string }{
		{reply("503 Loading", `{"error":{"message":"Loading model"}}`), "exercise_http_503"},
		{ok(`{"error":{"message":"Loading model"}}`), ExerciseMalformed},
		{ok(`{"choices":[{"message":{"role":"assistant","content":""}}]}`), ExerciseEmpty},
		{"", Timeout},
		{ok(completion), ExercisePassed},
	} {
		e := startEngine(t, func(p *peer, _ int) {
			for q := p.asked(); q != nil; q = p.asked() {
				switch q.URL.Path {
				case "/health":
					p.say(ok(""))
				case "/v1/models":
					p.say(ok(models))
				default:
					p.say(c.answer)
				}
			}
		})
		target := want(e.url).withIdentity().withExercise()
		if c.want == Timeout {
			target.Exercise.Timeout = 50 * time.Millisecond // the one row that waits for its deadline
		}
		assert.Equal(t, IdentityPassed, probeOnce(t, target).Reason)
		r := New(Options{}).Exercise(t.Context(), target)
		assert.Equal(t, Result{Ready: c.want == ExercisePassed, Reason: c.want}, anywhere(r))
	}
}

// Negative controls: without the default in exercise the first rows failed; without the bounds in
// document, the last ones passed.
func TestStatusOfAnExercise(t *testing.T) {
	for _, c := range []struct {
		status, from, to int
		want             string
	}{
		{200, 0, 0, ExercisePassed}, {299, 0, 0, ExercisePassed}, {300, 0, 0, "exercise_http_300"}, {404, 0, 0, "exercise_http_404"},
		{202, 202, 203, ExercisePassed}, {203, 202, 203, ExercisePassed}, {422, 400, 499, ExercisePassed},
		{201, 202, 203, "exercise_http_201"}, {204, 202, 203, "exercise_http_204"}, {200, 0, 199, "exercise_http_200"},
	} {
		u, _ := posts(t, func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(c.status)
			completes(w, r)
		})
		target := want(u).withExercise()
		target.Exercise.StatusMin, target.Exercise.StatusMax = c.from, c.to
		assert.Equal(t, c.want, exerciseOnce(t, target).Reason, "%d in %d-%d", c.status, c.from, c.to)
	}
}

// An event stream is malformed by its name alone: it may be JSON, and it may never end.
//
// Negative control: without streamed in document, the first row passed, the second met its
// deadline, and the third was oversized.
func TestStreamIsMalformed(t *testing.T) {
	for _, say := range []func(*peer){
		says(fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: %d\r\n\r\n", len(completion)), completion),
		says("HTTP/1.1 200 OK\r\ncontent-type: Text/Event-Stream; charset=utf-8\r\n\r\n: wait\n\n"),
		flood("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n", ": wait\n\n"),
		says(ok("data: " + completion + "\n\ndata: [DONE]\n\n")),
	} {
		assert.Equal(t, ExerciseMalformed, exerciseOnce(t, want(startEngine(t, turn(say)).url).withExercise()).Reason)
	}
}

func TestAnswerFieldOfAnExercise(t *testing.T) {
	u, _ := posts(t, completes)
	target := want(u).withExercise()
	for field, reason := range map[string]string{"object": ExercisePassed, "choices": ExercisePassed, "usage.total_tokens": ExerciseEmpty} {
		target.Exercise.Answer = field
		assert.Equal(t, reason, exerciseOnce(t, target).Reason, field)
	}
}

// Negative control: with the request repeated on a Location, the engine was asked once more.
func TestExerciseIsNotRedirected(t *testing.T) {
	for _, status := range []int{301, 302, 303, 307, 308} {
		u, all := posts(t, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, r.URL.Path, status) })
		assert.Equal(t, fmt.Sprintf("exercise_http_%d", status), exerciseOnce(t, want(u).withExercise()).Reason)
		assert.Len(t, *all, 1)
	}
}

// Whatever ends it, a completion is asked for once.
//
// Negative control: with a second exchange over a new line after an error in ask, there were two
// connections.
func TestExerciseIsNotRepeated(t *testing.T) {
	for _, c := range []struct {
		action func(*peer)
		want   string
	}{{resets, "exercise_transport_reset"}, {shuts(), "exercise_transport_closed"}, {says("garbage"), "exercise_transport_protocol"}} {
		e := startEngine(t, turn(c.action))
		assert.Equal(t, c.want, exerciseOnce(t, want(e.url).withExercise()).Reason)
		assert.Equal(t, 1, e.connections())
	}
}

// Negative control: with http.ProxyFromEnvironment's answer dialled instead of the server's
// address in open, the proxy was asked.
func TestExerciseUsesNoProxy(t *testing.T) {
	proxy, asked := posts(t, completes)
	u, all := posts(t, completes)
	for _, name := range []string{"HTTP_PROXY", "http_proxy", "ALL_PROXY"} {
		t.Setenv(name, proxy.String())
	}
	t.Setenv("NO_PROXY", "")
	p := New(Options{DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
		if address == "engine.example:80" {
			address = u.Host
		}
		return (&net.Dialer{}).DialContext(ctx, network, address)
	}})
	r := p.Exercise(t.Context(), want(&url.URL{Scheme: "http", Host: "engine.example"}).withExercise())
	assert.Equal(t, ExercisePassed, r.Reason)
	assert.Empty(t, *asked)
	assert.Len(t, *all, 1)
}

// Negative controls: without the look at nil in Exercise, this test died; with sendable always true,
// two of the tokens reached the engine.
func TestExerciseThatCannotBeSent(t *testing.T) {
	u, all := posts(t, completes)
	target := want(u)
	assert.Equal(t, Result{Reason: "exercise_transport_other"}, exerciseOnce(t, target), "none")
	target = target.withExercise()
	for _, token := range []func(context.Context) (string, error){
		func(context.Context) (string, error) { return "", nil },
		func(context.Context) (string, error) { return "s3cret", errors.New("s3cret") },
		func(context.Context) (string, error) { return "a\r\nX: y", nil },
		func(context.Context) (string, error) { panic("token") },
	} {
		target.Exercise.Token = token
		assert.Equal(t, Result{Reason: "exercise_transport_credential"}, exerciseOnce(t, target))
	}
	assert.Empty(t, *all)

	target = want(&url.URL{Scheme: "http", Host: "127.0.0.1:0"}).withExercise()
	assert.Equal(t, Result{Reason: "exercise_transport_other"}, New(Options{DialContext: func(context.Context, string, string) (net.Conn, error) {
		panic("dial")
	}}).Exercise(t.Context(), target))
	assert.Equal(t, Result{Reason: "exercise_transport_dns"}, New(Options{DialContext: func(context.Context, string, string) (net.Conn, error) {
		return nil, &net.DNSError{Err: "no such host", Name: "secret.example"}
	}}).Exercise(t.Context(), target))
	target.URL = nil
	assert.Equal(t, Result{Reason: "exercise_transport_other"}, exerciseOnce(t, target))
}

func TestExerciseOverTLS(t *testing.T) {
	cert := newCertificate(t)
	u, protocols := https(t, cert)
	assert.Equal(t, ExercisePassed, New(Options{TLS: cert.client()}).Exercise(t.Context(), want(u).withExercise()).Reason)
	assert.Equal(t, []string{"HTTP/1.1"}, *protocols)
	assert.Equal(t, "exercise_transport_tls", exerciseOnce(t, want(u).withExercise()).Reason)
}

// Negative control: with the error's text in place of its class in reasonFor, this failed.
func TestExerciseHoldsNothingOfTheServer(t *testing.T) {
	const mark = "XyZZy"
	var say string
	e := startEngine(t, func(p *peer, _ int) {
		if p.asked() != nil {
			p.say(say)
		}
	})
	rapid.Check(t, func(t *rapid.T) {
		body := mark + rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{"\r\n", `"`, "{"})).Draw(t, "filler") + mark
		say = rapid.SampledFrom([]string{
			body, "HTTP/1.1 " + body + "\r\n\r\n", "HTTP/1.1 200 OK\r\n" + body + "\r\n\r\n", reply("500 "+mark, body),
			"HTTP/1.1 200 OK\r\nContent-Type: text/" + body + "\r\n\r\n", ok(body), ok(fmt.Sprintf(`{"error":%q}`, body)),
			ok(fmt.Sprintf(`{"choices":[{"text":%q}]}`, body)), ok(fmt.Sprintf(`{"choices":[{"%s":""}]}`, mark)),
		}).Draw(t, "answer")
		target := want(e.url).withExercise()
		target.Exercise.Path, target.Exercise.Body = "/"+mark, []byte(mark)
		target.Exercise.Token = func(context.Context) (string, error) { return mark, nil }
		r := New(Options{UserAgent: mark}).Exercise(t.Context(), target)
		if !known(r.Reason) || strings.Contains(fmt.Sprintf("%+v", r), mark) || r.Metadata != nil {
			guarantee.T(t).Errorf("%+v", r)
			guarantee.T(t).FailNow()
		}
	})
}
