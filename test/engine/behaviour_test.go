package engine_test

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tier-agent/internal/accept/accepttest"
	"tier-agent/test/engine"
)

// asked is the outcome of a request that runs beside the test.
type asked struct {
	status int
	model  string
	body   string
	err    error
}

func ask(ctx context.Context, server *httptest.Server, path string) <-chan asked {
	out := make(chan asked, 1)
	go func() {
		req, err := http.NewRequestWithContext(ctx, "GET", server.URL+path, nil)
		if err != nil {
			out <- asked{err: err}
			return
		}
		res, err := server.Client().Do(req)
		if err != nil {
			out <- asked{err: err}
			return
		}
		defer res.Body.Close()
		body, err := io.ReadAll(res.Body)
		out <- asked{res.StatusCode, res.Header.Get("X-Engine-Model"), string(body), err}
	}()
	return out
}

// Negative control: with the state copied after e.pass instead of in arrive, the first
// answer carries the new model and this test fails.
func TestHeldRequestKeepsTheAnswerOfItsArrival(t *testing.T) {
	eng, server := start(t, engine.Options{Model: "big-70b"})
	release, reached := eng.Hold(engine.Models)
	old := ask(t.Context(), server, "/v1/models")
	<-reached
	assert.EqualValues(t, 1, eng.Requests(engine.Models), "counted when it arrives")

	eng.SetModel("small-8b")
	require.NoError(t, eng.Set(engine.Models, engine.Behaviour{Status: 500}))
	select {
	case got := <-old:
		t.Fatalf("answered while held: %+v", got)
	default:
	}
	release()
	release()
	got := <-old
	require.NoError(t, got.err)
	assert.Equal(t, 200, got.status)
	assert.Equal(t, "big-70b", got.model)
	assert.Contains(t, got.body, "big-70b")

	got = <-ask(t.Context(), server, "/v1/models")
	assert.Equal(t, 500, got.status)
	assert.Equal(t, "small-8b", got.model)
}

func TestHoldsOfOneEndpoint(t *testing.T) {
	eng, server := start(t, engine.Options{})
	releaseFirst, reachedFirst := eng.Hold(engine.Health)
	first := ask(t.Context(), server, "/health")
	<-reachedFirst
	releaseSecond, reachedSecond := eng.Hold(engine.Health)
	second := ask(t.Context(), server, "/health")
	<-reachedSecond
	other := <-ask(t.Context(), server, "/info")
	assert.Equal(t, 200, other.status, "another endpoint is not held")

	releaseFirst()
	assert.Equal(t, 200, (<-first).status)
	third := ask(t.Context(), server, "/health")
	<-reachedSecond // the release of the first hold has not ended the second
	releaseSecond()
	assert.Equal(t, 200, (<-second).status)
	assert.Equal(t, 200, (<-third).status)
	assert.Equal(t, 200, (<-ask(t.Context(), server, "/health")).status)
}

func TestHeldRequestEndsWithItsClient(t *testing.T) {
	eng, server := start(t, engine.Options{})
	release, reached := eng.Hold(engine.Health)
	defer release()
	ctx, cancel := context.WithCancel(t.Context())
	held := ask(ctx, server, "/health")
	<-reached
	cancel()
	require.ErrorIs(t, (<-held).err, context.Canceled)
	// goleak and the server's Close see to the rest: neither ends while a handler waits.
}

func TestCloseLetsEverythingGo(t *testing.T) {
	eng, server := start(t, engine.Options{})
	_, reached := eng.Hold(engine.Info)
	held := ask(t.Context(), server, "/info")
	<-reached
	require.NoError(t, eng.Set(engine.Health, engine.Behaviour{Fault: engine.Hang}))
	hanging := ask(t.Context(), server, "/health")
	require.Eventually(t, func() bool { return eng.Requests(engine.Health) == 1 }, 10*time.Second, time.Millisecond)
	eng.Close()
	eng.Close()
	assert.Equal(t, 200, (<-held).status)
	assert.Equal(t, 200, (<-hanging).status)
}

