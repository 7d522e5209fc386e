package tier

// Closing is something that serves now, and would be without evidence after a
// replacement, until it is probed again or for good.
type Closing struct {
	Tier   string
	Server ServerSpec // the zero one where it is the tier as a whole
	Unseen bool       // no Runtime API shows what HAProxy makes of it
	Why    string
}

// Closes says what Replace would close of what serves now, in the order of the
// configuration in force. Evidence goes with tier, name and Subject: what is renamed is
// without it, too, for as long as one probe takes, and is not in the list; nor is what
// is quiesced or not ready.
func (m *Model) Closes(specs []Spec) []Closing {
	old := m.view.Load()
	next := map[string]Spec{}
	newcomers := map[string]int{} // by subject
	for _, spec := range specs {
		next[spec.Name] = spec
		for _, s := range spec.Servers {
			if was := old.servers[s.FullName()]; was == nil || was.tier.spec.Name != spec.Name {
				newcomers[s.Subject]++
			}
		}
	}
	var all []Closing
	for _, t := range old.order {
		spec, there := next[t.spec.Name]
		kept := 0
		var lost []Closing
		for _, s := range t.servers {
			if a, _ := m.server(s); !a.Admit {
				continue
			}
			why := s.voids(spec, there)
			switch {
			case why == "":
			case newcomers[s.spec.Subject] > 0:
				newcomers[s.spec.Subject]--
			default:
				lost = append(lost, Closing{Tier: t.spec.Name, Server: s.spec, Unseen: t.spec.AgentWords, Why: why})
				continue
			}
			kept++
		}
		if there && lost == nil && kept < spec.MinReady && m.tier(t).Admit {
			lost = []Closing{{Tier: t.spec.Name, Why: "fewer of its servers are ready than min_ready asks for"}}
		}
		all = append(all, lost...)
	}
	return all
}

// voids says why the evidence about a server would be void where spec takes the place of
// its tier's, or "" where it would not.
func (s *server) voids(spec Spec, there bool) string {
	if !there {
		return "tier " + s.tier.spec.Name + " is no longer in the file"
	}
	for _, next := range spec.Servers {
		if next.FullName() != s.name {
			continue
		}
		x, was := spec.Exercise, s.tier.spec.Exercise
		switch {
		case next.Address != s.spec.Address:
			return "it is another host, or has become a member or is none any more"
		case next.Subject != s.spec.Subject:
			return "its url or what is asked of it has changed"
		case x != nil && was == nil:
			return "it has not been exercised yet"
		case x != nil && x.Subject != was.Subject:
			return "its exercise has changed"
		}
		return ""
	}
	return "it is no longer in the file"
}
