package admission

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"

	"tier-agent/internal/observe"
)

// addresses gives each server of a HAProxy one of its own, but for those named.
func (h *haproxy) addresses(others map[string]string) {
	h.with(func() {
		for n, name := range h.order {
			h.address[name] = "192.0.2." + string(rune('1'+n)) + ":8000"
		}
		for name, at := range others {
			h.address[name] = at
		}
	})
}

// Integration tests hold each kind of way to what requests do; this one is about whose
// ways are told, and where.
//
// Controls: with the readable views not told from others, the way of one that had gone was
// named; with Without left out of waysIn, so was that of the instance that was left out;
// with met left out, the way of two servers at one address was named twice.
func TestWaysInAreThoseOfTheTargetAlone(t *testing.T) {
	l := newLab(t)
	l.hap1.addresses(map[string]string{"bare/b1": "192.0.2.1:8000", "llm/gpu2": "192.0.2.1:8000"}) // gpu1's
	l.hap2.addresses(nil)
	views := l.watching(t, func(o *observe.Options) { o.Looked = nil })
	assert.Empty(t, l.Ways(llm, gpu1, chat), "nothing is quiesced")

	r := l.Quiesce(t.Context(), QuiesceRequest{Target: chat, Reason: "swap"})
	assert.Equal(t, Done, r.Outcome)
	assert.Empty(t, r.WaysIn)
	assert.NotContains(t, r.Message, "get in")

	way := func(server string) WayIn {
		return WayIn{Instance: "hap1", Server: server, Of: "llm/gpu1", Kind: WayAddress,
			Message: "haproxy hap1 sends requests to " + server + ", which is open and has the address of llm/gpu1, 192.0.2.1:8000"}
	}
	r = l.Quiesce(t.Context(), QuiesceRequest{Target: gpu1, Reason: "swap"})
	assert.Equal(t, Done, r.Outcome)
	assert.Equal(t, []WayIn{way("bare/b1"), way("llm/gpu2")}, r.WaysIn)
	assert.Contains(t, r.Message, "; requests still get in: "+way("bare/b1").Message+"; "+way("llm/gpu2").Message)

	r = l.Quiesce(t.Context(), QuiesceRequest{Target: llm, Reason: "swap"})
	assert.Equal(t, []WayIn{way("bare/b1")}, r.WaysIn, "gpu2 is closed as well")
	r = l.Quiesce(t.Context(), QuiesceRequest{Target: llm, Reason: "swap", Without: []string{"hap1"}})
	assert.Equal(t, Done, r.Outcome)
	assert.Empty(t, r.WaysIn)

	seen := views.Views()
	seen[0].Err = errors.New("gone")
	l.o.Watcher = fixed{l.watcher, seen}
	assert.Empty(t, l.Ways(llm), "of hap1 it is not known")
	l.o.Watcher = l.watcher
	assert.Len(t, l.Ways(llm)[llm], 1)
}
