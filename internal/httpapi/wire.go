package httpapi

import (
	"time"

	"tier-agent/internal/admission"
	"tier-agent/internal/horizon"
	"tier-agent/internal/tier"
)

// Readiness is the body of /readyz/..., for people and logs; HAProxy goes by
// the status code.
type Readiness struct {
	Name       string `json:"name"`
	Ready      bool   `json:"ready"`        // may take a new request now
	Up         bool   `json:"up,omitempty"` // not ready, and HAProxy's checks are told up all the same: the status is 200
	Reason     string `json:"reason"`
	Generation string `json:"generation,omitempty"`
	AgeMS      *int64 `json:"age_ms,omitempty"` // of the evidence; absent where there is none
}

// DaemonReadiness is the body of /readyz, about tier-agent as a whole.
type DaemonReadiness struct {
	Name string `json:"name"`
	horizon.Verdict
	// CorrelatedFailure counts the servers that became unreachable within one
	// interval, where that are all of every tier: more often than not it is the network
	// or tier-agent itself.
	CorrelatedFailure int `json:"correlated_failure,omitempty"`
}

// Status is the body of /api/v1/status.
type Status struct {
	Version string          `json:"version"`
	Time    time.Time       `json:"time"`
	Tiers   []TierStatus    `json:"tiers"`
	HAProxy []HAProxyStatus `json:"haproxy"`
	Intents []IntentStatus  `json:"intents"`
	Gate    *GateStatus     `json:"gate,omitempty"` // absent where it listens nowhere
	Daemon  DaemonReadiness `json:"daemon"`         // what /readyz says
}

// GateStatus says whether HAProxy asks about each request.
type GateStatus struct {
	Connections int    `json:"connections"`
	AskedMS     *int64 `json:"asked_ms,omitempty"` // since the last question; absent where there was none
	// StrangeMS is since it was last asked about a tier that is not configured.
	StrangeMS *int64 `json:"strange_ms,omitempty"`
}

// IntentStatus is one durable record of what is to stay quiesced.
type IntentStatus struct {
	Tier    string    `json:"tier"`
	Server  string    `json:"server,omitempty"`
	Reason  string    `json:"reason"`
	Who     string    `json:"who"`
	Since   time.Time `json:"since"`
	Phase   string    `json:"phase"`
	Orphan  bool      `json:"orphan,omitempty"` // the configuration names no such target
	Stale   bool      `json:"stale,omitempty"`  // it was about another address, and closes nothing
	Host    string    `json:"host,omitempty"`   // of a stale one: the member that it is about, which is in no slot now
	Forced  bool      `json:"forced,omitempty"`
	Without []string  `json:"without,omitempty"`
	Note    string    `json:"note,omitempty"`  // what a start found half done
	Drift   []string  `json:"drift,omitempty"` // where HAProxy does not show it
	// Unwritten: a restart would take what was on disk before; the note says it too.
	Unwritten bool `json:"unwritten,omitempty"`
}

// TierStatus is one tier of a Status, in the configuration's order.
type TierStatus struct {
	Readiness
	Quiesced bool            `json:"quiesced"`
	Closure  *tier.Closure   `json:"closure,omitempty"`
	Override *OverrideStatus `json:"override,omitempty"` // in force now, also where the tier is quiesced
	MinReady int             `json:"min_ready"`
	Needed   int             `json:"needed"` // servers that must be ready now: min_ready, or activation_min until the tier has been ready once
	Serving  int             `json:"serving"`
	Servers  []ServerStatus  `json:"servers"`
	Members  *MembersStatus  `json:"members,omitempty"` // where HAProxy says which servers there are
	// LastChange is when anything but ages last became different, as /readyz of
	// tier-agent counts it, or was first seen.
	LastChange *time.Time `json:"last_change,omitempty"`
	// GateAskedMS is the time since the gate was last asked about the tier; absent where
	// it never was.
	GateAskedMS *int64 `json:"gate_asked_ms,omitempty"`
	// Unlisted are servers that take requests in a backend of the tier and that no tier
	// lists, ten at most.
	Unlisted []string `json:"unlisted,omitempty"`
	// WaysIn are the ways on which the engines of a quiesced tier still get new requests.
	WaysIn []admission.WayIn `json:"ways_in,omitempty"`
}

// OverrideStatus is an override that is in force: the tier takes requests on HAProxy's word
// and the health of its engines alone.
type OverrideStatus struct {
	tier.Override
	LeftS int64 `json:"left_s"`
}

// MembersStatus says where the servers of a tier come from.
type MembersStatus struct {
	Backend string `json:"backend"`  // all its servers that have an address
	LeftOut int    `json:"left_out"` // servers that the tier has no room for, or whose names are too long
}

