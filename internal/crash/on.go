//go:build crashpoints

// Package crash has the points at which a test can have tier-agent die.
package crash

import (
	"os"
	"syscall"
)

// Point ends the process with SIGKILL, as a crash would, if the environment
// names it: TIER_AGENT_CRASH_AT. It does not return then.
func Point(name string) {
	if name == os.Getenv("TIER_AGENT_CRASH_AT") {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	}
}
