package horizon

import "time"

// The reasons of a Verdict. Of two that hold, the first in this order is given.
const (
	// ReasonNoTier: no tier serves; also where none is published.
	ReasonNoTier = "no_tier_ready"
	// ReasonFailing: some tier serves, and a live one fails to serve what it once
	// served.
	ReasonFailing = "tier_failing"
	// ReasonServing: ready.
	ReasonServing = "serving"
)

// Verdict is about the daemon as a whole, at one moment.
type Verdict struct {
	Ready  bool   `json:"ready"`
	Reason string `json:"reason"`
	// Failing are the live tiers that do not serve what they once served, whether
	// or not another serves; in the order of publication.
	Failing []Failing `json:"failing,omitempty"`
	// StaleDegraded are those that have not changed within the horizon. They hold
	// no veto, and are named so that they are not forgotten.
	StaleDegraded []Stale `json:"stale_degraded,omitempty"`
}

// Failing is one live tier that fails to serve. A tier is in neither list while
// it serves, while it is quiesced, and while it has never served.
type Failing struct {
	Name   string `json:"name"`
	Reason string `json:"reason"` // the row's
}

// Stale is one tier that fails to serve and has not changed within the horizon.
type Stale struct {
	Name        string `json:"name"`
	Reason      string `json:"reason"`       // the row's
	IdleSeconds int64  `json:"idle_seconds"` // whole seconds since its last change
}

// Judge gives the verdict on the rows last published, as the clock stands now. It
// waits for no Publish, and changes nothing.
func (h *Horizon) Judge() Verdict {
	// The clock after the rows: a stamp in its future is then the clock's doing.
	rows := h.published.Load()
	now, staleAfter := h.now(), time.Duration(h.staleAfter.Load())
	var v Verdict
	serving := false
	for _, name := range rows.order {
		e := rows.rows[name]
		serving = serving || e.serves()
		if !e.failing() {
			continue
		}
		if age := ageAt(e.changed, now); staleAfter <= 0 || age <= staleAfter {
			v.Failing = append(v.Failing, Failing{Name: name, Reason: e.row.Reason})
		} else {
			v.StaleDegraded = append(v.StaleDegraded, Stale{Name: name, Reason: e.row.Reason, IdleSeconds: int64(age / time.Second)})
		}
	}
	switch {
	case !serving:
		v.Reason = ReasonNoTier
	case len(v.Failing) > 0:
		v.Reason = ReasonFailing
	default:
		v.Ready, v.Reason = true, ReasonServing
	}
	return v
}

// ageAt gives the time from changed to now by two clocks; see idle.
func ageAt(changed, now time.Time) time.Duration {
	return idle(now.Sub(changed), now.Round(0).Sub(changed.Round(0))) // Round(0) strips the monotonic reading
}

// idle gives the shorter of two ages. The wall clock can be set forward, which
// would age every veto away at once, and it can be set back; the monotonic clock
// stands still while a machine is suspended. A row counts as aged only where both
// say so: both fail towards "still live", and so towards not ready.
func idle(mono, wall time.Duration) time.Duration { return min(mono, wall) }
