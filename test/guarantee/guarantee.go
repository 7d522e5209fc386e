// Package guarantee tells a broken guarantee from a test that met a busy machine.
//
// A guarantee is broken when a request reached a closed tier, when one was lost on an
// open tier, when void evidence counted, when something leaked. The assertion that sees
// it takes guarantee.T(t) for t:
//
//	assert.Zero(guarantee.T(t), reached, "requests reached a closed tier")
//
// Its failure starts with the word VIOLATION. test/gotest never runs such a test again:
// a guarantee that was broken once is broken. Set-up, waits and everything else stay
// with the plain t.
package guarantee

import "fmt"

// Mark is the word that test/gotest looks for in the output of a failed test.
const Mark = "VIOLATION"

// test is what *testing.T and *rapid.T have in common.
type test interface {
	Helper()
	Name() string
	Errorf(format string, args ...any)
	FailNow()
}

// Checker is a test whose failures are broken guarantees. testify's assert and require
// take it, and goleak does.
type Checker struct{ t test }

// T marks the failures of one assertion.
func T(t test) Checker { return Checker{t: t} }

// Helper lets testify leave its own frames out of the place that a failure names.
func (c Checker) Helper() { c.t.Helper() }

// Name is the test's.
func (c Checker) Name() string { return c.t.Name() }

// Errorf reports a broken guarantee and goes on.
func (c Checker) Errorf(format string, args ...any) {
	c.t.Helper()
	c.t.Errorf("%s: "+format, append([]any{Mark}, args...)...)
}

// Error reports a broken guarantee and goes on.
func (c Checker) Error(args ...any) {
	c.t.Helper()
	c.t.Errorf("%s: %s", Mark, fmt.Sprint(args...))
}

// FailNow ends the test.
func (c Checker) FailNow() {
	c.t.Helper()
	c.t.FailNow()
}
