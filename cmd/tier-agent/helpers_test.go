package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"tier-agent/internal/httpapi"
	"tier-agent/test/socketdir"
)

var update = flag.Bool("update", false, "write the golden files anew")

// For what the kernel or a goroutine of serve does by itself.
const deadline, tick = 10 * time.Second, 2 * time.Millisecond

func TestMain(m *testing.M) {
	if os.Getenv("TIER_AGENT_TEST_MAIN") != "" { // a test needs a process of its own
		main()
	}
	_ = os.Unsetenv("TIER_AGENT_SOCKET")
	goleak.VerifyTestMain(m)
}

// said is what a run of the command left.
type said struct {
	code     int
	out, err string
}

// cli runs the command in this process.
func cli(args ...string) said {
	var out, errs bytes.Buffer
	args = append([]string{}, args...) // cobra takes nil for os.Args
	code := run(args, strings.NewReader(""), &out, &errs)
	return said{code, out.String(), errs.String()}
}

// golden compares got with a file in testdata.
func golden(t testing.TB, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		require.NoError(t, os.MkdirAll("testdata", 0o755))
		require.NoError(t, os.WriteFile(file, []byte(got), 0o644))
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.Equal(t, string(want), got)
}

// request is what a fakeAgent was asked.
type request struct {
	Verb    string
	Command httpapi.Command
}

// fakeAgent answers on an admin socket as it is told.
type fakeAgent struct {
	path   string
	status httpapi.Status
	answer func(w http.ResponseWriter, r *http.Request) // of commands

	mu   sync.Mutex // protects seen
	seen []request
}

// newFakeAgent serves until the end of the test. A command is answered with the
// events.
func newFakeAgent(t testing.TB, events ...httpapi.Event) *fakeAgent {
	t.Helper()
	f := &fakeAgent{path: filepath.Join(socketdir.New(t), "admin.sock")}
	f.answer = func(w http.ResponseWriter, _ *http.Request) {
		for _, e := range events {
			_ = json.NewEncoder(w).Encode(e)
		}
	}
	ln, err := net.Listen("unix", f.path)
	require.NoError(t, err)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /api/v1/status", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(f.status)
	})
	mux.HandleFunc("POST /api/v1/{verb}", func(w http.ResponseWriter, r *http.Request) {
		q := request{Verb: r.PathValue("verb")}
		_ = json.NewDecoder(r.Body).Decode(&q.Command)
		f.mu.Lock()
		f.seen = append(f.seen, q)
		f.mu.Unlock()
		f.answer(w, r)
	})
	s := httptest.NewUnstartedServer(mux)
	require.NoError(t, s.Listener.Close())
	s.Listener = ln
	s.Start()
	t.Cleanup(s.Close)
	return f
}

func (f *fakeAgent) requests() []request {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]request(nil), f.seen...)
}

// cli runs the command against the fake.
func (f *fakeAgent) cli(args ...string) said {
	return cli(append([]string{"--socket", f.path}, args...)...)
}
