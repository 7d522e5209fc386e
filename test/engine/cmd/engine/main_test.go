package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// running is an engine started as main does, with a context in place of the signals.
type running struct {
	url  string
	term context.CancelFunc
	code <-chan int
}

func startRun(t *testing.T, args ...string) running {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	out, in := io.Pipe()
	code := make(chan int, 1)
	go func() {
		defer in.Close()
		code <- run(ctx, append([]string{"--listen", "127.0.0.1:0", "--model", "big-70b"}, args...), in, io.Discard)
	}()
	log := bufio.NewReader(out)
	line, err := log.ReadBytes('\n')
	require.NoError(t, err)
	go func() { _, _ = io.Copy(io.Discard, log) }()
	var started struct{ Address string }
	require.NoError(t, json.Unmarshal(line, &started))
	return running{"http://" + started.Address, cancel, code}
}

func stream(t *testing.T, r running, tokens, delay string) (*http.Response, *bufio.Reader) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), "POST", r.url+"/v1/chat/completions",
		strings.NewReader(`{"stream":true,"max_tokens":`+tokens+`}`))
	require.NoError(t, err)
	req.Header.Set("X-Token-Delay", delay)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := client.Do(req)
	require.NoError(t, err)
	body := bufio.NewReader(res.Body)
	_, err = body.ReadString('\n')
	require.NoError(t, err)
	return res, body
}

// Negative control: with server.Close in place of server.Shutdown the stream is cut.
func TestRunningStreamFinishesAfterTerm(t *testing.T) {
	r := startRun(t)
	res, body := stream(t, r, "20", "10ms")
	defer res.Body.Close()
	r.term()
	rest, err := io.ReadAll(body)
	require.NoError(t, err)
	assert.True(t, bytes.HasSuffix(rest, []byte("data: [DONE]\n\n")))
	assert.Zero(t, <-r.code)
}

func TestDrainTimeEndsWhatDoesNotEnd(t *testing.T) {
	r := startRun(t, "--drain-time", "20ms")
	res, body := stream(t, r, "100000", "1m")
	defer res.Body.Close()
	r.term()
	rest, _ := io.ReadAll(body)
	assert.NotContains(t, string(rest), "[DONE]")
	select {
	case code := <-r.code:
		assert.Zero(t, code)
	case <-time.After(20 * time.Second):
		t.Fatal("the drain time has not ended the stream")
	}
}

func TestArgumentsAreChecked(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(empty, []byte("\n"), 0o600))
	for want, args := range map[string][]string{
		"--model is missing":  {},
		"unexpected argument": {"--model", "m", "serve"},
		`--early is "bird"`:   {"--model", "m", "--early", "bird"},
		"is empty":            {"--model", "m", "--token-file", empty},
		"no such file":        {"--model", "m", "--token-file", empty + ".gone"},
		"not defined":         {"--nosuch"},
	} {
		var stderr bytes.Buffer
		assert.Equal(t, 2, run(t.Context(), args, io.Discard, &stderr), want)
		assert.Contains(t, stderr.String(), want)
	}
	var stderr bytes.Buffer
	assert.Equal(t, 1, run(t.Context(), []string{"--model", "m", "--listen", "127.0.0.1:http-no"}, io.Discard, &stderr))
	assert.Zero(t, run(t.Context(), []string{"--help"}, io.Discard, &stderr))
}
