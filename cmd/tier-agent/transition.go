package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"tier-agent/internal/admission"
	"tier-agent/internal/httpapi"
)

// transition runs one command on the running tier-agent, prints its result and
// turns the outcome into an exit code.
func (a *app) transition(ctx context.Context, verb admission.Verb, c httpapi.Command, show *progress) error {
	r, err := a.client().Run(ctx, verb, c, show.tell)
	show.done()
	if err != nil {
		return unanswered(ctx, verb, err)
	}
	code := exitFailed
	switch {
	case r.Outcome == admission.Done:
		code = exitDone
	case r.Outcome == admission.TimedOut:
		code = exitTimedOut
	case r.Code == admission.CodeInvalid:
		code = exitUsage
	}
	out := a.printResult
	if a.json {
		out = func(r admission.Result) error { return a.printJSON(r) }
	}
	if err := out(r); err != nil {
		return &exitError{code: max(code, exitFailed), err: unprinted(r.Outcome, r.Message, err)}
	}
	if code != exitDone {
		return &exitError{code: code}
	}
	return nil
}

// unanswered says what became of a command that brought no result.
func unanswered(ctx context.Context, verb admission.Verb, err error) error {
	switch {
	case errors.Is(err, httpapi.ErrBadCommand):
		return &exitError{code: exitUsage, err: err}
	case errors.Is(err, httpapi.ErrGone):
		return fmt.Errorf("%w; look at tier-agent status before anything else", err)
	case ctx.Err() == nil:
		return err
	case errors.Is(err, httpapi.ErrNotAccepted):
		return fmt.Errorf("stopped waiting (%w); tier-agent had not accepted the %s, and begins none whose caller has left", context.Cause(ctx), verb)
	case verb == admission.VerbDrain:
		return fmt.Errorf("stopped waiting (%w); the drain has ended and admission is as it was", context.Cause(ctx))
	}
	return fmt.Errorf("stopped waiting (%w); tier-agent goes on with a %s that it has begun, look at tier-agent status", context.Cause(ctx), verb)
}

func (a *app) printResult(r admission.Result) error {
	var out strings.Builder
	fmt.Fprintf(&out, "%s: %s\n", r.Outcome, r.Message)
	var detail []string
	switch {
	case r.Target.Tier == "" || r.Code == admission.CodeUnknown: // has no admission of its own
	case r.Verb == admission.VerbForget && r.Generation == "": // nor has this any more
	case r.Quiesced:
		detail = append(detail, "admission quiesced")
	default:
		detail = append(detail, "admission open")
	}
	if r.Generation != "" {
		detail = append(detail, "generation "+r.Generation)
	}
	if r.Code != admission.CodeOK {
		detail = append(detail, "code "+r.Code)
	}
	if detail != nil {
		fmt.Fprintf(&out, "  %s\n", strings.Join(detail, ", "))
	}
	for _, e := range r.Evidence {
		ready := "ready"
		if !e.Ready {
			ready = "not ready"
		}
		fmt.Fprintf(&out, "  %s: %s (%s)\n", e.Server, ready, e.Reason)
	}
	for _, i := range r.HAProxy {
		for _, s := range i.Servers {
			change := s.After
			if s.Before != s.After {
				change = s.Before + " -> " + s.After
			}
			fmt.Fprintf(&out, "  haproxy %s: %s %s\n", i.Instance, s.Server, change)
		}
		if i.Error != "" {
			fmt.Fprintf(&out, "  %s\n", about(i.Instance, i.Error))
		}
	}
	_, err := io.WriteString(a.out, out.String())
	return err
}

// about names the instance in front of an error, which may do so itself.
func about(instance, failure string) string {
	name := "haproxy " + instance + ": "
	return name + strings.TrimPrefix(failure, name)
}

// targeted adds the flag that narrows a verb to one server.
func targeted(cmd *cobra.Command, server *httpapi.Server) {
	cmd.Flags().Var((*serverFlag)(server), "server", `only this server of the tier, as "backend/server"`)
}

// serverFlag refuses to be set to nothing: a script whose variable is empty does
// not mean the whole tier.
type serverFlag httpapi.Server

func (f *serverFlag) String() string { return string(*f) }
func (f *serverFlag) Type() string   { return "string" }
func (f *serverFlag) Set(s string) error {
	if s == "" {
		return errors.New(`give "backend/server", or leave --server out for the whole tier`)
	}
	*f = serverFlag(s)
	return nil
}
