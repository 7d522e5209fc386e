package spoe

import (
	"bytes"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/negasus/haproxy-spoe-go/message"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tier-agent/internal/accept/accepttest"
	"tier-agent/test/guarantee"
)

// A source that panics costs the one request its answer, and the log says where
// but not what.
//
// Negative controls: without recover in verdict the connection ended as failed;
// with the value logged, "secret" was there; without quietly there were three
// lines.
func TestPanicInSource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		var kinds tally
		ln := accepttest.NewPipes()
		_, stop := serve(t, tiers, kinds.with(Options{Logger: slog.New(slog.NewTextHandler(&log, nil))}), ln)
		client, _ := ln.Dial("192.0.2.1")
		send(t, client, greet())
		readFrames(t, client, 1)
		for range 3 {
			send(t, client, askTier(1, "bad"), askTier(2, "gold"), askTier(3, "bad"))
			out := readFrames(t, client, 3)
			for _, i := range []int{0, 2} {
				assert.Equal(guarantee.T(t), map[string]any{"admit": false, "reason": "internal_error", "generation": "", "retry_after": int64(5)}, out[i].vars(t))
			}
			assert.Equal(t, true, out[1].vars(t)["admit"])
		}
		time.Sleep(time.Minute)
		send(t, client, askTier(1, "bad"))
		readFrames(t, client, 1)
		require.NoError(t, client.Close())
		stop()
		assert.Equal(t, map[string]int{"panic": 7, "admitted": 3, "closed": 1}, kinds.all())
		assert.Equal(t, 2, strings.Count(log.String(), "level=ERROR"), "one line a minute")
		assert.Contains(t, log.String(), "SPOEVerdict")
		assert.NotContains(guarantee.T(t), log.String(), "secret")
	})
}

// A bug of the package's own ends its connection, and nothing else.
//
// Negative control: without recover in converse the test died.
func TestPanicInThePackage(t *testing.T) {
	nc := &memory{pieces: [][]byte{greet(), asks(1, 1)}}
	c := newConn(NewServer(tiers, Options{}), nc, netip.Addr{}, time.Now())
	c.encoder.heads = nil // the first write to it panics
	assert.Equal(t, Failed, c.converse())
	out := split(t, nc.written())
	require.Len(t, out, 2)
	assert.Equal(t, statusUnknown, out[1].goodbye(t))
}

// What a peer sends does not come into the log.
func TestViolationIsLogged(t *testing.T) {
	var log bytes.Buffer
	o := Options{Logger: slog.New(slog.NewTextHandler(&log, nil))}
	talk(t, tiers, o, greet(pair("supported-versions", str("secret"))))
	assert.Equal(t, 1, strings.Count(log.String(), "level=WARN"))
	assert.Contains(t, log.String(), "unsupported version")
	assert.Contains(t, log.String(), "192.0.2.1")
	assert.NotContains(guarantee.T(t), log.String(), "secret")
}

// steady is a Source that allocates nothing.
type steady struct{}

func (steady) SPOEVerdict(tier, _ []byte) (Verdict, bool) {
	if string(tier) == "gold" {
		return ready, true
	}
	return stale, string(tier) == "lead"
}

// A question that is new to the connection costs what the library's reading of it
// does, and nothing more; one that it knows costs nothing, in whatever batch.
//
// Negative controls: without heads the six had 49 more; with the names copied anew,
// six; with maxAsked 0 every one of them cost the same each time.
func TestAnswerAllocates(t *testing.T) {
	questions := [][]byte{
		askTier(1, "gold"), askTier(2, "lead"), ask(3, 1, pair("tier", str("gold")), pair("server", str("be/s1"))),
		askTier(4, "tin"), build(notify, flagFIN, 5, 1), askTier(6, "gold"),
	}
	c := newConn(NewServer(steady{}, Options{}), &memory{}, netip.Addr{}, time.Now())
	var frames []frame
	for _, q := range questions {
		f, wrong := parseFrame(q[lengthSize:])
		require.Zero(t, wrong)
		frames = append(frames, f)
	}
	var all message.Messages
	library := testing.AllocsPerRun(1000, func() {
		for _, f := range frames {
			_ = all.Decode(f.payload)
			all.Reset()
		}
	})
	first := testing.AllocsPerRun(1000, func() {
		c.out = c.out[:0]
		c.forget() // as a new batch
		for i, f := range frames {
			if i%maxAsked == 0 {
				c.learned = 0 // and as a new connection
			}
			c.answer(f)
		}
	})
	again := testing.AllocsPerRun(1000, func() {
		c.out = c.out[:0]
		c.forget()
		for range maxAsked {
			c.answer(frames[len(frames)-1])
		}
	})
	assert.InDelta(t, library, first, 1, "the race detector lets pools lose things")
	assert.Positive(t, library)
	assert.Zero(t, again)
}
