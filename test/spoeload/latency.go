package spoeload

import (
	"math/bits"
	"slices"
	"time"
)

// Result is what came of a turn of load.
type Result struct {
	PerSecond float64 // answers, over the measured time
	P50, P99  time.Duration
	Measured  int // answers in the measured time
	Total     int // answers in all, those of the warm-up and of the end included
}

// steps divide each power of two: a quantile is at most 1/steps too high.
const steps = 64

// latencies counts durations without an allocation, each in the bucket of its
// power of two and its step in that.
type latencies [36 * steps]uint32

func (l *latencies) add(d time.Duration) {
	v := uint64(max(d, 0))
	shift := max(0, bits.Len64(v)-bits.Len(steps))
	l[min(uint64(shift*steps)+v>>shift, uint64(len(l)-1))]++
}

// quantile is the upper end of the bucket in which the fraction q is reached.
func (l *latencies) quantile(q float64) time.Duration {
	var all, seen float64
	for _, n := range l {
		all += float64(n)
	}
	for i, n := range l {
		if seen += float64(n); n > 0 && seen >= q*all {
			shift := max(0, i/steps-1)
			return time.Duration((i-shift*steps+1)<<shift - 1)
		}
	}
	return 0
}

// tally is what one connection counts.
type tally struct {
	clock    window
	lat      latencies
	measured int
	total    int
}

func (t *tally) note(sent, now time.Duration) {
	t.total++
	if now >= t.clock.from && now < t.clock.until {
		t.measured++
		t.lat.add(now - sent)
	}
}

// window is the measured part of a turn, since its start.
type window struct {
	start       time.Time
	from, until time.Duration
}

func (w window) now() time.Duration { return time.Since(w.start) }

func sum(of []tally) Result {
	var all latencies
	var r Result
	for i := range of {
		r.Measured += of[i].measured
		r.Total += of[i].total
		for n, count := range of[i].lat {
			all[n] += count
		}
	}
	if len(of) > 0 {
		r.PerSecond = float64(r.Measured) / (of[0].clock.until - of[0].clock.from).Seconds()
	}
	r.P50, r.P99 = all.quantile(0.50), all.quantile(0.99)
	return r
}

// Median is the median of the turns' figures, each for itself; the counts are
// of all turns together.
func Median(turns []Result) Result {
	var r Result
	var rates []float64
	var p50, p99 []time.Duration
	for _, t := range turns {
		r.Measured += t.Measured
		r.Total += t.Total
		rates, p50, p99 = append(rates, t.PerSecond), append(p50, t.P50), append(p99, t.P99)
	}
	r.PerSecond, r.P50, r.P99 = middle(rates), middle(p50), middle(p99)
	return r
}

func middle[T float64 | time.Duration](of []T) T {
	if len(of) == 0 {
		return 0
	}
	slices.Sort(of)
	return (of[(len(of)-1)/2] + of[len(of)/2]) / 2
}
