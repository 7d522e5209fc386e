package runtimeapi

import (
	"context"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"
)

// OpState is srv_op_state, what health checks and the agent made of the server.
type OpState int

// The operational states.
const (
	OpStopped  OpState = 0
	OpStarting OpState = 1
	OpRunning  OpState = 2
	OpStopping OpState = 3
)

// String is HAProxy's word in lower case.
func (o OpState) String() string {
	words := [...]string{"stopped", "starting", "running", "stopping"}
	if o < 0 || int(o) >= len(words) {
		return "unknown " + strconv.Itoa(int(o))
	}
	return words[o]
}

// ServerState is one row of `show servers state`, version 1 (management guide 9.3).
// What HAProxy writes as "-" is empty here.
type ServerState struct {
	Backend, Server string
	Address         string // IP address; empty for none yet, or a unix socket
	Port            int
	FQDN            string
	SRV             string // the DNS record that a slot takes its host and port from
	Admin           AdminState
	Operational     OpState
	// Weight is the one now, InitialWeight the configured one.
	Weight, InitialWeight int
	// SinceChange is the age of the operational state, in whole seconds.
	SinceChange time.Duration
	// The raw check columns; CheckState and AgentState are HAProxy's bit masks.
	CheckStatus, CheckResult, CheckHealth, CheckState, AgentState int
	CheckPort                                                     int // of the health check; 0 for the server's own
	AgentAddress                                                  string
	AgentPort                                                     int
}

// At is where requests go; not valid where that is no IP address yet, or a unix
// socket, or nowhere: the server's name does not resolve.
func (s ServerState) At() netip.AddrPort {
	ip, err := netip.ParseAddr(s.Address)
	if err != nil || ip.IsUnspecified() || s.Port <= 0 || s.Port > 65535 || s.Admin&DNSMaint != 0 {
		return netip.AddrPort{}
	}
	return netip.AddrPortFrom(ip.Unmap(), uint16(s.Port))
}

// Check is whether a server has a check, and whether it runs: `disable agent` and
// `disable health` stop it.
type Check struct{ Configured, Enabled bool }

// checkOf decodes CheckState and AgentState (measured on 2.6, 3.0 and 3.2: bit 2 is
// configured, 4 enabled).
func checkOf(state int) Check { return Check{state&2 != 0, state&6 == 6} }

// Health is the server's health check.
func (s ServerState) Health() Check { return checkOf(s.CheckState) }

// Agent is the server's agent-check.
func (s ServerState) Agent() Check { return checkOf(s.AgentState) }

// HasCheck reports whether a health check or an agent-check is configured, enabled or
// not (measured on 2.6, 3.0 and 3.2: bit 2 of CheckState and AgentState). A server that
// tracks another one has none of its own.
func (s ServerState) HasCheck() bool { return (s.CheckState|s.AgentState)&2 != 0 }

// Name is "backend/server".
func (s ServerState) Name() string { return s.Backend + "/" + s.Server }

// ServersState is the answer to `show servers state`, of one process.
type ServersState struct {
	Info    Info
	Servers []ServerState
}

// Find returns the server of that name.
func (s ServersState) Find(backend, server string) (ServerState, bool) {
	for _, row := range s.Servers {
		if row.Backend == backend && row.Server == server {
			return row, true
		}
	}
	return ServerState{}, false
}

// Spare are the servers, by name, that are slots without a host, as an ingress controller
// keeps them: closed by the configuration, and at a place where no host is. That is a
// weight of 0, or the machine's own address with a port below 1024 or with a port that
// another closed slot of the backend has too.
func (s ServersState) Spare() map[string]bool {
	type place struct {
		backend string
		at      netip.AddrPort
	}
	closed := map[place]int{}
	for _, row := range s.Servers {
		if row.Admin.StartsClosed() {
			closed[place{row.Backend, row.At()}]++
		}
	}
	spare := map[string]bool{}
	for _, row := range s.Servers {
		at := row.At()
		own := at.Addr().IsLoopback() && (at.Port() < 1024 || closed[place{row.Backend, at}] > 1)
		if row.Admin.StartsClosed() && (row.Weight == 0 || own) {
			spare[row.Name()] = true
		}
	}
	return spare
}

// Servers reads the state of a backend's servers, in HAProxy's order, or that of
// all backends when backend is empty. ErrNoSuchServer when there is no such
// backend; a backend without servers is no error.
func (i *Instance) Servers(ctx context.Context, backend string) (ServersState, error) {
	if backend != "" {
		if err := checkName("backend", backend); err != nil {
			return ServersState{}, i.wrap(err)
		}
	}
	a, err := i.exchange(ctx, reading, showServers(backend))
	if err != nil {
		return ServersState{}, i.wrap(err)
	}
	state, err := parseServers(a.texts[0], backend)
	if err != nil {
		return ServersState{}, i.wrap(err)
	}
	state.Info = a.info
	return state, nil
}

func showServers(backend string) string {
	return strings.TrimSpace("show servers state " + backend)
}

// parseServers reads the whole table or fails; backend, unless empty, is the
// only one that may be in it.
func parseServers(text, backend string) (ServersState, error) {
	version, rest, ok := strings.Cut(text, "\n")
	if _, err := strconv.ParseUint(version, 10, 32); err != nil || !ok {
		return ServersState{}, refusal(text)
	}
	if version != "1" {
		return ServersState{}, fmt.Errorf("%w: servers state of version %s, want 1", ErrMalformed, version)
	}
	header, rest, _ := strings.Cut(rest, "\n")
	table, err := newStateTable(header)
	if err != nil {
		return ServersState{}, err
	}
	state := ServersState{}
	if rest == "\n" {
		return state, nil
	}
	for line := range strings.SplitSeq(strings.TrimSuffix(rest, "\n\n"), "\n") {
		row, err := table.parse(line)
		if err != nil {
			return ServersState{}, err
		}
		if backend != "" && row.Backend != backend {
			return ServersState{}, fmt.Errorf("%w: asked for backend %s, got %q", ErrMalformed, backend, clean(line))
		}
		state.Servers = append(state.Servers, row)
	}
	return state, nil
}
