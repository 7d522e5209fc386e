// Package intent keeps on disk what is to stay quiesced.
//
// Its invariant: a record that Put has accepted is there after a kill or a loss
// of power, whole, and one that Drop has accepted is not. A file that cannot be
// read as a whole is an error, never an empty set: to guess here would be to
// open a tier that somebody has closed.
//
// One process at a time holds a state directory.
package intent
