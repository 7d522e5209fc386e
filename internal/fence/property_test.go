package fence

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"tier-agent/test/guarantee"
)

// played is a fence and its model, to which the same happens.
type played struct {
	f      *Fence
	m      *model
	c      *clock
	origin time.Time
	engine map[string]int // number of the instance that answers now
	open   []*Ticket
}

var allServers = []string{h1, h2, f1}

func play(t *rapid.T) *played {
	c := &clock{t: time.Unix(1_800_000_000, 0)}
	p := &played{f: New(c.now), c: c, origin: c.now(), engine: map[string]int{}}
	p.m = newModel(Member{
		Rise:        rapid.IntRange(1, 3).Draw(t, "rise"),
		Fall:        rapid.IntRange(1, 3).Draw(t, "fall"),
		StartWindow: time.Duration(rapid.IntRange(0, 20).Draw(t, "start window")) * time.Second,
	})
	p.replace(t)
	return p
}

func (p *played) replace(t *rapid.T) {
	var now []Member
	for _, mem := range members() {
		if p.m.present[mem.Server] {
			mem.Rise, mem.Fall, mem.StartWindow = p.m.member.Rise, p.m.member.Fall, p.m.member.StartWindow
			now = append(now, mem)
		}
	}
	if err := p.f.Replace(now); err != nil {
		t.Fatal(err)
	}
}

func (p *played) launch(t *rapid.T, s string, direct bool) *Ticket {
	var ticket *Ticket
	if direct {
		ticket = p.f.BeginProbe(s)
	} else {
		var v Verdict
		ticket, v = p.f.BeginCheck(s)
		if ticket == nil {
			if want := p.m.expect(s); v.Reason != want.reason {
				guarantee.T(t).Errorf("check of %s: %s, the model says %s", s, v.Reason, want.reason)
				guarantee.T(t).FailNow()
			}
		}
	}
	want := p.m.present[s] && (direct || p.m.checks[s] == nil)
	if (ticket != nil) != want {
		guarantee.T(t).Errorf("probe of %s launched: %v, the model says %v", s, ticket != nil, want)
		guarantee.T(t).FailNow()
	}
	if ticket == nil {
		return nil
	}
	k := &flight{
		server: s, began: p.m.step, start: p.m.clock, isDirect: direct, id: fmt.Sprint(p.m.step),
		instance: fmt.Sprint(p.engine[s]),
	}
	p.m.flights[ticket] = k
	if !direct {
		p.m.checks[s] = k
	}
	return ticket
}

func (p *played) complete(t *rapid.T, ticket *Ticket, passes bool) {
	k := p.m.flights[ticket]
	delete(p.m.flights, ticket)
	k.ready = passes
	k.instance = rapid.SampledFrom([]string{"", k.instance, fmt.Sprint(p.engine[k.server])}).Draw(t, "instance")
	obs := failed()
	k.judged = !k.ready && rapid.Bool().Draw(t, "judged")
	obs.Judged = k.judged
	if k.ready {
		obs = ready(k.id)
	}
	obs.Instance = k.instance
	v := p.f.Complete(ticket, obs)
	reason, restarted := p.m.complete(k)
	if v.Reason != reason || v.Restarted != restarted {
		guarantee.T(t).Errorf("completion of %s: %s %v, the model says %s %v", k.server, v.Reason, v.Restarted, reason, restarted)
		guarantee.T(t).FailNow()
	}
	if v.Ready != (reason == "identity_passed") || !v.Ready && v.Metadata != nil {
		guarantee.T(t).Errorf("ready %v and metadata %v with %s", v.Ready, v.Metadata, v.Reason)
		guarantee.T(t).FailNow()
	}
}

func (p *played) begin(servers []string, direct bool) func(*rapid.T) {
	return func(t *rapid.T) {
		if len(p.open) > 12 {
			t.Skip("enough in flight")
		}
		if ticket := p.launch(t, rapid.SampledFrom(servers).Draw(t, "server"), direct); ticket != nil {
			p.open = append(p.open, ticket)
		}
	}
}

func (p *played) end(t *rapid.T) {
	if len(p.open) == 0 {
		t.Skip("nothing in flight")
	}
	i := rapid.IntRange(0, len(p.open)-1).Draw(t, "which")
	ticket := p.open[i]
	p.open = append(p.open[:i], p.open[i+1:]...)
	p.complete(t, ticket, rapid.Bool().Draw(t, "ready"))
}

