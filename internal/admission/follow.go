package admission

import (
	"maps"
	"slices"
	"strings"

	"tier-agent/internal/intent"
	"tier-agent/internal/tier"
)

// member reports whether the target is one member of a tier.
func (c *Controller) member(target tier.Target) bool {
	spec, err := c.o.Model.Spec(target.Tier)
	return err == nil && spec.Members != nil && target.Server != ""
}

// follow takes the intents of members to the slots that these have gone to.
func (c *Controller) follow(about func(name string) bool) {
	for _, t := range c.o.Model.Specs() {
		if t.Members == nil || !about(t.Name) {
			continue
		}
		for from, to := range c.intents.follow(t.Name, addressesOf(t.Servers)) {
			c.o.Log.Info("a member that is quiesced has gone to another slot, and its intent with it", "tier", t.Name, "was", from, "server", to)
		}
		for _, r := range tooManyGone(c.intents.store.All(), t.Name) {
			c.o.Log.Warn("the intent of a host that has left is forgotten: there are too many", "tier", t.Name, "server", r.Server, "reason", r.Reason, "who", r.Who)
			_ = c.intents.drop(targetOf(r), r.Serial) // else at the next change
		}
	}
}

// follow gives the records of a tier's members the servers that have their addresses
// now, all of them in one write: members may change places, and neither record may
// take the other's. It returns who has gone where.
//
// A record whose address is nowhere is gone. It keeps its server, unless another
// record has come to that; then it has one that has become free, and where that has an
// address in it, its own instead: by that an operator names it.
func (in *intents) follow(name string, now map[string]string) map[string]string {
	in.mu.Lock()
	defer in.mu.Unlock()
	var records []intent.Record
	for _, r := range in.store.All() {
		if r.Tier == name && r.Server != "" {
			records = append(records, r)
		}
	}
	to := assign(records, now)
	gone, moved, puts := []intent.Key{}, map[string]string{}, []intent.Record{}
	for n, r := range records {
		if to[n] == r.Server {
			continue
		}
		was := r.Addresses[r.Server]
		gone, r.Server = append(gone, r.Key()), to[n]
		r.Addresses, r.Gone = map[string]string{to[n]: was}, now[to[n]] != was
		if !r.Gone {
			moved[records[n].Server] = to[n]
			in.inherit(&r)
		}
		puts = append(puts, r)
	}
	if len(puts) > 0 {
		in.wrote(puts[0].Key(), in.store.Move(gone, puts)) // what cannot be written holds in memory
	}
	return moved
}

// makeRoom takes the record of a host that is in no slot out of the way of r, the first
// of who has come to its slot: under a name that no server has. What is still there of
// our closing is r's from now on. mu must be held.
func (in *intents) makeRoom(r *intent.Record) {
	old, there := in.store.Get(r.Key())
	if !there || !old.Gone {
		return
	}
	host := old.Addresses[old.Server]
	r.Found = map[string]map[string]uint32{}
	for instance, found := range old.Found {
		if state, ours := found[old.Server]; ours {
			r.Found[instance] = map[string]uint32{r.Server: state}
			delete(found, old.Server)
		}
	}
	from := []intent.Key{old.Key()}
	old.Server = old.Server + "@" + host
	old.Addresses = map[string]string{old.Server: host}
	in.wrote(old.Key(), in.store.Move(from, []intent.Record{old}))
}

// maxGone bounds the intents of hosts that are nowhere, of one tier.
const maxGone = 100

// tooManyGone are the oldest of the records of a tier's members that are gone, of which
// there are more than maxGone.
func tooManyGone(all []intent.Record, name string) []intent.Record {
	all = slices.DeleteFunc(all, func(r intent.Record) bool { return r.Tier != name || r.Server == "" || !r.Gone })
	slices.SortStableFunc(all, func(a, b intent.Record) int { return a.Since.Compare(b.Since) })
	return all[:max(0, len(all)-maxGone)]
}

// inherit gives a record that has come to a server what was found there before any
// closing of ours: if a drain of ours is there it is now this one's. What the record
// has found elsewhere stays known: the drain there is ours, too.
func (in *intents) inherit(r *intent.Record) {
	for _, found := range r.Found {
		delete(found, r.Server) // of whoever was there before
	}
	for _, other := range in.store.All() {
		for instance, found := range other.Found {
			if state, ours := found[r.Server]; ours {
				if r.Found[instance] == nil {
					r.Found[instance] = map[string]uint32{}
				}
				r.Found[instance][r.Server] = state
			}
		}
	}
}

// assign gives each record a server, and none to two of them.
func assign(records []intent.Record, now map[string]string) []string {
	to, taken := make([]string, len(records)), map[string]bool{}
	give := func(n int, server string) {
		if to[n] == "" && server != "" && !taken[server] {
			to[n], taken[server] = server, true
		}
	}
	for n, r := range records {
		if was := r.Addresses[r.Server]; was != "" && now[r.Server] == was {
			give(n, r.Server)
		}
	}
	servers := slices.Sorted(maps.Keys(now))
	for n, r := range records {
		for _, server := range servers {
			if now[server] == r.Addresses[r.Server] {
				give(n, server)
			}
		}
	}
	for n, r := range records {
		give(n, r.Server)
	}
	for n := range records {
		for _, other := range records { // of as many servers one is free
			give(n, other.Server)
		}
	}
	for n, r := range records {
		// One that makeRoom has given away has the address of who had it, not of this one.
		if server, _, has := strings.Cut(to[n], "@"); has {
			if own := server + "@" + r.Addresses[r.Server]; !taken[own] {
				to[n], taken[own] = own, true
			}
		}
	}
	return to
}
