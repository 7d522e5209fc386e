package main

import (
	"fmt"
	"strings"

	"tier-agent/internal/admission"
	"tier-agent/internal/tier"
)

// closes says what a reload would close of what HAProxy sends requests to, each with the
// reason. A server that no HAProxy has open loses nothing: it is drained there, in
// maintenance, or gone from its configuration already.
func closes(all []tier.Closing, observed []admission.Observed) (closing []string) {
	for _, c := range all {
		name := c.Tier
		if c.Server.Name != "" {
			if name = c.Server.FullName(); !c.Unseen && !sends(c.Server, observed) {
				continue
			}
		}
		closing = append(closing, fmt.Sprintf("%s (%s)", name, c.Why))
	}
	return closing
}

// sends reports whether some HAProxy may send requests to the server. What cannot be read
// may.
func sends(s tier.ServerSpec, observed []admission.Observed) bool {
	for _, o := range observed {
		if o.Err != nil || o.Servers == nil {
			return true
		}
		state, there := o.Servers[s.FullName()]
		same := !s.Address.IsValid() || o.Addresses[s.FullName()] == s.Address
		if there && same && state.Open() {
			return true
		}
	}
	return len(observed) == 0
}

// brief is a list for a message.
func brief(closing []string) string {
	text := strings.Join(closing[:min(len(closing), problemsLogged)], ", ")
	if more := len(closing) - problemsLogged; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
