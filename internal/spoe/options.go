package spoe

import (
	"cmp"
	"log/slog"
	"time"

	"tier-agent/internal/fence"
)

// Verdict is what the source says about a tier or a server at one moment.
type Verdict struct {
	// Admit: a new request may go there.
	Admit bool
	// Reason is from a closed vocabulary, without content; more than 64 bytes are
	// cut.
	Reason     string
	Generation fence.Generation
	// Age of the evidence, only where HasEvidence.
	Age         time.Duration
	HasEvidence bool
}

// AnyServer, in the place of a server, asks about a request that may go to any server of
// its tier, one that is quiesced included: an old worker of HAProxy, after a reload, hears
// of no change.
const AnyServer = "*"

// Source is what the server reads. It must not block: it reads published memory
// only.
type Source interface {
	// SPOEVerdict answers for a tier, or for a server of it ("backend/server") where
	// server is not empty; for a tier of which none may be quiesced where it is
	// AnyServer. False means that there is no such name. The bytes of the names are
	// reused after the return.
	SPOEVerdict(tier, server []byte) (Verdict, bool)
}

// Kind says what became of a NOTIFY or of a connection. The set is closed.
type Kind uint8

// Of each NOTIFY.
const (
	Admitted    Kind = iota
	Refused          // the tier is known, and takes nothing
	UnknownTier      // or a server that is not the tier's
	BadMessage       // no message of ours in it, or one without a tier's name
	Panicked         // the source did
	kindsOfAnswer
)

// Of each connection's end.
const (
	Closed       Kind = kindsOfAnswer + iota // by the peer, a reset included, or cut by Shutdown
	HealthCheck                              // of a health check that has passed
	NotReady                                 // of a health check that has failed, or a wait for Ready that was too long
	Stopped                                  // by the end of the server
	HelloTimeout                             // no HELLO in HelloTimeout
	IdleTimeout
	FrameTimeout // a frame did not end in FrameTimeout
	WriteError   // answers did not get out
	Dropped      // for a newcomer, at MaxConns or MaxConnsPerPeer
	Failed       // by a panic in this package
	// Violations of the protocol, each answered with its status code.
	TooBig
	Invalid
	NoVersion
	NoMaxFrameSize
	NoCapabilities
	BadVersion
	BadMaxFrameSize
	Fragmented
	kindsOfAll
)

var kindNames = [kindsOfAll]string{
	Admitted: "admitted", Refused: "refused", UnknownTier: "unknown_tier", BadMessage: "bad_message", Panicked: "panic",
	Closed: "closed", HealthCheck: "health_check", NotReady: "not_ready", Stopped: "stopped",
	HelloTimeout: "hello_timeout", IdleTimeout: "idle_timeout", FrameTimeout: "frame_timeout",
	WriteError: "write_error", Dropped: "dropped", Failed: "failed",
	TooBig: "frame_too_big", Invalid: "invalid_frame", NoVersion: "no_version", NoMaxFrameSize: "no_max_frame_size",
	NoCapabilities: "no_capabilities", BadVersion: "bad_version", BadMaxFrameSize: "bad_max_frame_size", Fragmented: "fragmented",
}

func (k Kind) String() string { return kindNames[k] }

// Answers returns the kinds of NOTIFY, and Ends those of connections, for metrics
// that want every series from the start.
func Answers() []Kind { return kinds(Admitted, kindsOfAnswer) }

// Ends is the other half of Answers.
func Ends() []Kind { return kinds(kindsOfAnswer, kindsOfAll) }

func kinds(from, to Kind) []Kind {
	var all []Kind
	for k := from; k < to; k++ {
		all = append(all, k)
	}
	return all
}

// Options bound a server. Zero or less takes the default.
type Options struct {
	// MaxFrameSize is the most that a frame may have, in bytes without its length,
	// where HAProxy does not announce less. At least 256; default 16380, HAProxy's
	// own with its default tune.bufsize.
	MaxFrameSize int

	// HelloTimeout bounds the time from the connection to its HELLO, and the wait
	// for Ready. Default 3 s.
	HelloTimeout time.Duration

	// IdleTimeout of silence ends a connection; it may take twice that. Default 10
	// minutes. HAProxy should give up first ("timeout idle" of the spoe-agent
	// section up to 3.0, "timeout server" of its backend from 3.1): a request that
	// meets our close on its way goes unanswered.
	IdleTimeout time.Duration

	// FrameTimeout bounds the time from a frame's first byte to its last. Default
	// 5 s.
	FrameTimeout time.Duration

	// WriteTimeout bounds a write; it may take twice that. Default 1 s.
	WriteTimeout time.Duration

	// MaxConns caps the connections of all peers together, default 4096, and
	// MaxConnsPerPeer those of one remote IP address, default 2048; all peers of a
	// unix socket count as one. HAProxy opens one for each thread, and as many
	// more as requests come at once. A newcomer takes the place of the oldest
	// connection without a HELLO, else of the one that has been silent longest.
	MaxConns, MaxConnsPerPeer int

	// RetryAfter is what a client that was refused is told, in whole seconds.
	// Default 5 s.
	RetryAfter time.Duration

	// Ready, when closed, lets connections be answered. Default: from the start.
	Ready <-chan struct{}

	// OnAnswers, if set, is told how many NOTIFYs of a kind have been answered, once
	// for each kind in a batch, also where the answers did not get out (WriteError). OnEnd is told the kind of each connection's end.
	// They are called from many goroutines, and must neither block nor panic.
	OnAnswers func(k Kind, n int)
	OnEnd     func(k Kind)

	// Logger gets accept errors, violations and panics. Default: nothing is logged.
	Logger *slog.Logger
}

func (o Options) withDefaults() Options {
	o.MaxFrameSize = max(cmp.Or(max(o.MaxFrameSize, 0), 16380), minFrameSize)
	o.HelloTimeout = cmp.Or(max(o.HelloTimeout, 0), 3*time.Second)
	o.IdleTimeout = cmp.Or(max(o.IdleTimeout, 0), 10*time.Minute)
	o.FrameTimeout = cmp.Or(max(o.FrameTimeout, 0), 5*time.Second)
	o.WriteTimeout = cmp.Or(max(o.WriteTimeout, 0), time.Second)
	o.MaxConns = cmp.Or(max(o.MaxConns, 0), 4096)
	o.MaxConnsPerPeer = cmp.Or(max(o.MaxConnsPerPeer, 0), 2048)
	o.RetryAfter = cmp.Or(max(o.RetryAfter, 0), 5*time.Second)
	if o.Ready == nil {
		ready := make(chan struct{})
		close(ready)
		o.Ready = ready
	}
	if o.OnAnswers == nil {
		o.OnAnswers = func(Kind, int) {}
	}
	if o.OnEnd == nil {
		o.OnEnd = func(Kind) {}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}
