// Package spoe is the agent side of HAProxy's Stream Processing Offload Protocol
// (HAProxy's doc/SPOE.txt, section 3): for each request it tells HAProxy whether
// a tier may take it now.
//
// Invariant: every NOTIFY that keeps to the protocol is answered by one ACK, made
// from memory, in order. A frame starts no I/O towards anything else and no
// goroutine, and no byte that a peer sends reaches the library before its
// structure has been checked.
//
// # The contract
//
// Message "tier-readiness", with the arguments
//
//	tier    string, required
//	server  string, "backend/server", for a request that is bound to one server, or
//	        "*" for one that may go to any, also if it is quiesced
//
// sets in scope txn, below HAProxy's var-prefix:
//
//	admit        bool
//	reason       string, from a closed vocabulary
//	generation   string, as "1.14"; empty where nothing is known
//	age_ms       integer, of the evidence; absent where there is none
//	retry_after  integer, seconds; only when not admitted
//
// What cannot be understood is answered too, with admit=false: an ACK without an
// action has stalled some versions until their timeout, and HAProxy lets a
// request pass that got no answer, unless its configuration denies that.
//
// # Connections
//
// HAProxy keeps them for long and sends many NOTIFYs ahead of their ACKs
// ("pipelining", the one capability that is announced). What one read brings is
// answered in one write. A peer that breaks the protocol gets AGENT-DISCONNECT
// with the specification's status code, and is closed.
//
// The health check of "option spop-check" is a HELLO of its own. It fails before
// Options.Ready and after Retire, so that HAProxy takes the agent out of use
// before its connections close. Until Ready other connections wait for it.
package spoe