// ServerStatus is one server of a tier.
type ServerStatus struct {
	Readiness
	// State is the one word for how it is: ready, degraded, initializing, unreachable,
	// draining, quiesced, held, stale or unknown.
	State    string        `json:"state"`
	Address  string        `json:"address,omitempty"` // of a member: where HAProxy sends
	Evidence string        `json:"evidence"`          // the reason of the evidence alone, also while quiesced
	Against  int           `json:"against,omitempty"` // newest probes in a row that say the opposite; see rise and fall
	Quiesced bool          `json:"quiesced"`
	Closure  *tier.Closure `json:"closure,omitempty"` // its own, not its tier's
	Left     *LeftStatus   `json:"left,omitempty"`    // of a quiesced server: what HAProxy still has of it
	Weight   int           `json:"weight"`            // percent
	// WeightByHand: HAProxy has another weight than that, which somebody set there. It is
	// left alone until it is put back or HAProxy is reloaded.
	WeightByHand bool              `json:"weight_by_hand,omitempty"`
	Probing      int               `json:"probing"`         // probes that have not ended
	Since        *time.Time        `json:"since,omitempty"` // the first probe that saw what the newest one saw
	Metadata     map[string]string `json:"metadata,omitempty"`
	HAProxy      map[string]string `json:"haproxy,omitempty"` // instance -> admin state there
	// Shown is what each HAProxy that can be read does with it, by instance.
	Shown map[string]ShownStatus `json:"shown,omitempty"`
	Asked *AskedStatus           `json:"asked"`
	// WaysIn are those of a server that is quiesced itself.
	WaysIn []admission.WayIn `json:"ways_in,omitempty"`
}

// ShownStatus is one server as one HAProxy has it.
type ShownStatus struct {
	Takes  bool   `json:"takes"` // new requests are sent there
	State  string `json:"state"` // "up", "down", "weight 0", or the admin state
	Weight int    `json:"weight"`
	// AgentCheck and HealthCheck are "on", "disabled" (by a command) or "none".
	AgentCheck  string `json:"agent_check"`
	HealthCheck string `json:"health_check"`
	Asks        bool   `json:"asks"`  // its checks ask tier-agent, by the server's name or the tier's
	Gated       bool   `json:"gated"` // the gate has been asked about the tier since that HAProxy started
	// Follows: its agent-check runs, and does not ask about it: what another server is told
	// takes it down, too.
	Follows bool `json:"follows,omitempty"`
	// Heard is what its checks were answered last, where it is down and should be up.
	Heard string `json:"heard,omitempty"`
}

// AskedStatus says when HAProxy's checks last asked this tier-agent about a server, by its
// name or its tier's.
type AskedStatus struct {
	AgentCheckMS  *int64 `json:"agent_check_ms,omitempty"`  // since the last agent-check; absent where there was none
	HealthCheckMS *int64 `json:"health_check_ms,omitempty"` // since the last health check; absent where there was none
}

// LeftStatus is what is left on a quiesced server, as it was last counted: in every
// worker that can be seen, of every HAProxy that could be read. Old workers of one
// without a master socket cannot be seen.
type LeftStatus struct {
	Streams int `json:"streams"` // under way
	Queue   int `json:"queue"`   // requests that wait for the server itself
	// Unknown are the HAProxies where it could not be counted, or not yet. The counts
	// are then what there is at least.
	Unknown []string `json:"unknown,omitempty"`
}

// HAProxyStatus is one instance as it was last read.
type HAProxyStatus struct {
	Instance string `json:"instance"`
	Readable bool   `json:"readable"`
	Error    string `json:"error,omitempty"` // its kind; the log has the whole text
	// Detail is the whole text, with the socket; on the admin socket only.
	Detail  string `json:"detail,omitempty"`
	Version string `json:"version,omitempty"`
	PID     int    `json:"pid,omitempty"`
	UptimeS int64  `json:"uptime_s,omitempty"`
	AgeMS   int64  `json:"age_ms"` // since the read
	// Holds are configured servers that somebody else has closed there.
	Holds []string `json:"holds,omitempty"`
	// ClosedHere are servers that tier-agent has taken down there, since nothing there asks
	// about them.
	ClosedHere []string `json:"closed_here,omitempty"`
	// StateFile says what is wrong with its server-state file.
	StateFile      string `json:"state_file,omitempty"`
	KeepsStateFile bool   `json:"keeps_state_file"` // tier-agent writes its server-state file
	SeesOldWorkers bool   `json:"sees_old_workers"` // through its master's socket
}

// Event is one line of a command's answer: progress, any number of times, and
// then the result. An error stands in a result's place, and alone where the
// status code is not 200.
type Event struct {
	Progress *admission.Progress `json:"progress,omitempty"`
	Result   *admission.Result   `json:"result,omitempty"`
	Reload   *Reload             `json:"reload,omitempty"` // in a result's place
	Error    string              `json:"error,omitempty"`
}
