package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"text/template"
	"time"

	"tier-agent/test/lab"
	"tier-agent/test/spoeload"
)

const (
	gateConns   = 16
	gateRounds  = 40
	gateWarmup  = 25 * time.Millisecond
	gateMeasure = 100 * time.Millisecond
)

// The frontends of a row's HAProxy.
const (
	ungated = iota
	bareGated
	oursGated
)

// gateTable measures what the gate costs a request, through each HAProxy.
func gateTable() error {
	agents, stop, err := serveSPOE()
	if err != nil {
		return err
	}
	defer stop()
	rows := [][]string{{
		"HAProxy", "no gate, requests/s", "bare agent", "tier-agent", "tier-agent/bare", "wanted",
		"no gate, p50", "bare agent", "tier-agent", "no gate, p99", "bare agent", "tier-agent",
	}}
	for _, version := range []string{"2.6", "3.0", "3.2"} {
		found, err := exec.Command("scripts/haproxy.sh", "path", version).Output()
		if missing := (*exec.ExitError)(nil); errors.As(err, &missing) {
			rows = append(rows, []string{version, "not here: make haproxies"})
			continue
		} else if err != nil {
			return err
		}
		turns, err := throughGates(version, strings.TrimSpace(string(found)), agents)
		if err != nil {
			return fmt.Errorf("HAProxy %s: %w", version, err)
		}
		row := append([]string{version}, turns.each(perSecond)...)
		row = append(row, turns.ratio(oursGated, bareGated), ">= 0.97")
		row = append(row, turns.each(p50)...)
		rows = append(rows, append(row, turns.each(p99)...))
	}
	return table(fmt.Sprintf("SPOE gate, a request that HAProxy (2 threads) itself answers, %d kept connections, median of %d rounds of %v each",
		gateConns, gateRounds, gateMeasure), rows)
}

// throughGates runs one HAProxy with the frontends side by side and loads them in
// turn. An answer that is not the 200 from behind the gate is an error.
func throughGates(version, binary string, agents []spoeAgent) (turns, error) {
	dir, err := os.MkdirTemp("", "tier-agent-bench")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	fronts, haproxy, err := startGates(dir, version, binary, agents)
	if err != nil {
		return nil, err
	}
	defer func() { _ = haproxy.Stop(5 * time.Second) }()
	return alternate(gateRounds, len(fronts), func(n int) (spoeload.Result, error) {
		r, err := spoeload.RunHTTP(context.Background(), spoeload.HTTPLoad{
			Network: "tcp", Addr: fronts[n], Conns: gateConns, Warmup: gateWarmup, Measure: gateMeasure,
		})
		if err != nil {
			err = fmt.Errorf("frontend f%d: %w\n%s", n, err, haproxy.Output())
		}
		return r, err
	})
}

type gateConfig struct {
	Version, Dir string
	Gates        []gate
}

type gate struct {
	Name, Front, Agent string // Agent is empty for a frontend without a gate
}

// SPOP is whether HAProxy has a mode of its own for the agent's backend; before
// 3.1 it is mode tcp, and the engine's timeouts are in its section.
func (c gateConfig) SPOP() bool { return c.Version != "2.6" && c.Version != "3.0" }

var gateCfg = template.Must(template.New("").Parse(`global
  nbthread 2
  maxconn 1000
defaults
  mode http
  timeout connect 2s
  timeout client 30s
  timeout server 30s
{{- range .Gates}}
frontend {{.Name}}
  bind {{.Front}}
{{- if .Agent}}
  filter spoe engine tier config {{$.Dir}}/{{.Name}}.spoe
  http-request send-spoe-group tier check
  http-request deny deny_status 503 if { var(txn.tier.error) -m found } || !{ var(txn.tier.admit) -m bool }
{{- end}}
  http-request return status 200 content-type text/plain string ok
{{- if .Agent}}
backend {{.Name}}-agent
  mode {{if $.SPOP}}spop{{else}}tcp{{end}}
  server a {{.Agent}}
{{- end}}
{{- end}}
`))

var engineCfg = template.Must(template.New("").Parse(`[tier]
spoe-agent tier
  groups check
  option var-prefix tier
  option set-on-error error
  timeout processing 500ms
{{- if not .SPOP}}
  timeout hello 500ms
  timeout idle 1m
{{- end}}
  use-backend {{.Name}}-agent
spoe-group check
  messages tier-readiness
spoe-message tier-readiness
  args tier=str({{.Tier}})
`))

func startGates(dir, version, binary string, agents []spoeAgent) (fronts []string, haproxy *lab.Process, err error) {
	ports, err := lab.FreePorts()
	if err != nil {
		return nil, nil, err
	}
	c := gateConfig{Version: version, Dir: dir}
	for n, port := range []int{ungated: ports.Front, bareGated: ports.Heavy, oursGated: ports.Fast} {
		g := gate{Name: fmt.Sprintf("f%d", n), Front: fmt.Sprintf("127.0.0.1:%d", port)}
		switch n {
		case bareGated:
			g.Agent = agents[bare].addr["tcp"]
		case oursGated:
			g.Agent = agents[ours].addr["tcp"]
		}
		c.Gates, fronts = append(c.Gates, g), append(fronts, g.Front)
		var engine bytes.Buffer
		err := engineCfg.Execute(&engine, struct {
			gateConfig
			Name, Tier string
		}{c, g.Name, spoeTiers[0]})
		if err != nil {
			return nil, nil, err
		}
		if err := os.WriteFile(filepath.Join(dir, g.Name+".spoe"), engine.Bytes(), 0o600); err != nil {
			return nil, nil, err
		}
	}
	var text bytes.Buffer
	if err := gateCfg.Execute(&text, c); err != nil {
		return nil, nil, err
	}
	cfg := filepath.Join(dir, "haproxy.cfg")
	if err := os.WriteFile(cfg, text.Bytes(), 0o600); err != nil {
		return nil, nil, err
	}
	haproxy, err = lab.Run(dir, "haproxy", nil, binary, "-db", "-f", cfg)
	if err != nil {
		return nil, nil, err
	}
	for _, addr := range fronts {
		err := lab.Within(5*time.Second, func() error {
			c, err := net.Dial("tcp", addr)
			if err == nil {
				err = c.Close()
			}
			return err
		})
		if err != nil {
			_ = haproxy.Stop(time.Second)
			return nil, nil, fmt.Errorf("%w\n%s", err, haproxy.Output())
		}
	}
	return fronts, haproxy, nil
}
