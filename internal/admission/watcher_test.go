package admission

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tier-agent/internal/observe"
	"tier-agent/internal/runtimeapi"
)

func newWatcher(l *lab) (*observe.Watcher, func() []string) {
	var log bytes.Buffer // written in look only, which the test calls itself
	w := observe.New(observe.Options{HAProxy: l.o.HAProxy, Every: time.Hour, Log: slog.New(slog.NewTextHandler(&log, nil))})
	return w, func() []string {
		defer log.Reset()
		var said []string
		for line := range strings.Lines(log.String()) {
			_, said1, _ := strings.Cut(line, "msg=")
			said = append(said, strings.TrimSpace(said1))
		}
		return said
	}
}

func TestWatcherKeepsTheLastGoodViewAndSaysWhatChanged(t *testing.T) {
	l := newLab(t)
	w, said := newWatcher(l)
	assert.Equal(t, []observe.View{{Instance: "hap1"}, {Instance: "hap2"}}, w.Views())
	w.Look(t.Context())
	seen := w.Views()
	require.NoError(t, seen[0].Err)
	assert.Equal(t, 100, seen[0].Info.PID)
	assert.Len(t, seen[0].Servers, 4)
	assert.Len(t, said(), 2)
	w.Look(t.Context())
	assert.Empty(t, said(), "nothing new")

	l.hap2.operator("llm/gpu1", "drain")
	w.Look(t.Context())
	assert.Equal(t, runtimeapi.ForcedDrain, w.Views()[1].Servers["llm/gpu1"].Admin)

	l.hap2.fail(fault{action: cut, times: 2})
	w.Look(t.Context())
	w.Look(t.Context())
	lost := w.Views()[1]
	assert.ErrorIs(t, lost.Err, runtimeapi.ErrIncomplete)
	assert.Equal(t, runtimeapi.ForcedDrain, lost.Servers["llm/gpu1"].Admin, "the last good view")
	assert.NoError(t, w.Views()[0].Err)
	lines := said()
	require.Len(t, lines, 1, "said once")
	assert.Contains(t, lines[0], "cannot be read")
	w.Look(t.Context())
	assert.Contains(t, said()[0], "haproxy is read")

	l.hap2.reload()
	w.Look(t.Context())
	assert.Contains(t, said()[0], "reloaded or restarted")
	assert.Zero(t, w.Views()[1].Servers["llm/gpu1"].Admin)
}

func TestWatcherReadsUntilItsContextEnds(t *testing.T) {
	l := newLab(t)
	for name, set := range map[string]*runtimeapi.Set{"two": l.o.HAProxy, "none": runtimeapi.NewSet()} {
		w := observe.New(observe.Options{HAProxy: set, Every: time.Millisecond, Log: slog.New(slog.DiscardHandler)})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- w.Run(ctx) }()
		if name == "two" {
			l.hap1.operator("llm/gpu1", "maint")
			soon(t, "it is seen", func() bool { return w.Views()[0].Servers["llm/gpu1"].Admin.Maint() })
		}
		cancel()
		assert.NoError(t, <-ended, name)
	}
}
