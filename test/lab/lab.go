package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"text/template"
	"time"
)

// The models of the two tiers.
const (
	HeavyModel = "big-70b"
	FastModel  = "small-8b"
)

// Options say what a lab is made of.
type Options struct {
	Dir     string // scratch folder; sockets are in it, so its path must be short
	Root    string // the project's folder
	HAProxy string // binary
	Agent   string // binary
	// AgentEnv is added to the environment of tier-agent.
	AgentEnv []string
	Engine   string // binary
	Ports    Ports
	// AgentYAML replaces the configuration of tier-agent. It is a template over
	// the Lab.
	AgentYAML string
	// More are the ports of further HAProxies' frontends, edge2 and so on; the
	// first is called edge.
	More []int
	// HAProxyCfg replaces the shipped haproxy/haproxy.cfg.
	HAProxyCfg string
	// Gate has HAProxy ask tier-agent about each request. Without it a test sees
	// what the drain and the checks do by themselves.
	Gate bool
	// DNS is the address of a name server, and HeavyName the name of heavy's hosts
	// there, which listen on Ports.Heavy. Without them heavy has one server.
	DNS, HeavyName string
}

// Ports are the loopback ports of a lab.
type Ports struct{ Front, AgentCheck, HTTP, SPOE, Heavy, Fast int }

// Each names the ports, for a message about one that is taken.
func (p Ports) Each() map[string]int {
	return map[string]int{
		"HAProxy's frontend": p.Front, "tier-agent's agent-check": p.AgentCheck, "tier-agent's HTTP": p.HTTP,
		"tier-agent's SPOE": p.SPOE,
		"the heavy engine":  p.Heavy, "the fast engine": p.Fast,
	}
}

// Taken returns an error that names each port somebody listens on.
func (p Ports) Taken() error {
	var errs []error
	for what, port := range p.Each() {
		ln, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			errs = append(errs, fmt.Errorf("port %d, for %s, is taken: %w", port, what, err))
			continue
		}
		_ = ln.Close()
	}
	return errors.Join(errs...)
}

// Lab is a running set-up.
type Lab struct {
	Options
	HAProxies []*HAProxy
	AgentProc *Process
	undo      undo
}

// New makes a lab in which nothing runs yet.
func New(o Options) (*Lab, error) {
	l := &Lab{Options: o}
	for n, port := range append([]int{o.Ports.Front}, o.More...) {
		name := "edge"
		if n > 0 {
			name = fmt.Sprintf("edge%d", n+1)
		}
		l.HAProxies = append(l.HAProxies, &HAProxy{Name: name, Port: port, lab: l})
	}
	if len(l.AdminSocket()) > 107 {
		return nil, fmt.Errorf("%s: the path is too long for a socket", l.AdminSocket())
	}
	return l, os.MkdirAll(o.Dir, 0o755)
}

// AdminSocket is tier-agent's.
func (l *Lab) AdminSocket() string { return filepath.Join(l.Dir, "agent.sock") }

// StateDir is where tier-agent keeps its intents.
func (l *Lab) StateDir() string { return filepath.Join(l.Dir, "state") }

// StartHAProxy starts every instance.
func (l *Lab) StartHAProxy(ctx context.Context) error {
	for _, h := range l.HAProxies {
		if err := h.Start(ctx); err != nil {
			return err
		}
	}
	return nil
}

// What a lab with one instance asks of it.

// URL is the first instance's frontend.
func (l *Lab) URL(path string) string { return l.HAProxies[0].URL(path) }

// Runtime asks the first instance's CLI.
func (l *Lab) Runtime(command string) (string, error) { return l.HAProxies[0].Runtime(command) }

// RuntimeSocket is the first instance's CLI.
func (l *Lab) RuntimeSocket() string { return l.HAProxies[0].RuntimeSocket() }

// WorkerPID is the first instance's worker.
func (l *Lab) WorkerPID() (string, error) { return l.HAProxies[0].WorkerPID() }

// Reload reloads the first instance.
func (l *Lab) Reload() error { return l.HAProxies[0].Reload() }

func (l *Lab) configFile() string { return filepath.Join(l.Dir, "tier-agent.yaml") }

// Rewrite gives tier-agent's configuration file another text, a template as
// Options.AgentYAML is. A reload loads it.
func (l *Lab) Rewrite(agentYAML string) error {
	l.AgentYAML = agentYAML
	return l.writeConfig(l.configFile())
}

