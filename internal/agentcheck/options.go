package agentcheck

import (
	"cmp"
	"log/slog"
	"time"
)

// What became of a connection: the closed set of Options.OnAnswer, one for each
// connection that was accepted.
const (
	KindUp           = "up"
	KindDown         = "down"     // open, not ready
	KindQuiesced     = "quiesced" // "down # quiesced"
	KindDrain        = "drain"    // "drain # quiesced", with State.AdminWords only
	KindUnknown      = "unknown"
	KindReadTimeout  = "read_timeout" // nothing came, or the name never ended
	KindOversized    = "oversized"
	KindEmpty        = "empty"         // closed by the peer before the first byte
	KindRejectedCap  = "rejected_cap"  // dropped for a newcomer, at MaxConns
	KindRejectedPeer = "rejected_peer" // the same, at MaxConnsPerPeer
	KindWriteError   = "write_error"   // the answer did not get out
	KindBadRequest   = "bad_request"
	KindPanic        = "panic"
)

// Kinds returns all of them, for metrics that want every series from the start.
func Kinds() []string {
	return []string{
		KindUp, KindDown, KindQuiesced, KindDrain, KindUnknown, KindReadTimeout, KindOversized,
		KindEmpty, KindRejectedCap, KindRejectedPeer, KindWriteError, KindBadRequest, KindPanic,
	}
}

// Source is what the server reads. It must not block: it reads published memory
// only.
type Source interface {
	// AgentState returns the state of "backend/server" or of a tier; false means
	// that there is no such name. The bytes of name are reused after the return.
	AgentState(name []byte) (State, bool)
	// Continues reports whether some name that there is begins with these bytes
	// and goes on after them.
	Continues(begun []byte) bool
}

// Options bound a server. A connection holds its slot for at most ReadTimeout +
// WriteTimeout + 100 ms. Zero or less takes the default.
type Options struct {
	// Silence is how long a peer may send nothing: after that a poll without a
	// byte has no name, and one whose name has no end is answered where no other
	// name goes on from there. Default 90 ms.
	Silence time.Duration

	// IdleRead is the silence that ends a name with a blank behind it, which no
	// name goes on from. Default 50 ms.
	IdleRead time.Duration

	// ReadTimeout and WriteTimeout bound the whole read and the whole write.
	// Default 400 ms and 1 s. ReadTimeout has to stay below HAProxy's poll timeout:
	// "timeout check", or agent-inter where that is not set.
	ReadTimeout, WriteTimeout time.Duration

	// MaxConns caps the connections of all peers together; default 1024. Answers
	// take microseconds, so a full server means peers that hold their slots for
	// ever anew. The newcomer therefore takes the slot of the oldest connection
	// that has sent nothing in 5 ms, or has not ended its name in 100 ms; a
	// poll sends its name at once. Where there is no such one, of the oldest.
	MaxConns int

	// MaxConnsPerPeer caps those of one remote IP address in the same way, within
	// that address; default 256. All peers without an IP address (a unix
	// socket's) count as one.
	MaxConnsPerPeer int

	// OnAnswer, if set, is told the kind of each connection's end. It is called
	// from many goroutines, and must neither block nor panic.
	OnAnswer func(kind string)

	// Logger gets accept errors and panics. Default: nothing is logged.
	Logger *slog.Logger
}

// Private

func (o Options) withDefaults() Options {
	o.IdleRead = cmp.Or(max(o.IdleRead, 0), 50*time.Millisecond)
	o.Silence = cmp.Or(max(o.Silence, 0), 90*time.Millisecond)
	o.ReadTimeout = cmp.Or(max(o.ReadTimeout, 0), 400*time.Millisecond)
	o.WriteTimeout = cmp.Or(max(o.WriteTimeout, 0), time.Second)
	o.MaxConns = cmp.Or(max(o.MaxConns, 0), 1024)
	o.MaxConnsPerPeer = cmp.Or(max(o.MaxConnsPerPeer, 0), 256)
	if o.OnAnswer == nil {
		o.OnAnswer = func(string) {}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}
