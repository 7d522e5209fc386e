package config

import (
	"fmt"
	"math"
	"strings"
	"time"
)

// Admission is how a tier's admission is held.
type Admission string

const (
	// AdmissionRuntime drives HAProxy through its Runtime API.
	AdmissionRuntime Admission = "runtime"
	// AdmissionAgentCheck drives it by admin words in agent-check replies, for
	// where no Runtime API is to be had.
	AdmissionAgentCheck Admission = "agent-check"
)

// maxCount bounds rise and fall.
const maxCount = 100

// Tier is a group of interchangeable servers.
type Tier struct {
	Name     string
	Servers  []Server // at least one, or none where there are Members
	Members  *Members // nil where the servers are listed
	Health   Health
	Identity *Identity // nil for none
	Metadata *Metadata // nil for none
	Exercise *Exercise // nil for none
	MinReady int       // servers that must be ready for the tier to be, 1 to len(Servers) or Members.Max
	// ActivationMin is how many must be until the tier has been ready once since it
	// appeared: MinReady to len(Servers) or Members.Max, default MinReady.
	ActivationMin int
	Admission     Admission
	// Rise is how many probes in a row must pass before the evidence turns ready,
	// Fall how many must have no answer before it turns not ready: 1 to 100, default 2;
	// a wrong answer turns it at once. The
	// first probe after a start or an invalidation decides by itself.
	Rise, Fall int
	// StartWindow is how long a server that was never ready counts as loading, not as
	// failing: 0 to 24h, default 0.
	StartWindow time.Duration
	// Ramp is how long the weight takes to grow to the whole after a readmit: 0 to 1h,
	// default 0.
	Ramp time.Duration
	// QuiescedHealth: while quiesced, HAProxy's checks are told the engine's true
	// health instead of "down". Only the drain then keeps requests out; those that come
	// by a cookie, a stick rule or use-server it does not.
	QuiescedHealth bool
	// QuiescedDown: they are told "down" in any case. Without either, the health where
	// the gate keeps the tier closed.
	QuiescedDown bool
	Probe        Probe
}

// Identified says that probes compare something that tells the tier's engines from others.
func (t Tier) Identified() bool {
	return t.Identity != nil || t.Metadata != nil && (len(t.Metadata.Fields) > 0 || t.Metadata.Same != "")
}

func (d *decoder) tiers(v value, common Probe) []Tier {
	var all []Tier
	d.sequence(v, func(_ int, v value) {
		all = append(all, d.tier(v, common))
	})
	if all == nil && d.sound(v.path) {
		d.report(v.place, "no tier", "list at least one")
	}
	return all
}

func (d *decoder) tier(v value, common Probe) Tier {
	t := Tier{Health: defaultHealth(), MinReady: 1, Rise: 1, Fall: 2, Admission: AdmissionRuntime, Probe: common}
	listed := false
	d.mapping(v, []field{
		{key: "name", required: true, remedy: nameRemedy, decode: func(v value) {
			t.Name = d.ownName(v, "tier name", "give each tier a name of its own")
		}},
		{key: "servers", decode: func(v value) {
			t.Servers, listed = d.servers(v), true
		}},
		{key: "members", decode: func(v value) {
			t.Members = d.members(v)
		}},
		{key: "health", decode: func(v value) {
			d.health(v, &t.Health)
		}},
		{key: "identity", decode: func(v value) {
			t.Identity = d.identity(v)
		}},
		{key: "metadata", decode: func(v value) {
			t.Metadata = d.metadata(v)
		}},
		{key: "exercise", decode: func(v value) {
			t.Exercise = d.exercise(v)
		}},
		{key: "min_ready", decode: func(v value) {
			t.MinReady = d.minReady(v, t)
		}},
		{key: "activation_min", decode: func(v value) {
			t.ActivationMin = d.minReady(v, t)
		}},
		{key: "rise", decode: func(v value) {
			t.Rise, _ = d.integer(v, 1, maxCount)
		}},
		{key: "fall", decode: func(v value) {
			t.Fall, _ = d.integer(v, 1, maxCount)
		}},
		{key: "start_window", decode: func(v value) {
			t.StartWindow, _ = d.duration(v, 0, 24*time.Hour)
		}},
		{key: "ramp", decode: func(v value) {
			t.Ramp, _ = d.duration(v, 0, time.Hour)
		}},
		{key: "admission", decode: func(v value) {
			t.Admission = d.admission(v)
		}},
		{key: "quiesced_answer", decode: func(v value) {
			word := d.word(v, "answer", "down", "health")
			t.QuiescedHealth, t.QuiescedDown = word == "health", word == "down"
		}},
		{key: "probe", decode: func(v value) {
			d.probe(v, &t.Probe)
		}},
	})
	d.whence(v, t, listed)
	d.maxAge(v.path, &t.Probe)
	d.probeRelation(v.path, t.Probe)
	d.fallRelation(child(v.path, "fall"), t)
	d.activationRelation(v.path, &t)
	return t
}

