package config

import (
	"fmt"
	"time"
)

// Probe is how the servers of a tier are probed.
type Probe struct {
	Interval time.Duration // between the starts of two probes, 50ms to 1h, default 1s
	Timeout  time.Duration // for one whole probe, 10ms to 5m, default 800ms
	// MaxAge is the age at which evidence is none any more, default 5s, or 3 x Interval +
	// Timeout where that is more: one probe may have no answer, and evidence is not too
	// old before the next has one. It is more than Interval + Timeout, or evidence would
	// lapse between two good probes.
	MaxAge  time.Duration
	Jitter  float64 // fraction of Interval, 0 to 0.5, default 0.1
	MaxBody int64   // bytes of a response that are read, 256 to 1 MiB, default 64 KiB
}

func defaultProbe() Probe {
	return Probe{
		Interval: time.Second,
		Timeout:  800 * time.Millisecond,
		MaxAge:   5 * time.Second,
		Jitter:   0.1,
		MaxBody:  64 << 10,
	}
}

// probe overrides in p what v gives.
func (d *decoder) probe(v value, p *Probe) {
	d.mapping(v, []field{
		{key: "interval", decode: func(v value) {
			p.Interval, _ = d.duration(v, 50*time.Millisecond, time.Hour)
		}},
		{key: "timeout", decode: func(v value) {
			p.Timeout, _ = d.duration(v, 10*time.Millisecond, 5*time.Minute)
		}},
		{key: "max_age", decode: func(v value) {
			p.MaxAge, _ = d.duration(v, time.Millisecond, 24*time.Hour)
		}},
		{key: "jitter", decode: func(v value) {
			p.Jitter, _ = d.percent(v, 0, 50)
		}},
		{key: "max_body", decode: func(v value) {
			p.MaxBody, _ = d.size(v, 256, 1<<20)
		}},
	})
}

// maxAge fills in what the file is silent about, for the tier at path.
func (d *decoder) maxAge(path string, p *Probe) {
	for _, source := range []string{"probe.max_age", child(path, "probe.max_age")} {
		if _, ok := d.given[source]; ok {
			return
		}
	}
	p.MaxAge = max(p.MaxAge, 3*p.Interval+p.Timeout)
}

// probeRelation checks the merged probe of the tier at path. The problem stands at
// the tier's own value, or else at the common one, where it is told once for all
// the tiers that inherit it.
func (d *decoder) probeRelation(path string, p Probe) {
	if p.MaxAge > p.Interval+p.Timeout || !d.sound("probe", child(path, "probe")) {
		return
	}
	var own, common []string
	for _, key := range []string{"max_age", "interval", "timeout"} {
		source := child(child(path, "probe"), key)
		if _, ok := d.given[source]; ok {
			own = append(own, source)
		} else {
			source = child("probe", key)
			common = append(common, source)
		}
		if !d.sound(source) {
			return
		}
	}
	d.add(d.locate(append(own, common...)...),
		fmt.Sprintf("max_age %s is not more than interval %s + timeout %s", units(p.MaxAge), units(p.Interval), units(p.Timeout)),
		fmt.Sprintf("give a max_age above %s, or a shorter interval or timeout", units(p.Interval+p.Timeout)))
}
