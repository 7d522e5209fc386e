package admission

import (
	"context"
	"errors"
	"slices"
	"strings"

	"tier-agent/internal/runtimeapi"
)

// goWithout leaves the named instances out of the transition. Each must be one
// of the configuration's: a name that is mistyped would leave out nobody.
func (r *run) goWithout(names []string) *Result {
	for _, name := range names {
		known := slices.ContainsFunc(r.o.HAProxy.Instances(), func(i *runtimeapi.Instance) bool { return i.Name() == name })
		if !known {
			return keep(r.refuse(CodeInvalid, "--without %.70q: there is no such HAProxy in the configuration", name))
		}
	}
	had := len(r.set.Instances())
	if r.leaveOut(names); had > 0 && len(r.set.Instances()) == 0 {
		return keep(r.refuse(CodeInvalid, "--without %s leaves no HAProxy: there is nothing that this could be confirmed by", strings.Join(names, ", ")))
	}
	return nil
}

// leaveOut leaves out those of the names that there are: an instance that was
// gone may have left the configuration, too.
func (r *run) leaveOut(names []string) {
	r.Without = slices.Clone(names)
	r.set = except(r.set, names)
}

func except(set *runtimeapi.Set, names []string) *runtimeapi.Set {
	var left []*runtimeapi.Instance
	for _, i := range set.Instances() {
		if !slices.Contains(names, i.Name()) {
			left = append(left, i)
		}
	}
	return runtimeapi.NewSet(left...)
}

// lacking says, in a message, what to do where a HAProxy has not all of the servers.
func lacking(err error) string {
	if !errors.Is(err, runtimeapi.ErrNoSuchServer) {
		return ""
	}
	return "; give HAProxy that server, or take it out of tier-agent's configuration and reload that"
}

// absent says, in a message, whom the transition did without.
func (r *run) absent() string {
	if len(r.Without) == 0 {
		return ""
	}
	return ", without " + strings.Join(r.Without, ", ")
}

// kept makes what a transition did seen, and kept by the server-state files,
// before it says that it is done: a reload may come right after. It says, in a
// message, which files are not. An instance that could not be read just now is
// not waited for again.
func (r *run) kept(ctx context.Context) string {
	var names []string
	for _, one := range r.HAProxy {
		if one.PID != 0 {
			names = append(names, one.Instance)
		}
	}
	if r.o.Watcher == nil || len(names) == 0 {
		return ""
	}
	r.waits("HAProxy (%s) to show it, and its server-state file to be written", strings.Join(names, ", "))
	r.o.Watcher.LookAt(ctx, func(name string) bool { return slices.Contains(names, name) })
	r.judge()
	said := ""
	for _, o := range r.o.Watcher.Views() {
		if o.StateFile != "" && slices.Contains(names, o.Instance) {
			said += "; the server-state file of haproxy " + o.Instance + " is " + o.StateFile
		}
	}
	return said
}
