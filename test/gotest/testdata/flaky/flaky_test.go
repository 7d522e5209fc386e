package flaky

import (
	"os"
	"path/filepath"
	"testing"
)

func TestFlaky(t *testing.T) {
	t.Run("other", func(t *testing.T) {})
	t.Run("a port [::1] | b", func(t *testing.T) {
		mark := filepath.Join(os.Getenv("GOTEST_FIXTURE"), "ran")
		if _, err := os.Stat(mark); err != nil {
			_ = os.WriteFile(mark, nil, 0o600)
			t.Fatal("the port was taken")
		}
	})
}

func TestFlakyToo(t *testing.T) {}
