package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"
)

const (
	// tries is how often a failed test is run again before it counts as broken.
	tries = 2
	// maxAgain bounds the tests that may be run again. Where more fail, the change is wrong.
	maxAgain = 12
	// maxShown bounds what again prints of a log, in bytes.
	maxShown = 64 << 10
)

// goTest runs go test -json and reads all that it says. Its error is that of the
// command itself; failed tests are in the report.
func goTest(ctx context.Context, w io.Writer, args []string) (*report, error) {
	cmd := exec.CommandContext(ctx, "go", append([]string{"test", "-json"}, args...)...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	r, err := read(out, w)
	if err != nil {
		return nil, errors.Join(err, cmd.Wait())
	}
	return r, cmd.Wait()
}

// run is one part of make test.
func run(ctx context.Context, w io.Writer, l list, part string, args []string) error {
	if err := l.replace(part, []failure{{pkg: "-", why: whyUnfinished}}); err != nil {
		return err
	}
	r, err := goTest(ctx, w, args)
	if r == nil {
		return err
	}
	failed := r.failures()
	if err != nil && len(failed) == 0 {
		return fmt.Errorf("go test: %w", err)
	}
	if err := l.replace(part, failed); err != nil {
		return err
	}
	for _, f := range failed {
		fmt.Fprintf(w, "%s: %s (%s)\n", part, f, f.log)
	}
	fmt.Fprintf(w, "%s: %d passed, %d failed, %d skipped\n", part, r.passed, r.failed, r.skipped)
	if len(failed) > 0 {
		return fmt.Errorf("%s: %d failures, listed in %s", part, len(failed), l.path())
	}
	return nil
}

// again decides whether what failed was a broken guarantee or a flaky test.
func again(ctx context.Context, w io.Writer, l list, args []string) error {
	all, err := l.read()
	if err != nil {
		return err
	}
	if len(all) == 0 {
		return fmt.Errorf("%s lists nothing: what failed was no test", l.path())
	}
	var final []string
	for _, f := range all {
		if f.why != whyFailed {
			final = append(final, f.part+": "+f.String())
		}
	}
	if final != nil {
		return fmt.Errorf("never run again:\n  %s", strings.Join(final, "\n  "))
	}
	if len(all) > maxAgain {
		return fmt.Errorf("%d tests failed; more than %d are not run again", len(all), maxAgain)
	}
	var flaky strings.Builder
	for _, f := range all {
		n, err := passes(ctx, w, f, args)
		if err != nil {
			return err
		}
		fmt.Fprintf(&flaky, "flaky: %s %s passed when run again (%d of %d); its first failure:\n%s\n", f.pkg, f.test, n, tries, shown(f.log))
	}
	fmt.Fprint(w, flaky.String())
	return os.WriteFile(filepath.Join(l.dir, "flaky"), []byte(flaky.String()), 0o644)
}

// passes runs one test alone and returns how many runs that took.
func passes(ctx context.Context, w io.Writer, f failure, args []string) (int, error) {
	args = append(append([]string{"-count=1"}, args...), "-run", pattern(f.test), f.pkg)
	for n := 1; n <= tries; n++ {
		fmt.Fprintf(w, "again: %s %s\n", f.pkg, f.test)
		r, err := goTest(ctx, w, args)
		if r == nil {
			return n, err
		}
		for _, now := range r.failures() {
			if now.why != whyFailed {
				return n, fmt.Errorf("run again: %s", now)
			}
		}
		// A pattern that matches nothing passes, too.
		if l := r.packages[f.pkg][f.test]; err == nil && l != nil && l.action == "pass" {
			return n, nil
		}
	}
	return tries, fmt.Errorf("%s %s failed again, alone, %d times of %d", f.pkg, f.test, tries, tries)
}

// pattern matches one test, and not those whose names begin with its.
func pattern(test string) string {
	parts := strings.Split(test, "/")
	for n, part := range parts {
		parts[n] = "^" + regexp.QuoteMeta(part) + "$"
	}
	return strings.Join(parts, "/")
}

func shown(log string) string {
	text, err := os.ReadFile(log)
	if err != nil {
		return err.Error()
	}
	return string(text[:min(len(text), maxShown)])
}
