package integration

import (
	"bufio"
	"fmt"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tier-agent/test/engine"
	"tier-agent/test/guarantee"
	"tier-agent/test/lab"
)

func TestFault07_OneOfThreeHAProxiesIsStoppedDuringAQuiesce(t *testing.T) {
	faults(t, "7 one of three stopped", worldOptions{haproxies: 3}, func(f *fault) {
		f.checked()
		for range times(3) {
			f.fastTraffic.rule.Store(either) // the stopped one answers nobody
			f.heavyTraffic.rule.Store(either)
			pid, err := f.HAProxies[2].WorkerPID()
			require.NoError(f.t, err)
			n, err := strconv.Atoi(pid)
			require.NoError(f.t, err)
			resume := stopProcess(f.t, n)
			asked := time.Now()
			r := f.verb(1, "quiesce", "heavy", "--reason", "swap")
			assert.Less(f.t, time.Since(asked), 10*time.Second)
			assert.Equal(f.t, "incomplete", string(r.Outcome))
			assert.Empty(f.t, r.HAProxy[0].Error)
			assert.NotEmpty(f.t, r.HAProxy[2].Error, "it is named")
			assert.NotEmpty(f.t, f.status().Intents[0].Drift)
			resume()
			f.awaitDrained(3)
			f.heavyTraffic.rule.Store(mustRefuse)
			f.fastTraffic.rule.Store(mustServe)
			f.settle(f.heavyTraffic, 30)
			f.readmitHeavy()
			for _, h := range f.HAProxies {
				assert.Contains(f.t, f.admin(h, "heavy", "h1"), " 0 ", h.Name)
			}
		}
	})
}

func TestFault08_OneOfThreeHAProxiesFailsDuringAReadmit(t *testing.T) {
	faults(t, "8 one of three fails in a readmit", worldOptions{haproxies: 3, agentYAML: patient}, func(f *fault) {
		f.checked()
		f.quiesceHeavy()
		// The readmit's own probe is held until the third HAProxy is stopped: it
		// has been read, and will not be there to be opened.
		release, reached := f.heavy.Hold(engine.Models)
		defer release()
		pid, err := f.HAProxies[2].WorkerPID()
		require.NoError(f.t, err)
		n, err := strconv.Atoi(pid)
		require.NoError(f.t, err)
		<-reached // a routine probe, which the readmit waits for
		before := f.heavyGeneration()
		done := make(chan int, 1)
		go func() {
			_, _, code := f.CLI(f.t.Context(), "readmit", "heavy", "--wait", "30s")
			done <- code
		}()
		require.NoError(f.t, lab.Within(15*time.Second, func() error {
			if f.heavyGeneration() == before {
				return fmt.Errorf("the readmit has not invalidated %s", before)
			}
			return nil
		}))
		// The readmit has begun: the next probe of heavy is its own.
		again, readmits := f.heavy.Hold(engine.Models)
		defer again()
		release()
		<-readmits
		f.fastTraffic.rule.Store(either)
		f.heavyTraffic.rule.Store(either) // two of the three may open, on good evidence, until the third fails
		resume := stopProcess(f.t, n)
		again()
		assert.Equal(f.t, 1, <-done)
		for _, h := range f.HAProxies[:2] {
			assert.Contains(guarantee.T(f.t), f.admin(h, "heavy", "h1"), " 8 ", h.Name)
		}
		resume()
		f.awaitDrained(3)
		f.heavyTraffic.rule.Store(mustRefuse)
		f.fastTraffic.rule.Store(mustServe)
		f.settle(f.heavyTraffic, 30)
		f.readmitHeavy()
	})
}

// Somebody who takes every CLI connection of a HAProxy cannot keep a command
// hanging.
func TestFault11_AllCLISlotsAreTaken(t *testing.T) {
	faults(t, "11 all CLI slots taken", worldOptions{}, func(f *fault) {
		free := f.takeSlots(f.HAProxies[0])
		asked := time.Now()
		r := f.verb(1, "quiesce", "heavy", "--reason", "swap")
		assert.Less(f.t, time.Since(asked), 10*time.Second)
		assert.Equal(f.t, "incomplete", string(r.Outcome))
		assert.Contains(f.t, r.HAProxy[0].Error, "did not answer in time")
		f.heavyTraffic.rule.Store(either) // closed by the checks, at their next turn
		f.waitStatus("heavy", 503)
		f.heavyTraffic.rule.Store(mustRefuse)
		free()
		f.awaitDrained(1)
		f.readmitHeavy()
	})
}

// slots are the CLI connections that HAProxy serves at once, unless "stats maxconn"
// says otherwise.
const slots = 10

// takeSlots holds every CLI connection that HAProxy serves, and has one more wait: where
// tier-agent has a slot at this moment, that one gets it next, and not tier-agent again.
func (f *fault) takeSlots(h *lab.HAProxy) (free func()) {
	f.t.Helper()
	var taken []net.Conn
	free = func() {
		for _, c := range taken {
			_ = c.Close()
		}
	}
	f.t.Cleanup(free)
	served := make(chan struct{}, slots+1)
	for range cap(served) {
		var c net.Conn
		// The socket's backlog holds few more than that: until HAProxy accepts, a further
		// connect fails.
		require.NoError(f.t, lab.Within(10*time.Second, func() (err error) {
			c, err = net.DialTimeout("unix", h.RuntimeSocket(), 5*time.Second)
			return err
		}))
		taken = append(taken, c)
		_, err := fmt.Fprint(c, "prompt\n")
		require.NoError(f.t, err)
		go func() {
			if _, err := bufio.NewReader(c).ReadString('>'); err == nil {
				served <- struct{}{}
			}
		}()
	}
	deadline := time.After(10 * time.Second)
	for n := range slots {
		select {
		case <-served:
		case <-deadline:
			require.Fail(f.t, "HAProxy does not serve so many", "%d of %d", n, slots)
		}
	}
	return free
}

// awaitDrained waits until the reconciler has heavy drained on the first n.
func (f *fault) awaitDrained(n int) {
	f.t.Helper()
	require.NoError(f.t, lab.Within(20*time.Second, func() error {
		for _, h := range f.HAProxies[:n] {
			if row := f.admin(h, "heavy", "h1"); !strings.Contains(row, " 8 ") {
				return fmt.Errorf("%s: %s", h.Name, row)
			}
		}
		if st := f.status(); len(st.Intents[0].Drift) > 0 {
			return fmt.Errorf("%v", st.Intents[0].Drift)
		}
		return nil
	}))
}
