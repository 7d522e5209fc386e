// Package runtimeapi speaks HAProxy's Runtime API, to one instance and to the
// set of them.
//
// Invariant: nothing is reported as read or as done unless one HAProxy process
// answered the whole exchange, its closing sentinel included, and a mutation
// only if the state read back from that process is the wanted one.
//
// The protocol tempts a client into success: a mutation that worked answers
// with an empty line, and so, nearly, does a socket that closes without a word.
// An exchange therefore interleaves its commands with "show info":
//
//	show info;<command>;show info;<command>;show info
//
// Each of these blocks carries the process id, none can be mistaken for another
// command's answer, and the last one is the sentinel. A text that happens to
// contain such a block changes their number, and the exchange fails.
//
// One short connection serves one exchange: since 3.0 HAProxy runs only the
// first line of a connection, and a kept connection stays on the old process
// over a reload. The writing side is never closed early, because HAProxy drops
// the rest of the commands when it is (measured on 2.6, 3.0 and 3.2).
//
// After a reload streams go on in old workers, which no stats socket reaches. The
// master does, with the same frame in which each command is addressed to one
// worker; the process id in the blocks says that it was this worker that answered.
package runtimeapi
