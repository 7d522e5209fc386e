package runtimeapi

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"tier-agent/test/socketdir"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fake is a server on a real socket that answers with whatever it is told to.
type fake struct {
	network, address string
	accepted         atomic.Int64
}

// serve starts a fake. handle gets each connection and the first line on it.
func serve(t testing.TB, network string, handle func(conn net.Conn, line string)) *fake {
	t.Helper()
	address := "127.0.0.1:0"
	if network == "unix" {
		address = filepath.Join(socketdir.New(t), "s")
	}
	listener, err := net.Listen(network, address)
	require.NoError(t, err)
	f := &fake{network: network, address: listener.Addr().String()}
	ctx, stop := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	t.Cleanup(func() {
		stop()
		_ = listener.Close()
		wg.Wait()
	})
	wg.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			f.accepted.Add(1)
			wg.Go(func() {
				defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
				defer conn.Close()
				line, err := bufio.NewReader(conn).ReadString('\n')
				if err == nil {
					handle(conn, line)
				}
			})
		}
	})
	return f
}

// instance has all the time that a busy machine needs, where the test gives it none.
func (f *fake) instance(o Options) *Instance {
	if o.Timeout == 0 {
		o.Timeout = time.Minute
	}
	return New("hap1", f.network, f.address, o)
}

// say is a handler that answers one text and closes.
func say(text string) func(net.Conn, string) {
	return func(conn net.Conn, _ string) { _, _ = io.WriteString(conn, text) }
}

// hang is a handler that accepts and never answers.
func hang(conn net.Conn, _ string) { _, _ = io.Copy(io.Discard, conn) }

// obey is a handler that answers each command of the line as HAProxy would,
// taking the texts from answers and info blocks from a process pid.
func obey(pid int, answers map[string]string) func(net.Conn, string) {
	return func(conn net.Conn, line string) {
		_, _ = io.WriteString(conn, script(line, pid, answers))
	}
}

func script(line string, pid int, answers map[string]string) string {
	var b strings.Builder
	for command := range strings.SplitSeq(strings.TrimSuffix(line, "\n"), ";") {
		if answer, ok := answers[command]; ok {
			b.WriteString(answer)
		} else if command == "show info" {
			b.WriteString(infoText(pid))
		} else {
			b.WriteString("Unknown command: '" + command + "'\n\n")
		}
	}
	return b.String()
}

func infoText(pid int) string {
	return fmt.Sprintf("Name: HAProxy\nVersion: 3.0.11-1+deb13u4\nPid: %d\nUptime: 0d 0h00m05s\nUptime_sec: 5\n"+
		"node: lab\nStopping: 0\nStart_time_sec: 1796002007\n\n", pid)
}

const stateHeader = "# be_id be_name srv_id srv_name srv_addr srv_op_state srv_admin_state srv_uweight srv_iweight" +
	" srv_time_since_last_change srv_check_status srv_check_result srv_check_health srv_check_state srv_agent_state" +
	" bk_f_forced_id srv_f_forced_id srv_fqdn srv_port srvrecord srv_use_ssl srv_check_port srv_check_addr" +
	" srv_agent_addr srv_agent_port"

func stateRowText(backend, server string, admin AdminState) string {
	return fmt.Sprintf("3 %s 1 %s 127.0.0.1 2 %d 50 100 34 6 3 4 6 22 0 0 - 18081 - 0 0 - 127.0.0.1 18080", backend, server, admin)
}

// stateText is the answer to `show servers state` for one server llm/gpu4.
func stateText(admin AdminState) string {
	return "1\n" + stateHeader + "\n" + stateRowText("llm", "gpu4", admin) + "\n\n"
}

// spoken is a connection on which the answer is already there.
type spoken struct {
	net.Conn
	answer  io.Reader
	sent    strings.Builder
	sawEOF  bool
	onClose func(sawEOF bool)
}

func (c *spoken) Write(p []byte) (int, error) { return c.sent.Write(p) }
func (c *spoken) Read(p []byte) (int, error) {
	n, err := c.answer.Read(p)
	c.sawEOF = c.sawEOF || err == io.EOF
	return n, err
}
func (c *spoken) SetDeadline(time.Time) error { return nil }
func (c *spoken) Close() error {
	if c.onClose != nil {
		c.onClose(c.sawEOF)
	}
	return nil
}

// answering is an instance whose every connection brings the same text.
func answering(text string) *Instance {
	return New("hap1", "unix", "/nowhere", Options{
		Dial: func(context.Context, string, string) (net.Conn, error) {
			return &spoken{answer: strings.NewReader(text)}, nil
		},
	})
}

// golden reads an answer recorded from a real HAProxy.
func golden(t testing.TB, version, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", version+"-"+name+".txt"))
	require.NoError(t, err)
	return string(text)
}

var recorded = []string{"2.6", "3.0", "3.2"}
