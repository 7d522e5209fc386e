package lab

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Process is a child of this one, with its output in a file. It does not
// outlive its parent.
type Process struct {
	Name string
	Log  string // path of its output
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended
	err  error         // of Wait, once done is closed
}

// Run starts a program. Its output goes to DIR/NAME.log, after what is there.
func Run(dir, name string, env []string, path string, args ...string) (*Process, error) {
	p := &Process{Name: name, Log: filepath.Join(dir, name+".log"), done: make(chan struct{})}
	log, err := os.OpenFile(p.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	p.cmd = exec.Command(path, args...)
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.Stdout, p.cmd.Stderr = log, log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{
		Pdeathsig: syscall.SIGKILL,
		Setpgid:   true, // a Ctrl-C on the terminal is for the parent to handle
	}
	started := make(chan error)
	go func() {
		// Pdeathsig is sent when the parent's thread ends, so that thread has to
		// live as long as the child.
		lockThread()
		err := p.cmd.Start()
		started <- err
		if err == nil {
			p.err = p.cmd.Wait()
			close(p.done)
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return p, nil
}

// PID is the process's id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Signal sends a signal; to a process that has ended it is no error.
func (p *Process) Signal(s os.Signal) error {
	if err := p.cmd.Process.Signal(s); !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return nil
}

// Suspend stops the process until it gets a SIGCONT, and returns when none of its
// threads runs any more: the signal alone lets them go on for a moment.
func (p *Process) Suspend() error { return Suspend(p.cmd.Process.Pid) }

// Suspend is Process.Suspend for any process.
func Suspend(pid int) error {
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		return err
	}
	return Within(5*time.Second, func() error {
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
		if err != nil || len(threads) == 0 {
			return fmt.Errorf("process %d has no threads", pid)
		}
		for _, stat := range threads {
			if data, err := os.ReadFile(stat); err == nil && !strings.Contains(string(data), ") T ") {
				return fmt.Errorf("process %d runs still", pid)
			}
		}
		return nil
	})
}

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Stop ends the process with SIGTERM, or SIGKILL where that takes too long, and
// returns when it has ended.
func (p *Process) Stop(patience time.Duration) error {
	if err := p.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case <-p.done:
		return nil
	case <-time.After(patience):
	}
	return p.Kill()
}

// Kill ends the process with SIGKILL.
func (p *Process) Kill() error {
	err := p.Signal(syscall.SIGKILL)
	<-p.done
	return err
}

// Output is the end of what the process has written, for an error message.
func (p *Process) Output() string {
	if p == nil {
		return "was not started"
	}
	data, err := os.ReadFile(p.Log)
	if err != nil {
		return err.Error()
	}
	const most = 4000
	return string(data[max(0, len(data)-most):])
}

// Within polls ok until it returns nil, and gives its last error where that
// does not come in time. It is for what another process does by itself.
func Within(limit time.Duration, ok func() error) error {
	deadline := time.Now().Add(limit)
	for {
		err := ok()
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("after %v: %w", limit, err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// undo is a list of things to undo, last first.
type undo struct {
	mu    sync.Mutex // protects steps
	steps []func() error
}

func (u *undo) add(step func() error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.steps = append(u.steps, step)
}

func (u *undo) run() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	var errs []error
	for i := len(u.steps) - 1; i >= 0; i-- {
		errs = append(errs, u.steps[i]())
	}
	u.steps = nil
	return errors.Join(errs...)
}
