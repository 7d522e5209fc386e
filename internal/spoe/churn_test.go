package spoe

import (
	"context"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"tier-agent/test/guarantee"
)

// A thousand connections that come and go, in whatever they were, leave nothing:
// no goroutine, no place and less than 1 MiB, where one kept buffer of each would
// be 4 MiB.
//
// Negative control: with forget taken out of release, the test never ended. That
// each connection is closed is what talk asserts.
func TestChurn(t *testing.T) {
	const rounds, each = 10, 100
	before := goleak.IgnoreCurrent()
	var kinds tally
	ln := listen(t, "tcp")
	// No clock ends them: on a busy machine a round takes its time.
	s, stop := serve(t, tiers, kinds.with(Options{HelloTimeout: time.Hour, FrameTimeout: time.Hour}), ln)
	churn := func() {
		var conns []net.Conn
		for i := range each {
			c, err := net.Dial("tcp", ln.Addr().String())
			require.NoError(t, err)
			conns = append(conns, c)
			switch i % 4 {
			case 0: // silent
			case 1:
				send(t, c, greet()[:9])
			case 2:
				send(t, c, greet(), asks(1, 2))
				readFrames(t, c, 3)
			case 3:
				send(t, c, greet(), asks(1, 1), asks(1, 1)[:9])
				readFrames(t, c, 2)
			}
		}
		for i, c := range conns {
			if i%3 == 0 {
				require.NoError(t, c.(*net.TCPConn).SetLinger(0))
			}
			require.NoError(t, c.Close())
		}
		for s.Connections() > 0 { // the peers have gone, so each ends by itself
			runtime.Gosched()
		}
	}
	churn()
	base := heap()
	for range rounds {
		churn()
	}
	assert.Less(guarantee.T(t), int64(heap())-int64(base), int64(1<<20))
	s.mu.Lock()
	assert.Empty(guarantee.T(t), s.live)
	assert.Empty(guarantee.T(t), s.peers)
	s.mu.Unlock()
	stop()
	goleak.VerifyNone(guarantee.T(t), before)
	n := (rounds + 1) * each
	assert.Equal(t, map[string]int{"admitted": n / 4 * 3, "closed": n}, kinds.all())
}

func heap() uint64 {
	runtime.GC()
	runtime.GC() // what the pools have kept goes with the second
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// turning is a Source whose verdicts change all the time.
type turning struct{ at atomic.Pointer[table] }

func (s *turning) SPOEVerdict(tier, server []byte) (Verdict, bool) {
	return s.at.Load().SPOEVerdict(tier, server)
}

// Everything at once, for the race detector: each question that was asked before
// the server closes is answered in order, then comes the AGENT-DISCONNECT.
//
// Negative control: with the lock taken out of release, a race was found.
func TestStress(t *testing.T) {
	const conns, batch, ahead, rounds = 16, 10, 4, 20
	var kinds tally
	src := &turning{}
	src.at.Store(&tiers)
	ln := listen(t, "tcp")
	s := NewServer(src, kinds.with(Options{}))
	served := make(chan error, 1)
	go func() { served <- s.Serve(context.Background(), ln) }()

	over := make(chan struct{})
	var turns, warm, peers sync.WaitGroup
	turns.Go(func() {
		closed := table{"gold": stale, "lead": ready}
		for i := 0; ; i++ {
			select {
			case <-over:
				return
			default:
				src.at.Store([]*table{&tiers, &closed}[i%2])
				runtime.Gosched()
			}
		}
	})
	warm.Add(conns)
	var answered atomic.Int64
	for range conns {
		c := dial(t, ln)
		peers.Go(func() {
			send(t, c, greet(), asks(1, ahead*batch))
			readFrames(t, c, 1)
			for n := uint64(1); ; n++ {
				f := readFrames(t, c, 1)[0]
				if f.kind == agentDisconnect {
					assert.Equal(t, statusNormal, f.goodbye(t))
					assert.Greater(t, n, uint64(rounds*batch))
					return
				}
				answered.Add(1)
				assert.Equal(t, n, f.stream)
				if n == rounds*batch {
					warm.Done()
				}
				if n%batch == 0 {
					_, _ = c.Write(asks(int(n)+1+(ahead-1)*batch, batch)) // fails once the server has closed
				}
			}
		})
	}
	warm.Wait()
	s.Retire()
	assert.NoError(t, s.Shutdown(context.Background()))
	assert.NoError(t, <-served)
	peers.Wait()
	close(over)
	turns.Wait()
	all := kinds.all()
	assert.Equal(t, conns, all["stopped"])
	assert.EqualValues(t, answered.Load(), all["admitted"]+all["refused"])
	assert.Positive(t, all["admitted"])
	assert.Positive(t, all["refused"])
}