func TestHangEndsWhenTheBehaviourIsReplaced(t *testing.T) {
	eng, server := start(t, engine.Options{})
	require.NoError(t, eng.Set(engine.Health, engine.Behaviour{Fault: engine.Hang}))
	hanging := ask(t.Context(), server, "/health")
	require.Eventually(t, func() bool { return eng.Requests(engine.Health) == 1 }, 10*time.Second, time.Millisecond)
	require.NoError(t, eng.Set(engine.Health, engine.Behaviour{}))
	assert.Equal(t, 200, (<-hanging).status)
}

func TestFaults(t *testing.T) {
	eng, server := start(t, engine.Options{Model: "big-70b"})
	server.Client().Transport.(*http.Transport).MaxResponseHeaderBytes = 4 << 10
	for _, test := range []struct {
		behaviour engine.Behaviour
		check     func(*testing.T, asked)
	}{
		{engine.Behaviour{Fault: engine.CutBody}, func(t *testing.T, got asked) {
			require.ErrorIs(t, got.err, io.ErrUnexpectedEOF)
			assert.Contains(t, got.body, "big-70b")
		}},
		{engine.Behaviour{Fault: engine.HugeBody, Size: 1 << 20}, func(t *testing.T, got asked) {
			require.NoError(t, got.err)
			assert.Len(t, got.body, 1<<20+len(`{"status":""}`))
		}},
		{engine.Behaviour{Fault: engine.Garbage}, func(t *testing.T, got asked) {
			require.ErrorContains(t, got.err, "malformed HTTP")
		}},
		{engine.Behaviour{Fault: engine.NoAnswer}, func(t *testing.T, got asked) {
			require.ErrorIs(t, got.err, io.EOF)
		}},
		{engine.Behaviour{Fault: engine.Reset}, func(t *testing.T, got asked) {
			require.ErrorContains(t, got.err, "reset by peer")
		}},
		{engine.Behaviour{Fault: engine.Drip, Interval: time.Microsecond}, func(t *testing.T, got asked) {
			require.NoError(t, got.err)
			assert.Contains(t, got.body, `"id":"big-70b"`)
			assert.Equal(t, "big-70b", got.model)
		}},
		{engine.Behaviour{Fault: engine.EndlessHeaders, Interval: time.Microsecond}, func(t *testing.T, got asked) {
			require.ErrorContains(t, got.err, "exceeded", "the client's own limit of headers ends it")
		}},
	} {
		t.Run(string(test.behaviour.Fault), func(t *testing.T) {
			require.NoError(t, eng.Set(engine.Models, test.behaviour))
			// A connection of its own, since a client tries again by itself on a kept one.
			server.Client().CloseIdleConnections()
			test.check(t, <-ask(t.Context(), server, "/v1/models"))
		})
	}
	eng.Reset()
	assert.Equal(t, 200, (<-ask(t.Context(), server, "/v1/models")).status)
}

// Control: with gone not looked at in pause, it ended a second later, at the next byte.
func TestDripIsOneByteASecondAndEndsWithItsClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		eng, ln := engine.New(engine.Options{}), accepttest.NewPipes()
		ended := make(chan struct{})
		server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			defer close(ended)
			eng.ServeHTTP(w, r)
		})}
		served := make(chan error, 1)
		go func() { served <- server.Serve(ln) }()
		client := &http.Client{Transport: &http.Transport{
			DisableKeepAlives: true,
			DialContext: func(context.Context, string, string) (net.Conn, error) {
				conn, _ := ln.Dial("127.0.0.1")
				return conn, nil
			},
		}}
		require.NoError(t, eng.Set(engine.Health, engine.Behaviour{Fault: engine.Drip}))
		ctx, cancel := context.WithCancel(t.Context())
		req, err := http.NewRequestWithContext(ctx, "GET", "http://engine/health", nil)
		require.NoError(t, err)
		began := time.Now()
		res, err := client.Do(req)
		require.NoError(t, err)
		defer res.Body.Close()
		assert.Zero(t, time.Since(began), "the headers come at once")
		assert.Equal(t, "16", res.Header.Get("Content-Length"))
		for n, want := range []byte(`{"s`) {
			some := make([]byte, 16)
			got, err := res.Body.Read(some)
			require.NoError(t, err)
			assert.Equal(t, string(want), string(some[:got]))
			assert.Equal(t, time.Duration(n+1)*time.Second, time.Since(began))
		}
		cancel()
		<-ended
		assert.Equal(t, 3*time.Second, time.Since(began), "before the next byte")
		require.NoError(t, server.Close())
		assert.ErrorIs(t, <-served, http.ErrServerClosed)
	})
}

