package integration

import (
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tier-agent/test/guarantee"
	"tier-agent/test/lab"
)

// crashing builds the binary with its crash points in, once.
func crashing(t *testing.T) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "tier-agent")
	build := exec.Command("go", "build", "-trimpath", "-tags", "crashpoints", "-o", binary, "./cmd/tier-agent")
	build.Dir = binaries.root
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := build.CombinedOutput()
	require.NoError(t, err, string(out))
	return binary
}

// tier-agent is killed at each step of a quiesce and of a readmit. After its
// start heavy is closed wherever the step had closed it, open only on evidence
// of its own, and status says what was found half done.
//
// Control: with the intent written after HAProxy was drained, and with the phase
// taken out of beginOpening, the tier was open after the start.
func TestFault06_TierAgentIsKilledAtEachStep(t *testing.T) {
	agent := crashing(t)
	for _, step := range []struct {
		at     string
		closed bool // after the start
	}{
		// Nothing was said to the operator yet, and nothing was written.
		{"quiesce-closed", false},
		{"quiesce-written", true},
		{"quiesce-found", true},
		{"quiesce-drained", true},
		{"quiesce-confirmed", true},
		{"readmit-invalidated", true},
		{"readmit-written", true},
		{"readmit-opened", true},
		{"readmit-gate", true},
		{"readmit-confirmed", true},
		{"readmit-ended", false},
	} {
		t.Run(step.at, func(t *testing.T) {
			faults(t, "6 killed at "+step.at, worldOptions{agent: agent}, func(f *fault) {
				quiesce := []string{"quiesce", "heavy", "--reason", "swap"}
				command := quiesce
				if step.at[0] == 'r' {
					f.verb(0, quiesce...)
					command = []string{"readmit", "heavy", "--wait", "2s"}
				}
				f.checked()
				require.NoError(f.t, f.AgentProc.Stop(20*time.Second))
				f.AgentEnv = []string{"TIER_AGENT_CRASH_AT=" + step.at}
				require.NoError(f.t, f.StartAgent(f.t.Context()))
				_, said, code := f.CLI(f.t.Context(), command...)
				require.Equal(f.t, 1, code, said)
				select {
				case <-f.AgentProc.Done():
				case <-time.After(10 * time.Second):
					f.t.Fatal("tier-agent has not crashed")
				}
				f.AgentEnv = nil
				require.NoError(f.t, f.StartAgent(f.t.Context()))
				if step.closed {
					f.awaitDrained(1)
					f.heavyTraffic.rule.Store(mustRefuse)
					assert.NotEmpty(guarantee.T(f.t), f.status().Intents)
					f.settle(f.heavyTraffic, 20)
					require.NoError(f.t, f.Reload())
					f.settle(f.heavyTraffic, 20)
					f.readmitHeavy()
				}
				f.waitStatus("heavy", http.StatusOK)
				f.heavyTraffic.rule.Store(either)
				f.heavy.SetModel("another-model") // open only on evidence
				f.waitStatus("heavy", http.StatusServiceUnavailable)
				f.heavy.SetModel(lab.HeavyModel)
			})
		})
	}
}