// StartAgent starts tier-agent and waits until it answers.
func (l *Lab) StartAgent(ctx context.Context) error {
	file := l.configFile()
	if err := l.writeConfig(file); err != nil {
		return err
	}
	p, err := Run(l.Dir, "tier-agent", l.AgentEnv, l.Agent, "serve", "-c", file)
	if err != nil {
		return err
	}
	l.AgentProc = p
	l.undo.add(func() error { return p.Stop(20 * time.Second) })
	return l.up(ctx, p, func() error {
		_, _, code := l.CLI(ctx, "status")
		if code != 0 {
			return fmt.Errorf("tier-agent status exits with %d", code)
		}
		return nil
	})
}

// StartEngine starts an engine process on the port.
func (l *Lab) StartEngine(ctx context.Context, name, model string, port int) (*Process, error) {
	return l.StartEngineAt(ctx, name, model, fmt.Sprintf("127.0.0.1:%d", port))
}

// StartEngineAt starts an engine process on the address.
func (l *Lab) StartEngineAt(ctx context.Context, name, model, address string) (*Process, error) {
	p, err := Run(l.Dir, name, nil, l.Engine, "--listen", address, "--model", model, "--token-delay", "50ms")
	if err != nil {
		return nil, err
	}
	l.undo.add(func() error { return p.Stop(5 * time.Second) })
	return p, l.up(ctx, p, func() error {
		c, err := net.DialTimeout("tcp", address, time.Second)
		if err == nil {
			_ = c.Close()
		}
		return err
	})
}

// CLI runs a verb of tier-agent against the lab's own.
func (l *Lab) CLI(ctx context.Context, args ...string) (stdout, stderr string, code int) {
	var out, errs bytes.Buffer
	cmd := exec.CommandContext(ctx, l.Agent, append([]string{"--socket", l.AdminSocket()}, args...)...)
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		code = exit.ExitCode()
	case err != nil:
		return "", err.Error(), -1
	}
	return out.String(), errs.String(), code
}

// Close ends everything that the lab started, last first.
func (l *Lab) Close() error { return l.undo.run() }

// up waits until ok, or until the process has ended.
func (l *Lab) up(ctx context.Context, p *Process, ok func() error) error {
	err := Within(15*time.Second, func() error {
		select {
		case <-p.Done():
			return nil
		case <-ctx.Done():
			return nil
		default:
			return ok()
		}
	})
	select {
	case <-p.Done():
		return fmt.Errorf("%s has ended:\n%s", p.Name, p.Output())
	default:
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		return fmt.Errorf("%s does not answer: %w\n%s", p.Name, err, p.Output())
	}
	return nil
}

// Head is the part of tier-agent's configuration that is the same in each lab.
const Head = `haproxy:
{{range .HAProxies}}  - {name: {{.Name}}, runtime: 'unix:{{.RuntimeSocket}}', master: 'unix:{{.MasterSocket}}', state_file: {{.StateFile}}}
{{end}}state_dir: {{.StateDir}}
listen:
  agent_check: 127.0.0.1:{{.Ports.AgentCheck}}
  http: 127.0.0.1:{{.Ports.HTTP}}
  spoe: {address: '127.0.0.1:{{.Ports.SPOE}}'}
  admin: {path: {{.AdminSocket}}}
`

const agentYAML = Head + `probe: {interval: 500ms, timeout: 2s, max_age: 5s}
tiers:
  - name: heavy
    servers: [{server: heavy/h1, url: 'http://127.0.0.1:{{.Ports.Heavy}}'}]
    identity: {id: big-70b}
  - name: fast
    servers: [{server: fast/f1, url: 'http://127.0.0.1:{{.Ports.Fast}}'}]
    identity: {id: small-8b}
`

// DiscoverYAML is the configuration of tier-agent where heavy's servers are those that
// HAProxy shows.
const DiscoverYAML = Head + `probe: {interval: 500ms, timeout: 2s, max_age: 5s}
tiers:
  - name: heavy
    members: {backend: heavy}
    identity: {id: big-70b}
  - name: fast
    servers: [{server: fast/f1, url: 'http://127.0.0.1:{{.Ports.Fast}}'}]
    identity: {id: small-8b}
`

func (l *Lab) writeConfig(file string) error {
	text := l.AgentYAML
	if text == "" {
		text = agentYAML
	}
	t, err := template.New("tier-agent.yaml").Parse(text)
	if err != nil {
		return err
	}
	var b bytes.Buffer
	if err := t.Execute(&b, l); err != nil {
		return err
	}
	return os.WriteFile(file, b.Bytes(), 0o600)
}
