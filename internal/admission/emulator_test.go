package admission

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"tier-agent/internal/runtimeapi"
	"tier-agent/test/socketdir"
)

// haproxy is a small HAProxy behind a real socket: its Runtime API, as far as
// it is used here, with texts recorded from the version it stands for.
type haproxy struct {
	name, path string
	texts      texts
	journal    *journal

	mu       sync.Mutex // protects everything below
	agent    func(server string) bool
	arrived  func(line string) // called before a line is acted on
	pid      int
	started  int      // seconds that the process has started later than the recorded one
	ending   bool     // another process is replacing this one
	age      int      // of every server's operational state, in seconds
	order    []string // "backend/server", in HAProxy's order
	admin    map[string]runtimeapi.AdminState
	sessions map[string]int
	retries  map[string]int
	health   map[string]int    // checks that have passed
	tracks   map[string]string // the server whose state it follows
	unasked  map[string]bool   // without an agent-check
	queue    map[string]int
	maxconn  map[string]int
	disabled map[string]bool   // in the configuration
	address  map[string]string // "ip:port"; "" while the server's name does not resolve
	sends    map[string]string // agent-send, where it was set since the start
	faults   []*fault
	stopping <-chan struct{}
}

// action is what a fault does to the line that meets it.
type action int

const (
	plain  action = iota // none
	hold                 // waits for release, then goes on as if nothing had been
	hang                 // never answers
	cut                  // closes without a word
	half                 // acts, and loses half of the answer
	refuse               // answers the mutation with text and does not act
	ignore               // answers the mutation as done and does not act
	late                 // never answers, and acts when it is released
)

// fault strikes lines that contain on, times times; a negative number is for
// ever.
type fault struct {
	action  action
	on      string
	times   int
	text    string
	release chan struct{}
	met     chan struct{} // closed when it struck first
	acted   chan struct{} // closed when a late action is done
}

func (h *haproxy) fail(f fault) *fault {
	if f.times == 0 {
		f.times = 1
	}
	f.met, f.acted = make(chan struct{}), make(chan struct{})
	if f.release == nil {
		f.release = make(chan struct{})
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.faults = append(h.faults, &f)
	return &f
}

// heal ends all faults; those that have struck go on.
func (h *haproxy) heal() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.faults = nil
}

func (h *haproxy) strike(line string) *fault {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, f := range h.faults {
		if f.times != 0 && strings.Contains(line, f.on) {
			f.times--
			select {
			case <-f.met:
			default:
				close(f.met)
			}
			return f
		}
	}
	return nil
}

// newHAProxy serves until the test ends.
func newHAProxy(t testing.TB, name, version string, j *journal, servers ...string) *haproxy {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	h := &haproxy{
		name: name, path: filepath.Join(socketdir.New(t), "s"), texts: record(t, version), journal: j, pid: 100,
		agent: func(string) bool { return true }, arrived: func(string) {}, order: servers, stopping: ctx.Done(),
		admin: map[string]runtimeapi.AdminState{}, sessions: map[string]int{}, retries: map[string]int{}, health: map[string]int{}, tracks: map[string]string{}, unasked: map[string]bool{}, queue: map[string]int{}, maxconn: map[string]int{},
		disabled: map[string]bool{}, address: map[string]string{}, sends: map[string]string{},
	}
	listener, err := net.Listen("unix", h.path)
	require.NoError(t, err)
	var all sync.WaitGroup
	t.Cleanup(func() {
		stop()
		_ = listener.Close()
		all.Wait()
	})
	all.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			all.Go(func() {
				defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
				defer conn.Close()
				if line, err := bufio.NewReader(conn).ReadString('\n'); err == nil {
					h.serve(conn, strings.TrimSuffix(line, "\n"))
				}
			})
		}
	})
	return h
}

func (h *haproxy) serve(conn net.Conn, line string) {
	for command := range strings.SplitSeq(line, ";") {
		if command != "show info" {
			h.journal.add(h.name + " " + command)
		}
	}
	h.mu.Lock()
	arrived := h.arrived
	h.mu.Unlock()
	arrived(line)
	f := h.strike(line)
	if f == nil {
		f = &fault{}
	}
	switch f.action {
	case hold, late:
		select {
		case <-f.release:
		case <-h.stopping:
			return
		}
	case hang:
		_, _ = io.Copy(io.Discard, conn)
		return
	case cut:
		return
	}
	answer := h.run(line, f)
	switch f.action {
	case late:
		close(f.acted)
		return
	case half:
		answer = answer[:len(answer)/2]
	}
	_, _ = io.WriteString(conn, answer)
}

// run does what the line says, whole and alone, as HAProxy does.
func (h *haproxy) run(line string, f *fault) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	var b strings.Builder
	for command := range strings.SplitSeq(line, ";") {
		b.WriteString(h.command(strings.Fields(command), f) + "\n")
	}
	return b.String()
}

