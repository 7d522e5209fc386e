package fence

import "strconv"

// Generation is the set of epochs that a ticket is held against. Two
// generations are compared for equality only: whichever epoch moved, the
// tickets taken before are void.
//
// Epochs come from one counter that never goes back, so a server or a tier
// that is removed and added again never sees an epoch of its former life.
type Generation struct {
	Global uint64 // advanced by InvalidateAll
	Tier   uint64 // advanced by InvalidateTier
	Server uint64 // advanced by InvalidateServer, and by a restart
}

// String gives the epochs, widest first, as in "1.14.9". A tier's generation
// has no server epoch, and reads "1.14". It is what faces and logs show.
func (g Generation) String() string {
	var buf [64]byte // three 20-digit numbers and two dots fit
	b := strconv.AppendUint(buf[:0], g.Global, 10)
	for _, epoch := range []uint64{g.Tier, g.Server} {
		if epoch != 0 { // no tier and no server has an epoch of 0
			b = append(b, '.')
			b = strconv.AppendUint(b, epoch, 10)
		}
	}
	return string(b)
}

// IsZero reports whether g is the zero value, which no server ever has.
func (g Generation) IsZero() bool { return g == Generation{} }
