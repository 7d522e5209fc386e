package observe

import (
	"net/netip"
	"time"

	"tier-agent/internal/runtimeapi"
)

// Server is one server of one HAProxy, as that last showed it.
type Server struct {
	Admin       runtimeapi.AdminState
	Operational runtimeapi.OpState
	Weight      int // the one in force; 0 takes nothing
	// ConfiguredWeight is the one of its configuration.
	ConfiguredWeight int
	// Address is where its requests go; not valid where that is no IP address, or none
	// yet.
	Address netip.AddrPort
	// Resolving: the server has a host name, and no address from it now.
	Resolving     bool
	Spare         bool // a slot without a host
	Health, Agent runtimeapi.Check
	// HealthElsewhere: the health check goes to another port than the server's requests.
	HealthElsewhere bool
}

// ServerOf is a row of `show servers state`; spare says that the slot has no host.
func ServerOf(s runtimeapi.ServerState, spare bool) Server {
	at := s.At()
	return Server{
		Admin: s.Admin, Operational: s.Operational, Weight: s.Weight, ConfiguredWeight: s.InitialWeight, Address: at,
		Resolving: !at.IsValid() && (s.FQDN != "" || s.Admin&runtimeapi.DNSMaint != 0),
		Spare:     spare, Health: s.Health(), Agent: s.Agent(),
		HealthElsewhere: s.CheckPort != 0 && s.CheckPort != s.Port,
	}
}

// Open reports whether HAProxy's administration lets new requests go there: no
// maintenance, no drain, inherited or from DNS included, and a weight.
func (s Server) Open() bool { return s.Admin.Open() && s.Weight > 0 }

// Takes reports whether HAProxy sends new requests there: it is open, and its checks
// have not taken it down.
func (s Server) Takes() bool {
	return s.Open() && (s.Operational == runtimeapi.OpRunning || s.Operational == runtimeapi.OpStarting)
}

// String says how HAProxy has the server: "up", "down", "weight 0", or its admin state.
func (s Server) String() string {
	switch {
	case !s.Admin.Open():
		return s.Admin.String()
	case s.Weight == 0:
		return "weight 0"
	case s.Takes():
		return "up"
	}
	return "down"
}

// Addresses are where the servers' requests go, by "backend/server", without spare slots;
// nil before the first read.
func (v View) Addresses() map[string]netip.AddrPort {
	if v.Servers == nil {
		return nil
	}
	all := make(map[string]netip.AddrPort, len(v.Servers))
	for name, s := range v.Servers {
		if !s.Spare {
			all[name] = s.Address
		}
	}
	return all
}

// Started is when the process that the view shows has begun, at the latest: HAProxy says so
// in whole seconds. What came before that may have been another process's doing.
func (v View) Started() time.Time {
	if !v.Info.StartTime.IsZero() {
		return v.Info.StartTime.Add(time.Second)
	}
	return v.At.Add(-v.Info.Uptime)
}

// HasWeight reports whether the server has so much percent of its configured weight, in
// the whole numbers that HAProxy reckons in.
func (s Server) HasWeight(percent int) bool { return s.Weight == s.ConfiguredWeight*percent/100 }