func (h *haproxy) command(words []string, f *fault) string {
	switch {
	case slices.Equal(words, []string{"show", "info"}):
		info := h.texts.info(h.pid, h.started)
		if h.ending {
			info = strings.Replace(info, "\nStopping: 0\n", "\nStopping: 1\n", 1)
		}
		return info
	case len(words) >= 3 && words[0] == "show" && words[1] == "servers":
		backend := strings.Join(words[3:], "")
		if backend != "" && !h.has(backend+"/") {
			return "Can't find backend.\n"
		}
		return h.states(backend)
	case len(words) == 5 && words[0] == "show" && words[1] == "stat":
		backends := []string{words[2]}
		if words[2] == "-1" {
			backends = nil
			for _, name := range h.order {
				if backend, _, _ := strings.Cut(name, "/"); !slices.Contains(backends, backend) {
					backends = append(backends, backend)
				}
			}
		} else if !h.has(words[2] + "/") {
			return "No such proxy.\n"
		}
		text := "# " + strings.Join(h.texts.statColumns, ",") + "\n"
		for _, backend := range backends {
			text += h.stat(backend)
		}
		return text
	case slices.Equal(words, []string{"show", "table"}):
		return ""
	case len(words) == 5 && words[0] == "set" && words[1] == "server" && words[3] == "state":
		return h.set(words[2], words[4], f)
	case len(words) >= 5 && words[0] == "set" && words[1] == "server" && words[3] == "agent-send":
		if f.action == refuse {
			return f.text + "\n"
		}
		h.sends[words[2]] = strings.TrimSuffix(words[4], `\`) // of the blank that ends the name
		return ""
	}
	return "Unknown command: '" + strings.Join(words, " ") + "'\n"
}

func (h *haproxy) has(prefix string) bool {
	return slices.ContainsFunc(h.order, func(name string) bool { return strings.HasPrefix(name+"/", prefix) })
}

func (h *haproxy) set(name, state string, f *fault) string {
	switch {
	case f.action == refuse:
		return f.text + "\n"
	case !slices.Contains(h.order, name):
		return "No such server.\n"
	case f.action == ignore:
		return ""
	}
	// Each clears the other two's forced bits.
	h.admin[name] &^= forced
	switch state {
	case "drain":
		h.admin[name] |= runtimeapi.ForcedDrain
	case "maint":
		h.admin[name] |= runtimeapi.ForcedMaint
	}
	return ""
}

func (h *haproxy) states(backend string) string {
	var b strings.Builder
	b.WriteString("1\n# " + strings.Join(h.texts.stateColumns, " ") + "\n")
	for n, name := range h.order {
		if be, srv, _ := strings.Cut(name, "/"); backend == "" || backend == be {
			ip, port := "", ""
			if at, known := h.address[name]; known {
				if ip, port, _ = net.SplitHostPort(at); at == "" {
					ip = "-"
				}
			}
			b.WriteString(h.texts.state(map[string]string{
				"srv_addr": ip, "srv_port": port, "be_name": be, "srv_name": srv, "srv_id": fmt.Sprint(n + 1),
				"srv_admin_state": fmt.Sprint(uint32(h.admin[name])), "srv_time_since_last_change": fmt.Sprint(h.age),
			}) + "\n")
		}
	}
	return b.String()
}

func (h *haproxy) stat(backend string) string {
	var b strings.Builder
	for _, name := range h.order {
		if be, srv, _ := strings.Cut(name, "/"); backend == be {
			b.WriteString(h.texts.stat(map[string]string{
				"pxname": be, "svname": srv, "type": "2", "status": h.status(name), "weight": "100",
				"scur": fmt.Sprint(h.sessions[name]), "qcur": fmt.Sprint(h.queue[name]), "slim": fmt.Sprint(h.maxconn[name]),
				"wretr":        fmt.Sprint(h.retries[name]),
				"check_status": "L7OK", "agent_status": map[bool]string{false: "L7OK"}[h.unasked[name]],
				"check_health": fmt.Sprint(h.health[name]), "agent_health": fmt.Sprint(h.agentHealth(name)), "tracked": h.tracks[name],
			}) + "\n")
		}
	}
	b.WriteString(h.texts.stat(map[string]string{
		"pxname": backend, "svname": "BACKEND", "type": "1", "status": "UP", "weight": "100",
		"scur": "0", "qcur": fmt.Sprint(h.queue[backend]),
	}) + "\n")
	return b.String()
}

// status is what the reference wiring shows: up takes open admin state and the
// agent's word.
func (h *haproxy) status(name string) string {
	switch state := h.admin[name]; {
	case state.Maint():
		return "MAINT"
	case state.Drain():
		return "DRAIN"
	case !h.agent(name):
		return "DOWN (agent)"
	}
	return "UP"
}

func (h *haproxy) agentHealth(name string) int {
	if h.agent(name) {
		return 1
	}
	return 0
}

// with changes the state under its lock.
func (h *haproxy) with(change func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	change()
}

// operator sets a server's state by hand, at this HAProxy.
func (h *haproxy) operator(name, state string) {
	h.with(func() { h.set(name, state, &fault{}) })
}

// resolve gives a server another address, in place, as DNS does; "" for none. Forced
// bits stay with the server (measured on 2.6, 3.0 and 3.2).
func (h *haproxy) resolve(name, address string) {
	h.with(func() {
		h.address[name] = address
		if h.admin[name] &^= runtimeapi.DNSMaint; address == "" {
			h.admin[name] |= runtimeapi.DNSMaint
		}
	})
}

// reload replaces the process: the new one has forgotten every drain and shows
// none of the old one's streams.
func (h *haproxy) reload() {
	h.with(func() {
		h.pid++
		h.start()
	})
}

// restart is reload in a container: the process has the same id again.
func (h *haproxy) restart() {
	h.with(func() {
		h.started++
		h.start()
	})
}

// start is what the configuration makes of the servers. mu must be held.
func (h *haproxy) start() {
	clear(h.admin)
	clear(h.sessions)
	clear(h.queue)
	clear(h.sends)
	for name := range h.disabled {
		h.admin[name] = runtimeapi.ForcedMaint | runtimeapi.ConfigMaint
	}
	for name, address := range h.address {
		if address == "" {
			h.admin[name] |= runtimeapi.DNSMaint
		}
	}
}

func (h *haproxy) state(name string) runtimeapi.AdminState {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.admin[name]
}
