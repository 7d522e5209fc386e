package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tier-agent/internal/config"
	"tier-agent/internal/httpapi"
	"tier-agent/test/guarantee"
)

// models is what an engine says that has the identity m1.
const models = `{"object":"list","data":[{"id":"m1"}]}`

// engine answers probes; while it is held it answers none.
type engine struct {
	url  string
	asks chan string // the path of each request that is held

	mu      sync.Mutex // protects what is below
	held    map[string]chan struct{}
	counted map[string]int // requests by path
}

func newEngine(t testing.TB) *engine {
	t.Helper()
	e := &engine{asks: make(chan string, 100), held: map[string]chan struct{}{}, counted: map[string]int{}}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		e.mu.Lock()
		e.counted[r.URL.Path]++
		hold := e.held[r.URL.Path]
		e.mu.Unlock()
		if hold != nil {
			e.asks <- r.URL.Path
			select {
			case <-hold:
			case <-r.Context().Done(): // the prober went away
			}
		}
		_, _ = io.WriteString(w, models)
	}))
	t.Cleanup(s.Close)
	e.url = s.URL
	return e
}

// hold lets requests for path wait until the returned function is called.
func (e *engine) hold(path string) (release func()) {
	barrier := make(chan struct{})
	e.mu.Lock()
	defer e.mu.Unlock()
	e.held[path] = barrier
	return sync.OnceFunc(func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		delete(e.held, path)
		close(barrier)
	})
}

func (e *engine) count(path string) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.counted[path]
}

// configure parses a file whose listeners are the test's own. A start may take its
// time: what a test holds up, or a busy machine, is not answered probe_pending.
func configure(t testing.TB, text string) *config.Config {
	t.Helper()
	cfg, err := config.Parse("test.yaml", []byte(text))
	require.NoError(t, err)
	cfg.Listen = anywhere(t)
	cfg.StartBudget = time.Minute
	return cfg
}

// twoTiers is the configuration of most tests: heavy is probed once a minute,
// light all the time.
func twoTiers(t testing.TB, e *engine) *config.Config {
	t.Helper()
	return configure(t, fmt.Sprintf(`
tiers:
  - name: heavy
    servers: [{server: heavy/h1, url: "%[1]s/heavy"}]
    health: {path: /health}
    identity: {path: /v1/models, id: m1}
    admission: agent-check
    probe: {interval: 1m, timeout: 50s, max_age: 5m}
  - name: light
    servers: [{server: light/l1, url: "%[1]s/light", weight: 50}]
    admission: agent-check
    probe: {interval: 50ms, timeout: 5s, max_age: 30s}
`, e.url))
}

// journal is a log that can be read while it is written.
type journal struct {
	mu  sync.Mutex // protects buf
	buf bytes.Buffer
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.buf.Write(p)
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.buf.String()
}

// running is a serve in this process.
type running struct {
	listeners
	agent, http, socket string
	stateDir            string
	log                 *journal
	hangups             chan os.Signal
	stop                context.CancelFunc
	ended               chan struct{}
	err                 error // once ended is closed
}

// start runs serve until the end of the test, or until stop.
func start(t testing.TB, cfg *config.Config) *running {
	t.Helper()
	ls, err := listen(cfg.Listen, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	// A write that waits for a disk may end after the test: not t.TempDir.
	dir, err := os.MkdirTemp("", "state")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	kept, err := openDisk(dir, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	t.Cleanup(kept.close)
	ctx, stop := context.WithCancel(context.Background())
	d := &running{
		listeners: ls, agent: ls.agent.Addr().String(), http: ls.http.Addr().String(), socket: cfg.Listen.Admin.Path,
		stateDir: dir,
		log:      new(journal), hangups: make(chan os.Signal, 1), stop: stop, ended: make(chan struct{}),
	}
	log := slog.New(slog.NewJSONHandler(d.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	go func() {
		defer close(d.ended)
		defer ls.close()
		d.err = serveOn(ctx, ls, kept, cfg, d.hangups, log)
	}()
	t.Cleanup(func() {
		stop()
		<-d.ended
		if t.Failed() {
			t.Log(d.log)
		}
	})
	return d
}

func (d *running) client() *httpapi.Client { return httpapi.NewClient(d.socket) }

// poll is one agent-check of HAProxy's, or what went wrong with it.
func (d *running) poll(name string) string {
	conn, err := net.Dial("tcp", d.agent)
	if err != nil {
		return err.Error()
	}
	defer conn.Close()
	return exchange(conn, name+"\n")
}

// check is one http-check of HAProxy's: the status line, or what went wrong.
func (d *running) check(path string) string {
	conn, err := net.Dial("tcp", d.http)
	if err != nil {
		return err.Error()
	}
	defer conn.Close()
	status, _, _ := strings.Cut(exchange(conn, "GET "+path+" HTTP/1.0\r\n\r\n"), "\r\n")
	return status
}

// exchange says text and returns the whole answer.
func exchange(conn net.Conn, text string) string {
	if _, err := io.WriteString(conn, text); err != nil {
		return err.Error()
	}
	answer, err := io.ReadAll(conn)
	if err != nil {
		return err.Error()
	}
	return string(answer)
}

const (
	ok          = "HTTP/1.0 200 OK"
	unavailable = "HTTP/1.0 503 Service Unavailable"
)

// awaitReady returns when the tier may take requests.
func (d *running) awaitReady(t testing.TB, name string) {
	t.Helper()
	require.Eventually(t, func() bool { return d.check("/readyz/"+name) == ok }, deadline, tick)
}

func (d *running) awaitLog(t testing.TB, text string) {
	t.Helper()
	require.Eventually(t, func() bool { return strings.Contains(d.log.String(), text) }, deadline, tick, text)
}

func (d *running) awaitEnd(t testing.TB) {
	t.Helper()
	select {
	case <-d.ended:
	case <-time.After(2 * grace):
		require.Fail(t, "serve does not end")
	}
}

// end stops the daemon and checks that nothing of it is left.
func (d *running) end(t testing.TB) {
	t.Helper()
	d.stop()
	d.awaitEnd(t)
	assert.NoError(t, d.err)
	assert.NoFileExists(guarantee.T(t), d.socket)
	for _, address := range []string{d.agent, d.http} {
		conn, err := net.Dial("tcp", address)
		if !assert.Error(t, err, address) {
			_ = conn.Close()
		}
	}
}
