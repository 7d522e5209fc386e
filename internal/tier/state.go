package tier

import (
	"strings"

	"tier-agent/internal/fence"
	"tier-agent/internal/probe"
)

// State is the one word for how a server is, for who has to do something about
// it. It is worked out when it is read, from the evidence and the gates; nothing
// is decided by it.
type State int

const (
	// StateUnknown: there is no evidence about the server, or none about where
	// HAProxy sends its requests.
	StateUnknown State = iota
	// StateReady: fresh evidence says ready.
	StateReady
	// StateDegraded: it answers, but not as it has to: another status, identity or
	// metadata, or not yet often enough in a row.
	StateDegraded
	// StateInitializing: it is not ready and never was, and its address or instance
	// appeared no longer ago than Spec.StartWindow.
	StateInitializing
	// StateUnreachable: no answer came back that could be judged, or none in time.
	StateUnreachable
	// StateDraining: quiesced, and HAProxy has requests of it still. Only
	// State.With says so.
	StateDraining
	// StateQuiesced: the server or its tier is closed here.
	StateQuiesced
	// StateHeld: somebody else has it in drain or maintenance in HAProxy. Only
	// State.With says so.
	StateHeld
	// StateStale: the evidence is too old. Probes do not come back.
	StateStale
)

var stateNames = [...]string{
	StateUnknown: "unknown", StateReady: "ready", StateDegraded: "degraded", StateInitializing: "initializing",
	StateUnreachable: "unreachable", StateDraining: "draining", StateQuiesced: "quiesced", StateHeld: "held",
	StateStale: "stale",
}

// String is the state's name in status, page and metrics.
func (s State) String() string {
	if s < 0 || int(s) >= len(stateNames) {
		return stateNames[StateUnknown]
	}
	return stateNames[s]
}

// Failing reports whether the server is not what it should be by its own fault or
// the network's. One that may still be loading is not, nor one that somebody has
// closed, nor one that nothing is known about.
func (s State) Failing() bool {
	return s == StateDegraded || s == StateUnreachable || s == StateStale
}

// With adds what only HAProxy shows. What is quiesced here stays so in name
// while somebody else holds it too: a hold is not what keeps it closed.
func (s State) With(draining, held bool) State {
	switch {
	case s == StateQuiesced && draining:
		return StateDraining
	case s != StateQuiesced && held:
		return StateHeld
	}
	return s
}

// busy is an engine that has too much to do for an exercise, and serves: as little to judge
// as no answer in time.
const busy = "exercise_http_429"

// judged reports whether a failed probe brought an answer that could be judged, or what
// says as much: where an exercise has proved an engine, a port that nobody listens on is
// the end of the process that it was proved of.
func (s *server) judged(reason string) bool {
	if reason == busy {
		return false
	}
	_, class, transport := strings.Cut(reason, "_transport_")
	return reason != probe.Timeout && !transport || s.exercise != "" && class == "refused"
}

// stateOf is that of an open server. A reason of a step that is not known here
// counts as an answer, unless it says by its name that there was none.
func stateOf(ready bool, reason string, starting bool) State {
	switch {
	case ready:
		return StateReady
	case starting:
		return StateInitializing
	}
	switch reason {
	case fence.ReasonPending, fence.ReasonUnknown, ReasonElsewhere, ReasonFailed:
		return StateUnknown
	case fence.ReasonStale:
		return StateStale
	case probe.Timeout:
		return StateUnreachable
	}
	_, class, transport := strings.Cut(reason, "_transport_")
	if transport && class != "credential" { // without one it is we who could not ask
		return StateUnreachable
	}
	return StateDegraded
}
