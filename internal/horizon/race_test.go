package horizon

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// Two tiers take turns: one serves and the other is quiesced. Whoever reads sees
// one publication whole, and of those each is ready; a mixture of two would have
// both of them closed, or one failing.
//
// Control: with the snapshot published anew after each of its rows, no_tier_ready
// was seen, and a row was missing.
func TestStress_AReaderSeesOnePublicationWhole(t *testing.T) {
	h := New(horizon, time.Now)
	turns := [][]Row{{serving("a"), quiesced("b")}, {quiesced("a"), serving("b")}}
	h.Publish(turns[0])
	stop := make(chan struct{})
	var wg sync.WaitGroup
	spawn := func(loop func()) {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					loop()
				}
			}
		})
	}
	for range 3 {
		spawn(func() {
			if v := h.Judge(); !assert.ObjectsAreEqual(ready(), v) {
				t.Errorf("%+v", v)
			}
		})
	}
	spawn(func() { _, known := h.LastChange("b"); assert.True(t, known) })
	spawn(func() { h.SetStaleAfter(time.Hour) })
	var publishers sync.WaitGroup
	for turn := range 2 {
		publishers.Go(func() {
			for range 2000 {
				h.Publish(turns[turn])
			}
		})
	}
	publishers.Wait()
	close(stop)
	wg.Wait()
}

// Of publications at the same time each is compared with the one that it
// replaces, and stamped after it. The clock gives way to the other publishers.
//
// Control: with publishing no longer taken, the stamp was seen to go back.
func TestStress_PublicationsTakeTurns(t *testing.T) {
	var ticks atomic.Int64
	h := New(horizon, func() time.Time { // every reading is another time
		defer runtime.Gosched()
		return time.Unix(ticks.Add(1), 0)
	})
	h.Publish([]Row{serving("a")})
	var publishers, reader sync.WaitGroup
	stop := make(chan struct{})
	reader.Go(func() {
		for last := (time.Time{}); ; {
			changed, _ := h.LastChange("a")
			if changed.Before(last) {
				t.Errorf("%v after %v", changed, last)
			}
			last = changed
			select {
			case <-stop:
				return
			default:
				runtime.Gosched() // on one processor the publishers would wait for its time slice to end, at every reading
			}
		}
	})
	for publisher := range 4 {
		publishers.Go(func() {
			for n := range 500 {
				row := serving("a")
				row.Ready = publisher*1000 + n
				h.Publish([]Row{row}) // never the same twice: always a change
			}
		})
	}
	publishers.Wait()
	close(stop)
	reader.Wait()
	changed, _ := h.LastChange("a")
	assert.Equal(t, time.Unix(2001, 0), changed, "the row that stands is the last that was published")
}

// Control: with publishing taken in Judge too, it waited for ever.
func TestJudgeWaitsForNoPublish(t *testing.T) {
	inside, release := make(chan struct{}), make(chan struct{})
	readings := make(chan func(), 1)
	h := New(horizon, func() time.Time {
		select {
		case wait := <-readings:
			wait()
		default:
		}
		return time.Unix(1_800_000_000, 0)
	})
	h.Publish([]Row{serving("a")})
	readings <- func() { close(inside); <-release }
	var wg sync.WaitGroup
	wg.Go(func() { h.Publish([]Row{broken("a")}) })
	<-inside
	assert.Equal(t, ready(), h.Judge(), "as it stood before")
	close(release)
	wg.Wait()
	assert.Equal(t, ReasonNoTier, h.Judge().Reason)
}
