package main

import (
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"tier-agent/internal/fence"
)

const servers = 10_000

// fenceTable compares reading and publishing through the fence with the same
// through a map behind one lock, which fences nothing.
func fenceTable() error {
	names := make([]string, servers)
	members := make([]fence.Member, servers)
	for i := range names {
		names[i] = fmt.Sprintf("pool%d/srv%d", i%100, i)
		members[i] = fence.Member{Tier: fmt.Sprintf("tier%d", i%100), Server: names[i], MaxAge: time.Hour}
	}
	f := fence.New(time.Now)
	if err := f.Replace(members); err != nil {
		return err
	}
	obs := fence.Observation{Ready: true, Reason: "health_passed"}
	bare := &lockedMap{of: map[string]stamped{}}
	for _, name := range names {
		f.Complete(f.BeginProbe(name), obs)
		bare.publish(name, obs)
	}
	rows := [][]string{{"", "cores", "ns/op", "allocs/op", "map behind a lock, ns/op", "allocs/op"}}
	for _, op := range []struct {
		name         string
		fence, plain func(string)
	}{
		{"read", func(n string) { f.Current(n) }, func(n string) { bare.read(n) }},
		{"publish", func(n string) { f.Complete(f.BeginProbe(n), obs) }, func(n string) { bare.publish(n, obs) }},
	} {
		for _, cores := range []int{1, 2} {
			ours, theirs := measure(cores, names, op.fence), measure(cores, names, op.plain)
			rows = append(rows, []string{
				op.name, fmt.Sprint(cores),
				fmt.Sprint(ours.NsPerOp()), fmt.Sprint(ours.AllocsPerOp()),
				fmt.Sprint(theirs.NsPerOp()), fmt.Sprint(theirs.AllocsPerOp()),
			})
		}
	}
	return table(fmt.Sprintf("Fence, %d servers", servers), rows)
}

func measure(cores int, names []string, op func(string)) testing.BenchmarkResult {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(cores))
	return testing.Benchmark(func(b *testing.B) {
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for i := 0; pb.Next(); i++ {
				op(names[i%len(names)])
			}
		})
	})
}

// lockedMap is the baseline: the same look-up, the same clock, no fence.
type lockedMap struct {
	mu sync.RWMutex // protects of
	of map[string]stamped
}

type stamped struct {
	obs fence.Observation
	at  time.Time
}

func (m *lockedMap) read(name string) (bool, time.Duration) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	s := m.of[name]
	return s.obs.Ready, time.Since(s.at)
}

func (m *lockedMap) publish(name string, obs fence.Observation) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.of[name] = stamped{obs: obs, at: time.Now()}
}
