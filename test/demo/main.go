// Command demo runs tier-agent beside real HAProxy and two engines on loopback.
// It prints what to try and runs until Ctrl-C; with DEMO=once it plays the
// guarded swap, says what each step saw, and fails where that differs from what
// it should be. With DEMO=discover it plays that where heavy's servers are the hosts
// that a name server of its own names.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"tier-agent/test/lab"
)

var ports = lab.Ports{Front: 8080, AgentCheck: 7777, HTTP: 7780, SPOE: 7778, Heavy: 9001, Fast: 9002}

func main() { os.Exit(run()) }

func run() int {
	haproxy := flag.String("haproxy", "haproxy", "HAProxy's binary")
	parent := flag.Int("parent", 0, "end when this process, our parent, does")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if *parent != 0 && !endsWith(*parent) {
		return 1
	}
	discover := os.Getenv("DEMO") == "discover"
	once := discover || os.Getenv("DEMO") == "once"
	err := demo(ctx, *haproxy, once, discover)
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, "demo:", err)
		return 1
	case ctx.Err() != nil && once:
		return 130 // as a shell says it: the story was not played to its end
	}
	return 0
}

// endsWith asks the kernel for a SIGTERM when the parent ends, also where that is
// by SIGKILL. It reports false where it has ended already.
func endsWith(parent int) bool {
	err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(syscall.SIGTERM), 0, 0, 0)
	return err == nil && os.Getppid() == parent
}

func demo(ctx context.Context, haproxy string, once, discover bool) (err error) {
	if err := ports.Taken(); err != nil {
		return fmt.Errorf("free these ports and try again:\n%w", err)
	}
	root, err := os.Getwd()
	if err != nil {
		return err
	}
	// Sockets want a short path, and two demos must not share a folder.
	dir, err := os.MkdirTemp("", "tier-agent-demo-")
	if err != nil {
		return err
	}
	o := lab.Options{
		Dir: dir, Root: root, HAProxy: haproxy, Ports: ports, Gate: true,
		Agent: filepath.Join(root, "bin", "tier-agent"), Engine: filepath.Join(root, "bin", "engine"),
	}
	s := &story{host: firstHost}
	if discover {
		if s.dns, err = lab.StartDNS(0); err != nil {
			return errors.Join(err, os.RemoveAll(dir))
		}
		defer s.dns.Close()
		o.DNS, o.HeavyName, o.AgentYAML, s.host = s.dns.Addr(), heavyName, lab.DiscoverYAML, "127.0.0.2"
	}
	l, err := lab.New(o)
	if err != nil {
		return errors.Join(err, os.RemoveAll(dir))
	}
	s.Lab = l
	defer func() {
		if ctx.Err() != nil { // whatever failed then, failed for that
			err = nil
		}
		if err = errors.Join(err, l.Close()); err != nil {
			fmt.Fprintln(os.Stderr, "demo: the logs are in", dir)
			return
		}
		if err = os.RemoveAll(dir); err == nil && ctx.Err() != nil {
			fmt.Println("\nThe demo ends; everything that it started is stopped.")
		}
	}()
	if err := s.start(ctx); err != nil {
		return err
	}
	if once {
		return s.play(ctx)
	}
	s.invite()
	select {
	case <-ctx.Done():
		return nil
	case <-l.HAProxies[0].Proc.Done():
		return fmt.Errorf("HAProxy has ended:\n%s", l.HAProxies[0].Proc.Output())
	case <-l.AgentProc.Done():
		return fmt.Errorf("tier-agent has ended:\n%s", l.AgentProc.Output())
	}
}
