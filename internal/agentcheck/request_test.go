package agentcheck

import (
	"bytes"
	"io"
	"net"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tier-agent/internal/accept/accepttest"
)

// Negative controls: with the deadline left at end after a read, the polls that
// end by silence gave read_timeout after 400 ms, and with end for the first read
// nothing was answered that late, too; with the silence not cut at end, the
// slow one went on past it; without continues, the beginnings of be/s10 and be/s1 had
// the verdict on be/s1 and unknown_tier after 90 ms, and so with the blank behind the
// name cut off before continues the name with the blank gave read_timeout; without the maxName check in parseName, 257 bytes and
// LF gave unknown_tier, and without the one in readName, 257 bytes waited for
// silence; without inName, NUL gave unknown_tier; with the line in two writes,
// every case failed.
func TestFraming(t *testing.T) {
	long := strings.Repeat("n", maxName)
	src := table{"be/s1": {Ready: true}, "be/s1-b": {Ready: true}, "be/s2": {Ready: true}, long: {Ready: true}}
	tests := map[string]struct {
		pieces []string      // written one after the other
		every  time.Duration // before each piece but the first
		want   string
		after  time.Duration // exactly
		kind   string
	}{
		"LF":                       {pieces: []string{"be/s1\n"}, want: "up\n", kind: KindUp},
		"CR LF":                    {pieces: []string{"be/s1\r\n"}, want: "up\n", kind: KindUp},
		"blanks":                   {pieces: []string{"  be/s1 \r\n"}, want: "up\n", kind: KindUp},
		"silence":                  {pieces: []string{"be/s2"}, want: "up\n", after: 90 * time.Millisecond, kind: KindUp},
		"CR, silence":              {pieces: []string{"be/s2\r"}, want: "up\n", after: 90 * time.Millisecond, kind: KindUp},
		"blank, silence":           {pieces: []string{" be/s1 "}, want: "up\n", after: 50 * time.Millisecond, kind: KindUp},
		"two blanks, silence":      {pieces: []string{"be/s1", "  "}, every: 300 * time.Millisecond, want: "up\n", after: 350 * time.Millisecond, kind: KindUp},
		"byte by byte":             {pieces: strings.Split("be/s1\n", ""), every: 79 * time.Millisecond, want: "up\n", after: 395 * time.Millisecond, kind: KindUp},
		"silence after a pause":    {pieces: []string{"be", "/s2"}, every: 89 * time.Millisecond, want: "up\n", after: 179 * time.Millisecond, kind: KindUp},
		"a beginning of many":      {pieces: []string{"be"}, want: "down # read_timeout\n", after: 400 * time.Millisecond, kind: KindReadTimeout},
		"of a longer name":         {pieces: []string{"be/s1"}, want: "down # read_timeout\n", after: 400 * time.Millisecond, kind: KindReadTimeout},
		"one that went on":         {pieces: []string{"be/s1", "-c\n"}, every: 399 * time.Millisecond, want: "down # unknown_tier\n", after: 399 * time.Millisecond, kind: KindUnknown},
		"of no name":               {pieces: []string{"be/s3"}, want: "down # unknown_tier\n", after: 90 * time.Millisecond, kind: KindUnknown},
		"256 bytes, LF":            {pieces: []string{long + "\n"}, want: "up\n", kind: KindUp},
		"256 bytes, CR LF":         {pieces: []string{long + "\r\n"}, want: "up\n", kind: KindUp},
		"256 bytes, CR, LF":        {pieces: []string{long + "\r", "\n"}, every: time.Millisecond, want: "up\n", after: time.Millisecond, kind: KindUp},
		"256 bytes, silence":       {pieces: []string{long}, want: "up\n", after: 90 * time.Millisecond, kind: KindUp},
		"257 bytes":                {pieces: []string{long + "n"}, want: "down # bad_request\n", kind: KindOversized},
		"257 bytes, LF":            {pieces: []string{long + "n\n"}, want: "down # bad_request\n", kind: KindOversized},
		"257 bytes, in pieces":     {pieces: []string{long, "n"}, every: time.Millisecond, want: "down # bad_request\n", after: time.Millisecond, kind: KindOversized},
		"more behind the LF":       {pieces: []string{"be/s1\nx"}, want: "up\n", kind: KindUp},
		"LF alone":                 {pieces: []string{"\n"}, want: "down # bad_request\n", kind: KindBadRequest},
		"blanks alone":             {pieces: []string{"  \r\n"}, want: "down # bad_request\n", kind: KindBadRequest},
		"NUL":                      {pieces: []string{"be/s1\x00\n"}, want: "down # bad_request\n", kind: KindBadRequest},
		"two CR":                   {pieces: []string{"be/s1\r\r\n"}, want: "down # bad_request\n", kind: KindBadRequest},
		"two names":                {pieces: []string{"be/s1 be/s2\n"}, want: "down # bad_request\n", kind: KindBadRequest},
		"an HTTP client":           {pieces: []string{"GET /readyz HTTP/1.1\r\n\r\n"}, want: "down # bad_request\n", kind: KindBadRequest},
		"nothing":                  {want: "down # no_agent_send\n", after: 90 * time.Millisecond, kind: KindReadTimeout},
		"one byte in 40 ms":        {pieces: strings.Split(strings.Repeat("n", 200), ""), every: 40 * time.Millisecond, want: "down # read_timeout\n", after: 400 * time.Millisecond, kind: KindReadTimeout},
		"a name the source fails":  {pieces: []string{"bad\n"}, want: "down # internal_error\n", kind: KindPanic},
		"the same, without an end": {pieces: []string{"bad"}, want: "down # read_timeout\n", after: 400 * time.Millisecond, kind: KindReadTimeout},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var kinds tally
				ln := accepttest.NewPipes()
				_, stop := serve(t, src, Options{OnAnswer: kinds.add}, ln)
				client, server := ln.Dial("192.0.2.1")

				begin := time.Now()
				var writer sync.WaitGroup
				writer.Go(func() {
					for i, p := range tt.pieces {
						if i > 0 {
							time.Sleep(tt.every)
						}
						if _, err := io.WriteString(client, p); err != nil {
							return
						}
					}
				})
				got := make([]byte, 1024)
				n, err := client.Read(got)
				require.NoError(t, err)
				assert.Equal(t, tt.want, string(got[:n]))
				assert.Equal(t, tt.after, time.Since(begin))

				require.NoError(t, client.Close())
				writer.Wait()
				stop()
				assert.EqualValues(t, 1, server.Writes.Load())
				assert.Equal(t, map[string]int{tt.kind: 1}, kinds.all())
			})
		})
	}
}

