// Package lab sets up what the demo and the integration tests run: real
// HAProxy with the shipped configuration, the real tier-agent binary, and
// engines, all on loopback.
//
// Its invariant: what it started it ends, and nothing else.
package lab
