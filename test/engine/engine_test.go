package engine_test

import (
	"bufio"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"tier-agent/test/engine"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// start serves a new engine and ends it with the test, whatever is still held.
func start(tb testing.TB, opts engine.Options) (*engine.Engine, *httptest.Server) {
	tb.Helper()
	eng := engine.New(opts)
	server := httptest.NewServer(eng)
	tb.Cleanup(func() {
		eng.Close()
		server.Close()
		server.Client().CloseIdleConnections()
	})
	return eng, server
}

func do(tb testing.TB, server *httptest.Server, method, path, body string) (*http.Response, string) {
	tb.Helper()
	req, err := http.NewRequestWithContext(tb.Context(), method, server.URL+path, strings.NewReader(body))
	require.NoError(tb, err)
	res, err := server.Client().Do(req)
	require.NoError(tb, err)
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	require.NoError(tb, err)
	return res, string(text)
}

func TestEveryEndpointAnswersAndSaysWhoItIs(t *testing.T) {
	eng, server := start(t, engine.Options{Model: "big-70b", WeightsDigest: "sha256:aa"})
	for _, test := range []struct {
		at                 engine.Endpoint
		method, path, body string
		want               string
	}{
		{engine.Health, "GET", "/health", "", `"status":"ok"`},
		{engine.Models, "GET", "/v1/models", "", `"id":"big-70b"`},
		{engine.Info, "GET", "/info", "", `"weights_digest":"sha256:aa"`},
		{engine.Chat, "POST", "/v1/chat/completions", `{"messages":[],"max_tokens":2}`, `"content":"word word "`},
		{engine.Completions, "POST", "/v1/completions", `{"prompt":"x","max_tokens":2,"extra":1}`, `"text":"word word "`},
	} {
		res, body := do(t, server, test.method, test.path, test.body)
		assert.Equal(t, http.StatusOK, res.StatusCode, test.path)
		assert.Contains(t, body, test.want)
		assert.True(t, json.Valid([]byte(body)))
		assert.Equal(t, "big-70b", res.Header.Get("X-Engine-Model"), test.path)
		assert.Equal(t, eng.Instance(), res.Header.Get("X-Engine-Instance"), test.path)
		assert.EqualValues(t, 1, eng.Requests(test.at))
	}
	assert.NotEqual(t, eng.Instance(), engine.New(engine.Options{}).Instance())
}

func TestBadRequestsAreRefused(t *testing.T) {
	_, server := start(t, engine.Options{})
	for _, test := range []struct {
		name, body string
		status     int
	}{
		{"not JSON", "{", http.StatusBadRequest},
		{"no tokens", `{"max_tokens":0}`, http.StatusBadRequest},
		{"too many tokens", `{"max_completion_tokens":100001}`, http.StatusBadRequest},
		// Negative control: without http.MaxBytesReader in slurp this answers 200.
		{"too large", `{"prompt":"` + strings.Repeat("x", 1<<20) + `"}`, http.StatusRequestEntityTooLarge},
	} {
		t.Run(test.name, func(t *testing.T) {
			res, body := do(t, server, "POST", "/v1/completions", test.body)
			assert.Equal(t, test.status, res.StatusCode)
			assert.Contains(t, body, `"error"`)
		})
	}
}

func TestTokenIsAskedForEverywhereButHealth(t *testing.T) {
	_, server := start(t, engine.Options{Token: "secret"})
	for path, status := range map[string]int{"/health": 200, "/v1/models": 401, "/info": 401} {
		res, _ := do(t, server, "GET", path, "")
		assert.Equal(t, status, res.StatusCode, path)
	}
	req, err := http.NewRequestWithContext(t.Context(), "GET", server.URL+"/v1/models", nil)
	require.NoError(t, err)
	req.Header.Set("Authorization", "Bearer secret")
	res, err := server.Client().Do(req)
	require.NoError(t, err)
	res.Body.Close()
	assert.Equal(t, http.StatusOK, res.StatusCode)
}

func TestStreamHasOneChunkForEachTokenAndAnEnd(t *testing.T) {
	eng, server := start(t, engine.Options{Model: "big-70b"})
	for _, path := range []string{"/v1/chat/completions", "/v1/completions"} {
		res, body := do(t, server, "POST", path, `{"stream":true,"max_tokens":3}`)
		assert.Equal(t, "text/event-stream", res.Header.Get("Content-Type"))
		chunks := strings.Split(strings.TrimSuffix(body, "\n\n"), "\n\n")
		require.Len(t, chunks, 5, "three tokens, the finish reason, the end")
		assert.Equal(t, "data: [DONE]", chunks[4])
		for _, chunk := range chunks[:4] {
			data, found := strings.CutPrefix(chunk, "data: ")
			assert.True(t, found && json.Valid([]byte(data)), chunk)
		}
		assert.Contains(t, chunks[0], "word ")
		assert.Contains(t, chunks[3], `"finish_reason":"length"`)
	}
	assert.Equal(t, int64(2), eng.Stats().Finished)
}

func TestStreamsAreCountedWhileTheyRunAndWhenTheyAreCut(t *testing.T) {
	eng, server := start(t, engine.Options{TokenDelay: time.Millisecond})
	req, err := http.NewRequestWithContext(t.Context(), "POST", server.URL+"/v1/completions",
		strings.NewReader(`{"stream":true,"max_tokens":100000}`))
	require.NoError(t, err)
	res, err := server.Client().Do(req)
	require.NoError(t, err)
	line, err := bufio.NewReader(res.Body).ReadString('\n')
	require.NoError(t, err)
	assert.Contains(t, line, "data: ")
	assert.EqualValues(t, 1, eng.Streams())

	res.Body.Close() // the client goes away
	require.Eventually(t, func() bool { return eng.Streams() == 0 }, 10*time.Second, time.Millisecond)
	assert.EqualValues(t, 1, eng.Stats().Cut)
	assert.Zero(t, eng.Stats().Finished)
}

// answerTime is how long the engine takes, to be used in a synctest bubble.
func answerTime(eng *engine.Engine, req *http.Request) (int, time.Duration) {
	began := time.Now()
	rec := httptest.NewRecorder()
	eng.ServeHTTP(rec, req)
	return rec.Code, time.Since(began)
}

func TestPaceAndDelayAreExact(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		eng := engine.New(engine.Options{TokenDelay: time.Second})
		stream := func(header string) (int, time.Duration) {
			req := httptest.NewRequest("POST", "/v1/completions", strings.NewReader(`{"stream":true,"max_tokens":5}`))
			if header != "" {
				req.Header.Set("X-Token-Delay", header)
			}
			return answerTime(eng, req)
		}
		_, took := stream("")
		assert.Equal(t, 4*time.Second, took)
		_, took = stream("50ms")
		assert.Equal(t, 200*time.Millisecond, took)
		status, _ := stream("fast")
		assert.Equal(t, http.StatusBadRequest, status)

		require.NoError(t, eng.Set(engine.Health, engine.Behaviour{Delay: 3 * time.Second, Status: 500}))
		status, took = answerTime(eng, httptest.NewRequest("GET", "/health", nil))
		assert.Equal(t, http.StatusInternalServerError, status)
		assert.Equal(t, 3*time.Second, took)
		_, took = answerTime(eng, httptest.NewRequest("GET", "/info", nil))
		assert.Zero(t, took, "the delay is one endpoint's")
		eng.Reset()
		status, took = answerTime(eng, httptest.NewRequest("GET", "/health", nil))
		assert.Equal(t, http.StatusOK, status)
		assert.Zero(t, took)
	})
}

func TestHurryIsForTheStreamsThatRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		eng := engine.New(engine.Options{TokenDelay: time.Second})
		stream := func() time.Duration {
			_, took := answerTime(eng, httptest.NewRequest("POST", "/v1/completions", strings.NewReader(`{"stream":true,"max_tokens":5}`)))
			return took
		}
		time.AfterFunc(1500*time.Millisecond, eng.Hurry)
		assert.Equal(t, 1500*time.Millisecond, stream())
		assert.Equal(t, 4*time.Second, stream(), "the next one takes its time")
		assert.EqualValues(t, 2, eng.Stats().Finished, "both came whole")
	})
}

func TestLoadingEngine(t *testing.T) {
	for early, want := range map[engine.Early][2]int{
		engine.EarlyUnavailable: {503, 503},
		engine.EarlyHealthy:     {200, 503},
		engine.EarlyEmpty:       {200, 200},
	} {
		t.Run(string(early), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				eng := engine.New(engine.Options{LoadTime: 5 * time.Second, Early: early})
				ask := func() (int, *httptest.ResponseRecorder) {
					health, completion := httptest.NewRecorder(), httptest.NewRecorder()
					eng.ServeHTTP(health, httptest.NewRequest("GET", "/health", nil))
					eng.ServeHTTP(completion, httptest.NewRequest("POST", "/v1/completions", strings.NewReader(`{}`)))
					return health.Code, completion
				}
				time.Sleep(5*time.Second - 1) // fake time
				health, completion := ask()
				assert.Equal(t, want, [2]int{health, completion.Code})
				if early == engine.EarlyEmpty {
					assert.Contains(t, completion.Body.String(), `"text":""`)
				}
				time.Sleep(time.Nanosecond)
				health, completion = ask()
				assert.Equal(t, [2]int{200, 200}, [2]int{health, completion.Code})
				assert.Contains(t, completion.Body.String(), "word")

				eng.SetLoaded(false)
				health, completion = ask()
				assert.Equal(t, want, [2]int{health, completion.Code})
			})
		})
	}
}
