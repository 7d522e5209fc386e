package httpapi

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"tier-agent/internal/admission"
	"tier-agent/internal/fence"
	"tier-agent/internal/horizon"
	"tier-agent/internal/observe"
	"tier-agent/internal/runtimeapi"
	"tier-agent/internal/tier"
)

var update = flag.Bool("update", false, "write the golden files anew")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// noon is the present of every golden.
var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// world is a Model and a Watcher of fixed answers.
type world struct {
	tiers    []tier.Status
	observed []observe.View
}

func (w world) Status() []tier.Status { return w.tiers }
func (w world) Views() []observe.View { return w.observed }

func (w world) Tier(name []byte) (tier.Answer, bool) {
	st, known := w.StatusOf(name)
	return st.Answer, known
}

func (w world) StatusOf(name []byte) (tier.Status, bool) {
	for _, t := range w.tiers {
		if t.Name == string(name) {
			return t, true
		}
	}
	return tier.Status{}, false
}

func (w world) Server(name []byte) (tier.Answer, bool) {
	for _, t := range w.tiers {
		for _, s := range t.Servers {
			if s.Backend+"/"+s.Name == string(name) {
				return s.Answer, true
			}
		}
	}
	return tier.Answer{}, false
}

var (
	ready = tier.Answer{
		Admit: true, Up: true, Ready: true, Reason: "identity_passed", Generation: fence.Generation{Global: 1, Tier: 2, Server: 3},
		Age: 1500 * time.Millisecond, HasEvidence: true, Weight: 100, State: tier.StateReady,
	}
	stale = tier.Answer{
		Reason: fence.ReasonStale, Generation: fence.Generation{Global: 1, Tier: 2, Server: 4},
		Age: time.Minute, HasEvidence: true, Weight: 100, State: tier.StateStale,
	}
	pending  = tier.Answer{Reason: fence.ReasonPending, Generation: fence.Generation{Global: 1, Tier: 5, Server: 6}, Weight: 80}
	quiesced = tier.Answer{
		Quiesced: true, Ready: true, Reason: tier.ReasonQuiesced, Generation: fence.Generation{Global: 1, Tier: 7},
		Age: 250 * time.Millisecond, HasEvidence: true, State: tier.StateQuiesced,
	}
)

// everything has each kind of answer once.
func everything() world {
	closure := &tier.Closure{Reason: "swap-to-v2", Who: "alice(1000)", Since: noon.Add(-time.Hour)}
	shut := quiesced
	shut.Weight, shut.Generation.Server = 100, 8
	return world{
		tiers: []tier.Status{
			{Name: "heavy", Answer: ready, MinReady: 1, Needed: 1, Serving: 1, Servers: []tier.ServerStatus{
				{Backend: "heavy", Name: "h1", Since: noon.Add(-time.Minute), Answer: ready, Evidence: "identity_passed", Metadata: map[string]string{"build": "42"}},
				{Backend: "heavy", Name: "h2", Answer: stale, Evidence: fence.ReasonStale, Probing: 1},
			}},
			{Name: "light", Answer: pending, MinReady: 1, Needed: 2, Servers: []tier.ServerStatus{
				{Backend: "light", Name: "l1", Answer: pending, Evidence: fence.ReasonPending},
			}},
			{Name: "old", Answer: quiesced, Closure: closure, MinReady: 1, Needed: 1, Members: &tier.Members{Backend: "old", LeftOut: 2}, Servers: []tier.ServerStatus{
				{Backend: "old", Name: "o1", Address: netip.MustParseAddrPort("192.0.2.1:9001"), Answer: shut, Evidence: "identity_passed", Closure: closure},
			}},
		},
		observed: []observe.View{
			{
				Instance: "edge", At: noon.Add(-300 * time.Millisecond),
				Info: runtimeapi.Info{PID: 4711, Version: runtimeapi.Version{Raw: "3.0.5"}, Uptime: time.Hour},
				Servers: map[string]observe.Server{
					"heavy/h1": up, "heavy/h2": {Admin: runtimeapi.ForcedMaint}, "old/o1": {Admin: runtimeapi.ForcedDrain},
				},
			},
			{
				Instance: "lost", At: noon.Add(-time.Second),
				Servers: map[string]observe.Server{"heavy/h1": up}, // of the last good read
				Err: fmt.Errorf("haproxy lost: %w: %w", runtimeapi.ErrUnreachable,
					&net.OpError{Op: "dial", Net: "unix", Addr: &net.UnixAddr{Name: "/run/haproxy/secret.sock"}, Err: os.NewSyscallError("connect", syscall.ENOENT)}),
			},
			{Instance: "odd", At: noon, Err: errors.New("who knows what")},
			{Instance: "new"},
		},
	}
}

