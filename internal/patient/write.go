package patient

import (
	"io"
	"sync/atomic"
	"time"
)

// mostLines bounds the lines that wait for their reader.
const mostLines = 4096

// Writer writes lines to w from a goroutine of its own, so that a reader that stops holds up
// nobody: what there is no room for is dropped, and counted.
type Writer struct {
	lines   chan []byte
	dropped atomic.Uint64
	ended   chan struct{}
}

// NewWriter returns a Writer to w. Close ends it.
func NewWriter(w io.Writer) *Writer {
	p := &Writer{lines: make(chan []byte, mostLines), ended: make(chan struct{})}
	go func() {
		defer close(p.ended)
		for line := range p.lines {
			_, _ = w.Write(line) // whoever reads is gone: there is nobody to tell
		}
	}()
	return p
}

// Write takes one line. It never fails.
func (p *Writer) Write(line []byte) (int, error) {
	select {
	case p.lines <- append([]byte(nil), line...):
	default:
		p.dropped.Add(1)
	}
	return len(line), nil
}

// Dropped is how many lines there was no room for.
func (p *Writer) Dropped() uint64 { return p.dropped.Load() }

// Close waits until all is written, no longer than within. Nothing may be written after it.
func (p *Writer) Close(within time.Duration) {
	close(p.lines)
	late := time.NewTimer(within)
	defer late.Stop()
	select {
	case <-p.ended:
	case <-late.C:
	}
}
