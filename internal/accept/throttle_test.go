package accept

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

// Control: without last stored every line was let through.
func TestThrottleLetsOneLineAMinuteThrough(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var th Throttle
		assert.True(t, th.Allow())
		assert.False(t, th.Allow())
		time.Sleep(time.Minute - time.Nanosecond)
		assert.False(t, th.Allow())
		time.Sleep(time.Nanosecond)
		assert.True(t, th.Allow())
		assert.False(t, th.Allow())
	})
}
