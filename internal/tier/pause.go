package tier

// Pause is the first of the two steps in which a target can be closed. While it
// stands the target is closed to requests, and is quiesced for everybody who
// asks: [Answer.Admit] is false. HAProxy's own checks go on hearing what the
// evidence says, [Answer.Up]: a server that they take down may let the queue that
// stands on it loose.
//
// Settle is the second step, and Release takes the first one back; a pause that is
// neither settled nor released keeps requests out for ever. Nothing of it is on
// disk.
type Pause struct {
	model  *Model
	target Target
	gate   *gate
	mine   *Closure
}

// Pause closes the target to requests. A closure that stands is kept: one that is
// settled is not softened, and one that another Pause has brought is joined.
func (m *Model) Pause(target Target, c Closure) (*Pause, error) {
	g, err := m.gate(target)
	if err != nil {
		return nil, err
	}
	g.pause(&c)
	return &Pause{model: m, target: target, gate: g, mine: &c}, nil
}

// Settle closes the target as Close does, and whatever has become of the pause. It
// returns the closure that holds now, and whether that is this pause's own: then
// the target was open before.
func (p *Pause) Settle() (closure Closure, first bool, err error) {
	g, err := p.model.gate(p.target)
	if err != nil {
		return Closure{}, false, err
	}
	c := g.close(p.mine)
	return *c, c == p.mine, nil
}

// Settled reports whether the target's gate is closed for good: by this pause, by
// another, or by what stood before.
func (p *Pause) Settled() bool { return p.gate.settled() }

// Release ends the pause. The gate is open then as it was found, unless somebody
// else pauses it or has closed it; once it is settled nothing is changed. It may be
// called at any time, and again.
func (p *Pause) Release() { p.gate.release(p.mine) }
