//go:build !crashpoints

// Package crash has the points at which a test can have tier-agent die.
//
// Its invariant: without the build tag crashpoints, which only the integration
// tests set, a point is nothing at all.
package crash

// Point is where a build of the tests may end the process.
func Point(string) {}
