package patient

import (
	"bytes"
	"context"
	"io"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tier-agent/test/guarantee"
	"tier-agent/test/hangfs"
	"tier-agent/test/socketdir"
)

// Control: with net.Dialer in its place, no connect came back.
func TestASocketOnAMountThatHangs(t *testing.T) {
	dir := socketdir.New(t)
	path := filepath.Join(dir, "s")
	heal := hangfs.Mount(t, dir)
	for range mostAtOnce {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
		_, err := Dial(ctx, "unix", path)
		cancel()
		require.ErrorIs(guarantee.T(t), err, context.DeadlineExceeded)
	}
	_, err := Dial(t.Context(), "unix", path)
	require.ErrorIs(t, err, syscall.EBUSY, "no more threads than these")
	heal()
	ln, err := net.Listen("unix", path)
	require.NoError(t, err)
	defer ln.Close()
	var conn net.Conn
	require.Eventually(t, func() bool {
		conn, err = Dial(t.Context(), "unix", path)
		return err == nil
	}, 10*time.Second, time.Millisecond)
	require.NoError(t, conn.Close())
}

// Control: with the line written by the caller, Write did not return.
func TestAReaderThatStopsHoldsUpNobody(t *testing.T) {
	r, w, err := os.Pipe()
	require.NoError(t, err)
	p := NewWriter(w)
	for range 3 * mostLines {
		_, err := p.Write(bytes.Repeat([]byte("x"), 1<<10))
		require.NoError(t, err)
	}
	assert.NotZero(t, p.Dropped())
	go func() { _, _ = io.Copy(io.Discard, r) }()
	p.Close(10 * time.Second)
	require.NoError(t, w.Close())

	var all bytes.Buffer
	p = NewWriter(&all)
	_, _ = p.Write([]byte("one\n"))
	_, _ = p.Write([]byte("two\n"))
	p.Close(10 * time.Second)
	assert.Equal(t, "one\ntwo\n", all.String())
	assert.Zero(t, p.Dropped())
}
