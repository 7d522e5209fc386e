package httpapi

import (
	"errors"
	"syscall"
	"time"

	"tier-agent/internal/admission"
	"tier-agent/internal/observe"
	"tier-agent/internal/runtimeapi"
	"tier-agent/internal/tier"
)

// Status is the whole picture, judged now.
func (ro *ReadOnly) Status() Status {
	now := time.Now()
	if ro.Now != nil {
		now = ro.Now()
	}
	st := Status{Version: ro.Version, Time: now.UTC(), Tiers: []TierStatus{}, HAProxy: []HAProxyStatus{}, Intents: []IntentStatus{}}
	st.Daemon = ro.whole()
	observed, held := ro.Watcher.Views(), map[string]bool{}
	for _, o := range observed {
		one := instanceStatus(o, now)
		if ro.private && o.Err != nil {
			one.Detail = o.Err.Error()
		}
		if ro.Intents != nil {
			one.ClosedHere = ro.Intents.Unasked(o)
			for _, hold := range ro.Intents.Holds(o) {
				one.Holds = append(one.Holds, hold.String())
				held[hold.Server] = true
			}
		}
		st.HAProxy = append(st.HAProxy, one)
	}
	if ro.Intents != nil {
		for _, i := range ro.Intents.Intents() {
			st.Intents = append(st.Intents, IntentStatus{
				Tier: i.Tier, Server: i.Server, Reason: i.Reason, Who: i.Who, Since: i.Since, Phase: string(i.Phase),
				Orphan: i.Orphan, Stale: i.Stale, Host: i.Host, Forced: i.Forced, Without: i.Without, Note: i.Note, Drift: i.Drift, Unwritten: i.Unwritten,
			})
		}
	}
	if ro.Gate != nil {
		connections, asked := ro.Gate()
		st.Gate = &GateStatus{Connections: connections}
		if !asked.IsZero() {
			st.Gate.AskedMS = milliseconds(now.Sub(asked))
		}
		if at := ro.Polls.Strange(); !at.IsZero() {
			st.Gate.StrangeMS = milliseconds(now.Sub(at))
		}
	}
	for _, t := range ro.Model.Status() {
		t = inHAProxy(t, observed)
		ts := TierStatus{
			Readiness: readiness(t.Name, t.Answer), Quiesced: t.Answer.Quiesced, Closure: t.Closure,
			MinReady: t.MinReady, Needed: t.Needed, Serving: t.Serving, Servers: []ServerStatus{},
		}
		if ro.LastChange != nil {
			if at, known := ro.LastChange(t.Name); known {
				ts.LastChange = utc(at)
			}
		}
		if at, _ := ro.Polls.Last(observe.Gate, t.Name, now); !at.IsZero() {
			ts.GateAskedMS = milliseconds(now.Sub(at))
		}
		if o := t.Override; o != nil {
			ts.Override = &OverrideStatus{Override: *o, LeftS: int64(o.Left(now).Seconds())}
		}
		if t.Members != nil {
			ts.Members = &MembersStatus{Backend: t.Members.Backend, LeftOut: t.Members.LeftOut}
		}
		for _, s := range t.Servers {
			name := s.Backend + "/" + s.Name
			left := leftOf(observed, name, s.Answer)
			ts.Servers = append(ts.Servers, ServerStatus{
				Readiness: readiness(name, s.Answer), State: s.Answer.State.With(left.some(), held[name]).String(),
				Evidence: s.Evidence, Against: s.Against, Quiesced: s.Answer.Quiesced,
				Closure: s.Closure, Left: left, Weight: s.Answer.Weight, WeightByHand: s.Answer.WeightByHand, Probing: s.Probing, Metadata: s.Metadata,
				HAProxy: adminStates(observed, name), Shown: ro.inEach(observed, now, name, t.Name), Since: utc(s.Since),
				Asked: ro.asked(now, name, t.Name),
			})
			if !ro.private {
				ts.Servers[len(ts.Servers)-1].Metadata = hashed(s.Metadata)
			}
			if at := s.Address; at.IsValid() {
				ts.Servers[len(ts.Servers)-1].Address = at.String()
			}
		}
		if ro.Intents != nil {
			ts.Unlisted = ro.Intents.Unlisted(t.Name)
		}
		st.Tiers = append(st.Tiers, ts)
	}
	if ro.Intents != nil {
		ro.waysIn(st.Tiers)
	}
	return st
}

// waysIn says which ways are left into the tiers and servers that are quiesced.
func (ro *ReadOnly) waysIn(tiers []TierStatus) {
	var quiesced []tier.Target
	each := func(do func(tier.Target, *tier.Closure, *[]admission.WayIn)) {
		for n := range tiers {
			t := &tiers[n]
			do(tier.Target{Tier: t.Name}, t.Closure, &t.WaysIn)
			for m := range t.Servers {
				do(tier.Target{Tier: t.Name, Server: t.Servers[m].Name}, t.Servers[m].Closure, &t.Servers[m].WaysIn)
			}
		}
	}
	each(func(target tier.Target, c *tier.Closure, _ *[]admission.WayIn) {
		if c != nil {
			quiesced = append(quiesced, target)
		}
	})
	left := ro.Intents.Ways(quiesced...)
	each(func(target tier.Target, _ *tier.Closure, into *[]admission.WayIn) { *into = left[target] })
}

