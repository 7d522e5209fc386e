// Package observe keeps what each HAProxy really does, as it was last seen.
//
// Its invariant: a reader gets memory, never a HAProxy. A view is replaced whole after
// each look, says when it was taken, and after a failed look still has what the last
// good one saw.
package observe
