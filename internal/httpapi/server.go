package httpapi

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"runtime/debug"
	"time"
)

// Serve answers on ln until ctx ends, and then lets running answers finish for
// at most grace. Peers are bounded in header size and time, and by ln in number;
// the handler of a command, which may take longer to answer than any of these
// times, moves its deadlines itself.
func Serve(ctx context.Context, ln net.Listener, h http.Handler, grace time.Duration, log *slog.Logger) error {
	// What only waits, a drain, ends with ctx; what must reach a safe point does
	// so within grace.
	ctx, end := context.WithCancel(ctx)
	defer end()
	srv := &http.Server{
		Handler:           recovered(h, log),
		ReadHeaderTimeout: time.Second, // everybody here is near, and sends it at once
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      10 * time.Second,
		MaxHeaderBytes:    16 << 10,
		// "OPTIONS *" would be answered 200 whatever the tiers are: a careless
		// httpchk would find everything up.
		DisableGeneralOptionsHandler: true,
		ErrorLog:                     slog.NewLogLogger(log.Handler(), slog.LevelDebug),
		ConnContext:                  withPeer,
		BaseContext:                  func(net.Listener) context.Context { return ctx },
	}
	// HAProxy checks a server line with "proto h2" in HTTP/2 without TLS, also where the
	// check goes elsewhere. A connection of it has one request, as all others here.
	srv.Protocols, srv.HTTP2 = new(http.Protocols), &http.HTTP2Config{MaxConcurrentStreams: 1}
	srv.Protocols.SetHTTP1(true)
	srv.Protocols.SetUnencryptedHTTP2(ln.Addr().Network() == "tcp") // not the admin socket
	// HAProxy's checks and our client open a connection for each request; one that
	// is kept alive is a place taken for nothing.
	srv.SetKeepAlivesEnabled(false)
	ended := make(chan error, 1)
	go func() { ended <- srv.Serve(ln) }()
	var failed error
	select {
	case failed = <-ended:
		end()
	case <-ctx.Done():
	}
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer cancel()
	err := srv.Shutdown(bounded)
	if errors.Is(err, context.DeadlineExceeded) {
		log.Warn("answers that were still running have been cut", "grace", grace.String())
		err = srv.Close()
	}
	if failed != nil {
		return failed
	}
	<-ended // http.ErrServerClosed
	return err
}

// recovered keeps a handler's panic from its peer, who gets an answer instead.
// The log has the type and the trace, not the value, which may hold anything.
func recovered(h http.Handler, log *slog.Logger) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			if p := recover(); p != nil {
				log.Error("a request's handler panicked", "type", fmt.Sprintf("%T", p), "stack", string(debug.Stack()))
				// Behind events that are out already it is one more line.
				writeJSON(w, http.StatusInternalServerError, Event{Error: "tier-agent failed inside; its log says where"})
			}
		}()
		h.ServeHTTP(w, r)
	})
}
