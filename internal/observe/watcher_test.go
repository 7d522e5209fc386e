package observe

import (
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"tier-agent/internal/runtimeapi"
)

// What the watcher sees is tested in package admission, on its emulated HAProxies.
func TestKeepFilesHasEveryInstanceReadSoon(t *testing.T) {
	set := runtimeapi.NewSet(runtimeapi.New("edge", "unix", "/nowhere", runtimeapi.Options{}))
	w := New(Options{HAProxy: set, Every: time.Hour, Log: slog.New(slog.DiscardHandler)})
	w.KeepFiles()
	assert.Len(t, w.watched[0].wake, 1)
}
