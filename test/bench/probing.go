package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	probeEvery = 5 * time.Second
	watched    = 30 * time.Second // of steady probing
)

// probingTable runs the real binary with ten thousand servers on one local
// engine, and then a bare prober that does nothing but the same requests.
func probingTable(agent string) error {
	rows := [][]string{{"", "start-up", "resident", "CPU share", "largest delay of a probe", "probes/s"}}
	dir, err := os.MkdirTemp("", "tier-agent-bench")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	self, err := os.Executable()
	if err != nil {
		return err
	}
	for _, prober := range []struct {
		name string
		cmd  func(engine string) (*exec.Cmd, error)
	}{
		{"tier-agent", func(engine string) (*exec.Cmd, error) {
			file, err := writeConfig(dir, engine)
			return exec.Command(agent, "serve", "-c", file, "--log-level", "error"), err
		}},
		{"bare prober", func(engine string) (*exec.Cmd, error) { return exec.Command(self, "-bare-prober", engine), nil }},
	} {
		row, err := probing(prober.name, prober.cmd)
		if err != nil {
			return fmt.Errorf("%s: %w", prober.name, err)
		}
		rows = append(rows, row)
	}
	return table(fmt.Sprintf("Probing %d servers every %v against one local engine, for %v", servers, probeEvery, watched), rows)
}

// probing starts a prober and watches it from the engine's side. Start-up is
// the time until every server has been probed once.
func probing(name string, start func(engine string) (*exec.Cmd, error)) ([]string, error) {
	e := &engine{last: map[string]time.Time{}, all: make(chan struct{})}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	srv := &http.Server{Handler: e, ReadHeaderTimeout: 5 * time.Second}
	go srv.Serve(ln)
	defer srv.Close()

	cmd, err := start(ln.Addr().String())
	if err != nil {
		return nil, err
	}
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	began := time.Now()
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	select {
	case <-e.all:
	case <-time.After(60 * time.Second):
		return nil, errors.New("not every server was probed within a minute")
	}
	startup := time.Since(began)
	before, err := cpuTime(cmd.Process.Pid)
	if err != nil {
		return nil, err
	}
	e.reset()
	time.Sleep(watched)
	after, err := cpuTime(cmd.Process.Pid)
	if err != nil {
		return nil, err
	}
	resident, err := rss(cmd.Process.Pid)
	if err != nil {
		return nil, err
	}
	probes, late := e.seen()
	return []string{
		name, startup.Round(10 * time.Millisecond).String(), fmt.Sprintf("%d MiB", resident>>20),
		fmt.Sprintf("%.0f%%", 100*(after-before).Seconds()/watched.Seconds()),
		late.Round(time.Millisecond).String(), fmt.Sprintf("%.0f", float64(probes)/watched.Seconds()),
	}, nil
}

// engine answers every probe at once and notes, for each server, the longest
// time between two.
type engine struct {
	mu      sync.Mutex // protects the rest
	last    map[string]time.Time
	all     chan struct{} // closed when every server has been probed
	probes  int
	longest time.Duration
}

func (e *engine) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	now := time.Now()
	e.mu.Lock()
	if last, known := e.last[r.URL.Path]; known {
		e.longest = max(e.longest, now.Sub(last))
	} else if len(e.last) == servers-1 {
		close(e.all)
	}
	e.last[r.URL.Path] = now
	e.probes++
	e.mu.Unlock()
	_, _ = io.WriteString(w, "ok")
}

func (e *engine) reset() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.probes, e.longest = 0, 0
}

// seen gives the probes since reset and how much later than planned the latest
// of them was.
func (e *engine) seen() (int, time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.probes, e.longest - probeEvery
}

func writeConfig(dir, engine string) (string, error) {
	var b strings.Builder
	fmt.Fprintf(&b, "listen: {agent_check: 127.0.0.1:0, http: 127.0.0.1:0, admin: {path: %s}}\n", filepath.Join(dir, "admin.sock"))
	fmt.Fprintf(&b, "state_dir: %s\n", filepath.Join(dir, "state"))
	fmt.Fprintf(&b, "probe: {interval: %v, timeout: 4s, max_age: 20s, jitter: 0%%}\ntiers:\n", probeEvery)
	for i := range servers {
		if i%100 == 0 {
			fmt.Fprintf(&b, "  - name: tier%d\n    admission: agent-check\n    servers:\n", i/100)
		}
		fmt.Fprintf(&b, "      - {server: tier%d/s%d, url: 'http://%s/%d'}\n", i/100, i, engine, i)
	}
	file := filepath.Join(dir, "tier-agent.yaml")
	return file, os.WriteFile(file, []byte(b.String()), 0o600)
}

// bareProber is the baseline: a goroutine a server, a new connection a probe,
// no fence, no reasons, no metrics.
func bareProber(engine string) {
	client := &http.Client{Timeout: 4 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	var wg sync.WaitGroup
	for i := range servers {
		wg.Go(func() {
			time.Sleep(time.Duration(rand.Int64N(int64(2 * time.Second))))
			for tick := time.NewTicker(probeEvery); ; <-tick.C {
				req, err := http.NewRequestWithContext(context.Background(), http.MethodGet, fmt.Sprintf("http://%s/%d/health", engine, i), nil)
				if err != nil {
					continue
				}
				if res, err := client.Do(req); err == nil {
					_, _ = io.Copy(io.Discard, res.Body)
					res.Body.Close()
				}
			}
		})
	}
	wg.Wait()
}

// cpuTime is what the process has used, in user and system mode (proc(5)).
func cpuTime(pid int) (time.Duration, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	// The name in the second field may hold blanks; the rest follows its bracket.
	fields := strings.Fields(string(data[strings.LastIndexByte(string(data), ')')+1:]))
	var ticks int64
	for _, field := range fields[11:13] { // utime and stime
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return 0, err
		}
		ticks += n
	}
	return time.Duration(ticks) * time.Second / 100, nil // USER_HZ is 100 on Linux
}

func rss(pid int) (int64, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		return 0, err
	}
	pages, err := strconv.ParseInt(strings.Fields(string(data))[1], 10, 64)
	return pages * int64(os.Getpagesize()), err
}
