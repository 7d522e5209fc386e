package probe

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const benchmarkServer = "PROBE_BENCHMARK_SERVER"

// serveBenchmark makes this process the engine of a benchmark, so that the processor time of the
// benchmark's own process is the probe's alone. It ends with its stdin.
func serveBenchmark() bool {
	if os.Getenv(benchmarkServer) == "" {
		return false
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	fmt.Println(l.Addr())
	go func() {
		_ = http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/v1/models" {
				_, _ = io.WriteString(w, models)
			}
		}))
	}()
	_, _ = io.Copy(io.Discard, os.Stdin)
	return true
}

func startBenchmarkServer(b *testing.B) *url.URL {
	c := exec.Command(os.Args[0])
	c.Env = append(os.Environ(), benchmarkServer+"=1")
	in, err := c.StdinPipe()
	require.NoError(b, err)
	out, err := c.StdoutPipe()
	require.NoError(b, err)
	require.NoError(b, c.Start())
	b.Cleanup(func() {
		_ = in.Close()
		_ = c.Wait()
	})
	address, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(b, err)
	return &url.URL{Scheme: "http", Host: strings.TrimSpace(address)}
}

func cpu(b *testing.B) time.Duration {
	var u syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func measure(b *testing.B, once func() bool) {
	b.ReportAllocs()
	before := cpu(b)
	for b.Loop() {
		if !once() {
			b.Fatal("not ready")
		}
	}
	b.ReportMetric(float64((cpu(b)-before).Microseconds())/float64(b.N), "cpu-us/op")
}

// BenchmarkProbe is health and identity over loopback, against what net/http's Transport costs
// for the same two requests in the two ways that would also share no connection between probes.
func BenchmarkProbe(b *testing.B) {
	u := startBenchmarkServer(b)
	target := want(u).withIdentity()
	b.Run("probe", func(b *testing.B) {
		p := New(Options{})
		measure(b, func() bool { return p.Probe(b.Context(), target).Ready })
	})
	b.Run("probe/parallel", func(b *testing.B) {
		p := New(Options{})
		b.ReportAllocs()
		before := cpu(b)
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				if !p.Probe(b.Context(), target).Ready {
					b.Error("not ready")
				}
			}
		})
		b.ReportMetric(float64((cpu(b)-before).Microseconds())/float64(b.N), "cpu-us/op")
	})
	twoGets := func(t *http.Transport) bool {
		for _, path := range []string{"/health", "/v1/models"} {
			request, err := http.NewRequestWithContext(b.Context(), http.MethodGet, u.JoinPath(path).String(), nil)
			require.NoError(b, err)
			answer, err := t.RoundTrip(request)
			require.NoError(b, err)
			body, err := io.ReadAll(answer.Body)
			require.NoError(b, err)
			_ = answer.Body.Close()
			if path == "/v1/models" {
				found, err := matchIdentity(b.Context(), body, "m1")
				return found && err == nil
			}
		}
		return false
	}
	b.Run("transport for each probe", func(b *testing.B) {
		measure(b, func() bool {
			t := &http.Transport{DisableCompression: true}
			defer t.CloseIdleConnections()
			return twoGets(t)
		})
	})
	b.Run("shared transport without keep-alives", func(b *testing.B) {
		t := &http.Transport{DisableCompression: true, DisableKeepAlives: true}
		measure(b, func() bool { return twoGets(t) })
	})
}

// BenchmarkProbeTLS is one whole handshake and health.
func BenchmarkProbeTLS(b *testing.B) {
	cert := newCertificate(b)
	u, _ := https(b, cert)
	p := New(Options{TLS: cert.client()})
	measure(b, func() bool { return p.Probe(b.Context(), want(u)).Ready })
}

// BenchmarkWorstBody is the judging of the largest answers that hurt most.
func BenchmarkWorstBody(b *testing.B) {
	for name, body := range map[string]string{
		"empty objects": "[" + strings.Repeat("{},", MaxBody/3-1) + "{}]",
		"many keys":     manyKeys(),
		"many members":  "[" + strings.Repeat(`{"id":0},`, MaxBody/9-1) + "{}]",
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_, _ = matchIdentity(b.Context(), []byte(body), "m1")
			}
		})
	}
}

func manyKeys() string {
	var s strings.Builder
	s.WriteString("[{")
	for i := 0; s.Len() < MaxBody-20; i++ {
		fmt.Fprintf(&s, `"%x":0,`, i)
	}
	s.WriteString(`"id":0}]`)
	return s.String()
}
