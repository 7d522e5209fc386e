package integration

import (
	"bufio"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tier-agent/internal/admission"
	"tier-agent/test/engine"
	"tier-agent/test/guarantee"
	"tier-agent/test/lab"
)

// drainBegun starts a drain through the CLI and waits until it has counted once. Its
// progress comes line by line, its end on ended, as an error where it is not done.
func (w *world) drainBegun(args ...string) (ended <-chan error, progress <-chan string) {
	w.t.Helper()
	cmd := exec.CommandContext(w.t.Context(), w.Agent, append([]string{"--socket", w.AdminSocket(), "drain"}, args...)...)
	var out strings.Builder
	cmd.Stdout = &out
	said, err := cmd.StderrPipe()
	require.NoError(w.t, err)
	require.NoError(w.t, cmd.Start())
	end, lines := make(chan error, 1), make(chan string, 1000)
	go func() {
		for s := bufio.NewScanner(said); s.Scan(); {
			lines <- s.Text()
		}
		close(lines)
		if err := cmd.Wait(); err != nil {
			end <- fmt.Errorf("%w: %s", err, out.String())
			return
		}
		end <- nil
	}()
	select {
	case <-lines:
	case err := <-end:
		require.Fail(w.t, "the drain has ended", "%v", err)
	case <-time.After(20 * time.Second):
		require.Fail(w.t, "the drain has counted nothing")
	}
	return end, lines
}

// A drain of one server waits for its stream. The other server of the tier is drained and
// readmitted meanwhile, and a reload of tier-agent that would change the tier is refused.
//
// Control: with every transition of a tier serialised, the drain and the readmit of h2
// were refused as busy for as long as the drain of h1 waited.
func TestADrainOfOneServerDelaysNothingOfAnother(t *testing.T) {
	onEach(t, func(t *testing.T, haproxy string) {
		ports, err := lab.FreePorts()
		require.NoError(t, err)
		second := serveEngine(t, ports.Heavy, lab.HeavyModel)
		w := newWorldWith(t, haproxy, twoServers(ports.Heavy))
		w.waitStat("heavy", "h2", func(row map[string]string) bool { return row["check_status"] == "L7OK" }, "h2 is checked")
		w.verb(0, "quiesce", "heavy", "--server", "heavy/h2", "--reason", "swap")
		stream := w.endless() // on h1: it alone serves
		w.verb(0, "readmit", "heavy", "--server", "heavy/h2", "--wait", "3s")
		w.verb(0, "quiesce", "heavy", "--server", "heavy/h1", "--reason", "swap")
		drained, _ := w.drainBegun("heavy", "--server", "heavy/h1", "--timeout", "100s")
		require.Equal(t, admission.CodeBusy, w.verb(1, "drain", "heavy", "--server", "heavy/h1", "--timeout", "1s").Code)
		w.verb(0, "quiesce", "heavy", "--server", "heavy/h2", "--reason", "swap", "--force")
		w.verb(0, "drain", "heavy", "--server", "heavy/h2", "--timeout", "20s")
		w.verb(0, "readmit", "heavy", "--server", "heavy/h2", "--wait", "3s")
		before, took := w.heavy.Requests(engine.Chat), second.Requests(engine.Chat)
		for range 5 {
			assert.Equal(t, 200, w.ask("heavy").Status)
		}
		assert.Equal(guarantee.T(t), before, w.heavy.Requests(engine.Chat), "h1 is closed")
		assert.Equal(t, took+5, second.Requests(engine.Chat))
		select {
		case err := <-drained:
			require.Fail(guarantee.T(t), "the drain has ended over a stream", "%v", err)
		default:
		}
		w.heavy.Hurry()
		require.NoError(t, <-drained)
		require.NoError(t, <-stream.Ended)
	})
}
