package runtimeapi

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// obeying answers each line as a process of the id that the line's number gives, and
// keeps the commands. texts are the answers that are not empty.
func obeying(t testing.TB, pid func(nth int) int, texts map[string]string) (i *Instance, lines func() []string) {
	t.Helper()
	var mu sync.Mutex // protects all
	var all []string
	f := serve(t, "unix", func(conn net.Conn, line string) {
		mu.Lock()
		all = append(all, line)
		nth := len(all)
		mu.Unlock()
		answers := map[string]string{}
		for command := range strings.SplitSeq(strings.TrimSuffix(line, "\n"), ";") {
			if strings.HasPrefix(command, "set server ") {
				answers[command] = texts[command] + "\n"
			}
		}
		_, _ = io.WriteString(conn, script(line, pid(nth), answers))
	})
	return f.instance(Options{}), func() []string {
		mu.Lock()
		defer mu.Unlock()
		return all
	}
}

func always(pid int) func(int) int { return func(int) int { return pid } }

func slots(n int) (all []string) {
	for i := range n {
		all = append(all, fmt.Sprintf("gpu%d", i+1))
	}
	return all
}

func TestEachServerSendsItsOwnName(t *testing.T) {
	i, lines := obeying(t, always(7), nil)
	info, err := i.SetAgentSend(t.Context(), "llm", slots(40))
	require.NoError(t, err)
	assert.Equal(t, 7, info.PID)
	said := strings.Join(lines(), "")
	for _, server := range slots(40) {
		assert.Equal(t, 1, strings.Count(said, "set server llm/"+server+" agent-send llm/"+server+`\ ;`), server)
	}
	assert.Len(t, lines(), 3, "in lines of bounded length")

	info, err = i.SetAgentSend(t.Context(), "llm", nil)
	require.NoError(t, err)
	assert.Zero(t, info)
}

// The longest names that there are fit into a command line.
func TestAgentSendOfTheLongestNames(t *testing.T) {
	i, lines := obeying(t, always(7), nil)
	long := strings.Repeat("b", 64)
	var servers []string
	for n := range agentSendsAtOnce {
		servers = append(servers, fmt.Sprintf("%064d", n))
	}
	_, err := i.SetAgentSend(t.Context(), long, servers)
	require.NoError(t, err)
	assert.LessOrEqual(t, len(lines()[0]), maxCommand)
}

// Negative control: with the names checked batch by batch, the first one was sent.
func TestAgentSendWithABadNameSendsNothing(t *testing.T) {
	for _, bad := range []string{"", "gpu 1", "gpu;quit", "gpu\n1", "gpu/1", "gpu\\1"} {
		i, lines := obeying(t, always(7), nil)
		_, err := i.SetAgentSend(t.Context(), "llm", append(slots(20), bad))
		require.ErrorIs(t, err, ErrInvalidName, "%q", bad)
		_, err = i.SetAgentSend(t.Context(), bad, slots(1))
		require.ErrorIs(t, err, ErrInvalidName, "%q", bad)
		assert.Empty(t, lines())
	}
}

func TestAgentSendThatIsRefused(t *testing.T) {
	for text, want := range map[string]error{
		"agent checks are not enabled on this server.\n": ErrRefused,
		"No such server.\n":   ErrNoSuchServer,
		"Permission denied\n": ErrPermission,
	} {
		i, lines := obeying(t, always(7), map[string]string{`set server llm/gpu2 agent-send llm/gpu2\ `: text})
		info, err := i.SetAgentSend(t.Context(), "llm", slots(20))
		require.ErrorIs(t, err, want)
		assert.ErrorContains(t, err, "agent-send llm/gpu2")
		assert.ErrorContains(t, err, "hap1")
		assert.Zero(t, info)
		assert.Len(t, lines(), 1, "nothing more is sent")
	}
}

// Another process has none of what the first one has taken.
//
// Negative control: without the comparison of the processes, the second one's Info
// came back for all of it.
func TestAgentSendToTwoProcesses(t *testing.T) {
	i, _ := obeying(t, func(nth int) int { return 6 + nth }, nil)
	_, err := i.SetAgentSend(t.Context(), "llm", slots(20))
	require.ErrorIs(t, err, ErrOtherProcess)
	assert.ErrorContains(t, err, "process 7, then 8")

	i, _ = obeying(t, always(8), nil)
	_, err = i.SetAgentSend(ExpectPID(context.Background(), 7), "llm", slots(1))
	require.ErrorIs(t, err, ErrOtherProcess)
}

func TestWhereAServerSendsRequests(t *testing.T) {
	at := func(address string) netip.AddrPort { return netip.MustParseAddrPort(address) }
	for _, c := range []struct {
		row  ServerState
		want netip.AddrPort
	}{
		{ServerState{Address: "192.0.2.1", Port: 9000}, at("192.0.2.1:9000")},
		{ServerState{Address: "192.0.2.1", Port: 65535, Admin: ForcedMaint | ConfigMaint | HostChanged}, at("192.0.2.1:65535")},
		{ServerState{Address: "2001:db8::1", Port: 1}, at("[2001:db8::1]:1")},
		{ServerState{Address: "::ffff:192.0.2.1", Port: 9000}, at("192.0.2.1:9000")},
		{ServerState{Address: "192.0.2.1", Port: 9000, Admin: DNSMaint}, netip.AddrPort{}},
		{ServerState{Address: "192.0.2.1", Port: 0}, netip.AddrPort{}},
		{ServerState{Address: "192.0.2.1", Port: -1}, netip.AddrPort{}},
		{ServerState{Address: "192.0.2.1", Port: 65536}, netip.AddrPort{}},
		{ServerState{Address: "0.0.0.0", Port: 9000}, netip.AddrPort{}},
		{ServerState{Address: "::", Port: 9000}, netip.AddrPort{}},
		{ServerState{Address: "", Port: 9000}, netip.AddrPort{}},
		{ServerState{Address: "/run/engine.sock", Port: 9000}, netip.AddrPort{}},
	} {
		assert.Equal(t, c.want, c.row.At(), "%+v", c.row)
	}
}

func TestWhetherAServerHasAnAgent(t *testing.T) {
	for state, want := range map[int]bool{0: false, 2: false, 4: false, 6: true, 22: true, 16: false, 20: false, 14: true} {
		assert.Equal(t, want, ServerState{AgentState: state}.Agent().Enabled, "%d", state)
	}
}