// up is a server that HAProxy sends to.
var up = observe.Server{Operational: runtimeapi.OpRunning, Weight: 100}

func (w world) readOnly() *ReadOnly {
	h := horizon.New(time.Hour, func() time.Time { return noon })
	var rows []horizon.Row
	for _, t := range w.tiers {
		rows = append(rows, horizon.Row{Name: t.Name, Serving: t.Answer.Admit})
	}
	h.Publish(rows)
	return &ReadOnly{
		Polls:      new(observe.Polls),
		LastChange: func(tier string) (time.Time, bool) { return noon.Add(-time.Hour), tier != "light" },
		Judge:      func() (horizon.Verdict, int) { return h.Judge(), 0 },
		Hosts:      []string{"example.com"}, // which httptest says
		Model:      w, Watcher: w, Version: "1.2.3", Now: func() time.Time { return noon },
		Metrics: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}),
	}
}

// golden compares got with a file in testdata.
func golden(t testing.TB, name string, got []byte) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		require.NoError(t, os.MkdirAll("testdata", 0o755))
		require.NoError(t, os.WriteFile(file, got, 0o644))
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.Equal(t, string(want), string(got))
}

// pipes is a listener in memory, for synctest: real sockets do not block
// durably there.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func newPipes() *pipes { return &pipes{conns: make(chan net.Conn), closed: make(chan struct{})} }

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipes"} }

func (p *pipes) dial() (net.Conn, error) {
	near, far := net.Pipe()
	select {
	case p.conns <- far:
		return near, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) client() *Client {
	dial := func(context.Context, string, string) (net.Conn, error) { return p.dial() }
	return &Client{path: "pipes", http: &http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}}
}

// serving is a running Serve.
type serving struct {
	stop context.CancelFunc
	err  chan error
}

// startServe serves until stop, or the end of the test.
func startServe(t testing.TB, ln net.Listener, h http.Handler, log *slog.Logger) *serving {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	s := &serving{stop: stop, err: make(chan error, 1)}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.err <- Serve(ctx, ln, h, 15*time.Second, log)
	}()
	t.Cleanup(func() {
		stop()
		<-ended
	})
	return s
}

// silent is a logger for tests that do not look at the log.
var silent = slog.New(slog.DiscardHandler)

// record is a log that can be read while it is written.
type record struct {
	mu  sync.Mutex // protects buf
	buf bytes.Buffer
}

func (r *record) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.buf.Write(p)
}

func (r *record) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.buf.String()
}

func (r *record) logger() *slog.Logger {
	return slog.New(slog.NewJSONHandler(r, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// controller is a Controller that does as it is told; what it is not told to do
// is done at once. seen has the requests.
type controller struct {
	onQuiesce func(context.Context, admission.QuiesceRequest) admission.Result
	onDrain   func(context.Context, admission.DrainRequest) admission.Result

	mu   sync.Mutex // protects seen
	seen []any
}

func (c *controller) note(request any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen = append(c.seen, request)
}

func (c *controller) requests() []any {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]any(nil), c.seen...)
}

func result(v admission.Verb, target tier.Target) admission.Result {
	return admission.Result{Verb: v, Target: target, Outcome: admission.Done, Code: admission.CodeOK, Message: "done"}
}

func (c *controller) Quiesce(ctx context.Context, q admission.QuiesceRequest) admission.Result {
	if c.onQuiesce != nil {
		c.note(q)
		return c.onQuiesce(ctx, q)
	}
	q.Progress = nil // a function compares with nothing
	c.note(q)
	return result(admission.VerbQuiesce, q.Target)
}

func (c *controller) Drain(ctx context.Context, d admission.DrainRequest) admission.Result {
	if c.onDrain != nil {
		return c.onDrain(ctx, d)
	}
	d.Progress = nil
	c.note(d)
	return result(admission.VerbDrain, d.Target)
}

func (c *controller) Readmit(_ context.Context, q admission.ReadmitRequest) admission.Result {
	q.Progress = nil
	c.note(q)
	return result(admission.VerbReadmit, q.Target)
}

func (c *controller) Invalidate(target tier.Target) admission.Result {
	c.note(target)
	return result(admission.VerbInvalidate, target)
}

func (c *controller) Override(q admission.OverrideRequest) admission.Result {
	c.note(q)
	return result(admission.VerbOverride, tier.Target{Tier: q.Tier})
}

func (c *controller) Forget(_ context.Context, q admission.ForgetRequest) admission.Result {
	q.Progress = nil
	c.note(q)
	return result(admission.VerbForget, q.Target)
}

func (c *controller) admin() http.Handler {
	return (&Admin{ReadOnly: everything().readOnly(), Controller: c}).Handler()
}
