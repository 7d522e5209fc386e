package config

import (
	"errors"
	"net"
	"net/netip"
	"path"
	"regexp"
	"strconv"
	"strings"
	"unicode"
)

// maxSocketPath is the longest path that fits a unix socket address with its
// closing zero byte (sun_path, unix(7)), in bytes.
const maxSocketPath = 107

var hostPattern = regexp.MustCompile(`^[A-Za-z0-9_](?:[A-Za-z0-9_.-]{0,251}[A-Za-z0-9_.])?$`)

// Address is where a HAProxy socket listens.
type Address struct {
	Network string // "unix" or "tcp"
	Addr    string // absolute path, or host:port
}

// String gives the form of the file, such as unix:/run/haproxy/admin.sock.
func (a Address) String() string { return a.Network + ":" + a.Addr }

// normal gives one form for all the ways of writing the same address.
func (a Address) normal() string {
	if a.Network == "unix" {
		return "unix:" + path.Clean(a.Addr)
	}
	host, port, _ := hostPort(a.Addr)
	return "tcp:" + net.JoinHostPort(normalHost(host), strconv.Itoa(port))
}

// addressRemedy is what would be right in place of what is no address.
const addressRemedy = "write unix:/absolute/path or tcp:host:port"

// address decodes unix:<absolute path> or tcp:<host:port>.
func (d *decoder) address(v value) (Address, bool) {
	s, ok := d.text(v)
	if !ok {
		return Address{}, false
	}
	a, problem := parseAddress(s)
	if problem != "" {
		d.report(v.place, problem, addressRemedy)
	}
	return a, problem == ""
}

// ParseAddress is that of a socket outside of a file.
func ParseAddress(s string) (Address, error) {
	a, problem := parseAddress(s)
	if problem != "" {
		return Address{}, errors.New(problem + ": " + addressRemedy)
	}
	return a, nil
}

func parseAddress(s string) (a Address, problem string) {
	network, addr, _ := strings.Cut(s, ":")
	switch network {
	case "unix":
		problem = socketPath(addr)
	case "tcp":
		var host string
		var port int
		host, port, problem = hostPort(addr)
		switch {
		case problem != "":
		case host == "":
			problem = "no host to connect to"
		case port == 0:
			problem = "port 0 cannot be connected to"
		}
	default:
		return Address{}, quote(s) + " is not an address"
	}
	if problem != "" {
		return Address{}, quote(s) + ": " + problem
	}
	return Address{Network: network, Addr: addr}, ""
}

func socketPath(s string) (problem string) {
	switch {
	case !strings.HasPrefix(s, "/"):
		return "the path is not absolute"
	case len(s) > maxSocketPath:
		return "the path is longer than 107 bytes, the limit of a unix socket"
	case strings.HasSuffix(s, "/"):
		return "the path names a folder"
	case strings.ContainsFunc(s, unicode.IsControl):
		return "the path holds control characters"
	}
	return ""
}

// hostPort splits host:port and checks both; the host may be empty.
func hostPort(s string) (host string, port int, problem string) {
	host, digits, err := net.SplitHostPort(s)
	if err != nil {
		return "", 0, "not host:port (an IPv6 host stands in brackets)"
	}
	number, err := strconv.ParseUint(digits, 10, 16)
	if err != nil {
		return "", 0, "the port is not a number from 0 to 65535"
	}
	if !validHost(host) {
		return "", 0, "the host is neither a name nor an IP address"
	}
	return host, int(number), ""
}

func validHost(host string) bool {
	if host == "" {
		return true
	}
	if _, err := netip.ParseAddr(host); err == nil {
		return true
	}
	// A name whose last part is a number can only be a mistyped IPv4 address.
	last := host[strings.LastIndexByte(host, '.')+1:]
	_, err := strconv.Atoi(last)
	return hostPattern.MatchString(host) && err != nil
}

const wildcard = "*"

// normalHost gives one name for all the ways of writing the same host.
func normalHost(host string) string {
	host = strings.TrimSuffix(strings.ToLower(host), ".")
	if host == "localhost" {
		return "127.0.0.1"
	}
	if host == "" {
		return wildcard
	}
	addr, err := netip.ParseAddr(host)
	if err != nil {
		return host
	}
	if addr = addr.Unmap(); addr.IsUnspecified() {
		return wildcard
	}
	return addr.String()
}
