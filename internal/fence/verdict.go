package fence

import (
	"net/netip"
	"time"
)

// The fence's own reasons. All others come with an observation.
const (
	// ReasonInvalidated: the probe overlapped an invalidation of its server,
	// its tier or everything, its server was removed meanwhile, or it was the
	// one to show a restart (G1).
	ReasonInvalidated = "probe_invalidated"
	// ReasonSuperseded: a probe issued later was accepted first (G2).
	ReasonSuperseded = "probe_superseded"
	// ReasonPending: there is no evidence yet (G3).
	ReasonPending = "probe_pending"
	// ReasonStale: the evidence is older than its maximum age, or the clock
	// stands before the moment that the evidence was taken (G5).
	ReasonStale = "probe_stale"
	// ReasonRising: the newest probes passed, but not yet Member.Rise of them.
	ReasonRising = "probe_rising"
	// ReasonUnknown: no such server is configured.
	ReasonUnknown = "unknown_server"
)

// Observation is what one probe saw. The fence keeps it as it is and never
// changes the metadata, so the caller must not either.
type Observation struct {
	Ready  bool
	Reason string
	// Judged: an answer came, and it is not the one that it has to be. One such
	// observation takes a ready down, whatever Member.Fall is.
	Judged bool
	// Healthy: the engine has passed its health check; see Fence.Health.
	Healthy  bool
	Metadata map[string]string
	// Address is where the probe's connection has got to; not valid where that is no IP
	// address.
	Address netip.AddrPort
	// Instance is what the engine calls itself since its last start; empty where
	// it does not say, or where a change of it means nothing.
	Instance string
}

// Verdict is the fence's answer about one server at one moment.
type Verdict struct {
	// Ready is true only for accepted, current evidence that said ready.
	Ready bool
	// Reason is the observation's own, or one of the Reason constants.
	Reason string
	// Metadata is the observation's; nil unless Ready.
	Metadata map[string]string
	// Address is the observation's, ready or not.
	Address netip.AddrPort
	// Generation is the one that the verdict was judged under. Of a probe that
	// was not accepted it is the ticket's, which is no longer current.
	Generation Generation
	// Issue is the issue number of the evidence or of the refused ticket; 0
	// where there is neither.
	Issue uint64
	// Started and Ended are the times of that same probe. Zero where there is
	// no evidence; never those of a refused probe.
	Started, Ended time.Time
	// Age is the time since Started. Evidence speaks of no moment after its
	// probe began with certainty, so that is where its age counts from.
	Age time.Duration
	// Against counts the newest accepted observations in a row that say the
	// opposite of the evidence, and are fewer yet than Member.Rise or
	// Member.Fall. Not of a completion, which is about one probe.
	Against int
	// Starting: never ready since the member or its instance appeared, and that
	// is no longer ago than Member.StartWindow. Not of a completion either.
	Starting bool
	// Restarted: this probe showed another instance than those before it, which
	// has begun a generation. The observation counts for nothing: probe again.
	Restarted bool
}

// HasEvidence reports whether the verdict rests on an accepted observation,
// fresh or stale, ready or not.
func (v Verdict) HasEvidence() bool { return !v.Started.IsZero() }
