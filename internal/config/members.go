package config

import (
	"fmt"
	"net/netip"
	"net/url"
	"strings"
)

const (
	// MaxMembers bounds Members.Max.
	MaxMembers = 1000
	// MaxMembersInAll bounds the members of all tiers together, at run time.
	MaxMembersInAll = 5000

	addressMark, portMark = "{address}", "{port}"
)

// Members says that a tier's servers are those that HAProxy shows in a backend.
type Members struct {
	Backend string // as in haproxy.cfg; no other tier has servers of it
	// Probe makes the address of a member's probe of the one that HAProxy sends to.
	Probe ProbeURL
	Max   int // servers at most, 1 to MaxMembers, default 100; more are left out, and reported
}

// ProbeURL is a URL in which {address} and {port} stand for those of a member. The
// zero value is http://{address}:{port}.
type ProbeURL struct{ text string }

// String is the template.
func (p ProbeURL) String() string {
	if p.text == "" {
		return "http://" + addressMark + ":" + portMark
	}
	return p.text
}

// At is the URL of the member at an address.
func (p ProbeURL) At(at netip.AddrPort) *url.URL {
	host := at.Addr().String()
	if at.Addr().Is6() {
		host = "[" + host + "]"
	}
	u, err := url.Parse(p.with(host, fmt.Sprint(at.Port())))
	if err != nil { // the decoder has tried it with another address
		return &url.URL{Scheme: "http", Host: at.String()}
	}
	return u
}

func (p ProbeURL) with(host, port string) string {
	return strings.NewReplacer(addressMark, host, portMark, port).Replace(p.String())
}

func (d *decoder) members(v value) *Members {
	m := &Members{Max: 100}
	d.mapping(v, []field{
		{key: "backend", required: true, remedy: "name the backend as in haproxy.cfg", decode: func(v value) {
			m.Backend = d.ownName(v, "backend", "give each backend to one tier")
		}},
		{key: "url", decode: func(v value) {
			m.Probe = d.probeURL(v)
		}},
		{key: "max", decode: func(v value) {
			m.Max, _ = d.integer(v, 1, MaxMembers)
		}},
	})
	return m
}

// probeURL decodes a template by the rules of a URL, with an address in it.
func (d *decoder) probeURL(v value) ProbeURL {
	s, ok := d.text(v)
	if !ok {
		return ProbeURL{}
	}
	if strings.Count(s, addressMark) != 1 || strings.Count(s, portMark) > 1 {
		d.report(v.place, "the URL of members has to hold "+addressMark+" once, and "+portMark+" at most once",
			"write it as in http://{address}:{port}")
		return ProbeURL{}
	}
	p := ProbeURL{text: s}
	if d.urlOf(v, p.with("192.0.2.1", "80")) == nil {
		return ProbeURL{}
	}
	if host := p.At(netip.MustParseAddrPort("192.0.2.1:80")).Hostname(); host != "192.0.2.1" {
		d.report(v.place, addressMark+" is not the whole host of the URL", "write it as in http://{address}:{port}")
		return ProbeURL{}
	}
	return p
}

// whence checks that a tier has servers from one source, and one that there is.
func (d *decoder) whence(v value, t Tier, listed bool) {
	servers, members := child(v.path, "servers"), child(v.path, "members")
	switch {
	case !listed && t.Members == nil && d.sound(v.path):
		at := v.place
		at.path = servers
		d.report(at, "the tier has neither servers nor members", "list its servers under servers, or name its backend under members")
	case listed && t.Members != nil:
		d.report(d.locate(members), "the tier has servers and members", "keep one of the two")
	case t.Members != nil && t.Admission == AdmissionAgentCheck:
		d.report(d.locate(members), "members are read through the Runtime API, which a tier with admission: agent-check does without",
			"list the tier's servers, or set admission: runtime")
	}
}

// memberships checks that no tier lists a server of a backend whose servers are all
// another tier's. What one tier has in both ways is whence's to report.
func (d *decoder) memberships(cfg *Config) {
	of := map[string]string{}
	for _, t := range cfg.Tiers {
		if t.Members != nil {
			of[t.Members.Backend] = t.Name
		}
	}
	for i, t := range cfg.Tiers {
		for n, s := range t.Servers {
			if owner, taken := of[s.Backend]; taken && owner != t.Name && s.Backend != "" {
				d.report(d.locate(child(index(child(index("tiers", i), "servers"), n), "server")),
					fmt.Sprintf("all servers of backend %s are members of tier %s", quote(s.Backend), quote(owner)),
					"list a server of another backend, or list the other tier's servers, too")
			}
		}
	}
}
