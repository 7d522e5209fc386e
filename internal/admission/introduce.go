package admission

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"tier-agent/internal/observe"
	"tier-agent/internal/runtimeapi"
)

// introduce makes HAProxy send each member's own name with its agent-check, once for
// each process: all slots of a server-template begin with one text.
func (c *Controller) introduce(ctx context.Context, i *runtimeapi.Instance, o observe.View) {
	for _, t := range c.o.Model.Specs() {
		if t.Members == nil {
			continue
		}
		var servers []string
		for name, shown := range o.Servers {
			backend, server, _ := strings.Cut(name, "/")
			// One whose name is too long to be told costs the others nothing.
			if backend == t.Members.Backend && shown.Agent.Enabled && runtimeapi.ValidName(server) && !c.introduced(o, name) {
				servers = append(servers, server)
			}
		}
		if servers == nil {
			continue
		}
		slices.Sort(servers) // what is wrong is told once, not anew in each order
		info, err := i.SetAgentSend(runtimeapi.ExpectPID(ctx, o.Info.PID), t.Members.Backend, servers)
		c.complain("agent-send "+o.Instance+" "+t.Name, err, "HAProxy could not be told what to send to the agent-check", "haproxy", o.Instance, "tier", t.Name)
		if err != nil {
			continue
		}
		c.mu.Lock()
		for _, server := range servers {
			c.names[place{o.Instance, fmt.Sprintf("%s/%s", t.Members.Backend, server)}] = processOf(info)
		}
		c.mu.Unlock()
	}
}

func (c *Controller) introduced(o observe.View, name string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.names[place{o.Instance, name}] == processOf(o.Info)
}
