package integration

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tier-agent/internal/admission"
	"tier-agent/test/guarantee"
	"tier-agent/test/lab"
)

// A new master takes HAProxy over while a stream runs; neither socket shows its worker any
// more. The drain waits until the master before has ended, which it does with the stream.
// A reload alone, which leaves the master as it is, is no such thing.
//
// Control: with hidden returning nil, the drain was done in 0.4 s, over the stream.
func TestADrainWaitsForTheWorkersOfAMasterThatWasReplaced(t *testing.T) {
	for _, when := range []string{"before the quiesce", "after it", "before a restart of tier-agent"} {
		t.Run(when, func(t *testing.T) {
			onEach(t, func(t *testing.T, haproxy string) {
				w := newWorld(t, haproxy, "")
				require.NoError(t, w.Reload())
				w.readsWorker()
				stream := w.endless()
				quiesce := func() { w.verb(0, "quiesce", "heavy", "--reason", "swap") }
				if when != "before the quiesce" {
					quiesce()
				}
				before, err := w.HAProxies[0].TakeOver(t.Context())
				require.NoError(t, err)
				w.readsWorker()
				switch when {
				case "before the quiesce":
					quiesce()
				case "before a restart of tier-agent":
					require.NoError(t, w.AgentProc.Kill())
					require.NoError(t, w.StartAgent(t.Context()))
				}
				out, progress, code := w.CLI(t.Context(), "drain", "heavy", "--timeout", "3s")
				require.Equal(guarantee.T(t), 3, code, out+progress)
				assert.Contains(t, progress, fmt.Sprintf("master %d of haproxy edge, which another one has replaced, still lives", before.PID()))
				r := w.verb(0, "drain", "heavy", "--timeout", "10s", "--ignore-old-workers")
				assert.Equal(t, admission.Done, r.Outcome)

				w.heavy.Hurry()
				w.verb(0, "drain", "heavy", "--timeout", "60s")
				require.NoError(t, <-stream.Ended)
				select {
				case <-before.Done():
				default:
					assert.Fail(guarantee.T(t), "the drain was done before the master had ended")
				}
			})
		})
	}
}

// A new master takes HAProxy over, again and again, while heavy is quiesced.
//
// Control: with the state file left out of the configuration, requests reached heavy.
func TestFault17_ANewMasterTakesOver(t *testing.T) {
	faults(t, "17 a new master takes over, heavy quiesced", worldOptions{}, func(f *fault) {
		f.quiesceHeavy()
		for range times(5) {
			_, err := f.HAProxies[0].TakeOver(f.t.Context())
			require.NoError(f.t, err)
			f.readsWorker()
			f.settle(f.heavyTraffic, 100)
		}
		f.verb(0, "drain", "heavy", "--timeout", "60s")
		f.readmitHeavy()
	})
}

// readsWorker waits until tier-agent has seen the worker that answers.
func (w *world) readsWorker() {
	w.t.Helper()
	require.NoError(w.t, lab.Within(15*time.Second, func() error {
		pid, err := w.WorkerPID()
		if err != nil {
			return err
		}
		if now := w.status().HAProxy[0]; !now.Readable || strconv.Itoa(now.PID) != pid {
			return fmt.Errorf("worker %d, readable %v", now.PID, now.Readable)
		}
		return nil
	}))
}
