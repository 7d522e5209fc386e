package config

import "time"

// The defaults of Instance.Timeout and Instance.HardStopAfter. The second is
// that of the reference wiring; HAProxy itself has none.
const (
	DefaultInstanceTimeout = 2 * time.Second
	DefaultHardStopAfter   = 30 * time.Minute
)

// Instance is one HAProxy that tier-agent drives.
type Instance struct {
	Name    string
	Runtime Address       // the Runtime API socket ("stats socket", HAProxy management guide 9.3)
	Master  *Address      // the master CLI socket (haproxy -S, management guide 9.4), nil for none
	Timeout time.Duration // for one exchange, 10ms to 60s
	// StateFile is the server-state file that this HAProxy loads when it starts
	// (configuration manual, "server-state-file"), "" for none. tier-agent writes it.
	StateFile string
	// HardStopAfter is the setting of that name in this HAProxy's configuration:
	// how long an old worker may outlive a reload. 1s to 168h, default 30m.
	HardStopAfter time.Duration
}

func (d *decoder) instances(v value) []Instance {
	var all []Instance
	d.sequence(v, func(_ int, v value) {
		all = append(all, d.instance(v))
	})
	return all
}

func (d *decoder) instance(v value) Instance {
	in := Instance{Timeout: DefaultInstanceTimeout, HardStopAfter: DefaultHardStopAfter}
	d.mapping(v, []field{
		{key: "name", required: true, remedy: nameRemedy, decode: func(v value) {
			in.Name = d.ownName(v, "instance name", "give each HAProxy a name of its own")
		}},
		{key: "runtime", required: true, remedy: "write unix:/absolute/path or tcp:host:port", decode: func(v value) {
			runtime, ok := d.address(v)
			if in.Runtime = runtime; ok {
				// Two names for one process would count its streams twice.
				d.claim(v.place, "runtime address", runtime.normal(), "list each HAProxy once")
			}
		}},
		{key: "master", decode: func(v value) {
			if master, ok := d.address(v); ok {
				in.Master = &master
			}
		}},
		{key: "timeout", decode: func(v value) {
			in.Timeout, _ = d.duration(v, 10*time.Millisecond, time.Minute)
		}},
		{key: "state_file", decode: func(v value) {
			file, ok := d.absolute(v, "/var/lib/tier-agent/server-state")
			if in.StateFile = file; ok {
				// Each HAProxy's rows are its own.
				d.claim(v.place, "state file", file, "give each HAProxy a file of its own")
			}
		}},
		{key: "hard_stop_after", decode: func(v value) {
			in.HardStopAfter, _ = d.duration(v, time.Second, 168*time.Hour)
		}},
	})
	return in
}
