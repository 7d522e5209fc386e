package config

import (
	"fmt"
	"os"
	"path"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"
)

var (
	modePattern  = regexp.MustCompile(`^0?[0-7]{3}$`)
	groupPattern = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]{0,31}$`)
)

// Listen is where tier-agent itself listens.
type Listen struct {
	AgentCheck string // host:port, default 127.0.0.1:7777; port 0 lets the system choose
	HTTP       string // host:port, default 127.0.0.1:7780
	// Hosts are names with a dot, besides the machine's own, that status and metrics may be
	// asked by over HTTP; at most 32.
	Hosts []string
	SPOE  SPOE
	Admin UnixSocket // takes commands; its path is by default /run/tier-agent/admin.sock
}

// SPOE is where and how requests are gated.
type SPOE struct {
	Address string     // host:port, default 127.0.0.1:7778; "" for none
	Unix    UnixSocket // no path for none, which is the default
	// Linger is how long HAProxy's health check of the gate fails, at a stop, before
	// connections close: 0 to 1m, default 0. It serves where HAProxy has another
	// tier-agent to turn to, and is downtime where it has not.
	Linger time.Duration
	// RetryAfter is what clients that were refused are told: 1s to 1h, in whole
	// seconds, default 5s.
	RetryAfter time.Duration
}

// UnixSocket is a listener in the file system.
type UnixSocket struct {
	Path  string      // absolute, at most 107 bytes
	Mode  os.FileMode // permission bits, none for others, default 0660
	Group string      // name or number, "" to leave the group alone; not looked up here
}

func defaultListen() Listen {
	return Listen{
		AgentCheck: "127.0.0.1:7777",
		HTTP:       "127.0.0.1:7780",
		SPOE:       SPOE{Address: "127.0.0.1:7778", Unix: UnixSocket{Mode: 0o660}, RetryAfter: 5 * time.Second},
		Admin:      UnixSocket{Path: "/run/tier-agent/admin.sock", Mode: 0o660},
	}
}

func (d *decoder) listen(v value, l *Listen) {
	d.mapping(v, []field{
		{key: "agent_check", decode: func(v value) {
			l.AgentCheck = d.listenAddress(v)
		}},
		{key: "http", decode: func(v value) {
			l.HTTP = d.listenAddress(v)
		}},
		{key: "hosts", decode: func(v value) {
			l.Hosts = d.hosts(v)
		}},
		{key: "spoe", decode: func(v value) {
			d.spoe(v, &l.SPOE)
		}},
		{key: "admin", decode: func(v value) {
			d.unixSocket(v, &l.Admin)
		}},
	})
}

const maxHosts = 32

// hostName is a DNS name, or an address as a client may say it.
var hostName = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9.:_-]{0,251}[A-Za-z0-9])?$`)

func (d *decoder) hosts(v value) (hosts []string) {
	d.sequence(v, func(_ int, v value) {
		switch name, ok := d.text(v); {
		case !ok:
		case !hostName.MatchString(name), strings.Count(name, ":") == 1:
			d.report(v.place, quote(name)+" is no host name", "write a name without a port, such as tier-agent.example.com")
		default:
			hosts = append(hosts, name)
		}
	})
	if len(hosts) > maxHosts {
		d.report(v.place, fmt.Sprintf("more than %d names", maxHosts), "list those that clients ask by")
	}
	return hosts
}

func (d *decoder) spoe(v value, s *SPOE) {
	d.mapping(v, []field{
		{key: "address", decode: func(v value) {
			if text, _ := characters(v); text == "none" {
				s.Address = ""
				return
			}
			s.Address = d.listenAddress(v)
		}},
		{key: "unix", decode: func(v value) {
			d.unixSocket(v, &s.Unix)
			if s.Unix.Path == "" && d.sound(child(v.place.path, "path")) {
				d.report(v.place, "a socket without a path", "give path as well")
			}
		}},
		{key: "linger", decode: func(v value) {
			s.Linger, _ = d.duration(v, 0, time.Minute)
		}},
		{key: "retry_after", decode: func(v value) {
			after, ok := d.duration(v, time.Second, time.Hour)
			if ok && after%time.Second != 0 {
				d.report(v.place, quote(units(after))+" is not in whole seconds, which is all that Retry-After can say", "write a time such as 5s or 1m30s")
			}
			s.RetryAfter = after
		}},
	})
}

func (d *decoder) listenAddress(v value) string {
	const remedy = "write host:port, such as 127.0.0.1:7777"
	s, ok := d.text(v)
	if !ok {
		return ""
	}
	if strings.HasPrefix(s, "unix:") || strings.HasPrefix(s, "/") {
		d.report(v.place, quote(s)+" is a unix socket, which only listen.admin and listen.spoe.unix can be", remedy)
		return ""
	}
	if _, _, problem := hostPort(s); problem != "" {
		d.report(v.place, quote(s)+": "+problem, remedy)
		return ""
	}
	return s
}

