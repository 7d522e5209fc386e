package integration

import (
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tier-agent/test/engine"
	"tier-agent/test/lab"
)

// hashed lets requests queue on the server itself, in the way that 3.0 and 3.2
// release all at once when the server is drained.
func hashed(_ lab.Options, text string) string {
	return strings.Replace(text, "    server h1 \"${TIER_HEAVY_H1}\"",
		"    balance hdr(x-user)\n    hash-type consistent\n    option redispatch\n    server h1 \"${TIER_HEAVY_H1}\" maxconn 1", 1)
}

// Control: with the call of queues taken out of Quiesce, three ran at once where
// maxconn is 1, on 3.0 and 3.2.
func TestAQuiesceReleasesNoQueueOntoTheServer(t *testing.T) {
	onEach(t, func(t *testing.T, haproxy string) {
		w := newWorldWith(t, haproxy, worldOptions{config: hashed})
		// Three, of which the engine holds the first until release.
		start := func(tokens int) (streams []*lab.Stream, release func()) {
			release, _ = w.heavy.Hold(engine.Chat)
			t.Cleanup(release)
			// It has its slot before the others come: HAProxy's threads look at maxconn
			// and take a slot in two steps, so that two which arrive together may both run.
			for queued := range 3 {
				streams = append(streams, w.Stream(t.Context(), "heavy", tokens, 50*time.Millisecond))
				w.waitStat("heavy", "h1", func(row map[string]string) bool {
					return row["scur"] == "1" && row["qcur"] == strconv.Itoa(queued)
				}, "one runs, the others queue")
			}
			return streams, release
		}
		// A queue that empties in time: the quiesce waits for it.
		streams, release := start(20) // a second each, once they run
		var most atomic.Int64
		done := make(chan struct{})
		watched := make(chan struct{})
		go func() {
			defer close(watched)
			for {
				most.Store(max(most.Load(), w.heavy.Streams()))
				select {
				case <-done:
					return
				case <-time.After(5 * time.Millisecond):
				}
			}
		}()
		release()
		w.verb(0, "quiesce", "heavy", "--reason", "swap")
		for _, s := range streams {
			require.NoError(t, <-s.Ended)
		}
		close(done)
		<-watched
		assert.EqualValues(t, 1, most.Load(), "never more than maxconn")
		w.verb(0, "readmit", "heavy", "--wait", "3s")

		// One that does not: the operator is asked. 2.6 has nothing to ask about.
		version, err := w.Runtime("show version")
		require.NoError(t, err)
		if major, _ := strconv.Atoi(strings.Split(strings.TrimSpace(version), ".")[0]); major < 3 {
			return
		}
		streams, release = start(1)
		r := w.verb(1, "quiesce", "heavy", "--reason", "swap")
		assert.Equal(t, "queue_release", r.Code)
		assert.False(t, r.Quiesced)
		assert.Contains(t, r.Message, "2 queued", fmt.Sprint(r))
		w.verb(0, "quiesce", "heavy", "--reason", "swap", "--accept-queue-release")
		release()
		for _, s := range streams {
			require.NoError(t, <-s.Ended)
		}
	})
}
