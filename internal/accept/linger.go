package accept

import (
	"net"
	"time"
)

// What Linger reads and throws away at most.
const (
	LingerBytes = 64 << 10
	LingerTime  = 100 * time.Millisecond
)

// Linger reads on after the last answer, into buf. A close with unread bytes
// becomes a reset, which may overtake the answer in the peer's socket.
func Linger(c net.Conn, buf []byte) {
	if half, ok := c.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite() // tells a peer that waits for the end to go
	}
	_ = c.SetReadDeadline(time.Now().Add(LingerTime))
	for left := LingerBytes; left > 0; {
		n, err := c.Read(buf)
		if err != nil {
			return
		}
		left -= n
	}
}
