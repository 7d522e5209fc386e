package statefile

import (
	"net/url"
	"strconv"
	"strings"

	"tier-agent/internal/runtimeapi"
	"tier-agent/internal/tier"
)

// Shown is what is known of the servers of one HAProxy.
type Shown struct {
	Servers []runtimeapi.ServerState // in its order
	// Live: HAProxy itself has shown this. Otherwise it is from the file.
	Live bool
	// Unread: it cannot be read now, and what it does meanwhile is not known.
	Unread bool
	// Had are the servers that the file has rows of, by "backend/server".
	Had map[string]bool
}

// closes are the bits of an admin state that a row may carry.
const closes = runtimeapi.ForcedMaint | runtimeapi.ForcedDrain | runtimeapi.ConfigMaint

// Compose gives the rows of one HAProxy: of what is quiesced, or not ready, or held in
// HAProxy, or opened there although its configuration disables it. What is open and
// ready has none. They are of the servers of tiers, whether HAProxy has them yet or not,
// and of what is held in those tiers' backends, or was in a tier that has left the
// configuration. Tiers whose admission agent-check carries have none: that says it again
// by itself.
func Compose(model *tier.Model, shown Shown) []Row {
	c := composing{
		model: model, specs: model.Specs(), live: shown.Live, unread: shown.Unread,
		backends: map[string][]runtimeapi.ServerState{}, servers: map[string]runtimeapi.ServerState{},
	}
	for _, s := range shown.Servers {
		c.backends[s.Backend] = append(c.backends[s.Backend], s)
		c.servers[s.Name()] = s
	}
	ours := map[string]bool{} // backends that tiers have servers in
	done := map[string]bool{} // servers that tiers have, and backends that are members
	for _, spec := range c.specs {
		if spec.Members != nil {
			done[spec.Members.Backend] = true
			c.members(spec)
			continue
		}
		for _, s := range spec.Servers {
			done[s.FullName()] = true
			if !spec.AgentWords {
				ours[s.Backend] = true
				c.listed(s)
			}
		}
	}
	for _, is := range shown.Servers {
		if !done[is.Name()] && !done[is.Backend] && (ours[is.Backend] || shown.Had[is.Name()]) {
			c.hold(is)
		}
	}
	return c.rows
}

type composing struct {
	model    *tier.Model
	specs    []tier.Spec
	live     bool
	unread   bool
	backends map[string][]runtimeapi.ServerState
	servers  map[string]runtimeapi.ServerState // by "backend/server"
	rows     []Row
}

// listed adds the row of a server that the configuration names.
//
// A server that its line disables, and that is as it starts, is closed by that line.
// Its row is the same without the bits for it: where the line says so still they change
// nothing, and where it does not any more they would open the server (measured).
//
// A HAProxy that cannot be read starts what is quiesced down, and not drained: whether
// somebody has drained it since is not known, and the next look tells.
func (c *composing) listed(s tier.ServerSpec) {
	st, _ := c.model.Start(s.FullName())
	is, there := c.servers[s.FullName()]
	row := Row{Backend: s.Backend, Server: s.Name, Checked: is.HasCheck()}
	if !there {
		row.Checked = c.checked(s.Backend)
	}
	var known bool
	if row.Port, known = c.portOf(s, is, there); !known {
		return
	}
	if is.FQDN != "" && !s.Separate && !st.Elsewhere {
		// A server whose name waits for DNS comes up unchecked with the answer.
		row.Address, row.FQDN = is.Address, is.FQDN
	}
	if !is.Admin.StartsClosed() {
		row.Admin = is.Admin & closes
	}
	if st.Quiesced && !row.Admin.Forced() && !c.unread {
		row.Admin |= runtimeapi.ForcedDrain
	}
	closed := !st.Up || st.Quiesced && c.unread
	row.Down = closed && row.Checked && (there || row.Admin == 0)
	switch {
	case row.Admin == runtimeapi.ConfigMaint && closed:
		// With a row HAProxy would bring it up at once. It starts closed, as its line
		// says, and is opened again on evidence.
	case row.Admin != 0 || row.Down:
		c.rows = append(c.rows, row)
	}
}

// checked reports whether a server that HAProxy does not have yet will have a check to
// come up by; without one it would stay down. It is taken to be wired as the others of
// its backend, or where there are none as the listed servers of other backends. Where
// nothing is known it is not: to be down for good is worse than to be open unchecked.
func (c *composing) checked(backend string) bool {
	all := c.backends[backend]
	if len(all) == 0 {
		for _, spec := range c.specs {
			for _, s := range spec.Servers {
				if is, there := c.servers[s.FullName()]; there {
					all = append(all, is)
				}
			}
		}
	}
	for _, is := range all {
		if !is.HasCheck() {
			return false
		}
	}
	return len(all) > 0
}

// hold adds the row of what somebody else has closed: as it is.
func (c *composing) hold(is runtimeapi.ServerState) {
	if !is.Admin.Forced() || is.Admin.StartsClosed() {
		return
	}
	row := rowOf(is)
	row.Admin = is.Admin & closes
	row.Down = is.Operational == runtimeapi.OpStopped && row.Checked
	c.rows = append(c.rows, row)
}

// portOf is the port that requests are to go to; known is false where only the
// configuration of a HAProxy that has not the server yet could say.
func (c *composing) portOf(s tier.ServerSpec, is runtimeapi.ServerState, there bool) (port int, known bool) {
	unix := there && c.live && is.Address == "" && is.FQDN == ""
	if at, ok := portIn(s.Target.URL); ok && !s.Separate && !unix {
		return at, true
	}
	return is.Port, there || s.Target.URL.Scheme == "unix" // which has none
}

func portIn(u *url.URL) (int, bool) {
	text := u.Port()
	if text == "" {
		text = map[string]string{"http": "80", "https": "443"}[strings.ToLower(u.Scheme)]
	}
	port, err := strconv.ParseUint(text, 10, 16)
	return int(port), err == nil && port > 0
}
