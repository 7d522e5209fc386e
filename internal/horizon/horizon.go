package horizon

import (
	"sync"
	"sync/atomic"
	"time"
)

// Row is everything observable of one tier that an operator would call a change.
// It holds no age, no time and no counter of probes: what moves by itself would
// keep a dead tier live for ever.
type Row struct {
	Name string // unique among the rows of one Publish; of two the later counts
	// Serving: the tier takes requests now.
	Serving bool
	// Quiesced: the tier is closed on purpose. A row that is Serving all the same
	// contradicts itself, and is taken for closed.
	Quiesced bool

	Ready   int // servers that are ready
	Servers int // servers in all

	State, Reason string // from closed vocabularies; no text of an engine's
	Generation    string
}

// Horizon holds the rows last published and when each last changed. It is safe
// for concurrent use.
type Horizon struct {
	now        func() time.Time
	staleAfter atomic.Int64 // nanoseconds
	published  atomic.Pointer[snapshot]

	// publishing makes one step of comparing with the rows before and taking their
	// place. Readers never take it.
	publishing sync.Mutex
}

// snapshot is immutable.
type snapshot struct {
	order []string // as published
	rows  map[string]entry
}

type entry struct {
	row     Row
	changed time.Time // when row last became different, or was first seen
	served  bool      // row.Serving was true at some time while it was published
}

// New returns a horizon without rows, which is not ready. now is its clock;
// time.Now is the one to use outside tests, for its two readings (see idle).
func New(staleAfter time.Duration, now func() time.Time) *Horizon {
	h := &Horizon{now: now}
	h.SetStaleAfter(staleAfter)
	h.published.Store(&snapshot{})
	return h
}

// SetStaleAfter changes the horizon and keeps the rows with their stamps: a
// reload of the configuration must not take a veto away. At exactly staleAfter
// since its last change a row is still live. With zero or less no row ever ages,
// so that every tier that fails holds its veto until it serves, is quiesced or is
// removed.
func (h *Horizon) SetStaleAfter(staleAfter time.Duration) { h.staleAfter.Store(int64(staleAfter)) }

// Publish makes rows the whole of what is known, in one step. Each is compared
// field by field with the one of its name that it replaces: one that says the
// same keeps its stamp, a different one is stamped now. A row that was not in the
// last publication is first seen, and stamped now, also where its name was there
// earlier: what an earlier tier of this name served is forgotten with it.
//
// Rows count in the order in which they are published. Publishers that share a
// Horizon take turns at reading the model and publishing, or an older reading may
// replace a newer one and pass for a change.
func (h *Horizon) Publish(rows []Row) {
	h.publishing.Lock()
	defer h.publishing.Unlock()
	now, old := h.now(), h.published.Load()
	next := &snapshot{rows: make(map[string]entry, len(rows))}
	for _, row := range rows {
		e := entry{row: row, changed: now, served: row.Serving}
		if was, known := old.rows[row.Name]; known {
			e.served = e.served || was.served
			if row == was.row {
				e.changed = was.changed
			}
		}
		if _, twice := next.rows[row.Name]; !twice {
			next.order = append(next.order, row.Name)
		}
		next.rows[row.Name] = e
	}
	h.published.Store(next)
}

// LastChange is when the row of this name last changed, or was first seen. It
// reports false where none is published.
func (h *Horizon) LastChange(name string) (time.Time, bool) {
	e, known := h.published.Load().rows[name]
	return e.changed, known
}

func (e entry) serves() bool { return e.row.Serving && !e.row.Quiesced }

// failing leaves a quiesced tier out. Somebody has closed it and answers for it,
// and a swap of one tier must not make the daemon unready for the others; a tier
// that broke first and was quiesced then is in somebody's hands too. The veto is
// back the moment that the tier is opened and does not serve, since that opening
// is a change. A quiesced tier serves nothing either, so where all are quiesced
// the daemon is not ready.
func (e entry) failing() bool { return e.served && !e.row.Serving && !e.row.Quiesced }
