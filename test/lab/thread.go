package lab

import "runtime"

// lockThread ties the goroutine to its thread for the rest of its life.
func lockThread() { runtime.LockOSThread() }
