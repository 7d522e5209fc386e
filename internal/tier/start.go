package tier

// Start is what a server needs to be known of before HAProxy has checked it: how it
// is to come up in a process that starts.
type Start struct {
	// Quiesced: closed for good. A Pause is not: it may end as if it had never been.
	Quiesced bool
	// Up and Admit are those of Answer.
	Up, Admit bool
	// Elsewhere: some HAProxy sends to another address than the one that is probed.
	Elsewhere bool
}

// Start says so of "backend/server", and reports false where the name is unknown.
func (m *Model) Start(name string) (Start, bool) {
	var st Start
	_, known := m.steady(func(v *view) (Answer, bool) {
		s := v.servers[name]
		if s == nil {
			return Answer{}, false
		}
		a, evidence := m.server(s)
		st = Start{
			Quiesced: s.gate.settled() || s.tier.gate.settled(), Up: a.Up, Admit: a.Admit,
			Elsewhere: s.sentElsewhere(evidence),
		}
		return a, true
	})
	return st, known
}
