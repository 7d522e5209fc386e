package integration

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tier-agent/test/guarantee"
	"tier-agent/test/lab"
)

// raceAgent is tier-agent under the race detector.
func raceAgent(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "tier-agent")
	build := exec.Command("go", "build", "-race", "-trimpath", "-o", path, "./cmd/tier-agent")
	build.Dir = binaries.root
	build.Env = append(os.Environ(), "CGO_ENABLED=1")
	out, err := build.CombinedOutput()
	require.NoError(t, err, "%s", out)
	return path
}

// cost is what a process holds.
type cost struct{ goroutines, files, megabytes int }

func (w *world) cost() cost {
	w.t.Helper()
	open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", w.AgentProc.PID()))
	require.NoError(w.t, err)
	return cost{int(w.metric("go_goroutines")), len(open), int(w.metric("process_resident_memory_bytes")) >> 20}
}

// Everything at once, for a minute: commands about both tiers and a server, reloads of both
// sides, kills of HAProxy, peers that come and go. tier-agent ends with the goroutines, files
// and memory that it began with, and no race was seen.
//
// Control: with stop left out of do, what went on speaking of an ended command ended the
// process.
func TestAStormLeavesNothingBehind(t *testing.T) {
	mostlyWaits(t)
	t.Run(versions()[0], func(t *testing.T) {
		w := newWorldWith(t, haproxy(t, versions()[0]), worldOptions{agent: raceAgent(t), gate: true})
		storm := func(lasts time.Duration) {
			ctx, cancel := context.WithTimeout(t.Context(), lasts)
			defer cancel()
			var all sync.WaitGroup
			each := func(pause time.Duration, do func(n int)) {
				all.Go(func() {
					for n := 0; ctx.Err() == nil; n++ {
						do(n)
						select {
						case <-ctx.Done():
						case <-time.After(pause):
						}
					}
				})
			}
			say := func(args ...string) { w.CLI(ctx, args...) } // what comes of each is another test's
			each(50*time.Millisecond, func(n int) {
				say("quiesce", "heavy", "--reason", "storm")
				say("readmit", "heavy", "--confirm", "1s")
			})
			each(70*time.Millisecond, func(n int) {
				say("quiesce", "fast", "--server", "fast/f1", "--reason", "storm", "--force")
				say("drain", "fast", "--server", "fast/f1", "--timeout", "1s")
				say("readmit", "fast", "--server", "fast/f1", "--confirm", "1s")
			})
			each(200*time.Millisecond, func(n int) { say("invalidate", []string{"heavy", "fast"}[n%2]) })
			each(time.Second, func(n int) { _ = w.AgentProc.Signal(syscall.SIGHUP) })
			each(3*time.Second, func(n int) {
				if n%4 == 3 {
					_ = w.HAProxies[0].Kill()
					_ = w.HAProxies[0].Start(ctx)
				} else {
					_ = w.Reload()
				}
			})
			each(20*time.Millisecond, func(n int) { _, _ = w.Ask(ctx, []string{"heavy", "fast"}[n%2]) })
			each(20*time.Millisecond, func(n int) {
				port := []int{w.Ports.AgentCheck, w.Ports.HTTP, w.Ports.SPOE}[n%3]
				if c, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port)); err == nil {
					_, _ = c.Write([]byte("GET /readyz/hea"))
					_ = c.Close()
				}
			})
			all.Wait()
		}
		calm := func() { // as it was before the storm
			t.Helper()
			require.NoError(t, lab.Within(60*time.Second, func() error {
				for _, args := range [][]string{{"readmit", "heavy"}, {"readmit", "fast", "--server", "fast/f1"}, {"readmit", "fast"}} {
					w.CLI(t.Context(), args...)
				}
				for _, tier := range w.status().Tiers {
					if !tier.Ready {
						return fmt.Errorf("%s: %s", tier.Name, tier.Reason)
					}
				}
				return nil
			}))
		}
		storm(3 * time.Second) // what is made once is made
		calm()
		before := w.cost()
		storm(time.Minute)
		calm()
		var after cost
		assert.NoError(guarantee.T(t), lab.Within(30*time.Second, func() error {
			after = w.cost()
			if after.goroutines > before.goroutines+8 || after.files > before.files+8 || after.megabytes > before.megabytes+100 {
				return fmt.Errorf("%+v, and before %+v", after, before)
			}
			return nil
		}))
		t.Logf("before %+v, after %+v", before, after)
		assert.NotContains(guarantee.T(t), w.AgentProc.Output(), "DATA RACE")
		log := w.log()
		assert.False(guarantee.T(t), strings.Contains(log, "DATA RACE") || strings.Contains(log, "panic"), "%.2000s", log)
	})
}
