package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// HAProxy is one instance of a lab, with sockets and a state file of its own.
type HAProxy struct {
	Name string
	Port int // of its frontend
	Proc *Process
	lab  *Lab
}

// RuntimeSocket is the worker's CLI, MasterSocket the master's.
func (h *HAProxy) RuntimeSocket() string { return h.file("sock") }
func (h *HAProxy) MasterSocket() string  { return h.file("master") }

// StateFile is where it looks for the state of its servers when it starts.
func (h *HAProxy) StateFile() string { return h.file("state") }

func (h *HAProxy) file(kind string) string { return filepath.Join(h.lab.Dir, h.Name+"."+kind) }

// URL is the frontend's, for a path such as /heavy/v1/models.
func (h *HAProxy) URL(path string) string { return fmt.Sprintf("http://127.0.0.1:%d%s", h.Port, path) }

// Start starts HAProxy as master and worker and waits for its worker.
func (h *HAProxy) Start(ctx context.Context) error { return h.start(ctx) }

// TakeOver starts another master, which takes the sockets over from the one that runs and
// tells it to end, as an upgrade by hand does; and waits for its worker. The one before
// ends with its last stream.
func (h *HAProxy) TakeOver(ctx context.Context) (before *Process, err error) {
	before = h.Proc
	worker, err := h.WorkerPID()
	if err != nil {
		return nil, err
	}
	if err := h.start(ctx, "-x", h.RuntimeSocket(), "-sf", strconv.Itoa(before.PID())); err != nil {
		return nil, err
	}
	return before, Within(10*time.Second, func() error {
		now, err := h.WorkerPID()
		if err == nil && now == worker {
			err = errors.New("the worker before still answers")
		}
		return err
	})
}

func (h *HAProxy) start(ctx context.Context, args ...string) error {
	l := h.lab
	if _, err := os.Stat(h.StateFile()); errors.Is(err, fs.ErrNotExist) {
		// HAProxy wants it to be there, with its version line.
		if err := os.WriteFile(h.StateFile(), []byte("1\n"), 0o644); err != nil {
			return err
		}
	}
	cfg := l.HAProxyCfg
	if cfg == "" {
		cfg = filepath.Join(l.Root, "haproxy", "haproxy.cfg")
	}
	gate := "off"
	if l.Gate {
		gate = "on"
	}
	env := []string{
		"TIER_GATE=" + gate,
		// As whole paths: a configuration that a test has changed stands elsewhere.
		"TIER_MAP_FILE=" + filepath.Join(l.Root, "haproxy", "tiers.map"),
		"TIER_MODELS_FILE=" + filepath.Join(l.Root, "haproxy", "models.map"),
		"TIER_SPOE_FILE=" + filepath.Join(l.Root, "haproxy", "tier-spoe.conf"),
		fmt.Sprintf("TIER_FRONT_ADDR=127.0.0.1:%d", h.Port),
		"TIER_STATS_SOCKET=" + h.RuntimeSocket(),
		"TIER_AGENT_ADDR=127.0.0.1",
		fmt.Sprintf("TIER_AGENT_CHECK_PORT=%d", l.Ports.AgentCheck),
		fmt.Sprintf("TIER_AGENT_HTTP_PORT=%d", l.Ports.HTTP),
		fmt.Sprintf("TIER_AGENT_SPOE_ADDR=127.0.0.1:%d", l.Ports.SPOE),
		"TIER_AGENT_STATE_FILE=" + h.StateFile(),
		fmt.Sprintf("TIER_HEAVY_H1=127.0.0.1:%d", l.Ports.Heavy),
		fmt.Sprintf("TIER_FAST_F1=127.0.0.1:%d", l.Ports.Fast),
	}
	if l.HeavyName != "" {
		env = append(env, fmt.Sprintf("TIER_HEAVY_NAME=%s:%d", l.HeavyName, l.Ports.Heavy), "TIER_DNS="+l.DNS)
	}
	p, err := Run(l.Dir, "haproxy-"+h.Name, env, l.Options.HAProxy, append([]string{"-W", "-S", h.MasterSocket(), "-f", cfg}, args...)...)
	if err != nil {
		return err
	}
	h.Proc = p
	l.undo.add(func() error { return p.Stop(5 * time.Second) })
	return l.up(ctx, p, func() error {
		if _, err := h.exchange(h.MasterSocket(), "show proc;quit"); err != nil {
			return err // a signal before the master is up is lost
		}
		_, err := h.Runtime("show info")
		return err
	})
}

// Reload makes HAProxy load its configuration anew, and waits for the new
// worker.
func (h *HAProxy) Reload() error {
	before, err := h.WorkerPID()
	if err != nil {
		return err
	}
	// A master that has not yet come to itself after the reload before loses the
	// signal; on a loaded machine that happens.
	for range 3 {
		if err = h.Proc.Signal(syscall.SIGUSR2); err != nil {
			return err
		}
		err = Within(5*time.Second, func() error {
			now, err := h.WorkerPID()
			if err == nil && now == before {
				err = errors.New("the old worker still answers")
			}
			return err
		})
		if err == nil {
			return nil
		}
	}
	return err
}

// Kill ends master and worker at once, as a crash does.
func (h *HAProxy) Kill() error {
	pids, err := h.pids()
	if err != nil {
		return err
	}
	if err := h.Proc.Kill(); err != nil {
		return err
	}
	for _, pid := range pids {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			return err
		}
	}
	return Within(5*time.Second, func() error {
		for _, pid := range pids {
			if syscall.Kill(pid, 0) == nil && !zombie(pid) {
				return fmt.Errorf("worker %d is still there", pid)
			}
		}
		return nil
	})
}

// pids are the workers, old ones included.
func (h *HAProxy) pids() ([]int, error) {
	text, err := h.exchange(h.MasterSocket(), "show proc;quit")
	if err != nil {
		return nil, err
	}
	var all []int
	for line := range strings.Lines(text) {
		var pid int
		var kind string
		if n, _ := fmt.Sscan(line, &pid, &kind); n == 2 && kind == "worker" {
			all = append(all, pid)
		}
	}
	return all, nil
}

func zombie(pid int) bool {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || strings.Contains(string(data), ") Z ")
}

// WorkerPID is the process that answers on the runtime socket.
func (h *HAProxy) WorkerPID() (string, error) {
	info, err := h.Runtime("show info")
	if err != nil {
		return "", err
	}
	for line := range strings.SplitSeq(info, "\n") {
		if pid, ok := strings.CutPrefix(line, "Pid: "); ok {
			return pid, nil
		}
	}
	return "", errors.New("show info without a Pid")
}

// Runtime sends one line of commands to the CLI and returns the answer. It is a
// witness of its own: nothing of tier-agent's client is in it.
func (h *HAProxy) Runtime(command string) (string, error) {
	return h.exchange(h.RuntimeSocket(), command)
}

func (h *HAProxy) exchange(socket, command string) (string, error) {
	c, err := net.DialTimeout("unix", socket, 5*time.Second)
	if err != nil {
		return "", err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
		return "", err
	}
	if _, err := fmt.Fprintln(c, command); err != nil {
		return "", err
	}
	var answer bytes.Buffer
	_, err = answer.ReadFrom(c)
	return answer.String(), err
}
