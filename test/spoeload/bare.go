package spoeload

import (
	"net"
)

// Bare is the least that an agent can do: a goroutine a connection, every NOTIFY
// answered with the same actions, what one read brings answered with one write.
// It decodes nothing but the ids, has no deadline and no cap, believes HAProxy's
// buffers to be of the default size, and returns when ln is closed.
func Bare(ln net.Listener) {
	for {
		c, err := ln.Accept()
		if err != nil {
			return
		}
		go bare(c)
	}
}

// The actions have the size of ours, so that decoding them costs HAProxy the same.
var (
	bareActions = func() []byte {
		b := []byte(FirstAction)
		b = appendString(append(appendString(append(b, 1, 3, 2), "reason"), 8), "health_passed")
		b = appendString(append(appendString(append(b, 1, 3, 2), "generation"), 8), "1.2")
		return appendVarint(append(appendString(append(b, 1, 3, 2), "age_ms"), 4), 1234)
	}()
	bareHello = func() []byte {
		b := appendString(append(appendString(nil, "version"), 8), "2.0")
		b = appendVarint(append(appendString(b, "max-frame-size"), 3), maxFrame)
		return appendString(append(appendString(b, "capabilities"), 8), "pipelining")
	}()
	bareGoodbye = func() []byte {
		b := appendVarint(append(appendString(nil, "status-code"), 3), 0)
		return appendString(append(appendString(b, "message"), 8), "bye")
	}()
)

func bare(c net.Conn) {
	defer c.Close()
	in, out, held := make([]byte, 4*maxFrame), []byte(nil), 0
	for {
		n, err := c.Read(in[held:])
		if err != nil {
			return
		}
		held += n
		used := 0
		out = out[:0]
		for {
			f, err := nextFrame(in[used:held])
			if err != nil {
				return
			}
			if f == nil {
				break
			}
			used += len(f)
			switch f[4] {
			case typeHello:
				out = appendFrame(out, typeAgentHello, []byte{0, 0}, bareHello)
			case typeNotify:
				_, n, err := varint(f[head:])
				if err != nil {
					return
				}
				_, m, err := varint(f[head+n:])
				if err != nil {
					return
				}
				out = appendFrame(out, typeAck, f[head:head+n+m], bareActions)
			case typeDisconnect:
				_, _ = c.Write(appendFrame(out, typeAgentDisconnect, []byte{0, 0}, bareGoodbye))
				return
			}
		}
		held = copy(in, in[used:held])
		if len(out) > 0 {
			if _, err := c.Write(out); err != nil {
				return
			}
		}
	}
}
