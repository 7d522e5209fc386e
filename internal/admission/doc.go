// Package admission drives quiesce, drain and readmit: it closes a tier here
// and in every HAProxy, waits until nothing runs there, and opens it again on
// fresh evidence.
//
// Its invariant: whatever goes wrong, on whichever side, a transition leaves
// its tier closed. Quiesce closes before it invalidates; readmit invalidates
// before it verifies, opens only on evidence issued after that, and closes
// again what it opened unless every HAProxy confirms (G6).
//
// Forget ends the record of an intent that closes nothing; it opens nothing.
//
// Drains, readmits and forgets of one tier are serialised; a quiesce is never refused,
// ends a readmit, and runs beside the rest. Transitions of different tiers touch
// each other in nothing. HAProxy is believed only when it has been read back.
package admission
