package spoe

import (
	"fmt"
	"time"

	"github.com/negasus/haproxy-spoe-go/action"
)

const (
	// maxReason keeps an ACK below 256 bytes, the least that any peer takes.
	maxReason = 64

	// maxHeads bounds what a connection remembers of the verdicts it has sent.
	maxHeads = 128
)

// encoder makes the actions of ACKs, and remembers the part of each that seldom
// changes, so that one more of the same allocates nothing.
type encoder struct {
	retryAfter int
	heads      map[Verdict][]byte // by verdicts without Age and HasEvidence
}

// appendActions appends what an ACK tells about v.
func (e *encoder) appendActions(dst []byte, v Verdict) []byte {
	dst = append(dst, e.head(v)...)
	if v.HasEvidence {
		dst = append(dst, ageHead...)
		// A clock that has stepped back is no reason for a negative number, which the
		// library cannot encode and nobody could read.
		dst = appendVarint(dst, uint64(max(v.Age, 0)/time.Millisecond))
	}
	return dst
}

// appendACK appends the answer to f.
func appendACK(dst []byte, f frame, actions []byte) []byte {
	from := len(dst)
	dst = append(beginFrame(dst, ack, f.ids), actions...)
	endFrame(dst, from)
	return dst
}

func (e *encoder) head(v Verdict) []byte {
	v.Age, v.HasEvidence = 0, false
	if len(v.Reason) > maxReason {
		v.Reason = v.Reason[:maxReason]
	}
	b, known := e.heads[v]
	if known {
		return b
	}
	generation := ""
	if !v.Generation.IsZero() {
		generation = v.Generation.String()
	}
	b = setVar(nil, "admit", v.Admit)
	b = setVar(b, "reason", v.Reason)
	b = setVar(b, "generation", generation)
	if !v.Admit {
		b = setVar(b, "retry_after", e.retryAfter)
	}
	if len(e.heads) >= maxHeads {
		clear(e.heads)
	}
	e.heads[v] = b
	return b
}

// ageHead is the action that sets age_ms, up to the number.
var ageHead = func() []byte {
	b := setVar(nil, "age_ms", 0)
	return b[:len(b)-1]
}()

func setVar(dst []byte, name string, value any) []byte {
	a := action.NewSetVar(action.ScopeTransaction, name, value)
	b, err := a.Marshal(dst)
	if err != nil { // the types above are all ones that it knows
		panic(fmt.Sprintf("spoe: encoding %s: %v", name, err))
	}
	return b
}
