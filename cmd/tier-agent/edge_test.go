package main

import (
	"bufio"
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

// edge is a HAProxy with the backend gpu, as far as members need it.
type edge struct {
	path string

	mu     sync.Mutex        // protects the rest
	at     map[string]string // server -> address
	admin  map[string]runtimeapi.AdminState
	opened []string
	held   chan struct{} // where not nil, nothing is answered until it is closed
}

func newEdge(t testing.TB) *edge {
	t.Helper()
	h := &edge{path: filepath.Join(socketdir.New(t), "s"), at: map[string]string{}, admin: map[string]runtimeapi.AdminState{}}
	ln, err := net.Listen("unix", h.path)
	require.NoError(t, err)
	var all sync.WaitGroup
	t.Cleanup(func() {
		_ = ln.Close()
		all.Wait()
	})
	all.Go(func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			all.Go(func() {
				defer conn.Close()
				if line, err := bufio.NewReader(conn).ReadString('\n'); err == nil {
					h.wait()
					_, _ = io.WriteString(conn, h.answer(strings.TrimSpace(line)))
				}
			})
		}
	})
	return h
}

// hold keeps every answer until release.
func (h *edge) hold() (release func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.held = make(chan struct{})
	return sync.OnceFunc(func() { close(h.held) })
}

func (h *edge) wait() {
	h.mu.Lock()
	held := h.held
	h.mu.Unlock()
	if held != nil {
		<-held
	}
}

// fills gives a slot a host; "" for none.
func (h *edge) fills(server, address string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.at[server] = address
	if h.admin[server] == 0 {
		h.admin[server] = runtimeapi.ForcedMaint | runtimeapi.ConfigMaint
	}
	if h.admin[server] &^= runtimeapi.DNSMaint; address == "" {
		h.admin[server] |= runtimeapi.DNSMaint
	}
}

func (h *edge) opens() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.opened)
}

func (h *edge) answer(line string) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	var b strings.Builder
	for command := range strings.SplitSeq(line, ";") {
		words := strings.Fields(command)
		switch {
		case command == "show info":
			b.WriteString("Name: HAProxy\nVersion: 3.0.11\nPid: 7\nUptime_sec: 5\nnode: lab\nStopping: 0\nStart_time_sec: 1796002007\n")
		case strings.HasPrefix(command, "show servers state"):
			b.WriteString("1\n# be_id be_name srv_id srv_name srv_addr srv_op_state srv_admin_state srv_uweight srv_iweight" +
				" srv_time_since_last_change srv_check_status srv_check_result srv_check_health srv_check_state srv_agent_state" +
				" bk_f_forced_id srv_f_forced_id srv_fqdn srv_port srvrecord srv_use_ssl srv_check_port srv_check_addr" +
				" srv_agent_addr srv_agent_port\n")
			for server, at := range h.at {
				host, port, err := net.SplitHostPort(at)
				if err != nil {
					host, port = "-", "9"
				}
				fmt.Fprintf(&b, "3 gpu 1 %s %s 2 %d 1 1 34 6 3 4 6 0 0 0 gpu.test %s - 0 0 - - 0\n", server, host, h.admin[server], port)
			}
		case len(words) == 5 && words[0] == "set" && words[3] == "state":
			_, server, _ := strings.Cut(words[2], "/")
			h.admin[server] &^= runtimeapi.ForcedMaint | runtimeapi.ForcedDrain
			switch words[4] {
			case "ready":
				h.opened = append(h.opened, server)
			case "maint":
				h.admin[server] |= runtimeapi.ForcedMaint
			case "drain":
				h.admin[server] |= runtimeapi.ForcedDrain
			}
		}
		b.WriteString("\n")
	}
	return b.String()
}
