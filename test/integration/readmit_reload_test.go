package integration

import (
	"net/http"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A worker that is starting while a readmit runs has read the drain of before from
// the state file. It is opened too, and shown as nobody's hold.
//
// Before there was adopt, 1 to 4 of 30 such readmits left heavy drained for good,
// most of them on 2.6. TestADrainFromBeforeAReadmitIsTakenOff has the control.
func TestAReadmitDuringAReloadHolds(t *testing.T) {
	onEach(t, func(t *testing.T, haproxy string) {
		w := newWorld(t, haproxy, "")
		rounds := 1
		if times(20) == 20 {
			rounds = 20
		}
		for round := range rounds {
			before, err := w.WorkerPID()
			require.NoError(t, err)
			w.verb(0, "quiesce", "heavy", "--reason", "swap")
			require.NoError(t, w.HAProxies[0].Proc.Signal(syscall.SIGUSR2))
			// The moment that matters is somewhere in the new worker's start.
			time.Sleep(time.Duration(1+round%4) * 10 * time.Millisecond)
			// Refused where the old process answers no more: then it is tried again.
			_, _, code := w.CLI(t.Context(), "readmit", "heavy", "--wait", "2s")
			require.Eventually(t, func() bool { now, err := w.WorkerPID(); return err == nil && now != before }, 15*time.Second, 10*time.Millisecond)
			if code != 0 {
				w.verb(0, "readmit", "heavy", "--wait", "2s")
			}
			w.waitStatus("heavy", http.StatusOK)
			w.waitStat("heavy", "h1", func(row map[string]string) bool { return row["status"] == "UP" }, "heavy is up")
			for _, h := range w.status().HAProxy {
				assert.Empty(t, h.Holds)
			}
		}
	})
}
