package admission

import (
	"context"

	"tier-agent/internal/members"
	"tier-agent/internal/runtimeapi"
	"tier-agent/internal/tier"
)

// standbys looks after the listed servers of a tier that their lines in HAProxy disable.
// What has been opened all the same is noted, and where a reload has closed it again it
// is opened again, on evidence.
func (w *welcoming) standbys(ctx context.Context, name string) {
	spec, err := w.Controller.o.Model.Spec(name)
	if err != nil {
		return
	}
	for _, s := range spec.Servers {
		w.members[s.FullName()] = true
		if at, known := w.sees(s.FullName()); known && !w.standby(ctx, spec, s, at) {
			return // it hangs: the rest would cost as much again
		}
	}
}

// standby does what one of them needs, and reports whether HAProxy answers.
func (w *welcoming) standby(ctx context.Context, spec tier.Spec, s tier.ServerSpec, at seen) bool {
	a, _ := w.Controller.o.Model.Server([]byte(s.FullName()))
	known := w.openedAt(at.place)
	now := members.Opening{HAProxy: at.instance, Server: at.server, PID: at.pid, Started: at.started}
	switch {
	case at.admin&runtimeapi.ConfigMaint == 0:
		w.keep(known, members.Opening{})
	case at.admin&forced == 0 && !a.Quiesced:
		w.keep(known, now)
	case known.Server == "":
		// it was never opened
	case at.admin.StartsClosed() && !known.Held && at.wasOpen(known):
		w.hold(known)
	case a.Admit && w.newcomer(at, s):
		return w.alone(spec.Name, at.server, func() bool {
			return w.set(ctx, spec, s, at, runtimeapi.StateReady, now,
				"%s is open again on haproxy %s: it had been opened there although its line disables it, and its evidence is ready")
		})
	}
	return true
}
