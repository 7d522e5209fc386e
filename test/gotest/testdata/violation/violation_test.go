package violation

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tier-agent/test/guarantee"
)

func TestLoses(t *testing.T) {
	t.Run("2.6", func(t *testing.T) {})
	t.Run("3.2", func(t *testing.T) {
		require.Zero(guarantee.T(t), 3, "requests were lost")
	})
}
