package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"tier-agent/internal/admission"
	"tier-agent/internal/tier"
)

// Controller carries out the commands.
type Controller interface {
	Quiesce(context.Context, admission.QuiesceRequest) admission.Result
	Drain(context.Context, admission.DrainRequest) admission.Result
	Readmit(context.Context, admission.ReadmitRequest) admission.Result
	Invalidate(tier.Target) admission.Result
	Forget(context.Context, admission.ForgetRequest) admission.Result
	Override(admission.OverrideRequest) admission.Result
}

// Admin answers on the admin socket: all of the read-only side, and
// POST /api/v1/quiesce, drain, readmit, invalidate, forget, override and reload, each
// with a Command.
//
// An answer is a line of JSON for each Event, the result last. Its status code
// is 200 for a command that is accepted, whatever comes of it: the result's
// outcome says that. It is sent before anything begins, so that where it has not
// come nothing has begun. 400 is a command that could not be read, 503 that too
// many are under way.
type Admin struct {
	ReadOnly   *ReadOnly
	Controller Controller
	Reloader   Reloader // nil: nothing reloads
}

// maxWait bounds how long a readmit may wait for old probes: as long as the
// longest probe.
const maxWait = 5 * time.Minute

// maxConfirm bounds how long HAProxy's checks may be given to bring servers up.
const maxConfirm = time.Hour

// bounded reads a duration of a command; one that is not said is 0.
func bounded(field, text string, most time.Duration) (time.Duration, error) {
	if text == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 || d > most {
		return 0, fmt.Errorf(`%q is %.40q: give a duration with its unit, such as "10s", of at most %v`, field, text, most)
	}
	return d, nil
}

// verb reads one command and returns what carries it out; send tells its
// progress.
type verb func(ctx context.Context, c Command, send func(Event)) (func() admission.Result, error)

// progress tells what a verb sees as an event.
func progress(send func(Event)) func(admission.Progress) {
	return func(p admission.Progress) { send(Event{Progress: &p}) }
}

// event is run with its result as the last event.
func (run verb) event(ctx context.Context, c Command, send func(Event)) (func() Event, error) {
	begin, err := run(ctx, c, send)
	if err != nil {
		return nil, err
	}
	return func() Event {
		result := begin()
		return Event{Result: &result}
	}, nil
}

// Handler routes the admin socket.
func (a *Admin) Handler() http.Handler {
	mux := http.NewServeMux()
	operators := *a.ReadOnly
	operators.private = true
	operators.route(mux)
	for name, run := range map[admission.Verb]verb{
		admission.VerbQuiesce:    a.quiesce,
		admission.VerbDrain:      a.drain,
		admission.VerbReadmit:    a.readmit,
		admission.VerbInvalidate: a.invalidate,
		admission.VerbForget:     a.forget,
		admission.VerbOverride:   a.override,
	} {
		mux.HandleFunc("POST /api/v1/"+string(name), func(w http.ResponseWriter, r *http.Request) { command(w, r, run.event) })
	}
	if a.Reloader != nil {
		mux.HandleFunc("POST /api/v1/"+string(VerbReload), func(w http.ResponseWriter, r *http.Request) { command(w, r, a.reload) })
	}
	return exact(mux)
}

func (a *Admin) quiesce(ctx context.Context, c Command, send func(Event)) (func() admission.Result, error) {
	if err := c.only(admission.VerbQuiesce, Command{
		Tier: c.Tier, Server: c.Server, Reason: c.Reason, Rollback: c.Rollback, Without: c.Without, Force: c.Force, AcceptQueueRelease: c.AcceptQueueRelease,
	}); err != nil {
		return nil, err
	}
	return func() admission.Result {
		return a.Controller.Quiesce(ctx, admission.QuiesceRequest{
			Target: c.target(), Reason: c.Reason, Who: who(ctx), Rollback: c.Rollback, Without: c.instances(), Force: c.Force, AcceptQueueRelease: c.AcceptQueueRelease,
			Progress: progress(send),
		})
	}, nil
}

func (a *Admin) drain(ctx context.Context, c Command, send func(Event)) (func() admission.Result, error) {
	if err := c.only(admission.VerbDrain, Command{Tier: c.Tier, Server: c.Server, Timeout: c.Timeout, IgnoreOldWorkers: c.IgnoreOldWorkers}); err != nil {
		return nil, err
	}
	timeout, err := time.ParseDuration(c.Timeout)
	if err != nil || timeout <= 0 {
		return nil, fmt.Errorf(`"timeout" is %.40q: give a positive duration with its unit, such as "10m", of at most 2562047h`, c.Timeout)
	}
	return func() admission.Result {
		return a.Controller.Drain(ctx, admission.DrainRequest{
			Target: c.target(), Timeout: timeout, IgnoreOldWorkers: c.IgnoreOldWorkers,
			Progress: progress(send),
		})
	}, nil
}

