package spoeload

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// FirstAction is what an ACK's actions have to begin with: set-var, three
// arguments, scope txn, "admit", true.
const FirstAction = "\x01\x03\x02\x05admit\x11"

// ErrAnswer means that an agent's answer was not the right one.
var ErrAnswer = errors.New("spoeload: wrong answer")

// Ids from minID up to maxID take three bytes, so one encoding of a frame serves
// for all.
const (
	idSize = 3
	minID  = 2288
	maxID  = 264432
)

// session is one connection to an agent. A slot is a place for a frame in
// flight; its number is in the stream id.
type session struct {
	conn  net.Conn
	slots []slot
	next  uint64 // frame id of the next frame; every frame of a connection has its own
	in    []byte
	out   []byte
}

type slot struct {
	frame   []byte // as it goes out
	frameID uint64 // of the frame in flight; 0 for none
	sent    time.Duration
}

func newSession(c net.Conn, l Load) *session {
	s := &session{conn: c, slots: make([]slot, l.Depth), next: minID, in: make([]byte, 4*maxFrame)}
	for i := range s.slots {
		ids := appendVarint(appendVarint(nil, uint64(minID+i)), minID)
		s.slots[i].frame = appendFrame(nil, typeNotify, ids, notifyPayload(l.Tiers[i%len(l.Tiers)]))
	}
	return s
}

func notifyPayload(tier string) []byte {
	b := append(appendString(nil, "tier-readiness"), 1) // one argument
	return appendString(append(appendString(b, "tier"), 8), tier)
}

// hello makes the acquaintance as HAProxy does. An agent that does not announce
// pipelining would never get a second frame from it.
func (s *session) hello() error {
	b := appendString(append(appendString(nil, "supported-versions"), 8), "2.0")
	b = appendVarint(append(appendString(b, "max-frame-size"), 3), maxFrame)
	b = appendString(append(appendString(b, "capabilities"), 8), "pipelining")
	b = appendString(append(appendString(b, "engine-id"), 8), "spoeload")
	if _, err := s.conn.Write(appendFrame(nil, typeHello, []byte{0, 0}, b)); err != nil {
		return err
	}
	if _, err := io.ReadFull(s.conn, s.in[:4]); err != nil {
		return fmt.Errorf("no AGENT-HELLO: %w", err)
	}
	n := binary.BigEndian.Uint32(s.in)
	if n < head-4+2 || n > maxFrame {
		return fmt.Errorf("%w: AGENT-HELLO of %d bytes", ErrAnswer, n)
	}
	if _, err := io.ReadFull(s.conn, s.in[4:4+n]); err != nil {
		return fmt.Errorf("no AGENT-HELLO: %w", err)
	}
	if f := s.in[:4+n]; f[4] != typeAgentHello || !bytes.Contains(f, []byte("pipelining")) {
		return fmt.Errorf("%w: to HELLO: %q", ErrAnswer, f)
	}
	return nil
}

func (s *session) loop(t *tally) error {
	now := t.clock.now()
	for i := range s.slots {
		s.send(i, now)
	}
	flying, held := len(s.slots), 0
	for {
		if len(s.out) > 0 {
			if _, err := s.conn.Write(s.out); err != nil {
				return err
			}
			s.out = s.out[:0]
		}
		if flying == 0 {
			return nil
		}
		n, err := s.conn.Read(s.in[held:])
		if err != nil {
			return fmt.Errorf("%d frames without an answer: %w", flying, err)
		}
		now, held = t.clock.now(), held+n
		used := 0
		for {
			f, err := nextFrame(s.in[used:held])
			if err != nil {
				return fmt.Errorf("%w: %w", ErrAnswer, err)
			}
			if f == nil {
				break
			}
			used += len(f)
			i, err := s.answered(f)
			if err != nil {
				return err
			}
			t.note(s.slots[i].sent, now)
			if now < t.clock.until {
				s.send(i, now)
			} else {
				flying--
			}
		}
		held = copy(s.in, s.in[used:held])
	}
}

// send adds the slot's next frame to what goes out with the next write.
func (s *session) send(i int, now time.Duration) {
	one := &s.slots[i]
	one.frameID, one.sent = s.next, now
	appendVarint(one.frame[:head+idSize], s.next) // in place: idSize bytes
	if s.next++; s.next == maxID {
		s.next = minID
	}
	s.out = append(s.out, one.frame...)
}

// answered returns the slot that an ACK is for, and frees it.
func (s *session) answered(f []byte) (int, error) {
	if f[4] != typeAck || binary.BigEndian.Uint32(f[5:]) != flagFIN {
		return 0, fmt.Errorf("%w: type %d, flags %x: %q", ErrAnswer, f[4], f[5:head], f[head:])
	}
	stream, n, err := varint(f[head:])
	if err != nil {
		return 0, fmt.Errorf("%w: %w", ErrAnswer, err)
	}
	frame, m, err := varint(f[head+n:])
	if err != nil {
		return 0, fmt.Errorf("%w: %w", ErrAnswer, err)
	}
	i := stream - minID // beyond every slot where stream is below minID
	if i >= uint64(len(s.slots)) || s.slots[i].frameID != frame || frame == 0 {
		return 0, fmt.Errorf("%w: stream %d, frame %d is not in flight", ErrAnswer, stream, frame)
	}
	if actions := f[head+n+m:]; len(actions) < len(FirstAction) || string(actions[:len(FirstAction)]) != FirstAction {
		return 0, fmt.Errorf("%w: actions %q", ErrAnswer, actions)
	}
	s.slots[i].frameID = 0
	return int(i), nil
}