func TestNameEndedByEOF(t *testing.T) {
	for request, want := range map[string]string{
		"be/s1":   "up\n",
		"be/s1\r": "up\n",
		"be/s":    "down # unknown_tier\n",
		"":        "down # no_agent_send\n",
	} {
		// A silence of an hour: only the end of file can have ended the name.
		_, addr := serveTCP(t, oneReady, Options{Silence: time.Hour, ReadTimeout: time.Hour})
		c := dialTCP(t, addr)
		_, err := io.WriteString(c, request)
		require.NoError(t, err)
		require.NoError(t, c.CloseWrite())
		got, err := io.ReadAll(c)
		require.NoError(t, err)
		assert.Equal(t, want, string(got), "%q", request)
	}
}

// Negative control: with linger taken out of answer, the read ended in
// "connection reset by peer" instead of the end of file.
func TestUnreadBytesDoNotKillTheAnswer(t *testing.T) {
	_, addr := serveTCP(t, oneReady, Options{})
	for request, want := range map[string]string{
		strings.Repeat("n", 20_000):                   "down # bad_request\n",
		"be/s1\n" + strings.Repeat("n", 20_000):       "up\n",
		"\x00" + strings.Repeat("\x00", 20_000) + "x": "down # bad_request\n",
	} {
		assert.Equal(t, want, poll(t, addr, request))
	}
}

// FuzzReadName checks that a name is what a plain reading of the rules says, and
// that it does not matter how the bytes were cut.
func FuzzReadName(f *testing.F) {
	for _, s := range []string{"", "\n", "be/s1\n", " be/s1 \r\n", "be/s1", "a\x00b\n", "a\nb\n", "\r\n", "a\r"} {
		f.Add([]byte(s), uint8(1))
		f.Add([]byte(s), uint8(200))
	}
	for _, n := range []int{maxName - 1, maxName, maxName + 1, maxName + 2, bufferSize, bufferSize + 1} {
		f.Add(bytes.Repeat([]byte("n"), n), uint8(255))
		f.Add(append(bytes.Repeat([]byte("n"), n), "\r\n"...), uint8(7))
	}
	legal := regexp.MustCompile(`^ *([A-Za-z0-9_.:/-]+) *$`)
	f.Fuzz(func(t *testing.T, data []byte, cut uint8) {
		var buf [bufferSize]byte
		c := &scripted{data: data, cut: max(int(cut), 1)}
		name, _, kind := readName(c, new(atomic.Bool), buf[:], Options{}.withDefaults(), func([]byte) bool { return true })

		line, _, _ := bytes.Cut(data, []byte("\n"))
		line = bytes.TrimSuffix(line, []byte("\r"))
		m := legal.FindSubmatch(line)
		switch {
		case len(data) == 0:
			assert.Equal(t, KindEmpty, kind)
		case len(line) > maxName:
			assert.Equal(t, KindOversized, kind)
		case m == nil:
			assert.Equal(t, KindBadRequest, kind)
		default:
			assert.Empty(t, kind)
			assert.Equal(t, string(m[1]), string(name))
		}
		assert.LessOrEqual(t, c.given, bufferSize)
	})
}

// scripted is a connection that gives data in pieces of cut bytes, then ends.
type scripted struct {
	net.Conn // nil: nothing else may be called
	data     []byte
	cut      int
	given    int
}

func (c *scripted) Read(b []byte) (int, error) {
	if len(c.data) == 0 {
		return 0, io.EOF
	}
	n := copy(b, c.data[:min(c.cut, len(c.data))])
	c.data = c.data[n:]
	c.given += n
	return n, nil
}

func (c *scripted) SetReadDeadline(time.Time) error { return nil }
