package property

import (
	"testing"

	"pgregory.net/rapid"
)

func TestProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		if n := rapid.IntRange(0, 100).Draw(t, "n"); n > 50 {
			t.Fatalf("%d is too many", n)
		}
	})
}