func TestSetRefusesWhatItCannotDo(t *testing.T) {
	eng := engine.New(engine.Options{})
	for want, set := range map[string]func() error{
		`endpoint "nosuch"`:   func() error { return eng.Set("nosuch", engine.Behaviour{}) },
		`fault "explode"`:     func() error { return eng.Set(engine.Health, engine.Behaviour{Fault: "explode"}) },
		"status 200":          func() error { return eng.Set(engine.Health, engine.Behaviour{Status: 200}) },
		"delay -1ns":          func() error { return eng.Set(engine.Health, engine.Behaviour{Delay: -1}) },
		"size 1073741825 is ": func() error { return eng.Set(engine.Health, engine.Behaviour{Size: 1<<30 + 1}) },
	} {
		err := set()
		require.ErrorIs(t, err, engine.ErrBehaviour)
		assert.ErrorContains(t, err, want)
	}
	// A recorder has no connection to misuse: refused, not a panic.
	require.NoError(t, eng.Set(engine.Health, engine.Behaviour{Fault: engine.Reset}))
	rec := httptest.NewRecorder()
	eng.ServeHTTP(rec, httptest.NewRequest("GET", "/health", nil))
	assert.Equal(t, http.StatusNotImplemented, rec.Code)
}

func TestControl(t *testing.T) {
	eng, server := start(t, engine.Options{Model: "big-70b", Control: true})
	res, body := do(t, server, "POST", "/control",
		`{"model":"small-8b","weights_digest":"d2","loaded":true,"endpoint":"health","status":503}`)
	require.Equal(t, 200, res.StatusCode, body)
	assert.Contains(t, body, `"streams_running":0`)
	assert.Equal(t, 503, (<-ask(t.Context(), server, "/health")).status)
	assert.Contains(t, (<-ask(t.Context(), server, "/info")).body, `"d2"`)

	for bad, want := range map[string]string{
		`{"modle":"x"}`:  "modle",
		`{"status":500}`: "endpoint is missing",
		`{"endpoint":"health","status":1,"model":"third"}`: "status 1",
		`{"endpoint":"health","delay":"soon"}`:             "soon",
		`{"early":"bird"}`:                                 "bird",
		`{"model":"` + strings.Repeat("x", 64<<10) + `"}`:  "too large",
	} {
		res, body := do(t, server, "POST", "/control", bad)
		assert.Equal(t, 400, res.StatusCode)
		assert.Contains(t, body, want)
	}
	assert.Equal(t, "small-8b", (<-ask(t.Context(), server, "/info")).model, "a refused command changes nothing")

	res, _ = do(t, server, "POST", "/control", `{"reset":true,"loaded":false,"early":"healthy"}`)
	require.Equal(t, 200, res.StatusCode)
	assert.Equal(t, 200, (<-ask(t.Context(), server, "/health")).status)
	_, body = do(t, server, "GET", "/control", "")
	assert.Contains(t, body, `"health":2`)
	assert.EqualValues(t, 2, eng.Requests(engine.Health))
}

func TestControlIsNotThereUnlessAskedFor(t *testing.T) {
	_, server := start(t, engine.Options{})
	res, _ := do(t, server, "POST", "/control", `{}`)
	assert.Equal(t, http.StatusNotFound, res.StatusCode)
}

func TestBodyThatNeverEndsIsNotWaitedForInMemory(t *testing.T) {
	_, server := start(t, engine.Options{})
	res, err := server.Client().Post(server.URL+"/v1/completions", "application/json",
		io.MultiReader(bytes.NewReader([]byte(`{"prompt":"`)), io.LimitReader(xs{}, 64<<20)))
	if err != nil {
		return // the server may close before the client has sent all: also a refusal
	}
	defer res.Body.Close()
	assert.Equal(t, http.StatusRequestEntityTooLarge, res.StatusCode)
}

type xs struct{}

func (xs) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'x'
	}
	return len(p), nil
}
