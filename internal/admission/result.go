package admission

import (
	"time"

	"tier-agent/internal/fence"
	"tier-agent/internal/tier"
)

// Verb names a transition.
type Verb string

// The verbs.
const (
	VerbQuiesce    Verb = "quiesce"
	VerbDrain      Verb = "drain"
	VerbReadmit    Verb = "readmit"
	VerbInvalidate Verb = "invalidate"
	// VerbForget ends a record that closes nothing; admission stays as it is.
	VerbForget Verb = "forget"
	// VerbOverride opens a tier on health alone, for a time.
	VerbOverride Verb = "override"
	// VerbReconcile is tier-agent's own: it closes again what an intent wants
	// closed.
	VerbReconcile Verb = "reconcile"
)

// Outcome says how a transition ended.
type Outcome string

// The outcomes. Only Done means that all of it holds.
const (
	Done       Outcome = "done"
	Refused    Outcome = "refused"    // nothing was opened; Code says why
	Incomplete Outcome = "incomplete" // closed here, not confirmed by every HAProxy
	TimedOut   Outcome = "timed_out"
)

// The codes that refine an outcome. They are part of the API.
const (
	CodeOK           = "ok"
	CodeUnknown      = "unknown_target"
	CodeInvalid      = "invalid_request"
	CodeBusy         = "busy"
	CodeSuperseded   = "superseded"       // a quiesce came while a readmit ran
	CodeNotQuiesced  = "not_quiesced"     // drain and readmit need a quiesced target
	CodeTierQuiesced = "tier_quiesced"    // readmit of a server whose tier is closed
	CodeUnidentified = "unidentified"     // the tier compares neither identity nor metadata
	CodeHeld         = "held"             // someone else drained or disabled a server in HAProxy
	CodeNotReady     = "not_ready"        // fresh evidence says no; Evidence has the reasons
	CodePending      = "probe_pending"    // a probe from before the invalidation is still out
	CodeHAProxy      = "haproxy_failed"   // an instance could not be read or changed
	CodeNotConfirmed = "not_confirmed"    // HAProxy did not show every server up in time
	CodeUnguarded    = "unguarded"        // HAProxy does not ask about a server that is to be left to its evidence
	CodeMoved        = "generation_moved" // invalidated while the readmit ran, or the record changed while it was to be forgotten
	CodeNoRuntimeAPI = "no_runtime_api"   // the tier is driven through agent-check alone
	CodeDrainTimeout = "drain_timeout"
	CodeReloaded     = "haproxy_reloaded" // streams may run on in a worker that cannot be seen
	CodeStopped      = "stopped"          // the caller went away, or tier-agent is ending
	CodeNotDurable   = "not_durable"      // the intents cannot be written
	CodeMinReady     = "min_ready"        // too few other servers of the tier would serve
	CodeQueue        = "queue_release"    // a drain may release a server's queue onto it
	CodeAddress      = "address_mismatch" // evidence is about another address than HAProxy's
	CodeRolledBack   = "rolled_back"      // a quiesce that was not confirmed has been undone
	CodeInForce      = "in_force"         // an intent that is to be forgotten closes its target
	CodeStillDrained = "still_drained"    // only that intent says that a slot's drain is ours
)

// Result is what a transition brought, the same for every verb.
type Result struct {
	Verb       Verb             `json:"verb"`
	Target     tier.Target      `json:"target"`
	By         string           `json:"by,omitempty"` // who asked for it
	Outcome    Outcome          `json:"outcome"`
	Code       string           `json:"code"`
	Message    string           `json:"message"`
	Quiesced   bool             `json:"quiesced"` // the target's own gate is closed now
	Closure    *tier.Closure    `json:"closure,omitempty"`
	Generation string           `json:"generation,omitempty"`
	Evidence   []Evidence       `json:"evidence,omitempty"`
	HAProxy    []InstanceResult `json:"haproxy,omitempty"`
	Without    []string         `json:"without,omitempty"` // instances that were left out on request
	// WaysIn are the ways on which the target's engines still get new requests, after a
	// quiesce and a drain. There may be others: see WayIn.
	WaysIn  []WayIn `json:"ways_in,omitempty"`
	Seconds float64 `json:"seconds"`
}

// Evidence is the verdict that a readmit took of one server.
type Evidence struct {
	Server     string            `json:"server"`
	Ready      bool              `json:"ready"`
	Reason     string            `json:"reason"`
	Generation string            `json:"generation"`
	Metadata   map[string]string `json:"metadata,omitempty"`
}

// InstanceResult is what was done and seen on one HAProxy.
type InstanceResult struct {
	Instance string         `json:"instance"`
	PID      int            `json:"pid,omitempty"`
	Servers  []ServerResult `json:"servers,omitempty"`
	Error    string         `json:"error,omitempty"`
}

// ServerResult is one server's admin state there, before and after. They are
// equal where nothing had to be changed.
type ServerResult struct {
	Server string `json:"server"`
	Before string `json:"before"`
	After  string `json:"after"`
}

// Progress is what a transition sees while it waits.
type Progress struct {
	Seconds float64 `json:"seconds"`           // since it began
	Waiting string  `json:"waiting,omitempty"` // for what
	// HAProxy is what a drain has counted; absent where it could not count for a while.
	HAProxy []InstanceLoad `json:"haproxy,omitempty"`
}

// InstanceLoad counts what one HAProxy still has on the target's servers.
type InstanceLoad struct {
	Instance string `json:"instance"`
	PID      int    `json:"pid,omitempty"`
	Streams  int    `json:"streams"`
	Queue    int    `json:"queue"`
	// Tracking is how much of that is on servers which follow one of the target's (`track`
	// in HAProxy), by "backend/server".
	Tracking map[string]int `json:"tracking,omitempty"`
	// OldWorkers are those of earlier reloads; what they have is in Streams and
	// Queue too.
	OldWorkers []WorkerLoad `json:"old_workers,omitempty"`
	// BackendQueue counts requests that wait for any server of the backends.
	// They are not the drained servers' and hold nothing up.
	BackendQueue int    `json:"backend_queue"`
	Error        string `json:"error,omitempty"`
	// Hidden says which workers may have streams that nothing shows.
	Hidden  string `json:"hidden,omitempty"`
	retries uint64
}

// WorkerLoad is what one old worker still has on the target's servers.
type WorkerLoad struct {
	PID     int `json:"pid"`
	Streams int `json:"streams"`
	Queue   int `json:"queue"`
}

func evidenceOf(name string, v fence.Verdict) Evidence {
	return Evidence{Server: name, Ready: v.Ready, Reason: v.Reason, Generation: v.Generation.String(), Metadata: v.Metadata}
}

func (r *Result) end(began, now time.Time, o Outcome, code, message string) Result {
	r.Outcome, r.Code, r.Message = o, code, message
	r.Seconds = now.Sub(began).Seconds()
	return *r
}
