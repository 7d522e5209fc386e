package config

import (
	"net/url"
	"strings"
)

// Server is one HAProxy server together with where it is probed.
type Server struct {
	Backend, Name string   // as in haproxy.cfg
	URL           *url.URL // http or https, host, optional port and path prefix; or unix and an absolute path
	Weight        int      // percent of HAProxy's configured weight, 1 to 256, default 100
	// Separate: the probe goes to another address than HAProxy's requests, and is
	// meant to. Otherwise the two are held against each other.
	Separate bool
}

// FullName gives backend/name, HAProxy's way of naming a server.
func (s Server) FullName() string { return s.Backend + "/" + s.Name }

func (d *decoder) servers(v value) []Server {
	var all []Server
	d.sequence(v, func(_ int, v value) {
		all = append(all, d.server(v))
	})
	if all == nil && d.sound(v.path) {
		d.report(v.place, "no server", "list at least one")
	}
	return all
}

func (d *decoder) server(v value) Server {
	s := Server{Weight: 100}
	d.mapping(v, []field{
		{key: "server", required: true, remedy: "write backend/server as in haproxy.cfg", decode: func(v value) {
			s.Backend, s.Name = d.fullName(v)
		}},
		{key: "url", required: true, remedy: "write where the server is probed, such as http://127.0.0.1:9001", decode: func(v value) {
			s.URL = d.url(v)
		}},
		{key: "address", decode: func(v value) {
			s.Separate = d.word(v, "address", "same", "separate") == "separate"
		}},
		{key: "weight", decode: func(v value) {
			s.Weight, _ = d.integer(v, 1, 256)
		}},
	})
	return s
}

func (d *decoder) fullName(v value) (backend, name string) {
	s, ok := d.text(v)
	if !ok {
		return "", ""
	}
	backend, name, _ = strings.Cut(s, "/")
	if !isName(backend) || !isName(name) {
		d.report(v.place, quote(s)+" is not backend/server", "write backend/server, each "+strings.TrimPrefix(nameRemedy, "use "))
		return "", ""
	}
	// Two tiers would give one server two verdicts.
	d.claim(v.place, "server", s, "list each server once, in one tier")
	return backend, name
}

// url decodes the address that probes go to. Its messages never repeat the value,
// which may hold a credential where none belongs.
func (d *decoder) url(v value) *url.URL {
	s, ok := d.text(v)
	if !ok {
		return nil
	}
	if socket, is := strings.CutPrefix(s, "unix:"); is {
		if problem := socketPath(socket); problem != "" {
			d.report(v.place, problem, "write unix:/absolute/path, the socket of the engine")
			return nil
		}
		return &url.URL{Scheme: "unix", Path: socket}
	}
	return d.urlOf(v, s)
}

func (d *decoder) urlOf(v value, s string) *url.URL {
	const remedy = "write http:// or https://, a host, and if need be a port and a path prefix"
	u, err := url.Parse(s)
	problem := ""
	switch {
	case err != nil || len(s) > 2048 || u.Opaque != "":
		problem = "not a URL"
	case u.Scheme != "http" && u.Scheme != "https":
		problem = "neither http:// nor https://"
	case u.User != nil:
		problem = "user information in the URL"
	case strings.ContainsRune(s, '?'):
		problem = "a query in the URL"
	case strings.ContainsRune(s, '#'):
		problem = "a fragment in the URL"
	case u.Hostname() == "":
		problem = "no host in the URL"
	case !validHost(u.Hostname()):
		problem = "the host in the URL is neither a name nor an IP address"
	case u.Path != "":
		problem = pathProblem(u.Path)
	}
	if problem == "" && strings.Contains(strings.TrimPrefix(u.Host, u.Hostname()), ":") && u.Host != "["+u.Hostname()+"]" {
		if _, port, _ := hostPort(u.Host); port == 0 {
			problem = "the port in the URL is not a number from 1 to 65535"
		}
	}
	if problem != "" {
		d.report(v.place, problem, remedy)
		return nil
	}
	return u
}
