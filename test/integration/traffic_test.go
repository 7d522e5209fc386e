package integration

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tier-agent/test/guarantee"
	"tier-agent/test/lab"
)

// What a request to a tier is held to. Between the two, while a transition runs,
// it is held to nothing.
const (
	either int32 = iota
	mustServe
	mustRefuse
)

// rule is what requests are held to now. Each Store is a new rule, also of the
// same kind.
type rule struct{ word atomic.Int64 }

func (r *rule) Store(kind int32) { r.word.Store((r.word.Load()>>8+1)<<8 | int64(kind)) }

// traffic is a request loop on one tier that accounts for every request. One
// that began and ended under the same rule is held to it.
type traffic struct {
	rule                rule
	sent, reached, lost atomic.Int64
	stopped             sync.WaitGroup
	cancel              context.CancelFunc
	first               sync.Map // rule -> the first answer that broke it
}

// pace is the time between two requests of a loop. Without it a long test uses up
// loopback's ports: each request takes two, each is kept for a minute, and a probe
// that meets one of them waits for seconds.
const pace = 2 * time.Millisecond

func (w *world) traffic(tier string, through ...*lab.HAProxy) *traffic {
	return w.trafficBy(func(ctx context.Context, h *lab.HAProxy) (lab.Answer, error) { return h.Ask(ctx, tier) }, through...)
}

// trafficBy is traffic of requests that ask makes.
func (w *world) trafficBy(ask func(context.Context, *lab.HAProxy) (lab.Answer, error), through ...*lab.HAProxy) *traffic {
	if through == nil {
		through = w.HAProxies
	}
	ctx, cancel := context.WithCancel(context.Background())
	tr := &traffic{cancel: cancel}
	for _, h := range through {
		tr.stopped.Go(func() {
			for ctx.Err() == nil {
				rule := tr.rule.word.Load()
				a, err := ask(context.WithoutCancel(ctx), h)
				tr.sent.Add(1)
				if rule == tr.rule.word.Load() {
					tr.account(int32(rule&0xff), a, err)
				}
				time.Sleep(pace)
			}
		})
	}
	w.t.Cleanup(tr.stop)
	return tr
}

func (tr *traffic) account(rule int32, a lab.Answer, err error) {
	served := err == nil && a.Status == http.StatusOK
	switch {
	case rule == mustRefuse && served:
		tr.reached.Add(1)
	case rule == mustServe && !served:
		tr.lost.Add(1)
	default:
		return
	}
	tr.first.LoadOrStore(rule, fmt.Sprintf("%d %v %.80s", a.Status, err, a.Body))
}

func (tr *traffic) stop() {
	tr.cancel()
	tr.stopped.Wait()
}

// fault is one row of the table that make soak prints.
type fault struct {
	*world
	heavyTraffic, fastTraffic *traffic
	began                     time.Time
}

// faults runs test on every version, with a request loop on both tiers.
func faults(t *testing.T, name string, o worldOptions, test func(*fault)) {
	t.Helper()
	onEach(t, func(t *testing.T, haproxy string) {
		w := newWorldWith(t, haproxy, o)
		f := &fault{world: w, began: time.Now()}
		f.heavyTraffic, f.fastTraffic = w.traffic("heavy"), w.traffic("fast")
		f.fastTraffic.rule.Store(mustServe)
		test(f)
		f.heavyTraffic.stop()
		f.fastTraffic.stop()
		f.report(name)
	})
}

func (f *fault) report(name string) {
	f.t.Helper()
	sent := f.heavyTraffic.sent.Load() + f.fastTraffic.sent.Load()
	reached := f.heavyTraffic.reached.Load() + f.fastTraffic.reached.Load()
	lost := f.heavyTraffic.lost.Load() + f.fastTraffic.lost.Load()
	broke := func(tr *traffic, rule int32) any { v, _ := tr.first.Load(rule); return v }
	assert.Zero(guarantee.T(f.t), reached, "requests reached a closed tier: %v", broke(f.heavyTraffic, mustRefuse))
	assert.Zero(guarantee.T(f.t), lost, "requests were lost on an open tier: heavy %v, fast %v",
		broke(f.heavyTraffic, mustServe), broke(f.fastTraffic, mustServe))
	if table := os.Getenv("TIER_AGENT_SOAK_TABLE"); table != "" {
		version := f.t.Name()[strings.LastIndexByte(f.t.Name(), '/')+1:]
		row := fmt.Sprintf("| %s | %s | %d | %d | %d | %.0f |\n", name, version, sent, reached, lost, time.Since(f.began).Seconds())
		file, err := os.OpenFile(table, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
		require.NoError(f.t, err)
		defer file.Close()
		_, err = file.WriteString(row)
		require.NoError(f.t, err)
	}
}

// times is n in make soak, and few otherwise.
func times(n int) int {
	if os.Getenv("TIER_AGENT_SOAK_TABLE") != "" {
		return n
	}
	return min(n, 3)
}

// checked waits until every HAProxy has checked both tiers. A worker that has just
// started lets requests in unasked, and the first check that fails closes: what
// takes tier-agent or HAProxy away before that tests something else.
func (w *world) checked() {
	w.t.Helper()
	for _, h := range w.HAProxies {
		for backend, server := range map[string]string{"heavy": "h1", "fast": "f1"} {
			require.NoError(w.t, lab.Within(15*time.Second, func() error {
				row, err := readStat(h, backend, server)
				if status := row["check_status"]; err == nil && (status == "" || strings.HasSuffix(status, "INI")) {
					err = fmt.Errorf("check %q", status)
				}
				return err
			}), "the first check of %s by %s", backend, h.Name)
		}
	}
}

// settle lets so many requests of a loop go by.
func (f *fault) settle(tr *traffic, requests int64) {
	f.t.Helper()
	from := tr.sent.Load()
	require.NoError(f.t, lab.Within(2*time.Minute, func() error {
		if n := tr.sent.Load() - from; n < requests {
			return fmt.Errorf("%d requests of %d", n, requests)
		}
		return nil
	}))
}

func (f *fault) quiesceHeavy() {
	f.t.Helper()
	f.verb(0, "quiesce", "heavy", "--reason", "swap")
	f.heavyTraffic.rule.Store(mustRefuse)
}

func (f *fault) readmitHeavy() {
	f.t.Helper()
	f.heavyTraffic.rule.Store(either)
	f.verb(0, "readmit", "heavy", "--wait", "2s")
	f.heavyTraffic.rule.Store(mustServe)
	f.settle(f.heavyTraffic, 10)
}