// several probes the server a few times, one after another.
func (p *played) several(servers []string) func(*rapid.T) {
	return func(t *rapid.T) {
		s, passes := rapid.SampledFrom(servers).Draw(t, "server"), rapid.Bool().Draw(t, "ready")
		for range rapid.IntRange(1, 4).Draw(t, "times") {
			if ticket := p.launch(t, s, true); ticket != nil {
				p.complete(t, ticket, passes)
			}
			p.check(t)
		}
	}
}

func (p *played) restart(servers []string) func(*rapid.T) {
	return func(t *rapid.T) { p.engine[rapid.SampledFrom(servers).Draw(t, "server")]++ }
}

func (p *played) invalidate(t *rapid.T) {
	s := rapid.SampledFrom(allServers).Draw(t, "server")
	if _, ok := p.f.InvalidateServer(s); ok != p.m.present[s] {
		t.Fatalf("invalidation of %s: %v", s, ok)
	}
	p.m.void(s)
}

func (p *played) step(least, most int) func(*rapid.T) {
	return func(t *rapid.T) {
		d := time.Duration(rapid.IntRange(least, most).Draw(t, "seconds")) * time.Second
		p.m.clock += d
		p.c.step(d)
	}
}

// check compares every server, after every action.
func (p *played) check(t *rapid.T) {
	p.m.step++
	for _, s := range allServers {
		want := p.m.expect(s)
		v := p.f.Current(s)
		if v.Reason != want.reason || v.Ready != (want.id != "") || v.Metadata["id"] != want.id {
			guarantee.T(t).Errorf("%s: %+v, the model says %s %q", s, v, want.reason, want.id)
			guarantee.T(t).FailNow()
		}
		if v.Against != want.against || v.Starting != want.starting {
			t.Fatalf("%s: %+v, the model says against %d, starting %v", s, v, want.against, want.starting)
		}
		k := want.k
		if (k != nil) != v.HasEvidence() {
			guarantee.T(t).Errorf("%s: evidence %v, the model says %v", s, v.HasEvidence(), k != nil)
			guarantee.T(t).FailNow()
		}
		if k != nil && (v.Started.Sub(p.origin) != k.start || v.Ended.Sub(p.origin) != k.end) {
			t.Fatalf("%s: times %v %v, the model says %v %v", s, v.Started, v.Ended, k.start, k.end)
		}
	}
}

// Control: each of these, taken out alone, made it fail within 100 runs:
// `t.gen != s.generation()` and `t.issue < s.accepted` in complete, `s.removed`
// in complete, `s.evidence.gen != gen` in judge together with the calls of
// dropOutdated, the age check in weigh, `if s.checking` in BeginCheck.
func TestFenceAgreesWithItsModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := play(t)
		tierOf := map[string][]string{"heavy": {h1, h2}, "fast": {f1}}
		t.Repeat(map[string]func(*rapid.T){
			"check":             p.begin(allServers, false),
			"probe":             p.begin(allServers, true),
			"complete":          p.end,
			"several in a row":  p.several(allServers),
			"restart":           p.restart(allServers),
			"invalidate server": p.invalidate,
			"invalidate tier": func(t *rapid.T) {
				tier := rapid.SampledFrom([]string{"heavy", "fast"}).Draw(t, "tier")
				p.f.InvalidateTier(tier)
				p.m.void(tierOf[tier]...)
			},
			"invalidate all": func(t *rapid.T) { p.f.InvalidateAll(); p.m.void(allServers...) },
			"remove or add": func(t *rapid.T) {
				s := rapid.SampledFrom(allServers).Draw(t, "server")
				p.m.present[s] = !p.m.present[s]
				p.m.reborn(s)
				p.replace(t)
			},
			"clock": p.step(-4, 12),
			"":      p.check,
		})
	})
}

// The same for what one server's observations add up to, which takes longer runs
// of them than chance allows above.
//
// Control: each of these, taken out alone, made it fail within 100 runs: the reset
// of n, !first, t.n < s.rules.rise and t.n < s.rules.fall in count, s.fresh there
// and in standing, !t.proving, the emptying of against, and in restarted the
// advance of the epoch, proving and named.
func TestCountsAgreeWithTheModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := play(t)
		one := []string{h1}
		t.Repeat(map[string]func(*rapid.T){
			"probe":            p.begin(one, true),
			"complete":         p.end,
			"one":              p.several(one),
			"several in a row": p.several(one),
			"restart":          p.restart(one),
			"clock":            p.step(0, 4),
			"a jump":           p.step(-8, 12),
			"sometimes": func(t *rapid.T) {
				if rapid.IntRange(0, 3).Draw(t, "invalidate") > 0 {
					t.Skip("not now")
				}
				p.invalidate(t)
			},
			"": p.check,
		})
	})
}
