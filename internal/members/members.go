package members

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// Want is a tier whose members are the servers of a backend.
type Want struct {
	Tier, Backend string
	Max           int // members at most
}

// Member is one server and where HAProxy sends its requests.
type Member struct {
	Server  string // without its backend
	Address netip.AddrPort
}

// Found is what there is of one tier.
type Found struct {
	Members []Member
	LeftOut int // servers that would be members, were there room, or were their names not too long
}

// Equal reports whether both are the same.
func (f Found) Equal(g Found) bool {
	return f.LeftOut == g.LeftOut && slices.Equal(f.Members, g.Members)
}

// Of gives the members of each tier, by its name. shown is what each HAProxy shows,
// in the configuration's order: where two send the same server's requests to
// different addresses the first one counts. A server whose address is not valid is
// absent. Where there are more than Want.Max, or than inAll in all tiers, those that
// have been members stay, and the others come in the order of their names, in which
// 10 is after 9.
func Of(wants []Want, shown []map[string]netip.AddrPort, before map[string]Found, inAll int) map[string]Found {
	of := make(map[string]Found, len(wants))
	addresses := make(map[string]map[string]netip.AddrPort, len(wants)) // backend, then server
	for _, w := range wants {
		addresses[w.Backend] = map[string]netip.AddrPort{}
	}
	for _, one := range shown {
		for name, at := range one {
			backend, server, _ := strings.Cut(name, "/")
			if all := addresses[backend]; all != nil && at.IsValid() {
				if _, earlier := all[server]; !earlier {
					all[server] = at
				}
			}
		}
	}
	for _, w := range wants {
		found := choose(addresses[w.Backend], before[w.Tier].Members, min(w.Max, inAll))
		inAll -= len(found.Members)
		of[w.Tier] = found
	}
	return of
}

// maxName bounds a server's name: tier-agent gives HAProxy no command about a longer
// one, nor answers its checks.
const maxName = 64

func choose(all map[string]netip.AddrPort, before []Member, most int) (found Found) {
	for name := range all {
		if len(name) > maxName {
			delete(all, name)
			found.LeftOut++
		}
	}
	stays := map[string]bool{}
	for _, m := range before {
		stays[m.Server] = all[m.Server] == m.Address
	}
	names := slices.SortedFunc(maps.Keys(all), natural)
	slices.SortStableFunc(names, func(a, b string) int { return rank(stays[a]) - rank(stays[b]) })
	if more := len(names) - most; more > 0 {
		names, found.LeftOut = names[:most], found.LeftOut+more
	}
	slices.SortFunc(names, natural)
	for _, name := range names {
		found.Members = append(found.Members, Member{Server: name, Address: all[name]})
	}
	return found
}

func rank(first bool) int {
	if first {
		return 0
	}
	return 1
}

// natural orders names by what is before their number, and then by that.
func natural(a, b string) int {
	textA, numberA := split(a)
	textB, numberB := split(b)
	return cmp.Or(cmp.Compare(textA, textB), cmp.Compare(numberA, numberB), cmp.Compare(a, b))
}

func split(name string) (text string, number uint64) {
	text = strings.TrimRight(name, "0123456789")
	number, _ = strconv.ParseUint(name[len(text):], 10, 64) // too long a one is the largest
	return text, number
}
