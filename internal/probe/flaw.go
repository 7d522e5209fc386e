package probe

import "errors"

// flaw is what is wrong with an answer that was read whole, as the end of its reason.
type flaw string

const (
	errMismatch  flaw = "mismatch"
	errMissing   flaw = "missing"
	errEmpty     flaw = "empty"
	errOversized flaw = "oversized"
	errMalformed flaw = "malformed"
)

func (f flaw) Error() string { return string(f) }

// flawed is the reason for a flaw. What else a decoder says is that the document is malformed.
func (s step) flawed(err error) string {
	f := errMalformed
	_ = errors.As(err, &f)
	return string(s) + "_" + string(f)
}
