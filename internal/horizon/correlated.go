package horizon

import "time"

// ReasonCorrelated names what CorrelatedFailure finds.
const ReasonCorrelated = "correlated_failure"

// leastCorrelated is how many members must have failed together: one that fails
// alone is together with nobody.
const leastCorrelated = 2

// Member is one server, of whichever tier, as CorrelatedFailure reads it.
type Member struct {
	// Unreachable: its last probe got no answer at all. False where that is not
	// known: a member without evidence may be well.
	Unreachable bool
	// Since is when it became unreachable; zero where that is not known. Only
	// where Unreachable.
	Since time.Time
	// Excluded: it is closed on purpose, by a quiesce or by somebody's hold.
	Excluded bool
}

// CorrelatedFailure counts the members that became unreachable together: within
// interval between the first and the last of them, with no member of any tier
// left that is not unreachable. It gives 0 where there is no such failure, or
// where fewer than two members have a part in it. A member that HAProxy knows as
// absent (DNS maintenance) is not to be among them.
//
// An excluded member that is unreachable is left out, and not counted: an engine
// that somebody has closed may well have been stopped, at whatever time. One that
// is reachable is proof that the network and tier-agent work, so there is none.
//
// It is a hint for people: more often than not such a failure is the network's or
// tier-agent's own. It opens nothing and excuses nobody.
func CorrelatedFailure(members []Member, interval time.Duration) (count int) {
	var first, last time.Time
	for _, m := range members {
		switch {
		case !m.Unreachable:
			return 0
		case m.Excluded:
			continue
		case m.Since.IsZero():
			return 0
		}
		if count == 0 || m.Since.Before(first) {
			first = m.Since
		}
		if count == 0 || m.Since.After(last) {
			last = m.Since
		}
		count++
	}
	if count < leastCorrelated || last.Sub(first) > interval {
		return 0
	}
	return count
}
