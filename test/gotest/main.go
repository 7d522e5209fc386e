// Command gotest runs go test and tells a broken guarantee from a flaky test.
//
//	gotest begin PART...       forgets what failed before; each part counts as unfinished
//	gotest run PART -- ARG...  runs go test with these arguments
//	gotest again [-- ARG...]   decides over what the parts left in bin/failed
//
// run prints what go test prints, and lists the failed tests in bin/failed, a line each:
// part, package, test, why, log. again runs those whose why is "failed" once more, alone,
// up to twice. Everything else in the list is final: a broken guarantee (test/guarantee), a
// data race, a panic, a time-out, a counterexample of a property, a build that failed, a
// part that never ended. A test that passes when it is run again is flaky: again lists it
// in bin/flaky, with the log of its first failure.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := command(ctx, "bin", os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "gotest:", err)
		os.Exit(1)
	}
}

func command(ctx context.Context, dir string, args []string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	l := list{dir: dir}
	own, goArgs := args, []string(nil)
	if at := slices.Index(args, "--"); at >= 0 {
		own, goArgs = args[:at], args[at+1:]
	}
	switch {
	case len(own) > 1 && own[0] == "begin" && goArgs == nil:
		return l.begin(own[1:])
	case len(own) == 2 && own[0] == "run":
		return run(ctx, os.Stdout, l, own[1], goArgs)
	case len(own) == 1 && own[0] == "again":
		return again(ctx, os.Stdout, l, goArgs)
	}
	return fmt.Errorf("usage: gotest begin PART... | run PART -- ARG... | again [-- ARG...]")
}
