package admission

import (
	"slices"
	"strings"
)

// maxUnlisted bounds the servers that are named of one tier.
const maxUnlisted = 10

// Unlisted are servers that take requests in a backend of a tier, and that no tier lists:
// "backend/server on haproxy NAME". Nothing is known of them, and a quiesce of the tier
// leaves them as they are. Those that are named are bounded in number.
func (c *Controller) Unlisted(tierName string) []string {
	spec, err := c.o.Model.Spec(tierName)
	if err != nil || c.o.Watcher == nil || spec.AgentWords || spec.Members != nil {
		return nil
	}
	backends, listed := map[string]bool{}, map[string]bool{}
	for _, s := range spec.Servers {
		backends[s.Backend] = true
	}
	for _, other := range c.o.Model.Specs() {
		for _, s := range other.Servers {
			listed[s.FullName()] = true
		}
	}
	var all []string
	for _, v := range c.o.Watcher.Views() {
		for name, s := range v.Servers {
			backend, _, _ := strings.Cut(name, "/")
			if v.Readable() && backends[backend] && !listed[name] && s.Takes() {
				all = append(all, name+" on haproxy "+v.Instance)
			}
		}
	}
	slices.Sort(all)
	return all[:min(len(all), maxUnlisted)]
}

// unlisted says, in a message, what a transition of a tier has left out.
func (r *run) unlisted() string {
	if r.Target.Server != "" {
		return ""
	}
	all := r.Unlisted(r.Target.Tier)
	if all == nil {
		return ""
	}
	return "; not in any tier, and left as they are: " + strings.Join(all, ", ")
}
