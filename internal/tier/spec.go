package tier

import (
	"net/netip"
	"reflect"
	"slices"
	"time"

	"tier-agent/internal/probe"
)

// Spec describes one tier as the configuration has it. It is not changed once
// it has been given to a Model.
type Spec struct {
	Name    string
	Servers []ServerSpec
	// Members says that the servers are those that HAProxy shows, and may be none;
	// nil where the configuration lists them.
	Members *Members
	// MinReady is how many servers must be ready for the tier to be; at least 1.
	MinReady int
	// ActivationMin is how many must be for a tier that has never been ready since
	// it appeared; below MinReady it is that. It appears when it is added to the
	// model; Model.Activate says of a start which tiers did so before.
	ActivationMin int
	// Identified: probes compare an identity or metadata. Without it ready
	// means no more than that the port answers.
	Identified bool
	// AgentWords: no Runtime API is to be had, so that agent-check carries the
	// admission (ready, drain) besides the evidence.
	AgentWords bool
	// QuiescedHealth: while quiesced, HAProxy's checks are told what the evidence
	// says. Only HAProxy's own drain keeps requests out then.
	QuiescedHealth bool
	// QuiescedDown: they are told down in any case. Where neither is set, it is as with
	// QuiescedHealth while the tier is closed as a whole and HAProxy's gate asks about it;
	// see Model.Gated.
	QuiescedDown bool

	Interval time.Duration // between the starts of two probes of one server
	Jitter   float64       // the interval is shortened by up to this fraction, never lengthened
	MaxAge   time.Duration // of evidence, from the start of its probe

	// Rise, Fall and StartWindow are those of fence.Member. Fall counts probes that had
	// no answer: a timeout, or a failed connection.
	Rise, Fall  int
	StartWindow time.Duration
	// Ramp is how long a server's weight takes, after a readmit, to grow to the
	// whole; 0 for none. A restart of this process ends it.
	Ramp time.Duration
	// WeightField is the name, in a probe's metadata, of the weight that an engine
	// gives itself, 1 to 100 percent. Empty for none: ServerSpec.Weight then counts.
	WeightField string
	// SameField is the name, in a probe's metadata, of what must be the same on all
	// ready servers: the odd one out is not ready. Empty for none.
	SameField string
	// Instance is the name, in a probe's metadata, of what changes with each start
	// of an engine: another value fences the server as an invalidation would.
	// Empty for none.
	Instance string

	// Exercise, where there is one, has to pass as well, on each server.
	Exercise *Exercise
}

// Exercise is how often the servers of a tier are made to work, by the Exercise of
// their targets, as a probe of its own. Rise and Fall count for it too.
type Exercise struct {
	Interval time.Duration // as Spec.Interval, and Spec.Jitter goes for it too
	MaxAge   time.Duration // as Spec.MaxAge
	Timeout  time.Duration // that of the targets
	// Subject and Manner are what those of a ServerSpec are, for what is asked.
	Subject, Manner string
}

// Members is where the servers of a tier come from.
type Members struct {
	Backend string // whose servers they are
	LeftOut int    // servers that are there and are none of the tier's, since it has as many as it may
}

// ServerSpec is one HAProxy server and where evidence about it is taken.
type ServerSpec struct {
	Backend, Name string
	Weight        int // percent of the weight that HAProxy is configured with
	Target        probe.Target
	// Address is where HAProxy sends, of a member: it is the member, and what goes by
	// its name with another address is somebody else. Not valid for a listed server.
	Address netip.AddrPort
	// Separate: probes are meant to go to another address than requests.
	Separate bool
	// Subject changes with everything that makes old evidence worthless: see
	// fence.Member.
	Subject string
	// Manner changes with everything else about how the server is probed: the
	// deadline, the bounds, where a credential comes from. It compares what
	// cannot be compared in Target.
	Manner string
}

// FullName is the name that HAProxy's commands use, "backend/server".
func (s ServerSpec) FullName() string { return s.Backend + "/" + s.Name }

// same reports whether two descriptions of a tier say the same.
func same(a, b Spec) bool {
	return reflect.DeepEqual(compared(a), compared(b))
}

// compared leaves out the targets, for which Subject and Manner speak.
func compared(s Spec) Spec {
	s.Servers = slices.Clone(s.Servers)
	for i := range s.Servers {
		s.Servers[i].Target = probe.Target{}
	}
	return s
}