// utc is nil for the zero time.
func utc(at time.Time) *time.Time {
	if at.IsZero() {
		return nil
	}
	at = at.UTC()
	return &at
}

func instanceStatus(o observe.View, now time.Time) HAProxyStatus {
	s := HAProxyStatus{
		Instance: o.Instance, Readable: o.Readable(),
		Version: o.Info.Version.Raw, PID: o.Info.PID, UptimeS: int64(o.Info.Uptime.Seconds()),
		StateFile: o.StateFile, KeepsStateFile: o.KeepsFile, SeesOldWorkers: o.OldWorkers,
	}
	switch {
	case o.Err != nil:
		s.Error = kindOf(o.Err)
	case o.At.IsZero():
		s.Error = "not read yet"
	}
	if !o.At.IsZero() {
		s.AgeMS = now.Sub(o.At).Milliseconds()
	}
	return s
}

// kindOf says what kind of failure err is, with the system's word for it. Its
// full text names sockets and quotes HAProxy: that is for the log.
func kindOf(err error) string {
	text := "cannot be read"
	for _, kind := range []error{
		observe.ErrStale,
		runtimeapi.ErrUnreachable, runtimeapi.ErrTimeout, runtimeapi.ErrIncomplete, runtimeapi.ErrTooLarge,
		runtimeapi.ErrMalformed, runtimeapi.ErrPermission, runtimeapi.ErrRefused, runtimeapi.ErrNoSuchServer,
		runtimeapi.ErrOtherProcess, runtimeapi.ErrPanicked,
	} {
		if errors.Is(err, kind) {
			text = kind.Error()
			break
		}
	}
	var errno syscall.Errno
	if errors.As(err, &errno) {
		text += ": " + errno.Error()
	}
	return text
}

func adminStates(observed []observe.View, name string) map[string]string {
	states := map[string]string{}
	for _, o := range observed {
		switch shown, known := o.Servers[name]; {
		case !o.Readable(): // what was there once may be gone
			states[o.Instance] = "unknown"
		case known:
			states[o.Instance] = shown.Admin.String()
		default:
			states[o.Instance] = "no such server"
		}
	}
	return states
}

// inEach is what each HAProxy that can be read does with a server of a tier.
func (ro *ReadOnly) inEach(observed []observe.View, now time.Time, server, tier string) map[string]ShownStatus {
	var all map[string]ShownStatus
	for _, o := range observed {
		s, known := o.Servers[server]
		if !known || !o.Readable() {
			continue
		}
		if all == nil {
			all = map[string]ShownStatus{}
		}
		asking := ro.Polls.Asking(o, server, tier, now)
		all[o.Instance] = ShownStatus{
			Takes: s.Takes(), State: s.String(), Weight: s.Weight,
			AgentCheck: checkWord(s.Agent), HealthCheck: checkWord(s.Health),
			Asks: asking.Any(), Follows: ro.Polls.Follows(o, server, tier, now),
			Gated: ro.Polls.Asks(o, observe.Gate, tier, now), Heard: o.Down[server],
		}
	}
	return all
}

func checkWord(c runtimeapi.Check) string {
	switch {
	case c.Enabled:
		return "on"
	case c.Configured:
		return "disabled"
	}
	return "none"
}

// asked says when HAProxy's checks last asked about a server, by its own name or its
// tier's.
func (ro *ReadOnly) asked(now time.Time, names ...string) *AskedStatus {
	var a AskedStatus
	for _, one := range []struct {
		kind observe.Kind
		ms   **int64
	}{{observe.AgentCheck, &a.AgentCheckMS}, {observe.HealthCheck, &a.HealthCheckMS}} {
		for _, name := range names {
			at, _ := ro.Polls.Last(one.kind, name, now)
			if ago := milliseconds(now.Sub(at)); !at.IsZero() && (*one.ms == nil || **one.ms > *ago) {
				*one.ms = ago
			}
		}
	}
	return &a
}

func milliseconds(d time.Duration) *int64 {
	ms := d.Milliseconds()
	return &ms
}

// leftOf adds up what the HAProxies have of a quiesced server; nil where it is
// open, or no HAProxy is configured that could be asked.
func leftOf(observed []observe.View, name string, a tier.Answer) *LeftStatus {
	if !a.Quiesced || len(observed) == 0 {
		return nil
	}
	left := new(LeftStatus)
	for _, o := range observed {
		n, counted := o.InFlight[name]
		_, known := o.Servers[name]
		switch {
		case !o.Readable(), known && !counted:
			left.Unknown = append(left.Unknown, o.Instance)
		default:
			left.Streams, left.Queue = left.Streams+n.Streams, left.Queue+n.Queue
		}
	}
	return left
}

// some reports whether anything is known to be left.
func (l *LeftStatus) some() bool { return l != nil && l.Streams+l.Queue > 0 }
