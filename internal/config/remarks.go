package config

import (
	"fmt"
	"time"
)

// remark notes what is no mistake by itself.
func (d *decoder) remark(at place, message, remedy string) {
	if len(d.remarks) < maxProblems {
		d.remarks = append(d.remarks, Problem{File: d.file, Line: at.line, Column: at.column, Path: at.path, Message: message, Remedy: remedy})
	}
}

// remarkAt is remark about the key at path, at the place of the first of near that the
// file gives.
func (d *decoder) remarkAt(path string, near []string, message, remedy string) {
	d.remark(withPath(d.locate(append([]string{path}, near...)...), path), message, remedy)
}

// remarkOn looks at a whole configuration that is valid.
func (d *decoder) remarkOn(cfg *Config) {
	for i, in := range cfg.HAProxy {
		d.instanceRemarks(index("haproxy", i), in)
	}
	d.listenRemarks(cfg.Listen)
	var longest time.Duration
	for i, t := range cfg.Tiers {
		where := index("tiers", i)
		d.tierRemarks(where, t)
		if t.StartWindow > longest {
			longest = t.StartWindow
			if 2*longest > cfg.StaleAfter {
				d.remarkAt(child(where, "start_window"), nil,
					fmt.Sprintf("start_window %s is more than half of stale_after %s, so that a tier which is slow to start may no longer count when it fails", units(longest), units(cfg.StaleAfter)),
					fmt.Sprintf("give a stale_after of at least %s, or a shorter start_window", units(2*longest)))
			}
		}
	}
}

func (d *decoder) instanceRemarks(where string, in Instance) {
	name := []string{child(where, "name")}
	if in.Master == nil {
		d.remarkAt(child(where, "master"), name, "without it nothing shows the streams that old workers still have after a reload, and a drain after one is refused",
			`give the address of haproxy's "-S", such as unix:/run/haproxy/master.sock`)
	}
	// One elsewhere loads a file of another machine, which tier-agent cannot write.
	if in.StateFile == "" && in.Runtime.Network == "unix" {
		d.remarkAt(child(where, "state_file"), name, "without it a reload of this HAProxy opens what is drained, until tier-agent's next look",
			"give the file that haproxy.cfg names with server-state-file")
	}
}

func (d *decoder) listenRemarks(l Listen) {
	for _, door := range []struct{ path, address string }{
		{"listen.agent_check", l.AgentCheck}, {"listen.http", l.HTTP}, {"listen.spoe.address", l.SPOE.Address},
	} {
		host, _, problem := hostPort(door.address)
		if problem == "" && normalHost(host) == wildcard {
			d.remarkAt(door.path, nil, quote(door.address)+" takes connections on every address of this machine",
				"give the address that HAProxy comes to, such as 127.0.0.1")
		}
	}
}

func (d *decoder) tierRemarks(where string, t Tier) {
	if !t.Identified() {
		d.remarkAt(where, nil, "no identity is compared: ready means no more than that something answers at the port",
			"give identity, or metadata with fields or same_across_tier")
	}
	if x := t.Exercise; x != nil {
		if reached := time.Duration(t.Fall-1)*x.Interval + x.Timeout; t.Fall > 1 && reached >= x.MaxAge {
			d.remarkAt(child(where, "fall"), []string{child(where, "exercise")},
				fmt.Sprintf("%d failing exercises take up to %s, and their evidence is too old after max_age %s", t.Fall, units(reached), units(x.MaxAge)),
				"give a smaller fall, or the exercise a longer max_age or a shorter interval")
		}
	}
}
