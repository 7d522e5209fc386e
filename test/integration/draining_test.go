package integration

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tier-agent/internal/httpapi"
	"tier-agent/test/lab"
)

// waitLeft polls until heavy's server has the state and so many streams.
func (w *world) waitLeft(state string, streams int) {
	w.t.Helper()
	require.NoError(w.t, lab.Within(10*time.Second, func() error {
		s := w.status().Tiers[0].Servers[0]
		if s.State != state || s.Left == nil || s.Left.Streams != streams || s.Left.Unknown != nil {
			return fmt.Errorf("%s, left %+v", s.State, s.Left)
		}
		return nil
	}), "%s, %d streams", state, streams)
}

// A stream outlives the quiesce, and then a reload: status counts it in the worker
// that runs it, and says quiesced when it has ended.
//
// Controls: with the call of count taken out of watch, it was never known; with
// everyWorker asking the stats socket alone, it was not draining after the reload.
func TestStatusSaysDrainingWhileAStreamRuns(t *testing.T) {
	onEach(t, func(t *testing.T, haproxy string) {
		w := newWorld(t, haproxy, "")
		assert.Nil(t, w.status().Tiers[0].Servers[0].Left, "it is open")
		stream := w.Stream(t.Context(), "heavy", 200, 50*time.Millisecond) // 10 s
		<-stream.Started
		w.verb(0, "quiesce", "heavy", "--reason", "swap")
		w.waitLeft("draining", 1)
		out, _, _ := w.CLI(t.Context(), "status")
		assert.Contains(t, out, "draining (1 stream)")
		require.NoError(t, w.Reload())
		pid, err := w.WorkerPID()
		require.NoError(t, err)
		require.NoError(t, lab.Within(5*time.Second, func() error {
			if now := w.status().HAProxy[0]; pidText(now.PID) != pid {
				return fmt.Errorf("worker %d", now.PID)
			}
			return nil
		}), "the new worker is read")
		w.waitLeft("draining", 1)
		require.NoError(t, <-stream.Ended)
		w.waitLeft("quiesced", 0)
		s := w.status().Tiers[0].Servers[0]
		assert.Equal(t, &httpapi.LeftStatus{}, s.Left)
		w.verb(0, "readmit", "heavy")
		assert.Nil(t, w.status().Tiers[0].Servers[0].Left)
	})
}
