// Package tier is the model that every face reads: tiers, their servers, and
// what each may be told.
//
// Its invariant: a server takes a new request only while its tier and itself
// are open and the fence holds fresh evidence that it is ready, all three
// judged at the moment of reading. Nothing here remembers a yes, but for a
// tier's first ([Spec].ActivationMin).
//
// The [Model] is published memory; the [Monitor] feeds it by probing every
// server through the fence. Reading starts no I/O and waits for none.
package tier
