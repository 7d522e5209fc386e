package tier

// Gated notes that HAProxy's gate asks about a tier, of which the name may come from the
// wire: its quiesce then holds by the gate, for each request that comes by a way that
// asks, whatever HAProxy thinks of its servers.
func (m *Model) Gated(name []byte) {
	if t := m.view.Load().tiers[string(name)]; t != nil && !t.gated.Load() {
		t.gated.Store(true)
	}
}

// Ungated forgets that of all tiers: another process of HAProxy runs, whose configuration
// may be another one.
func (m *Model) Ungated() {
	for _, t := range m.view.Load().order {
		t.gated.Store(false)
	}
}

// showsHealth reports whether HAProxy's checks hear of the health of a server that is
// quiesced, alone or with its tier. The gate does not know which server a request will
// get, so of a single one only the checks keep out what a cookie binds to it.
func (t *tier) showsHealth(alone bool) bool {
	return t.spec.QuiescedHealth || t.gated.Load() && !alone && !t.spec.QuiescedDown && !t.spec.AgentWords
}
