package main

import (
	"fmt"
	"strings"

	"tier-agent/internal/observe"
	"tier-agent/internal/tier"
)

// closes says what a reload would close of what HAProxy sends requests to, each with the
// reason. A server that no HAProxy has open loses nothing: it is drained there, in
// maintenance, or gone from its configuration already.
func closes(all []tier.Closing, views []observe.View) (closing []string) {
	for _, c := range all {
		name := c.Tier
		if c.Server.Name != "" {
			if name = c.Server.FullName(); !c.Unseen && !sends(c.Server, views) {
				continue
			}
		}
		closing = append(closing, fmt.Sprintf("%s (%s)", name, c.Why))
	}
	return closing
}

// sends reports whether some HAProxy may send requests to the server. What cannot be read
// may.
func sends(s tier.ServerSpec, views []observe.View) bool {
	for _, v := range views {
		if !v.Readable() {
			return true
		}
		seen, there := v.Servers[s.FullName()]
		same := !s.Address.IsValid() || seen.Address == s.Address
		if there && same && seen.Open() {
			return true
		}
	}
	return len(views) == 0
}

// brief is a list for a message.
func brief(closing []string) string {
	text := strings.Join(closing[:min(len(closing), problemsLogged)], ", ")
	if more := len(closing) - problemsLogged; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
