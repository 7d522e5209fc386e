package admission

import (
	"errors"
	"fmt"
	"path/filepath"

	"tier-agent/internal/durable"
	"tier-agent/internal/intent"
	"tier-agent/internal/observe"
)

// Process is one process of a HAProxy that tier-agent has seen. It is kept over a restart
// of tier-agent: a reload that came before it, or meanwhile, may have left streams in
// processes that nothing shows.
type Process struct {
	HAProxy string      `json:"haproxy"`
	Role    ProcessRole `json:"role"`
	PID     int         `json:"pid"`
	Started int64       `json:"started"` // in seconds since 1970; 0 where HAProxy does not say
	// Replaced: of a worker, that it has taken over from another one. Young: that it had begun
	// less than hard_stop_after before it was first seen, so that it may have.
	Replaced bool `json:"replaced,omitempty"`
	Young    bool `json:"young,omitempty"`
}

// ProcessRole is what a process is to its HAProxy.
type ProcessRole string

// The roles.
const (
	RoleWorker  ProcessRole = "worker"  // the one that answers now
	RoleMaster  ProcessRole = "master"  // likewise
	RoleEarlier ProcessRole = "earlier" // a master that was replaced, and is not known to have ended
)

func (p Process) key() string {
	if p.Role == RoleEarlier {
		return fmt.Sprintf("%s %s %d %d", p.HAProxy, p.Role, p.PID, p.Started)
	}
	return p.HAProxy + " " + string(p.Role)
}

func (p Process) check() error {
	switch {
	case p.HAProxy == "":
		return errors.New("a process names no haproxy")
	case p.Role != RoleWorker && p.Role != RoleMaster && p.Role != RoleEarlier:
		return fmt.Errorf("haproxy %q: the role %.40q is none of %s, %s, %s", p.HAProxy, p.Role, RoleWorker, RoleMaster, RoleEarlier)
	}
	return nil
}

// Processes is the file of the processes that were seen. With an error, which names the
// file, it is of use all the same, and empty.
func Processes(stateDir string) (*durable.Table[Process], error) {
	path := filepath.Join(stateDir, "processes.json")
	table, err := durable.OpenTable(path, "processes", Process.key, Process.check)
	if err != nil {
		err = fmt.Errorf("%s: %w: until HAProxy has been reloaded once more, look by hand for old processes before what a drain calls done", path, err)
	}
	return table, err
}

// successions are what the file says of masters.
func (c *Controller) successions() map[string]succession {
	all := map[string]succession{}
	for _, p := range c.o.Processes.All() {
		s, m := all[p.HAProxy], intent.Master{PID: p.PID, Started: p.Started}
		switch p.Role {
		case RoleMaster:
			s.now = m
		case RoleEarlier:
			s.earlier = append(s.earlier, m)
		}
		all[p.HAProxy] = s
	}
	return all
}

// keepMasters writes what is known of an instance's masters.
func (c *Controller) keepMasters(instance string, s succession) {
	_ = c.o.Processes.Put(Process{HAProxy: instance, Role: RoleMaster, PID: s.now.PID, Started: s.now.Started})
	known := map[string]bool{}
	for _, m := range s.earlier {
		p := Process{HAProxy: instance, Role: RoleEarlier, PID: m.PID, Started: m.Started}
		known[p.key()] = true
		_ = c.o.Processes.Put(p) // noteWorker complains
	}
	var gone []string
	for _, p := range c.o.Processes.All() {
		if p.HAProxy == instance && p.Role == RoleEarlier && !known[p.key()] {
			gone = append(gone, p.key())
		}
	}
	_ = c.o.Processes.Drop(gone...)
}

// noteWorker notes which process a look has seen, and whether another one was there before.
func (c *Controller) noteWorker(o observe.View) {
	now, was := processOf(o.Info), c.worker(o.Instance)
	if seen := (process{was.PID, was.Started}); seen != now {
		limit, set := c.o.HardStopAfter[o.Instance]
		p := Process{HAProxy: o.Instance, Role: RoleWorker, PID: now.pid, Started: now.started, Replaced: was.PID != 0}
		p.Young = !p.Replaced && set && o.Info.Uptime < limit
		_ = c.o.Processes.Put(p)
	}
	c.complain("processes", c.o.Processes.Flush(), "which processes of HAProxy were seen cannot be written")
}

// worker is the one that was seen last; the zero value where none was.
func (c *Controller) worker(instance string) Process {
	p, _ := c.o.Processes.Get(Process{HAProxy: instance, Role: RoleWorker}.key())
	return p
}

// forgetProcesses ends what is kept of HAProxies that are not configured.
func (c *Controller) forgetProcesses() {
	configured := map[string]bool{}
	for _, i := range c.o.HAProxy.Instances() {
		configured[i.Name()] = true
	}
	var gone []string
	for _, p := range c.o.Processes.All() {
		if !configured[p.HAProxy] {
			gone = append(gone, p.key())
		}
	}
	_ = c.o.Processes.Drop(gone...)
	for _, u := range c.o.Unasked.All() {
		if !configured[u.HAProxy] {
			_ = c.o.Unasked.Drop(u.key())
		}
	}
}
