// Package config reads tier-agent's YAML file. A Config that Parse or Load
// returns is complete and consistent: every default is filled in, every value is
// within its bounds and every relation between values holds. A file with anything
// wrong in it yields no Config at all, but the list of all that is wrong.
package config

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"
)

// MaxFileSize is the largest file that Load reads, in bytes.
const MaxFileSize = 1 << 20

// ErrTooLarge is returned by Load for a file of more than MaxFileSize bytes.
var ErrTooLarge = errors.New("configuration file is too large")

// DefaultStartBudget is Config.StartBudget where the file is silent. It leaves a
// second of the three that the reference wiring forgives (docs/haproxy.md) for
// the restart itself.
const DefaultStartBudget = 2 * time.Second

// DefaultStaleAfter is Config.StaleAfter where the file is silent.
const DefaultStaleAfter = time.Hour

// DefaultStateDir is Config.StateDir where the file is silent.
const DefaultStateDir = "/var/lib/tier-agent"

// Config is the whole file, defaults included.
type Config struct {
	File    string // the name that Load or Parse was given
	HAProxy []Instance
	Listen  Listen
	// StaleAfter is how long a tier that fails keeps tier-agent itself not ready:
	// since its last observable change, 1m to 720h, default 1h.
	StaleAfter time.Duration
	// StartBudget is how long the first round of probes may hold back the
	// listeners, 0 to 5 minutes. 0 opens them at once.
	StartBudget time.Duration
	// StateDir is where intents are kept, absolute, default /var/lib/tier-agent.
	// It belongs to one tier-agent.
	StateDir string
	Tiers    []Tier // at least one

	// Remarks are about what is valid and yet hardly meant, or lacks a protection that
	// it could have, in the order of the file.
	Remarks Problems
	places  map[string]place // of every key and list item that the file gives, by path
}

// Load reads and parses the file at path, and tries the secrets that it names: one that
// cannot be used is a problem at its place. The error is a Problems where the content
// is at fault; otherwise it wraps the operating system's error or ErrTooLarge.
func Load(path string) (*Config, error) { return load(path, secrets{tried: true}) }

// Start is Load for a start: a secret that cannot be used is a remark. What does not need it
// is to be probed all the same, and a start that is refused closes everything.
func Start(path string) (*Config, error) { return load(path, secrets{tried: true, start: true}) }

// Check is Load for somebody who is not the service: a credential that systemd passes
// to that alone is a remark where it cannot be looked at.
func Check(path string) (*Config, error) { return load(path, secrets{tried: true, outside: true}) }

// readWithin bounds how long the file may take to be read: it may be a pipe that nobody
// writes into, or on a mount that hangs.
const readWithin = time.Second

func load(path string, s secrets) (*Config, error) {
	ctx, cancel := context.WithTimeout(context.Background(), readWithin)
	defer cancel()
	read, err := reads.read(ctx, "configuration "+path, func() (any, error) { return readFile(path) })
	if errors.Is(err, errSlow) {
		return nil, fmt.Errorf("configuration file %s was not read in %v: is it a pipe that nobody writes into, or on a mount that hangs?", quote(path), readWithin)
	}
	if err != nil {
		return nil, err
	}
	return parse(path, read.([]byte), s)
}

func readFile(path string) ([]byte, error) {
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("configuration file %s does not exist: create it or name another one: %w", quote(path), err)
	}
	if err != nil {
		return nil, fmt.Errorf("configuration file cannot be opened: %w", err)
	}
	defer file.Close()
	// One byte more than allowed tells a file of exactly the limit from a larger
	// one; a size from stat would be wrong for a pipe.
	data, err := io.ReadAll(io.LimitReader(file, MaxFileSize+1))
	if err != nil {
		return nil, fmt.Errorf("configuration file cannot be read: %w", err)
	}
	if len(data) > MaxFileSize {
		return nil, fmt.Errorf("%w: %s holds more than %d bytes", ErrTooLarge, quote(path), MaxFileSize)
	}
	return data, nil
}

// Parse decodes data and looks at nothing else; file is the name used in problems and
// in Config.File. An error is always a Problems.
func Parse(file string, data []byte) (*Config, error) { return parse(file, data, secrets{}) }

func parse(file string, data []byte, s secrets) (*Config, error) {
	d := newDecoder(file)
	d.secrets = s
	cfg := &Config{File: file, Listen: defaultListen(), StartBudget: DefaultStartBudget, StaleAfter: DefaultStaleAfter, StateDir: DefaultStateDir}
	if root, ok := d.document(data); ok {
		d.config(root, cfg)
	}
	if problems := d.sorted(); len(problems) > 0 {
		return nil, problems
	}
	d.remarkOn(cfg)
	d.remarks.sort()
	cfg.Remarks, cfg.places = d.remarks, d.given
	return cfg, nil
}

// Remark makes a remark about what the file gives at path.
func (c *Config) Remark(path, message, remedy string) Problem {
	at := locate(c.places, path)
	return Problem{File: c.File, Line: at.line, Column: at.column, Path: path, Message: message, Remedy: remedy}
}

func (d *decoder) config(root value, cfg *Config) {
	probe := defaultProbe()
	// The order of this table is the order of decoding: tiers stand on what
	// haproxy and probe say, wherever in the file those are.
	d.mapping(root, []field{
		{key: "haproxy", decode: func(v value) {
			cfg.HAProxy = d.instances(v)
		}},
		{key: "listen", decode: func(v value) {
			d.listen(v, &cfg.Listen)
		}},
		{key: "stale_after", decode: func(v value) {
			cfg.StaleAfter, _ = d.duration(v, time.Minute, 720*time.Hour)
		}},
		{key: "start_budget", decode: func(v value) {
			cfg.StartBudget, _ = d.duration(v, 0, 5*time.Minute)
		}},
		{key: "state_dir", decode: func(v value) {
			cfg.StateDir, _ = d.absolute(v, DefaultStateDir)
		}},
		{key: "probe", decode: func(v value) {
			d.probe(v, &probe)
		}},
		{key: "tiers", required: true, remedy: "list at least one tier under tiers", decode: func(v value) {
			cfg.Tiers = d.tiers(v, probe)
		}},
	})
	d.sockets(cfg)
	d.admissions(cfg)
	d.memberships(cfg)
	d.quiescedAnswers(cfg)
}
