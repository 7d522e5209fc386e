package runtimeapi

import (
	"fmt"
	"strings"
)

// AdminState is srv_admin_state, a bit mask that HAProxy prints in decimal
// (management guide 9.3, "show servers state"; measured on 2.6, 3.0 and 3.2).
type AdminState uint32

// The bits of an AdminState.
const (
	// ForcedMaint: set by the CLI, by an agent's `maint` or by `disabled`.
	ForcedMaint AdminState = 1
	// InheritedMaint: the server that this one tracks is in maintenance.
	InheritedMaint AdminState = 2
	// ConfigMaint: `disabled` in the configuration. It comes with ForcedMaint and
	// stays when that is cleared, so on its own it closes nothing.
	ConfigMaint AdminState = 4
	// ForcedDrain: set by the CLI or by an agent's `drain`.
	ForcedDrain AdminState = 8
	// InheritedDrain: the server that this one tracks is draining.
	InheritedDrain AdminState = 16
	// DNSMaint: the server's name does not resolve.
	DNSMaint AdminState = 32
	// HostChanged: the host name was set at run time; no maintenance.
	HostChanged AdminState = 64

	maintBits  = ForcedMaint | InheritedMaint | DNSMaint
	drainBits  = ForcedDrain | InheritedDrain
	forcedBits = ForcedMaint | ForcedDrain
	knownBits  = maintBits | drainBits | ConfigMaint | HostChanged
)

// Maint reports whether the server is in maintenance: no request, no check.
func (a AdminState) Maint() bool { return a&maintBits != 0 }

// Drain reports whether the server is draining: no new request except by
// persistence. Maintenance comes before it where both hold.
func (a AdminState) Drain() bool { return a&drainBits != 0 }

// Forced reports whether a command, an agent or the configuration has closed the
// server itself; the other bits come and go without anybody's word about it.
func (a AdminState) Forced() bool { return a&forcedBits != 0 }

// StartsClosed reports whether the server is as `disabled` in the configuration makes
// it start. Somebody who puts such a server in maintenance makes it look the same.
func (a AdminState) StartsClosed() bool { return a&ConfigMaint != 0 && a&forcedBits == ForcedMaint }

// Open reports whether neither holds.
func (a AdminState) Open() bool { return !a.Maint() && !a.Drain() }

// String names the state and the bits behind it: "ready", "maint(forced,config)",
// "drain(forced)", "maint(inherited)+drain(forced)". Bits that close nothing
// follow in brackets: "drain(forced) [config]".
func (a AdminState) String() string {
	var parts, notes []string
	if a.Maint() {
		parts = append(parts, "maint("+a.names(maintBits|ConfigMaint)+")")
	} else if a&ConfigMaint != 0 {
		notes = append(notes, "config")
	}
	if a.Drain() {
		parts = append(parts, "drain("+a.names(drainBits)+")")
	}
	if parts == nil {
		parts = append(parts, "ready")
	}
	if a&HostChanged != 0 {
		notes = append(notes, "host changed")
	}
	if rest := a &^ knownBits; rest != 0 {
		notes = append(notes, fmt.Sprintf("unknown %d", uint32(rest)))
	}
	state := strings.Join(parts, "+")
	if notes != nil {
		state += " [" + strings.Join(notes, ", ") + "]"
	}
	return state
}

func (a AdminState) names(mask AdminState) string {
	var names []string
	for _, bit := range []struct {
		bits AdminState
		name string
	}{
		{ForcedMaint | ForcedDrain, "forced"},
		{InheritedMaint | InheritedDrain, "inherited"},
		{ConfigMaint, "config"},
		{DNSMaint, "dns"},
	} {
		if a&mask&bit.bits != 0 {
			names = append(names, bit.name)
		}
	}
	return strings.Join(names, ",")
}
