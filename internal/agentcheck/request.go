package agentcheck

import (
	"bytes"
	"errors"
	"net"
	"os"
	"sync/atomic"
	"time"
)

const (
	// maxName bounds what is read before LF, or CR LF.
	maxName = 256

	// bufferSize leaves room behind the longest line, so that bytes after the
	// LF are seen and not left in the socket.
	bufferSize = 512
)

// readName reads what agent-send sends. It is ended by LF or by the peer's end of file,
// or, because HAProxy's command line cannot put an LF into agent-send, by silence: of
// o.IdleRead behind a blank, of o.Silence elsewhere, and there only where no name that
// continues knows goes on. What came may be the beginning of a longer name, whose
// verdict is another one. The whole takes at most o.ReadTimeout.
//
// kind is empty when there is a name, else the kind of the refusal; name is then
// what came before a timeout. more means that bytes may be left unread.
// heard is set at the first byte.
func readName(c net.Conn, heard *atomic.Bool, buf []byte, o Options, continues func([]byte) bool) (name []byte, more bool, kind string) {
	now := time.Now()
	end := now.Add(o.ReadTimeout)
	deadline := earlier(now.Add(o.Silence), end)
	for n := 0; ; {
		_ = c.SetReadDeadline(deadline) // it fails on a closed connection only, and so does the read
		m, err := c.Read(buf[n:])
		if n == 0 && m > 0 {
			heard.Store(true)
		}
		if i := bytes.IndexByte(buf[n:n+m], '\n'); i >= 0 {
			name, kind = parseName(buf[:n+i])
			return name, n+i+1 < n+m, kind
		}
		n += m
		if n > maxName+1 || n == maxName+1 && buf[maxName] != '\r' {
			return nil, true, KindOversized
		}
		begun := bytes.TrimLeft(buf[:n], " ")
		if err == nil {
			silence := o.Silence
			if bytes.HasSuffix(begun, []byte{' '}) {
				silence = o.IdleRead
			}
			deadline = earlier(time.Now().Add(silence), end)
			continue
		}
		late := errors.Is(err, os.ErrDeadlineExceeded)
		switch {
		case n == 0 && late:
			return nil, false, KindReadTimeout
		case n == 0:
			return nil, false, KindEmpty
		case late && deadline.Equal(end):
			return buf[:n], false, KindReadTimeout
		case late && continues(begun):
			deadline = end
			continue
		}
		// Silence or the end. After a reset nobody is there to be answered; the
		// write finds that out.
		name, kind = parseName(buf[:n])
		return name, false, kind
	}
}

// parseName takes the line without its LF. It tolerates one CR and blanks around
// the name, and nothing else outside the alphabet of HAProxy's proxy and server
// names and the "/" between them.
func parseName(line []byte) (name []byte, kind string) {
	line = bytes.TrimSuffix(line, []byte{'\r'})
	if len(line) > maxName {
		return nil, KindOversized
	}
	name = bytes.Trim(line, " ")
	if len(name) == 0 {
		return nil, KindBadRequest
	}
	for _, b := range name {
		if !inName(b) {
			return nil, KindBadRequest
		}
	}
	return name, ""
}

func inName(b byte) bool {
	switch {
	case 'a' <= b && b <= 'z', 'A' <= b && b <= 'Z', '0' <= b && b <= '9':
		return true
	}
	return b == '_' || b == '.' || b == ':' || b == '/' || b == '-'
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