func (d *decoder) unixSocket(v value, a *UnixSocket) {
	d.mapping(v, []field{
		{key: "path", decode: func(v value) {
			s, ok := d.text(v)
			if problem := socketPath(s); ok && problem != "" {
				d.report(v.place, quote(s)+": "+problem, "write an absolute path of at most 107 bytes")
			}
			a.Path = s
		}},
		{key: "mode", decode: func(v value) {
			a.Mode = d.mode(v)
		}},
		{key: "group", decode: func(v value) {
			if n, ok := v.node.(*ast.IntegerNode); ok && decimal(n) {
				v.node = ast.String(n.Token)
			}
			s, ok := d.text(v)
			if ok && !groupPattern.MatchString(s) {
				d.report(v.place, quote(s)+" is not a group", "write a group's name or its number")
			}
			a.Group = s
		}},
	})
}

func (d *decoder) mode(v value) os.FileMode {
	const remedy = `write three octal digits in quotes, such as "0660" or "0600"`
	if _, ok := v.node.(*ast.IntegerNode); ok {
		d.report(v.place, "a bare number, which YAML may or may not take for octal", remedy)
		return 0
	}
	s, ok := d.text(v)
	if !ok {
		return 0
	}
	if !modePattern.MatchString(s) {
		d.report(v.place, quote(s)+" is not a file mode", remedy)
		return 0
	}
	bits, _ := strconv.ParseUint(s, 8, 16) // the pattern lets nothing else through
	if bits&0o007 != 0 {
		d.report(v.place, quote(s)+" lets every user of the machine connect", `let the last digit be 0, such as "0660"`)
	}
	return os.FileMode(bits)
}

// sockets checks that no two sockets of the configuration stand in each other's
// way.
func (d *decoder) sockets(cfg *Config) {
	l := cfg.Listen
	doors := []struct{ name, key, address string }{
		{"agent_check", "listen.agent_check", l.AgentCheck},
		{"http", "listen.http", l.HTTP},
		{"spoe.address", "listen.spoe.address", l.SPOE.Address},
	}
	for i, b := range doors {
		for _, a := range doors[:i] {
			if d.sound("listen", "listen.spoe", a.key, b.key) && collide(a.address, b.address) {
				d.add(d.locate(b.key, a.key),
					fmt.Sprintf("%s %s and %s %s ask for the same port", a.name, quote(a.address), b.name, quote(b.address)),
					"give each a port of its own")
			}
		}
	}
	d.unixSockets(cfg)
}

// unixSockets does the same for files. Listening at HAProxy's own path would take
// its socket away from it.
func (d *decoder) unixSockets(cfg *Config) {
	if !d.sound("listen", "listen.admin", "listen.admin.path", "listen.spoe", "listen.spoe.unix", "listen.spoe.unix.path") {
		return
	}
	admin, spoe := path.Clean(cfg.Listen.Admin.Path), path.Clean(cfg.Listen.SPOE.Unix.Path)
	if admin == spoe {
		d.add(d.locate("listen.spoe.unix.path", "listen.admin.path"),
			fmt.Sprintf("the admin socket and the gate's are both %s", quote(admin)), "give each a path of its own")
	}
	for i, instance := range cfg.HAProxy {
		where := index("haproxy", i)
		for _, ours := range []struct{ name, path string }{{"admin", admin}, {"spoe.unix", spoe}} {
			d.against(ours.name, ours.path, instance.Runtime, child(where, "runtime"))
			if instance.Master != nil {
				d.against(ours.name, ours.path, *instance.Master, child(where, "master"))
			}
		}
	}
}

func (d *decoder) against(name, ours string, haproxy Address, where string) {
	if haproxy.Network == "unix" && path.Clean(haproxy.Addr) == ours {
		d.add(d.locate("listen."+name+".path", where),
			fmt.Sprintf("listen.%s and %s are both %s", name, where, quote(ours)),
			"give tier-agent's socket a path of its own")
	}
}

// collide says that two listeners cannot both have what they ask for. Every
// wildcard counts for both address families, as a listener on [::] takes IPv4 too
// on most systems.
func collide(a, b string) bool {
	hostA, portA, problemA := hostPort(a)
	hostB, portB, problemB := hostPort(b)
	if problemA != "" || problemB != "" || portA != portB || portA == 0 {
		return false
	}
	hostA, hostB = normalHost(hostA), normalHost(hostB)
	return hostA == hostB || hostA == wildcard || hostB == wildcard
}
