package admission

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"tier-agent/internal/observe"
	"tier-agent/test/guarantee"
)

// batch has a server that follows llm/gpu1, and third one that follows that.
func (h *haproxy) tracked() {
	h.with(func() {
		h.order = append(h.order, "batch/b1", "third/c1")
		h.tracks["batch/b1"], h.tracks["third/c1"] = "llm/gpu1", "batch/b1"
	})
}

// A stream is on a server of another backend that follows the drained one, or one that
// follows that: it runs at the same engine.
//
// Control: with tracked returning nothing the drain was done over the stream.
func TestG8_DrainCountsTheServersThatTrackTheTarget(t *testing.T) {
	for _, on := range []string{"batch/b1", "third/c1"} {
		l := newLab(t)
		l.hap2.tracked()
		l.quiesced(t, gpu1)
		set := func(n int) { l.hap2.with(func() { l.hap2.sessions[on] = n }) }
		set(2)
		var seen []int
		r := l.drain(t, gpu1, each(func(read int, p Progress) {
			hap2 := p.HAProxy[1]
			if seen = append(seen, hap2.Streams); hap2.Streams > 0 {
				assert.Equal(t, map[string]int{on: hap2.Streams}, hap2.Tracking)
			}
			switch read {
			case 3:
				set(0)
			case 4: // one more, by persistence
				set(1)
			case 6:
				set(0)
			}
		}))
		assert.Equal(t, Done, r.Outcome, r.Message)
		assert.Equal(guarantee.T(t), []int{2, 2, 2, 0, 1, 1, 0, 0, 0}, seen, on)
	}
}

// A tracker that a reload brings while the drain waits is found before it ends.
//
// Control: with whole true at the first read alone, its stream was not counted.
func TestG8_DrainFindsATrackerThatAReloadBrings(t *testing.T) {
	l := newLab(t)
	l.quiesced(t, gpu1)
	var seen []int
	r := l.drain(t, gpu1, each(func(read int, p Progress) {
		seen = append(seen, p.HAProxy[1].Streams)
		switch read {
		case 2:
			l.hap2.tracked()
			l.hap2.with(func() { l.hap2.sessions["third/c1"] = 1 })
		case 4:
			l.hap2.with(func() { clear(l.hap2.sessions) })
		}
	}))
	assert.Equal(t, Done, r.Outcome, r.Message)
	assert.Equal(guarantee.T(t), []int{0, 0, 1, 1, 0, 0, 0}, seen)
}

// Control: with Tracked returning nothing, nothing was left.
func TestWhatIsLeftIsAlsoOnTheServersThatTrackIt(t *testing.T) {
	l := newLab(t)
	l.hap2.tracked()
	w := l.counting()
	l.quiesced(t, gpu1)
	l.hap2.with(func() { l.hap2.sessions["third/c1"], l.hap2.queue["batch/b1"] = 2, 1 })
	hap1, hap2 := counted(t, w)
	assert.Equal(t, map[string]observe.InFlight{"llm/gpu1": {}}, hap1)
	assert.Equal(t, map[string]observe.InFlight{"llm/gpu1": {Streams: 2, Queue: 1}}, hap2)
}
