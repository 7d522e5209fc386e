package spoe

import (
	"io"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tier-agent/internal/accept"
	"tier-agent/internal/accept/accepttest"
)

// Negative control: with flush after each answer there were 21 writes.
func TestOneWriteForABatch(t *testing.T) {
	nc, kinds := talk(t, tiers, Options{}, greet(), asks(1, 20))
	require.Len(t, nc.writes, 2)
	acks := split(t, nc.writes[1])
	require.Len(t, acks, 20)
	for i, f := range acks {
		assert.EqualValues(t, i+1, f.stream)
	}
	assert.Equal(t, map[string]int{"admitted": 20, "closed": 1}, kinds)
}

// A deadline is a system timer: a busy connection sets one for the HELLO, one for
// its silence and one for its writes, and no more as long as there is time.
//
// Negative controls: with readUntil not kept, or with the write deadline set for
// each write, there was one for each batch.
func TestDeadlinesAreSetSeldom(t *testing.T) {
	nc, kinds := talk(t, tiers, Options{}, append([][]byte{greet()}, slices.Repeat([][]byte{asks(1, 3)}, 100)...)...)
	assert.Equal(t, map[string]int{"admitted": 300, "closed": 1}, kinds)
	assert.Equal(t, 2, nc.readBy)
	assert.Equal(t, 1, nc.writeBy)
}

// However the bytes are cut, the answers are the same.
//
// Negative controls: with need not looked at in next, or with makeRoom losing what
// is left, a cut frame was a violation.
func TestCutsDoNotMatter(t *testing.T) {
	bye := build(haproxyDisconnect, flagFIN, 0, 0)
	stream := slices.Concat(greet(), asks(1, 2), ask(300, 70000, pair("tier", str("lead"))), build(notify, flagFIN, 4, 1), bye)
	whole, _ := talk(t, tiers, Options{}, stream)
	require.Len(t, split(t, whole.written()), 6)
	for i := 1; i < len(stream); i++ {
		cut, _ := talk(t, tiers, Options{}, stream[:i], stream[i:])
		require.Equal(t, whole.written(), cut.written(), "cut at %d", i)
	}
	var bytewise [][]byte
	for i := range stream {
		bytewise = append(bytewise, stream[i:i+1])
	}
	cut, _ := talk(t, tiers, Options{}, bytewise...)
	assert.Equal(t, whole.written(), cut.written())
}

// Eleven bytes of a NOTIFY without a message ask for an answer of 76. The
// answers are written on the way, and what a large frame has made room for
// brings no more than that.
//
// Negative control: without flushAt the largest write had 111 KB.
func TestHostileBatch(t *testing.T) {
	large := ask(1, 1, pair("tier", str("gold")), pair("x", str(string(make([]byte, 16000)))))
	var tiny []byte
	for range 3000 {
		tiny = append(tiny, build(notify, flagFIN, 1, 1)...)
	}
	nc, kinds := talk(t, tiers, Options{}, greet(), large, tiny)
	assert.Equal(t, map[string]int{"admitted": 1, "bad_message": 3000, "closed": 1}, kinds)
	most := 0
	for _, w := range nc.writes {
		most = max(most, len(w))
	}
	assert.LessOrEqual(t, most, flushAt+minFrameSize)
	assert.Len(t, split(t, nc.written()), 3002)
	assert.Less(t, len(nc.writes), 20, "in batches for all that")
}

// A peer that sends without end, each read ending in half a frame, is within its
// time as long as each frame is. Half a frame that stays is not.
//
// Negative controls: with frameUntil not cleared in next, the connection ended
// after 5 s; with it moved by each read, half a frame that grows byte by byte had
// 5 s more each time.
func TestFrameTimeout(t *testing.T) {
	one := askTier(1, "gold")
	half := slices.Concat(one[20:], one[:20])
	for name, tt := range map[string]struct {
		pieces [][]byte
		every  time.Duration // before each piece but the first
		want   int           // answers
		after  time.Duration // of the end, from the last piece
	}{
		"halves without end":   {append([][]byte{one[:20]}, slices.Repeat([][]byte{half}, 50)...), 4 * time.Second, 50, 5 * time.Second},
		"half a frame":         {[][]byte{one[:20]}, 0, 0, 5 * time.Second},
		"one byte":             {[][]byte{one[:1]}, 0, 0, 5 * time.Second},
		"byte by byte":         {[][]byte{one[:1], one[1:2], one[2:3], one[3:4], one[4:5]}, time.Second, 0, time.Second},
		"a frame and one byte": {[][]byte{slices.Concat(one, one[:1])}, 0, 1, 5 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var kinds tally
				ln := accepttest.NewPipes()
				_, stop := serve(t, tiers, kinds.with(Options{}), ln)
				client, _ := ln.Dial("192.0.2.1")
				send(t, client, greet())
				readFrames(t, client, 1)
				got := make(chan []byte)
				go func() { b, _ := io.ReadAll(client); got <- b }()
				var last time.Time
				for i, p := range tt.pieces {
					if i > 0 {
						time.Sleep(tt.every)
					}
					send(t, client, p)
					last = time.Now()
				}
				out := split(t, <-got)
				assert.Equal(t, tt.after+accept.LingerTime, time.Since(last))
				require.Len(t, out, tt.want+1)
				assert.Equal(t, statusTimeout, out[tt.want].goodbye(t))
				stop()
				assert.Equal(t, 1, kinds.all()["frame_timeout"])
				assert.Equal(t, tt.want, kinds.all()["admitted"])
			})
		})
	}
}