// activationRelation fills in what the file is silent about, and checks that a
// tier asks no less of its first time than of any other.
func (d *decoder) activationRelation(tier string, t *Tier) {
	at := child(tier, "activation_min")
	if _, ok := d.given[at]; !ok {
		t.ActivationMin = t.MinReady
		return
	}
	if d.sound(at, child(tier, "min_ready")) && t.ActivationMin < t.MinReady {
		d.add(d.locate(at), fmt.Sprintf("%d is below min_ready, which is %d", t.ActivationMin, t.MinReady),
			"give at least as many, or leave it out: it is min_ready then")
	}
}

// fallRelation checks that fall is reached before the evidence is too old anyway.
func (d *decoder) fallRelation(fall string, t Tier) {
	reached := time.Duration(t.Fall-1)*t.Probe.Interval + t.Probe.Timeout
	if _, ok := d.given[fall]; !ok || !d.sound(fall, "probe", child(strings.TrimSuffix(fall, ".fall"), "probe")) || reached < t.Probe.MaxAge {
		return
	}
	d.add(d.locate(fall),
		fmt.Sprintf("%d failing probes take up to %s, and evidence is too old after max_age %s", t.Fall, units(reached), units(t.Probe.MaxAge)),
		"give a smaller fall, a longer max_age or a shorter interval")
}

// minReady decodes a number of servers that the tier may have.
func (d *decoder) minReady(v value, t Tier) int {
	most, what := len(t.Servers), "the number of servers"
	if t.Members != nil {
		most, what = t.Members.Max, "which is members.max"
	}
	want := fmt.Sprintf("a whole number from 1 to %d, %s", most, what)
	if most == 0 {
		// That is a problem already; a bound of 0 would be noise.
		most, want = math.MaxInt, "a whole number from 1 to the number of servers"
	}
	n, _ := d.whole(v, 1, most, want)
	return n
}

func (d *decoder) admission(v value) Admission {
	return Admission(d.word(v, "kind of admission", string(AdmissionRuntime), string(AdmissionAgentCheck)))
}

// admissions checks that each tier's admission can be held at all.
func (d *decoder) admissions(cfg *Config) {
	if len(cfg.HAProxy) > 0 || !d.sound("haproxy") {
		return
	}
	for i, tier := range cfg.Tiers {
		where := index("tiers", i)
		if tier.Admission != AdmissionRuntime || !d.sound(where, child(where, "admission")) {
			continue
		}
		at := d.locate(child(where, "admission"), child(where, "name"), where)
		at.path = child(where, "admission")
		d.add(at, "the tier is driven through the Runtime API, but no HAProxy is configured",
			"list the HAProxy under haproxy, or set admission: agent-check for this tier")
	}
}

// quiescedAnswers checks that a tier which gives up the checks' "down" has what
// keeps it closed across a reload instead.
func (d *decoder) quiescedAnswers(cfg *Config) {
	for i, tier := range cfg.Tiers {
		where := child(index("tiers", i), "quiesced_answer")
		if !tier.QuiescedHealth || !d.sound(where, "haproxy") {
			continue
		}
		if tier.Admission == AdmissionAgentCheck {
			d.report(d.locate(where), `"health" needs a drain in HAProxy, which this tier's agent-check does not hold`, "set quiesced_answer: down, or admission: runtime")
			continue
		}
		for _, in := range cfg.HAProxy {
			if in.StateFile == "" {
				d.report(d.locate(where), `"health" leaves nothing that keeps the tier closed when HAProxy `+quote(in.Name)+" is reloaded", "give that HAProxy a state_file, or set quiesced_answer: down")
			}
		}
	}
}
