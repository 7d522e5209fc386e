package agentcheck

import (
	"context"
	"net"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tier-agent/internal/agentcheck/agentbench"
)

// BenchmarkAnswers and BenchmarkBareServer take the same client against the two
// servers. Compare their answers/s from one run, and take several
// (-count): a single pair on a busy machine says little.
func BenchmarkAnswers(b *testing.B) {
	ln := listenLoopback(b)
	s := NewServer(fixed{State{Ready: true}}, Options{})
	go func() { _ = s.Serve(context.Background(), ln) }()
	b.Cleanup(func() { _ = s.Shutdown(context.Background()) })
	pollFor(b, ln.Addr().String())
}

func BenchmarkBareServer(b *testing.B) {
	ln := listenLoopback(b)
	go agentbench.Bare(ln)
	b.Cleanup(func() { _ = ln.Close() })
	pollFor(b, ln.Addr().String())
}

func BenchmarkReply(b *testing.B) {
	var buf [128]byte
	b.ReportAllocs()
	for b.Loop() {
		AppendReply(buf[:0], State{Reason: "probe_stale"}, true)
	}
}

// pollFor ignores b.N: a rate over one second is what is asked for.
func pollFor(b *testing.B, addr string) {
	b.Helper()
	const d = time.Second
	n, err := agentbench.Run(addr, 4*runtime.GOMAXPROCS(0), d)
	require.NoError(b, err)
	b.ReportMetric(float64(n)/d.Seconds(), "answers/s")
	b.ReportMetric(0, "ns/op")
}

func listenLoopback(tb testing.TB) net.Listener {
	tb.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(tb, err)
	return ln
}

type fixed struct{ st State }

func (f fixed) AgentState([]byte) (State, bool) { return f.st, true }

func (f fixed) Continues([]byte) bool { return false }
