package statefile

import (
	"tier-agent/internal/runtimeapi"
	"tier-agent/internal/tier"
)

// members adds the rows of a backend whose servers are a tier's members. What is open
// there has a row with its address where its line disables it: it would start closed,
// and without an address. What is closed by its line and by nobody else needs none.
//
// Of slots that DNS fills, one that has no row starts empty. A new worker lets the
// first answer fill it with a host that a later row has, and that row's slot, which is
// open, with the next host (7 to 345 requests at a newcomer, measured on 2.6, 3.0 and
// 3.2). So what is before an open slot has a row that closes it, with its address; and
// behind a slot without an address nothing is open: it is opened at the next look.
func (c *composing) members(spec tier.Spec) {
	backend := spec.Members.Backend
	if !c.live {
		c.restore(spec)
		return
	}
	var before []Row // closed slots that an open one behind them would need
	empty := false
	for _, is := range c.backends[backend] {
		row, dns := rowOf(is), is.FQDN != ""
		empty = empty || dns && row.Address == ""
		at := c.model.MemberAt(is.Name())
		st, _ := c.model.Start(is.Name())
		member := at.IsValid() && at == is.At()
		row.Admin = is.Admin & closes
		row.Down = row.Checked && (!st.Up || member && st.Quiesced && c.unread)
		open := row.Admin == runtimeapi.ConfigMaint // opened, although its line disables it
		if member && st.Quiesced && !row.Admin.Forced() && !c.unread {
			row.Admin |= runtimeapi.ForcedDrain
		}
		switch {
		case row.Admin.Forced() && !row.Admin.StartsClosed():
			c.rows = append(c.rows, row)
		case row.Admin == 0 && member && row.Down:
			c.rows = append(c.rows, row)
		case row.Admin == 0:
			// open, and follows its line
		case open && member && st.Admit && !(dns && empty):
			c.rows = append(append(c.rows, before...), row)
			before = nil
		case dns && !empty:
			row.Admin, row.Down = runtimeapi.ForcedMaint|runtimeapi.ConfigMaint, row.Checked
			before = append(before, row)
		}
	}
}

// restore adds the rows that the file has: who the members are is not known before
// HAProxy has shown them.
func (c *composing) restore(spec tier.Spec) {
	closure, _ := c.model.Closed(tier.Target{Tier: spec.Name})
	for _, is := range c.backends[spec.Members.Backend] {
		row := rowOf(is)
		row.Admin, row.Down = is.Admin&closes, is.Operational == runtimeapi.OpStopped
		if closure != nil && row.Admin == runtimeapi.ConfigMaint {
			row.Admin |= runtimeapi.ForcedMaint // as it starts
		}
		c.rows = append(c.rows, row)
	}
}
