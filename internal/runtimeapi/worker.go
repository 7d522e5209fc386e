package runtimeapi

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Worker is one worker in `show proc` of the master (management guide 9.4).
type Worker struct {
	PID int
	// Reloads is how many reloads it has outlived, failed ones included.
	Reloads int
	// Uptime as the master counts it, in whole seconds.
	Uptime time.Duration
	// Version of the HAProxy that the worker runs; an upgrade leaves old ones.
	Version Version
	// Old: listed among the old workers. On 2.6 and 3.0 these have been replaced.
	// Not so on 3.2: the serving worker is listed there from the moment that a reload
	// begins, and for good once it has failed (measured). Info.Stopping of the
	// worker's own answer tells on every version.
	Old bool
}

// Master is the master's own row in `show proc`. A reload, in which it executes itself
// anew, leaves its process id and its uptime as they were (measured on 2.6, 3.0 and 3.2).
type Master struct {
	PID    int
	Uptime time.Duration // in whole seconds
}

// Master asks the master which process it is. ErrNoMaster without Options.Master.
func (i *Instance) Master(ctx context.Context) (Master, error) {
	text, err := i.showProc(ctx)
	if err != nil {
		return Master{}, i.wrap(err)
	}
	for line := range strings.Lines(text) {
		// 2.6 to 3.2 write the failed reloads into a column of their own that has no name.
		fields := strings.Fields(line)
		if len(fields) < 4 || fields[1] != "master" {
			continue
		}
		pid, err := strconv.ParseUint(fields[0], 10, 31)
		n := slices.IndexFunc(fields, procUptime.MatchString)
		if err == nil && pid != 0 && n > 0 {
			return Master{PID: int(pid), Uptime: uptime(fields[n])}, nil
		}
	}
	return Master{}, i.wrap(fmt.Errorf("%w: show proc without a master", ErrMalformed))
}

// Workers asks the master for all its workers, in its order. ErrNoMaster without
// Options.Master. While 2.6 and 3.0 load a configuration their master refuses
// connections, ErrUnreachable. Workers of another master, of an earlier one that
// was restarted for instance, are not in it.
func (i *Instance) Workers(ctx context.Context) ([]Worker, error) {
	workers, err := i.workers(ctx)
	return workers, i.wrap(err)
}

func (i *Instance) workers(ctx context.Context) ([]Worker, error) {
	text, err := i.showProc(ctx)
	if err != nil {
		return nil, err
	}
	workers, err := parseProc(text)
	if err != nil {
		return nil, i.at(i.options.Master, err)
	}
	return workers, nil
}

func (i *Instance) showProc(ctx context.Context) (string, error) {
	if !i.HasMaster() {
		return "", ErrNoMaster
	}
	ctx, cancel := context.WithTimeout(ctx, i.options.Timeout)
	defer cancel()
	text, _, err := i.roundTrip(ctx, i.options.Master, "show proc;quit\n", procOpening)
	if err != nil {
		return "", i.at(i.options.Master, err)
	}
	return text, nil
}

func listed(workers []Worker, pid int) bool {
	return slices.ContainsFunc(workers, func(w Worker) bool { return w.PID == pid })
}

const (
	procOpening = "#<PID>"

	// maxProc: HAProxy builds the whole answer in one buffer of 16 KiB by default and
	// leaves out silently what does not fit. 12 KiB are 150 workers.
	maxProc = 12 << 10
)

var (
	procColumns = regexp.MustCompile(`<([^<>]+)>`)
	procUptime  = regexp.MustCompile(`^(\d{1,5})d(\d\d)h(\d\d)m(\d\d)s$`)
)

// parseProc reads the whole answer or fails. It ends with an empty line.
func parseProc(text string) ([]Worker, error) {
	if !strings.HasPrefix(text, procOpening) {
		if strings.TrimSpace(text) == "" {
			return nil, fmt.Errorf("%w: show proc: nothing", ErrIncomplete)
		}
		return nil, refusal(text)
	}
	body, whole := strings.CutSuffix(text, "\n\n")
	if !whole {
		return nil, fmt.Errorf("%w: show proc without its end, %d bytes", ErrIncomplete, len(text))
	}
	if len(text) > maxProc {
		return nil, fmt.Errorf("%w: show proc of %d bytes, above %d HAProxy may leave workers out", ErrTooLarge, len(text), maxProc)
	}
	header, rows, _ := strings.Cut(body, "\n")
	at := map[string]int{}
	for n, column := range procColumns.FindAllStringSubmatch(header, -1) {
		at[column[1]] = n
	}
	for _, column := range []string{"PID", "type", "reloads", "uptime", "version"} {
		if _, ok := at[column]; !ok {
			return nil, fmt.Errorf("%w: show proc without column %s", ErrMalformed, column)
		}
	}
	var workers []Worker
	section := "master"
	for line := range strings.SplitSeq(rows, "\n") {
		if name, ok := strings.CutPrefix(line, "# "); ok {
			section = name
			continue
		}
		switch section {
		case "workers", "old workers":
			w, err := parseWorker(at, line)
			if err != nil {
				return nil, err
			}
			if listed(workers, w.PID) {
				return nil, fmt.Errorf("%w: show proc has worker %d twice", ErrMalformed, w.PID)
			}
			w.Old = section == "old workers"
			workers = append(workers, w)
		case "master", "programs", "old programs":
		default:
			// Passed over, it might hold the very worker that has the streams.
			return nil, fmt.Errorf("%w: show proc has a section %q", ErrMalformed, clean(section))
		}
	}
	return workers, nil
}

func parseWorker(at map[string]int, line string) (Worker, error) {
	fields := strings.Fields(line)
	bad := fmt.Errorf("%w: show proc: worker %q", ErrMalformed, clean(line))
	if len(fields) != len(at) || fields[at["type"]] != "worker" {
		return Worker{}, bad
	}
	pid, err := strconv.ParseUint(fields[at["PID"]], 10, 31)
	if err != nil || pid == 0 {
		return Worker{}, bad
	}
	reloads, err := strconv.ParseUint(fields[at["reloads"]], 10, 31)
	if err != nil {
		return Worker{}, bad
	}
	if !procUptime.MatchString(fields[at["uptime"]]) {
		return Worker{}, bad
	}
	return Worker{PID: int(pid), Reloads: int(reloads), Uptime: uptime(fields[at["uptime"]]), Version: parseVersion(fields[at["version"]])}, nil
}

// uptime reads what procUptime matches.
func uptime(text string) time.Duration {
	up := procUptime.FindStringSubmatch(text)
	// At most five digits: 99999 days are within time.Duration.
	var seconds time.Duration
	for n, unit := range []time.Duration{24 * time.Hour, time.Hour, time.Minute, time.Second} {
		count, _ := strconv.Atoi(up[n+1])
		seconds += time.Duration(count) * unit
	}
	return seconds
}
