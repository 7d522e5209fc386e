package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"

	"tier-agent/test/guarantee"
)

// event is a line of go test -json: test2json's TestEvent, and go build -json's.
type event struct {
	Action, Package, ImportPath, Test, Output, FailedBuild string
}

// maxLog bounds what is kept of one test's output, in bytes. What comes first tells most.
const maxLog = 1 << 20

// testLog is one test of a package, or under the name "" the package itself.
type testLog struct {
	action string // how it ended; empty while it runs
	output strings.Builder
}

// report is what one go test said.
type report struct {
	packages                map[string]map[string]*testLog
	builds                  map[string]*strings.Builder // what compilers said, by import path
	passed, failed, skipped int
}

// read takes a stream of events to its end, and prints what go test would without -json:
// a line for each package, and the output of what failed.
func read(events io.Reader, w io.Writer) (*report, error) {
	r := &report{packages: map[string]map[string]*testLog{}, builds: map[string]*strings.Builder{}}
	lines := bufio.NewReader(events)
	for {
		line, err := lines.ReadBytes('\n')
		var e event
		switch jsonErr := json.Unmarshal(line, &e); {
		case len(line) == 0:
		case jsonErr != nil: // the go command says a few things in plain text
			_, _ = w.Write(line)
		default:
			r.take(e, w)
		}
		if err == io.EOF {
			return r, nil
		}
		if err != nil {
			return r, err
		}
	}
}

func (r *report) take(e event, w io.Writer) {
	if e.Package == "" {
		if e.Action == "build-output" {
			fmt.Fprint(w, e.Output)
			if r.builds[e.ImportPath] == nil {
				r.builds[e.ImportPath] = &strings.Builder{}
			}
			r.builds[e.ImportPath].WriteString(e.Output)
		}
		return
	}
	tests := r.packages[e.Package]
	if tests == nil {
		tests = map[string]*testLog{}
		r.packages[e.Package] = tests
	}
	l := tests[e.Test]
	if l == nil {
		l = &testLog{}
		tests[e.Test] = l
	}
	switch e.Action {
	case "output":
		if l.output.Len() < maxLog && !strings.HasPrefix(e.Output, "=== ") {
			l.output.WriteString(e.Output)
		}
		if e.Test == "" && e.Output != "PASS\n" {
			fmt.Fprint(w, e.Output)
		}
	case "pass", "fail", "skip":
		l.action = e.Action
		if e.Test == "" {
			if said := r.builds[e.FailedBuild]; said != nil {
				l.output.WriteString(said.String())
			}
			return
		}
		r.count(e.Action)
		if e.Action == "fail" {
			fmt.Fprint(w, l.output.String())
		}
	}
}

func (r *report) count(action string) {
	switch action {
	case "pass":
		r.passed++
	case "fail":
		r.failed++
	case "skip":
		r.skipped++
	}
}

// A failure's why. Only the first may be run again.
const (
	whyFailed     = "failed"
	whyViolation  = "violation"
	whyProperty   = "counterexample"
	whyRace       = "race"
	whyPanic      = "panic" // also a time-out: go test ends one with a panic
	whyBinary     = "binary"
	whyBuild      = "build"
	whyUnfinished = "unfinished"
)

var (
	raced = regexp.MustCompile(`(?m)^\s*WARNING: DATA RACE|race detected during execution of test`)
	// At the start of a line: what a test logs is indented.
	panicked = regexp.MustCompile(`(?m)^(panic: |fatal error: |SIG[A-Z]+: )`)
	property = regexp.MustCompile(`\[rapid\] (failed|panic) after`)
)

// failure is one line of bin/failed.
type failure struct {
	part, pkg, test, why string
	output               string
	log                  string // the file that has the output
}

func (f failure) String() string {
	if f.test == "" {
		return fmt.Sprintf("%s: %s", f.why, f.pkg)
	}
	return fmt.Sprintf("%s: %s %s", f.why, f.pkg, f.test)
}

// failures are in the order of packages and tests.
func (r *report) failures() []failure {
	var all []failure
	for _, pkg := range slices.Sorted(maps.Keys(r.packages)) {
		all = append(all, inPackage(pkg, r.packages[pkg])...)
	}
	return all
}

func inPackage(pkg string, tests map[string]*testLog) []failure {
	whole := tests[""]
	if whole != nil && (whole.action == "pass" || whole.action == "skip") {
		return nil
	}
	if whole == nil || whole.action == "" {
		return []failure{{pkg: pkg, why: whyUnfinished, output: everything(tests)}}
	}
	if len(tests) == 1 { // nothing ran
		why := whyBuild
		if panicked.MatchString(whole.output.String()) {
			why = whyPanic
		}
		return []failure{{pkg: pkg, why: why, output: whole.output.String()}}
	}
	var all []failure
	for _, name := range slices.Sorted(maps.Keys(tests)) {
		l := tests[name]
		if name == "" || l.action == "pass" || l.action == "skip" {
			continue
		}
		if why := l.why(); why != whyFailed || !failedBelow(tests, name) {
			all = append(all, failure{pkg: pkg, test: name, why: why, output: withParents(tests, name)})
		}
	}
	// A report of the race detector may come in another test's output, or after all tests.
	text := everything(tests)
	for _, fatal := range []struct {
		why string
		is  *regexp.Regexp
	}{{whyRace, raced}, {whyPanic, panicked}} {
		if fatal.is.MatchString(text) && !slices.ContainsFunc(all, func(f failure) bool { return f.why == fatal.why }) {
			all = append(all, failure{pkg: pkg, why: fatal.why, output: text})
		}
	}
	if len(all) == 0 {
		all = append(all, failure{pkg: pkg, why: whyBinary, output: text})
	}
	return all
}

// why is judged by a test's own output. One that never ended was stopped with its binary.
func (l *testLog) why() string {
	text := l.output.String()
	switch {
	case strings.Contains(text, guarantee.Mark):
		return whyViolation
	case raced.MatchString(text):
		return whyRace
	case l.action == "" || panicked.MatchString(text):
		return whyPanic
	case property.MatchString(text):
		return whyProperty
	}
	return whyFailed
}

func failedBelow(tests map[string]*testLog, parent string) bool {
	for name, l := range tests {
		if strings.HasPrefix(name, parent+"/") && l.action != "pass" && l.action != "skip" {
			return true
		}
	}
	return false
}

// withParents is a test's output after that of the tests around it.
func withParents(tests map[string]*testLog, name string) string {
	var text strings.Builder
	for at, char := range name + "/" {
		if char != '/' {
			continue
		}
		if l := tests[name[:at]]; l != nil {
			text.WriteString(l.output.String())
		}
	}
	return text.String()
}

func everything(tests map[string]*testLog) string {
	var text strings.Builder
	for _, name := range slices.Sorted(maps.Keys(tests)) {
		text.WriteString(tests[name].output.String())
	}
	return text.String()
}
