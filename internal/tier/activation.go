package tier

// activated notes an answer by which the tier is ready for the first time since
// it appeared. It is the one yes that is remembered, and all that it does is to
// lower what is asked of the tier from ActivationMin to MinReady. Faces come
// through here, so it only says that there is something to keep.
func (m *Model) activated(t *tier, a Answer) {
	if !a.Admit || a.Overridden || t.once.Load() || !t.once.CompareAndSwap(false, true) {
		return
	}
	select {
	case m.first <- struct{}{}:
	default: // said already, and not yet heard
	}
}

// needed is how many servers must be ready now for the tier to be.
func (t *tier) needed() int {
	if t.once.Load() {
		return t.spec.MinReady
	}
	return max(t.spec.MinReady, t.spec.ActivationMin)
}

// activate notes it where the tier is ready now: between two probes nobody else
// may ask.
func (m *Model) activate(t *tier) {
	if t.needed() > t.spec.MinReady {
		m.Tier([]byte(t.spec.Name))
	}
}

// Activate makes a tier count as one that has been ready since it appeared, where
// before says so. It is for the start, before anything reads the model.
func (m *Model) Activate(before func(tier string) bool) {
	for _, t := range m.view.Load().order {
		if before(t.spec.Name) {
			t.once.Store(true)
		}
	}
}

// Activated are the tiers that have been ready since they appeared, in the order
// of the configuration.
func (m *Model) Activated() []string {
	var names []string
	for _, t := range m.view.Load().order {
		if t.once.Load() {
			names = append(names, t.spec.Name)
		}
	}
	return names
}

// FirstReady has an element after a tier has been ready for the first time since
// it appeared: Activated then names it. It is for one reader.
func (m *Model) FirstReady() <-chan struct{} { return m.first }
