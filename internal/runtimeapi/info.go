package runtimeapi

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Info is `show info`, as far as it is needed (management guide 9.3).
type Info struct {
	PID     int
	Version Version
	// Uptime of the process that answered, in whole seconds (Uptime_sec).
	Uptime time.Duration
	// StartTime in whole seconds; zero where HAProxy does not say.
	StartTime time.Time
	// Stopping is set in a process that a reload or a soft stop is replacing. It
	// goes on with its streams and refuses mutations.
	Stopping bool
	// Node is the configured or the host's name.
	Node string
}

// SameProcess reports whether i and later, which was read after i, come from one
// process. The process id alone does not tell: in a container the worker has the
// same one after each restart (3 every time, measured). The start time does: it
// is in `show info` of 2.6, 3.0 and 3.2 and constant as long as the process lives,
// so no tolerance is given, which would hide a quick restart. Two processes of
// one id and one second pass for the same. Where neither has a start time, an
// uptime that went back tells a restart.
func (i Info) SameProcess(later Info) bool {
	if i.PID != later.PID || i.Version != later.Version || !i.StartTime.Equal(later.StartTime) {
		return false
	}
	return !i.StartTime.IsZero() || later.Uptime >= i.Uptime
}

// Version of HAProxy.
type Version struct {
	Major, Minor, Patch int
	Raw                 string
}

var versions = regexp.MustCompile(`^(\d{1,6})\.(\d{1,6})(?:\.(\d{1,6}))?`)

// AtLeast reports whether v is major.minor.patch or newer. A development version
// ("3.4-dev13") counts as its release; one that cannot be read is at least nothing.
func (v Version) AtLeast(major, minor, patch int) bool {
	if v.Major != major {
		return v.Major > major
	}
	if v.Minor != minor {
		return v.Minor > minor
	}
	return v.Patch >= patch
}

// String is the version as HAProxy writes it, distribution suffix included.
func (v Version) String() string { return v.Raw }

func parseVersion(raw string) Version {
	v := Version{Raw: clean(raw)}
	if m := versions.FindStringSubmatch(raw); m != nil {
		// At most six digits each, and an absent patch level is zero.
		v.Major, _ = strconv.Atoi(m[1])
		v.Minor, _ = strconv.Atoi(m[2])
		v.Patch, _ = strconv.Atoi(m[3])
	}
	return v
}

// parseInfo reads one block of "Key: value" lines.
func parseInfo(block string) (Info, error) {
	fields := map[string]string{}
	for line := range strings.SplitSeq(block, "\n") {
		key, value, _ := strings.Cut(line, ": ")
		// The first one counts: on 2.6 a description may hold newlines, and
		// stands below everything that is read here but Stopping.
		if _, dup := fields[key]; !dup {
			fields[key] = value
		}
	}
	info := Info{Version: parseVersion(fields["Version"]), Node: clean(fields["node"])}
	var err error
	if info.PID, err = infoNumber(fields, "Pid", 1); err != nil {
		return Info{}, err
	}
	uptime, err := infoNumber(fields, "Uptime_sec", 0)
	if err != nil {
		return Info{}, err
	}
	info.Uptime = time.Duration(uptime) * time.Second
	stopping, err := infoNumber(fields, "Stopping", 0)
	if err != nil {
		return Info{}, err
	}
	info.Stopping = stopping != 0
	if _, ok := fields["Start_time_sec"]; ok {
		started, err := infoNumber(fields, "Start_time_sec", 0)
		if err != nil {
			return Info{}, err
		}
		info.StartTime = time.Unix(int64(started), 0)
	}
	return info, nil
}

func infoNumber(fields map[string]string, key string, least int) (int, error) {
	value, ok := fields[key]
	if !ok {
		return 0, fmt.Errorf("%w: show info has no %s", ErrMalformed, key)
	}
	// 32 bits: what HAProxy prints here is unsigned int, and it keeps a duration
	// of that many seconds within time.Duration.
	n, err := strconv.ParseUint(value, 10, 32)
	if err != nil || n < uint64(least) {
		return 0, fmt.Errorf("%w: show info says %s %q", ErrMalformed, key, clean(value))
	}
	return int(n), nil
}
