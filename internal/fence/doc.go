// Package fence decides which probe result counts.
//
// Its invariant: an observation becomes evidence only if the generation that
// its ticket was taken under is still current and no later-issued ticket was
// accepted before it; that comparison and the write are one critical section.
//
// Evidence is then what stands of the accepted observations of the current
// generation: the newest one, unless Member.Rise or Member.Fall ask for more of
// them in a row. They delay, and do no more: a ready is as old as its last passing
// observation, and after an invalidation the first one decides alone.
//
// The package is pure. It does no I/O and starts no goroutine, it is handed
// its clock, and no lock of it is held while a caller's probe runs. What it
// remembers is one fixed-size record for each member, however often that is
// invalidated.
//
// Pitfalls for callers:
//   - Never cancel a probe in order to fence it. A cancelled probe can still
//     have reached the engine that is going away; a fenced one cannot count.
//   - Every ticket must be ended, by [Fence.Complete] or [Ticket.Abandon].
//     [Fence.Check] and [Fence.ProbeNow] see to it, also when a probe panics.
//   - A verdict is true at the moment it is given. Ask again rather than keep it.
//   - What [Fence.Complete] returns is about one probe. What stands is for
//     [Fence.Current] to say.
//   - A server and what stands beside it are judged by [Fence.Together]: two calls
//     of Current are two moments.
//   - An observation that shows a restart counts for nothing, see
//     [Verdict].Restarted: probe again, or wait for the next one.
package fence
