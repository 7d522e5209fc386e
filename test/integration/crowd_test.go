package integration

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tier-agent/test/engine"
)

// serveEngineOn serves one engine on several addresses.
func serveEngineOn(t *testing.T, model string, addresses []string) *engine.Engine {
	t.Helper()
	eng := engine.New(engine.Options{Model: model})
	srv := &http.Server{Handler: eng, ReadHeaderTimeout: 5 * time.Second}
	var wg sync.WaitGroup
	t.Cleanup(func() {
		eng.Close()
		_ = srv.Close()
		wg.Wait()
	})
	for _, address := range addresses {
		ln, err := net.Listen("tcp", address)
		require.NoError(t, err)
		wg.Go(func() { _ = srv.Serve(ln) }) // ends with http.ErrServerClosed
	}
	return eng
}

// asChecks is a client that takes a new connection for each question, as HAProxy's
// checks do.
var asChecks = &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}

// inTime asks again where tier-agent may have closed the connection because the question
// came too late: it waits a second for one, and a busy machine may keep the test from
// sending it for longer. A failure within that second is final, and so is a tier-agent
// that is silent until the client's timeout.
func inTime(ask func() error) (err error) {
	for range 10 {
		began := time.Now()
		if err = ask(); err == nil || os.IsTimeout(err) || time.Since(began) < time.Second {
			return err
		}
	}
	return err
}

// get asks tier-agent's HTTP for a path.
func (w *world) get(path string) (code int, body []byte, err error) {
	err = inTime(func() error {
		req, err := http.NewRequestWithContext(w.t.Context(), http.MethodGet, fmt.Sprintf("http://127.0.0.1:%d%s", w.Ports.HTTP, path), nil)
		if err != nil {
			return err
		}
		res, err := asChecks.Do(req)
		if err != nil {
			return err
		}
		defer res.Body.Close()
		code = res.StatusCode
		body, err = io.ReadAll(res.Body)
		return err
	})
	return code, body, err
}

// readyz asks tier-agent for a path and returns the status.
func (w *world) readyz(path string) (int, error) {
	code, _, err := w.get(path)
	return code, err
}

// agentCheck asks tier-agent about a server as HAProxy's agent-check does.
func (w *world) agentCheck(server string) (said string, err error) {
	err = inTime(func() error {
		if said, err = w.askAgentCheck(server); err == nil && said == "" {
			err = io.ErrUnexpectedEOF
		}
		return err
	})
	return said, err
}

func (w *world) askAgentCheck(server string) (string, error) {
	c, err := net.DialTimeout("tcp", fmt.Sprintf("127.0.0.1:%d", w.Ports.AgentCheck), 10*time.Second)
	if err != nil {
		return "", err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		return "", err
	}
	if _, err := fmt.Fprintf(c, "%s\n", server); err != nil {
		return "", err
	}
	answer, err := io.ReadAll(c)
	return string(answer), err
}

// percentiles are of so many answers' times.
type percentiles struct{ p50, p99, most time.Duration }

func (p percentiles) String() string {
	return fmt.Sprintf("p50 %v, p99 %v, longest %v", p.p50.Round(time.Microsecond), p.p99.Round(time.Microsecond), p.most.Round(time.Microsecond))
}

// timed asks one and the other n times, in turns, and measures each answer: what the
// machine does meanwhile, it does to both.
func timed(t *testing.T, n int, one, other func(n int) error) (ofOne, ofOther percentiles) {
	t.Helper()
	var took [2][]time.Duration
	for i := range n {
		for who, ask := range []func(n int) error{one, other} {
			began := time.Now()
			err := ask(i)
			took[who] = append(took[who], time.Since(began))
			require.NoError(t, err)
		}
	}
	var all [2]percentiles
	for who, took := range took {
		slices.Sort(took)
		all[who] = percentiles{took[n/2], took[n*99/100], took[n-1]}
	}
	return all[0], all[1]
}
