package integration

import (
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"tier-agent/test/lab"
)

// stopProcess holds a process that this test started, until resume.
func stopProcess(t *testing.T, pid int) (resume func()) {
	t.Helper()
	require.NoError(t, lab.Suspend(pid))
	resume = sync.OnceFunc(func() { _ = syscall.Kill(pid, syscall.SIGCONT) })
	t.Cleanup(resume)
	return resume
}
