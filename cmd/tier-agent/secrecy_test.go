package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tier-agent/test/guarantee"
)

// What must show nowhere, each as a word that nothing else holds.
const (
	theToken   = "tk-hunter2-tk"
	thePath    = "zz-path-zz"
	thePrompt  = "zz-prompt-zz"
	engineByte = "zz-engine-zz"
	wireByte   = "zz-wire-zz"
)

// oddities are answers of an engine that is not well, or not an engine.
var oddities = []func(http.ResponseWriter){
	func(w http.ResponseWriter) { _, _ = io.WriteString(w, models) }, // well, so that there is evidence
	func(w http.ResponseWriter) { _, _ = io.WriteString(w, engineByte) },
	func(w http.ResponseWriter) { _, _ = io.WriteString(w, `{"`+engineByte+`":`) },
	func(w http.ResponseWriter) { _, _ = io.WriteString(w, `{"data":[{"id":"`+engineByte+`"}]}`) },
	func(w http.ResponseWriter) { _, _ = io.WriteString(w, strings.Repeat(engineByte, 100_000)) },
	func(w http.ResponseWriter) { w.Header().Set("Location", "/"+engineByte); w.WriteHeader(302) },
	func(w http.ResponseWriter) { http.Error(w, engineByte, 500) },
	func(w http.ResponseWriter) { w.Header().Set("X-"+engineByte, engineByte); w.WriteHeader(599) },
	func(w http.ResponseWriter) { raw(w, engineByte+"\r\n\r\n") },
	func(w http.ResponseWriter) { raw(w, "HTTP/1.1 200 "+engineByte+"\r\n"+engineByte+"\r\n\r\n") },
	func(w http.ResponseWriter) {
		raw(w, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"+engineByte)
	},
	func(w http.ResponseWriter) { raw(w, "HTTP/1.1 200 OK\r\nContent-Length: 999\r\n\r\n"+engineByte) },
}

func raw(w http.ResponseWriter, text string) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	_, _ = io.WriteString(conn, text)
	_ = conn.Close()
}

// G12: no log line, at any level, and no page, answer or result holds a URL, a
// credential or a byte of an engine's.
//
// Controls: with the target's URL in the line that the monitor logs, with
// o.Err.Error() in place of its kind in the status, and with the name that was
// asked for in the 404 of /readyz, this failed.
func TestG12_NothingLeaks(t *testing.T) {
	var mu sync.Mutex // protects what is below
	n, authorised, enough := 0, 0, make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasSuffix(r.URL.Path, "/v1/models") {
			return
		}
		mu.Lock()
		odd := oddities[n%len(oddities)]
		if n++; n == 3*len(oddities) {
			close(enough)
		}
		if r.Header.Get("Authorization") == "Bearer "+theToken {
			authorised++
		}
		mu.Unlock()
		odd(w)
	}))
	defer s.Close()
	token := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(token, []byte(theToken+"\n"), 0o600))
	d := start(t, configure(t, fmt.Sprintf(`
tiers:
  - name: heavy
    servers: [{server: heavy/h1, url: "%s/%s"}]
    identity: {path: /v1/models, id: m1, token_file: %[3]s}
    exercise: {path: /v1/models, body: {prompt: %[4]s}, token_file: %[3]s}
    admission: agent-check
    probe: {interval: 50ms, timeout: 1s, max_age: 10s}
  - name: driven
    servers: [{server: driven/d1, url: "%[1]s/%[2]s"}]
haproxy:
  - {name: edge, runtime: "unix:/nonexistent/%[2]s.sock"}
`, s.URL, thePath, token, thePrompt)))
	<-enough
	d.awaitLog(t, "haproxy cannot be read")

	seen := map[string]string{}
	for _, name := range []string{"heavy", "heavy/h1", wireByte, "a/" + wireByte, strings.Repeat(wireByte, 100)} {
		seen["agent-check "+name] = d.poll(name)
		seen["readyz "+name] = d.page(t, "/readyz/"+name)
	}
	for _, path := range []string{"/livez", "/readyz", "/metrics", "/api/v1/status", "/" + wireByte} {
		seen[path] = d.page(t, path)
	}
	for _, args := range []string{
		"status", "status --json", "quiesce heavy --reason swap", "readmit heavy", "readmit heavy --json", "invalidate --all", "drain heavy",
		"quiesce heavy --reason swap --json",
	} {
		r := cli(append([]string{"--socket", d.socket}, strings.Fields(args)...)...)
		assert.NotContains(guarantee.T(t), r.out+r.err, "http://", args)
		seen[args] = withoutSockets(r.out + r.err)
	}
	assert.Contains(t, cli("--socket", d.socket, "status").out, "haproxy edge: at /nonexistent/"+thePath+".sock: haproxy is unreachable: connect: no such file or directory\n")
	driven := cli("--socket", d.socket, "quiesce", "driven", "--reason", "swap")
	assert.Contains(t, driven.out, "haproxy edge: at /nonexistent/"+thePath+".sock: haproxy is unreachable")
	d.end(t)
	seen["log"] = withoutSockets(d.log.String())

	assert.NotContains(guarantee.T(t), seen["log"], "http://")
	assert.Contains(t, seen["log"], "identity_mismatch", "the engine was seen")
	mu.Lock() // a probe that the end cut short may have its handler still
	assert.GreaterOrEqual(t, authorised, len(oddities), "the token was in use")
	mu.Unlock()
	secrets := []string{theToken, thePrompt, thePath, engineByte, wireByte, strings.TrimPrefix(s.URL, "http://"), token}
	for where, text := range seen {
		require.NotEmpty(t, text, where)
		for _, secret := range secrets {
			assert.False(guarantee.T(t), strings.Contains(text, secret), "%s holds %s:\n%.2000s", where, secret, text)
		}
	}
	assert.Contains(t, seen["log"], `"level":"WARN"`)
	assert.Contains(t, seen["/api/v1/status"], "haproxy is unreachable", "without its socket")
}

// withoutSockets leaves out the lines that name HAProxy's socket, as the log and an
// operator's own commands may.
func withoutSockets(text string) string {
	var kept []string
	for line := range strings.Lines(text) {
		if !strings.Contains(line, "nonexistent") {
			kept = append(kept, line)
		}
	}
	return strings.Join(kept, "")
}

// page gets a page whole, header included.
func (d *running) page(t testing.TB, path string) string {
	t.Helper()
	client := &http.Client{
		Transport:     &http.Transport{DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	res, err := client.Get("http://" + d.http + path)
	require.NoError(t, err)
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	return fmt.Sprint(res.Status, res.Header, string(body))
}
