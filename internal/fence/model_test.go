package fence

import "time"

// model is what the fence should do, told another way: it keeps the history
// and no epochs. A probe counts if nothing voided its server since it began;
// what stands is worked out anew from all that has counted since.
type model struct {
	step    int // position in the history; every event has its own
	clock   time.Duration
	member  Member              // the rules, the same for all
	voided  map[string]int      // server -> position of what voided it last
	present map[string]bool     // configured now
	checks  map[string]*flight  // the flight that holds the place for Check
	kept    map[string]*flight  // completion that began last of those that counted
	flights map[*Ticket]*flight // not yet ended
	lives   map[string]*lived
}

type flight struct {
	server   string
	began    int
	start    time.Duration
	end      time.Duration
	ready    bool
	judged   bool
	id       string
	isDirect bool
	instance string
}

// lived is one server's time in the configuration.
type lived struct {
	counted  []*flight // since it was voided last
	restart  bool      // what voided it was a restart
	named    string    // instance that was named since it was voided last
	known    string    // instance that was named last
	appeared time.Duration
	wasReady bool
}

func newModel(rules Member) *model {
	m := &model{
		member: rules,
		voided: map[string]int{}, present: map[string]bool{}, checks: map[string]*flight{},
		kept: map[string]*flight{}, flights: map[*Ticket]*flight{}, lives: map[string]*lived{},
	}
	for _, s := range members() {
		m.present[s.Server], m.lives[s.Server] = true, new(lived)
	}
	return m
}

// expected is the model's verdict.
type expected struct {
	reason   string
	id       string  // where ready
	k        *flight // where there is evidence
	against  int
	starting bool
}

func (m *model) expect(server string) expected {
	if !m.present[server] {
		return expected{reason: ReasonUnknown}
	}
	l := m.lives[server]
	age := m.clock - l.appeared
	x := expected{reason: ReasonPending, starting: !l.wasReady && m.member.StartWindow > 0 && age >= 0 && age <= m.member.StartWindow}
	if len(l.counted) == 0 {
		return x
	}
	x.k = l.counted[len(l.counted)-1]
	run := trailing(l.counted)
	switch up := m.up(l, len(l.counted), m.clock); {
	case up && !x.k.ready:
		x.k, x.against = l.counted[len(l.counted)-1-run], run
		fallthrough
	case up:
		x.reason, x.id = "identity_passed", x.k.id
	case x.k.ready:
		x.reason, x.against = ReasonRising, run
	default:
		x.reason = "health_http_503"
	}
	if !m.fresh(x.k, m.clock) {
		x.reason, x.id = ReasonStale, ""
	}
	return x
}

// trailing is how many of the newest say the same.
func trailing(all []*flight) (n int) {
	for n < len(all) && all[len(all)-1-n].ready == all[len(all)-1].ready {
		n++
	}
	return n
}

// up says whether the first n that counted have left the server ready, seen at a
// moment before the next one.
func (m *model) up(l *lived, n int, at time.Duration) bool {
	if n == 0 {
		return false
	}
	run := trailing(l.counted[:n])
	if l.counted[n-1].ready {
		return n == 1 && !l.restart || run >= m.member.Rise || m.up(l, n-1, l.counted[n-1].end)
	}
	if run == n || run >= m.member.Fall {
		return false
	}
	pass := l.counted[n-1-run]
	for _, failed := range l.counted[n-run : n] {
		if failed.judged || !m.fresh(pass, failed.end) {
			return false
		}
	}
	return m.up(l, n-run, pass.end) && m.fresh(pass, at)
}

func (m *model) fresh(k *flight, at time.Duration) bool { return at >= k.start && at-k.start <= maxAge }

func (m *model) void(servers ...string) {
	for _, s := range servers {
		m.voided[s] = m.step
		l := m.lives[s]
		l.counted, l.restart, l.named = nil, false, ""
	}
}

// reborn is the server's removal or return.
func (m *model) reborn(server string) {
	m.void(server)
	m.lives[server] = &lived{appeared: m.clock}
	delete(m.checks, server) // a place held in the former life is not held in the next
}

// complete gives the reason that the caller must get, and whether it must hear of
// a restart.
func (m *model) complete(k *flight) (reason string, restarted bool) {
	k.end = m.clock
	if m.checks[k.server] == k {
		delete(m.checks, k.server)
	}
	if k.began < m.voided[k.server] || !m.present[k.server] {
		return ReasonInvalidated, false
	}
	if prev := m.kept[k.server]; prev != nil && prev.began > k.began {
		return ReasonSuperseded, false
	}
	l := m.lives[k.server]
	if k.instance != "" {
		if l.known != "" && l.known != k.instance {
			l.appeared, l.wasReady = m.clock, false
		}
		if restarted = l.named != "" && l.named != k.instance; restarted {
			m.void(k.server)
			l.restart = true
		}
		l.named, l.known = k.instance, k.instance
	}
	if restarted {
		return ReasonInvalidated, true
	}
	m.kept[k.server] = k
	l.counted = append(l.counted, k)
	l.wasReady = l.wasReady || k.ready && m.fresh(k, m.clock) && m.up(l, len(l.counted), m.clock)
	switch {
	case !m.fresh(k, m.clock):
		return ReasonStale, false
	case k.ready:
		return "identity_passed", false
	}
	return "health_http_503", false
}
