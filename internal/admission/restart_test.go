package admission

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tier-agent/internal/intent"
	"tier-agent/internal/observe"
	"tier-agent/internal/runtimeapi"
	"tier-agent/internal/tier"
	"tier-agent/test/guarantee"
)

// hooked is a store that lets the test look, or wait, before each write.
type hooked struct {
	Store
	before func(what string, r intent.Record)
}

func (h *hooked) Put(r intent.Record) (intent.Record, error) {
	h.before("put "+string(r.Phase), r)
	return h.Store.Put(r)
}

func (h *hooked) Drop(k intent.Key, serial uint64) error {
	h.before("drop", intent.Record{Tier: k.Tier, Server: k.Server, Serial: serial})
	return h.Store.Drop(k, serial)
}

// hook puts before in front of every write from now on.
func (l *lab) hook(before func(what string, r intent.Record)) {
	l.intents.store = &hooked{Store: l.intents.store, before: before}
}

// stopAt makes the store wait before the nth write of that kind, and tells when.
func (l *lab) stopAt(what string, nth int32) (reached <-chan struct{}, goOn func()) {
	met, release := make(chan struct{}), make(chan struct{})
	var seen atomic.Int32
	l.hook(func(w string, _ intent.Record) {
		if w == what && seen.Add(1) == nth {
			close(met)
			<-release
		}
	})
	return met, func() { close(release) }
}

// mortal lets the test cut a controller off from every HAProxy, as its death
// would.
func mortal(dead *atomic.Bool) func(*Options, *runtimeapi.Options) {
	return func(_ *Options, ro *runtimeapi.Options) {
		ro.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			if dead.Load() {
				return nil, errors.New("its process is dead")
			}
			return new(net.Dialer).DialContext(ctx, network, address)
		}
	}
}

// afterKill is what the next process finds and makes of it: another controller
// before the same HAProxies, over what is on disk now.
func (l *lab) afterKill(t testing.TB, change ...func(*Options, *runtimeapi.Options)) *lab {
	t.Helper()
	next := &lab{
		prober: l.prober, journal: l.journal, clock: l.clock,
		hap1: l.hap1, hap2: l.hap2, hap3: l.hap3, stateDir: t.TempDir(),
	}
	text, err := os.ReadFile(filepath.Join(l.stateDir, "intents.json"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(next.stateDir, "intents.json"), text, 0o600))
	next.start(t, change...)
	next.Restore()
	return next
}

// breakDisk makes every write of the intents fail, until mended is called.
func (l *lab) breakDisk(t testing.TB) (mended func()) {
	t.Helper()
	away := l.stateDir + ".away"
	require.NoError(t, os.Rename(l.stateDir, away))
	return func() { require.NoError(t, os.Rename(away, l.stateDir)) }
}

// onDisk are the records that a start would find now.
func (l *lab) onDisk(t testing.TB) []intent.Record {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(l.stateDir, "intents.json"))
	require.NoError(t, err)
	return recordsIn(t, text)
}

func recordsIn(t testing.TB, text []byte) []intent.Record {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "intents.json"), text, 0o600))
	store, err := intent.Open(dir)
	require.NoError(t, err)
	defer store.Close()
	return store.All()
}

// intentOf is the target's intent as status shows it.
func (l *lab) intentOf(t testing.TB, target tier.Target) IntentStatus {
	t.Helper()
	for _, st := range l.Intents() {
		if targetOf(st.Record) == target {
			return st
		}
	}
	require.Fail(t, "no intent", target.String())
	return IntentStatus{}
}

// watching gives the controller a watcher. It looks when the test calls turn,
// and before.
func (l *lab) watching(t testing.TB, change ...func(*observe.Options)) *observe.Watcher {
	t.Helper()
	o := observe.Options{HAProxy: l.o.HAProxy, Every: time.Hour, Log: slog.New(slog.DiscardHandler), Looked: l.Reconcile}
	for _, c := range change {
		c(&o)
	}
	l.watcher = observe.New(o)
	l.o.Watcher = l.watcher
	l.watcher.Look(t.Context())
	return l.watcher
}

// turn is what Watcher.Run does once for each instance, one after the other.
func (l *lab) turn(t testing.TB) {
	t.Helper()
	for _, v := range l.watcher.Views() {
		l.watcher.Turn(t.Context(), v.Instance)
	}
}

// drainedEverywhere asserts that each HAProxy has the servers in our drain.
func (l *lab) drainedEverywhere(t testing.TB, names ...string) {
	t.Helper()
	for _, h := range l.haproxies() {
		for _, name := range names {
			assert.Equal(guarantee.T(t), "drain(forced)", h.state(name).String(), "%s on %s", name, h.name)
		}
	}
}
