package fence

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const benchServers = 10_000

func benchFence(tb testing.TB) (*Fence, []string) {
	tb.Helper()
	f := New(time.Now)
	list := make([]Member, benchServers)
	names := make([]string, benchServers)
	for i := range list {
		names[i] = fmt.Sprintf("pool%d/srv%d", i%100, i)
		list[i] = Member{Tier: fmt.Sprintf("tier%d", i%100), Server: names[i], Subject: names[i], MaxAge: time.Hour}
	}
	require.NoError(tb, f.Replace(list))
	for _, name := range names {
		f.Complete(f.BeginProbe(name), Observation{Ready: true, Reason: "health_passed"})
	}
	return f, names
}

func TestReadsAllocateNothing(t *testing.T) {
	f, names := benchFence(t)
	wire := []byte(names[7])
	assert.Zero(t, testing.AllocsPerRun(1000, func() { f.Current(names[7]) }))
	assert.Zero(t, testing.AllocsPerRun(1000, func() { f.CurrentBytes(wire) }))
}

// The baseline reads the same map without a fence around it.
func BenchmarkRead(b *testing.B) {
	f, names := benchFence(b)
	plain := make(map[string]Observation, len(names))
	for _, name := range names {
		plain[name] = Observation{Ready: true}
	}
	b.Run("baseline_map", func(b *testing.B) {
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for i := 0; pb.Next(); i++ {
				if o := plain[names[i%len(names)]]; !o.Ready {
					b.Error("not ready")
				}
			}
		})
	})
	b.Run("fence", func(b *testing.B) {
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for i := 0; pb.Next(); i++ {
				if v := f.Current(names[i%len(names)]); !v.Ready {
					b.Error("not ready")
				}
			}
		})
	})
}

func BenchmarkPublish(b *testing.B) {
	f, names := benchFence(b)
	obs := Observation{Ready: true, Reason: "health_passed"}
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for i := 0; pb.Next(); i++ {
			f.Complete(f.BeginProbe(names[i%len(names)]), obs)
		}
	})
}

func BenchmarkInvalidateTier(b *testing.B) {
	f, _ := benchFence(b)
	for b.Loop() {
		f.InvalidateTier("tier7")
	}
}
