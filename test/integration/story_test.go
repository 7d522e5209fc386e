package integration

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tier-agent/test/guarantee"
	"tier-agent/test/lab"
)

// The main job from end to end, with engines that are processes of their own.
func TestStory(t *testing.T) {
	onEach(t, func(t *testing.T, haproxy string) {
		ctx := t.Context()
		o := labOptions(t, haproxy)
		o.Gate = true
		w, heavy := newWorldOfProcesses(t, o)
		others := w.load("fast")

		stream := w.Stream(ctx, "heavy", 60, 50*time.Millisecond)
		w.begun(stream)
		r := w.verb(0, "quiesce", "heavy", "--reason", "swap")
		assert.Equal(t, "drain(forced)", r.HAProxy[0].Servers[0].After)
		assert.Equal(t, "swap", r.Closure.Reason)
		assert.NotEmpty(t, r.Closure.Who)
		closed := w.load("heavy")
		w.verb(0, "drain", "heavy", "--timeout", "60s")
		require.NoError(t, <-stream.Ended, "a running stream comes whole")

		require.NoError(t, heavy.Stop(5*time.Second))
		wrong, err := w.StartEngine(ctx, "heavy-wrong", lab.FastModel, w.Ports.Heavy)
		require.NoError(t, err)
		r = w.verb(1, "readmit", "heavy", "--wait", "5s")
		assert.Equal(t, "not_ready", r.Code)
		require.Len(t, r.Evidence, 1, r.Message)
		assert.Equal(t, "identity_mismatch", r.Evidence[0].Reason)
		assert.True(guarantee.T(t), r.Quiesced)

		require.NoError(t, wrong.Stop(5*time.Second))
		_, err = w.StartEngine(ctx, "heavy-right", lab.HeavyModel, w.Ports.Heavy)
		require.NoError(t, err)
		seen := closed.stop()
		assert.Equal(guarantee.T(t), map[int]int{http.StatusServiceUnavailable: seen[http.StatusServiceUnavailable]}, seen, "no request reached heavy")
		assert.Positive(t, seen[http.StatusServiceUnavailable])

		w.verb(0, "readmit", "heavy", "--wait", "5s")
		assert.Equal(t, http.StatusOK, w.ask("heavy").Status)
		seen = others.stop()
		assert.Equal(guarantee.T(t), map[int]int{http.StatusOK: seen[http.StatusOK]}, seen, "fast never noticed")
	})
}
