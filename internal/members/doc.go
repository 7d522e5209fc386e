// Package members finds out which servers of a HAProxy backend are a tier's, and
// remembers on disk which of them tier-agent has opened.
//
// Its invariant: a member is an address. What HAProxy shows under the same name with
// another address is another member, and a name without an address is none.
package members