func (a *Admin) readmit(ctx context.Context, c Command, send func(Event)) (func() admission.Result, error) {
	if err := c.only(admission.VerbReadmit, Command{
		Tier: c.Tier, Server: c.Server,
		AllowUnidentified: c.AllowUnidentified, Partial: c.Partial, TakeHold: c.TakeHold,
		KeepHold: c.KeepHold, SetAddress: c.SetAddress, Wait: c.Wait, Confirm: c.Confirm, WhenReady: c.WhenReady, Without: c.Without,
	}); err != nil {
		return nil, err
	}
	if c.WhenReady && (c.Partial || c.Wait != "" || c.Confirm != "") {
		return nil, errors.New(`"when_ready" leaves all to the evidence: "partial", "wait" and "confirm" do not go with it`)
	}
	wait, err := bounded("wait", c.Wait, maxWait)
	if err != nil {
		return nil, err
	}
	confirm, err := bounded("confirm", c.Confirm, maxConfirm)
	if err != nil {
		return nil, err
	}
	return func() admission.Result {
		return a.Controller.Readmit(ctx, admission.ReadmitRequest{
			Target: c.target(), Who: who(ctx),
			AllowUnidentified: c.AllowUnidentified, Partial: c.Partial, TakeHold: c.TakeHold,
			KeepHold: c.KeepHold, SetAddress: c.SetAddress, Wait: wait, Confirm: confirm, WhenReady: c.WhenReady, Without: c.instances(),
			Progress: progress(send),
		})
	}, nil
}

func (a *Admin) invalidate(_ context.Context, c Command, _ func(Event)) (func() admission.Result, error) {
	if err := c.only(admission.VerbInvalidate, Command{Tier: c.Tier, Server: c.Server, All: c.All}); err != nil {
		return nil, err
	}
	return func() admission.Result { return a.Controller.Invalidate(c.target()) }, nil
}

func (a *Admin) forget(ctx context.Context, c Command, send func(Event)) (func() admission.Result, error) {
	if err := c.only(admission.VerbForget, Command{Tier: c.Tier, Server: c.Server}); err != nil {
		return nil, err
	}
	return func() admission.Result {
		return a.Controller.Forget(ctx, admission.ForgetRequest{Target: c.target(), Who: who(ctx), Progress: progress(send)})
	}, nil
}

func (a *Admin) override(ctx context.Context, c Command, _ func(Event)) (func() admission.Result, error) {
	if err := c.only(admission.VerbOverride, Command{Tier: c.Tier, Reason: c.Reason, For: c.For, End: c.End}); err != nil {
		return nil, err
	}
	if c.End && (c.For != "" || c.Reason != "") {
		return nil, errors.New(`"end" ends an override now: leave out "for" and "reason"`)
	}
	lasting, err := time.ParseDuration(c.For)
	if err != nil && !c.End {
		return nil, fmt.Errorf(`"for" is %.40q: give a duration with its unit, such as "30m"`, c.For)
	}
	return func() admission.Result {
		return a.Controller.Override(admission.OverrideRequest{Tier: c.Tier, For: lasting, Reason: c.Reason, Who: who(ctx), End: c.End})
	}, nil
}

// command reads a Command, runs it and streams its events.
func command(w http.ResponseWriter, r *http.Request, run func(context.Context, Command, func(Event)) (func() Event, error)) {
	c, err := readCommand(http.MaxBytesReader(w, r.Body, maxCommand))
	if err != nil {
		writeJSON(w, http.StatusBadRequest, Event{Error: err.Error()})
		return
	}
	conn := http.NewResponseController(w)
	var mu sync.Mutex // protects the answer: one event, one line
	encoder := json.NewEncoder(w)
	send := func(e Event) {
		mu.Lock()
		defer mu.Unlock()
		// net/http ends the request's context where a write fails: a peer that is
		// gone, or that has stopped reading, holds no verb up.
		_ = conn.SetWriteDeadline(writeDeadline(r))
		if encoder.Encode(e) == nil {
			_ = conn.Flush()
		}
	}
	begin, err := run(r.Context(), c, send)
	if err != nil {
		writeJSON(w, http.StatusBadRequest, Event{Error: err.Error()})
		return
	}
	if !keepPlace(r.Context()) {
		writeJSON(w, http.StatusServiceUnavailable, Event{
			Error: fmt.Sprintf("tier-agent has %d commands under way, as many as it takes; try again when one has ended", maxCommands),
		})
		return
	}
	w.Header().Set("Content-Type", "application/x-ndjson")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(http.StatusOK)
	// Whoever has left before this is told that nothing was begun, and so nothing
	// is.
	_ = conn.SetWriteDeadline(writeDeadline(r))
	if conn.Flush() != nil {
		return
	}
	send(begin())
}

// writeDeadline gives one event as long as the server gives a whole answer.
func writeDeadline(r *http.Request) time.Time {
	srv, _ := r.Context().Value(http.ServerContextKey).(*http.Server)
	if srv == nil || srv.WriteTimeout <= 0 {
		return time.Time{}
	}
	return time.Now().Add(srv.WriteTimeout)
}
