package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"tier-agent/internal/admission"
	"tier-agent/internal/config"
	"tier-agent/internal/httpapi"
)

// The exit codes. They are documented in the help and in the README.
const (
	exitDone     = 0
	exitFailed   = 1
	exitUsage    = 2
	exitTimedOut = 3
)

// exitError is an error that has its own exit code.
type exitError struct {
	code int
	err  error // nil: all has been said already
}

func (e *exitError) Error() string {
	if e.err == nil {
		return ""
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

func usage(format string, args ...any) error {
	return &exitError{code: exitUsage, err: fmt.Errorf(format, args...)}
}

// app is what the verbs share.
type app struct {
	in       io.Reader
	out, err io.Writer
	socket   string
	json     bool
}

const defaultSocket = "/run/tier-agent/admin.sock"

func run(args []string, in io.Reader, out, errs io.Writer) int {
	a := &app{in: in, out: out, err: errs}
	root := a.root()
	root.SetArgs(args)
	err := root.ExecuteContext(context.Background())
	if err == nil {
		return exitDone
	}
	var exit *exitError
	if !errors.As(err, &exit) {
		exit = &exitError{code: exitFailed, err: err}
	}
	a.complain(exit)
	return exit.code
}

// signals returns a context that the first signal ends. A second one is not
// caught any more: it ends the process at once.
func signals(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	return ctx, stop
}

// interruptible is for a verb that heeds its context. To others a signal does
// what it always does, also while a file is opened that never opens.
func interruptible(cmd *cobra.Command) *cobra.Command {
	run := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		ctx, stop := signals(cmd.Context())
		defer stop()
		cmd.SetContext(ctx)
		return run(cmd, args)
	}
	return cmd
}

// complain says what went wrong, to people and, with --json, to programs.
func (a *app) complain(err error) {
	text := err.Error()
	if text == "" {
		return
	}
	var problems config.Problems
	if errors.As(err, &problems) {
		for line := range strings.Lines(text) { // as a compiler does: one place a line
			fmt.Fprintln(a.err, printable(strings.TrimSuffix(line, "\n")))
		}
	} else {
		fmt.Fprintln(a.err, "tier-agent: "+printable(text))
	}
	if a.json {
		// Where stdout is what failed, this fails too, and stderr has said it.
		_ = a.printJSON(map[string]string{"error": text})
	}
}

// printable escapes, as %q does, what a terminal would act on: paths and
// arguments are repeated as they were given.
func printable(text string) string {
	var b strings.Builder
	for len(text) > 0 {
		r, size := utf8.DecodeRuneInString(text)
		if strconv.IsPrint(r) && (r != utf8.RuneError || size > 1) {
			b.WriteString(text[:size])
		} else {
			quoted := strconv.Quote(text[:size])
			b.WriteString(quoted[1 : len(quoted)-1])
		}
		text = text[size:]
	}
	return b.String()
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "tier-agent",
		Short: "Readiness that HAProxy can trust, and guarded swaps",
		Long: `tier-agent stands beside HAProxy and answers one question: may this tier take
a new request now? It probes the servers of each tier, answers HAProxy's checks
from fenced evidence, and drives quiesce, drain and readmit.

Exit codes: 0 done, 1 refused or failed, 2 usage, 3 timed out.`,
		SilenceUsage:  true,
		SilenceErrors: true,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return unknownVerb(cmd, args[0])
			}
			return nil
		},
		SuggestionsMinimumDistance: 2,
	}
	version := root.Flags().Bool("version", false, "print the version")
	root.RunE = func(cmd *cobra.Command, _ []string) error {
		if *version {
			return a.printVersion()
		}
		return cmd.Help()
	}
	root.SetIn(a.in)
	root.SetOut(a.out)
	root.SetErr(a.err)
	a.socket = defaultSocket
	if named := os.Getenv("TIER_AGENT_SOCKET"); named != "" {
		a.socket = named
	}
	root.PersistentFlags().Var((*socketFlag)(&a.socket), "socket", "admin socket of the running tier-agent (or TIER_AGENT_SOCKET)")
	root.PersistentFlags().BoolVar(&a.json, "json", false, "print JSON")
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usage("%w; see %s --help", err, cmd.CommandPath())
	})
	root.AddCommand(a.serve(), a.checkConfig(), a.version())
	root.SetHelpCommand(help())
	for _, cmd := range []*cobra.Command{a.status(), a.quiesce(), a.drain(), a.readmit(), a.invalidate(), a.forget(), a.override(), a.reload()} {
		root.AddCommand(interruptible(cmd))
	}
	return root
}

// help is cobra's own but for a verb that does not exist, which is a mistake.
func help() *cobra.Command {
	return &cobra.Command{
		Use:   "help [VERB]",
		Short: "Show what a verb does",
		RunE: func(cmd *cobra.Command, args []string) error {
			about, rest, err := cmd.Root().Find(args)
			if err != nil || about == cmd.Root() && len(rest) > 0 {
				return unknownVerb(cmd.Root(), args[0])
			}
			about.InitDefaultHelpFlag()
			return about.Help()
		},
	}
}

func unknownVerb(root *cobra.Command, name string) error {
	hint := ""
	if near := root.SuggestionsFor(name); len(near) > 0 {
		hint = " (did you mean " + strings.Join(near, " or ") + "?)"
	}
	return usage("unknown verb %q%s; tier-agent --help lists them", name, hint)
}

// socketFlag refuses to be set to nothing, which would be some other socket.
type socketFlag string

func (f *socketFlag) String() string { return string(*f) }
func (f *socketFlag) Type() string   { return "string" }
func (f *socketFlag) Set(s string) error {
	if s == "" {
		return errors.New("give the path of tier-agent's admin socket")
	}
	*f = socketFlag(s)
	return nil
}

// exactly is cobra.ExactArgs with the exit code of a usage error and the
// arguments' names.
func exactly(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != len(names) {
			return usage("%s takes %s, not %d; see %s --help", cmd.CommandPath(), list(names), len(args), cmd.CommandPath())
		}
		return nil
	}
}

func list(names []string) string {
	if len(names) == 0 {
		return "no arguments"
	}
	return fmt.Sprintf("%d argument (%s)", len(names), names[0])
}

func (a *app) client() *httpapi.Client {
	c := httpapi.NewClient(a.socket)
	c.Late = func() {
		fmt.Fprintln(a.err, "tier-agent has not answered yet at "+printable(a.socket)+": it waits for its first round of probes (start_budget), is stopped, or hangs; still waiting")
	}
	return c
}

// unprinted is for a result that stdout did not take: what has been done must not
// look as if it had been refused.
func unprinted(outcome admission.Outcome, message string, err error) error {
	return fmt.Errorf("%s: %s; but the result could not be printed: %w", outcome, message, err)
}

func (a *app) printJSON(v any) error {
	e := json.NewEncoder(a.out)
	e.SetIndent("", "  ")
	return e.Encode(v)
}
