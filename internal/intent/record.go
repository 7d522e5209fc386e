package intent

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode"
)

// Phase is how far the transition had come that wrote a record last. After a
// kill it tells what was under way.
type Phase string

// The phases.
const (
	// Quiescing: closed here; HAProxy may have been told or not.
	Quiescing Phase = "quiescing"
	// Quiesced: closed everywhere, as far as HAProxy could be reached.
	Quiesced Phase = "quiesced"
	// Readmitting: HAProxy may have been opened; the opening was not finished.
	Readmitting Phase = "readmitting"
	// RollingBack: a quiesce that was not confirmed everywhere is being undone.
	RollingBack Phase = "rolling_back"
)

var phases = []Phase{Quiescing, Quiesced, Readmitting, RollingBack}

// Record says that a tier, or one server of it, is to stay quiesced.
type Record struct {
	Tier   string    `json:"tier"`
	Server string    `json:"server,omitempty"` // "backend/server"; empty for the whole tier
	Reason string    `json:"reason"`
	Who    string    `json:"who"`
	Since  time.Time `json:"since"`
	Phase  Phase     `json:"phase"`
	// Serial rises with every record that is written. A transition that began on
	// one cannot complete on another.
	Serial uint64 `json:"serial"`
	// Addresses are where the evidence about each server is taken, "host:port" by
	// "backend/server": what the record is about.
	Addresses map[string]string `json:"addresses,omitempty"`
	// Gone: the configuration has not named the target since. Where the name comes
	// back, Addresses tell whether it means the same.
	Gone bool `json:"gone,omitempty"`
	// Found is each HAProxy's admin state of each server before it was closed:
	// instance, then "backend/server", then the bit mask.
	Found map[string]map[string]uint32 `json:"found,omitempty"`
	// Processes is HAProxy's process id when the servers were closed, by instance.
	Processes map[string]int `json:"processes,omitempty"`
	// Masters are HAProxy's master processes then, by instance: the workers of one that
	// another master has replaced are in nobody's list.
	Masters map[string]Master `json:"masters,omitempty"`
	// Without names the instances that an operator said to do without.
	Without []string `json:"without,omitempty"`
	// Forced: a guard was overridden.
	Forced bool `json:"forced,omitempty"`
}

// Master is one run of a HAProxy's master process; Started is in seconds since 1970.
type Master struct {
	PID     int   `json:"pid"`
	Started int64 `json:"started"`
}

// Key names what a record is about.
type Key struct{ Tier, Server string }

// Key is the record's.
func (r Record) Key() Key { return Key{r.Tier, r.Server} }

// Clone shares nothing with r.
func (r Record) Clone() Record {
	found := make(map[string]map[string]uint32, len(r.Found))
	for instance, servers := range r.Found {
		found[instance] = maps.Clone(servers)
	}
	r.Found, r.Processes, r.Without = found, maps.Clone(r.Processes), slices.Clone(r.Without)
	r.Addresses, r.Masters = maps.Clone(r.Addresses), maps.Clone(r.Masters)
	return r
}

// check refuses what no tier-agent has written.
func (r Record) check() error {
	switch {
	case r.Tier == "":
		return errors.New(`"tier" is empty`)
	case r.Reason == "":
		return fmt.Errorf(`tier %q: "reason" is empty`, r.Tier)
	case strings.ContainsFunc(r.Reason+r.Who, unicode.IsControl):
		return fmt.Errorf(`tier %q: "reason" %q or "who" %q holds control characters`, r.Tier, r.Reason, r.Who)
	case r.Since.IsZero():
		return fmt.Errorf(`tier %q: "since" is missing`, r.Tier)
	case r.Serial == 0:
		return fmt.Errorf(`tier %q: "serial" is missing`, r.Tier)
	case !slices.Contains(phases, r.Phase):
		return fmt.Errorf(`tier %q: phase %.40q is none of %v`, r.Tier, r.Phase, phases)
	}
	return nil
}
