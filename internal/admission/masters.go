package admission

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"tier-agent/internal/intent"
	"tier-agent/internal/observe"
	"tier-agent/internal/runtimeapi"
)

// A HAProxy may be taken over by a new master (`haproxy -W -x SOCKET -sf OLDMASTER`, as in
// an upgrade by hand). The workers of the one before go on with their streams, and neither
// socket shows them. They live no longer than their own master: it ends when the last of
// them has, and they end with it (measured on 2.6, 3.0 and 3.2, killed with -9).

// succession is what is known of one instance's masters.
type succession struct {
	worker  process         // when the master was asked last
	now     intent.Master   // zero: not known
	earlier []intent.Master // replaced by it, and not known to have ended
}

// maxEarlier bounds the masters of one instance that are remembered.
const maxEarlier = 16

// secondsApart is how far two readings of one master's start may be apart: both come from
// an uptime in whole seconds.
const secondsApart = 3

func sameMaster(a, b intent.Master) bool {
	return a.PID == b.PID && max(a.Started, b.Started)-min(a.Started, b.Started) <= secondsApart
}

// succeed looks, when another process answers than before, whether its master is another
// one, too. A look that fails is made again at the next turn.
func (c *Controller) succeed(ctx context.Context, i *runtimeapi.Instance, o observe.View) {
	c.noteWorker(o)
	c.mu.Lock()
	known := c.masters[i.Name()].worker == processOf(o.Info)
	c.mu.Unlock()
	if !known && i.HasMaster() {
		_, _ = c.askMaster(ctx, i, processOf(o.Info)) // whoever needs it asks again, and says so
	}
}

// askMaster asks which master an instance has, and notes it.
func (c *Controller) askMaster(ctx context.Context, i *runtimeapi.Instance, worker process) (intent.Master, error) {
	m, err := i.Master(ctx)
	if err != nil {
		return intent.Master{}, err
	}
	now := intent.Master{PID: m.PID, Started: time.Now().Add(-m.Uptime).Unix()}
	c.mu.Lock()
	s := c.masters[i.Name()]
	if s.now != (intent.Master{}) && !sameMaster(s.now, now) {
		c.o.Log.Warn("haproxy has another master: streams of workers of the one before cannot be seen", "haproxy", i.Name(), "master", now.PID, "was", s.now.PID)
		s.earlier = append(s.earlier, s.now)
		s.earlier = s.earlier[max(0, len(s.earlier)-maxEarlier):]
	}
	changed := !sameMaster(s.now, now)
	if s.worker = worker; changed {
		s.now = now // and otherwise as it was: readings do not creep
	}
	c.masters[i.Name()] = s
	c.mu.Unlock()
	if changed {
		c.keepMasters(i.Name(), s)
	}
	return s.now, nil
}

// noteMasters writes those that are known, by instance, into a record that has none.
func (c *Controller) noteMasters(rec *intent.Record) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if rec.Masters != nil || len(c.masters) == 0 {
		return
	}
	rec.Masters = map[string]intent.Master{}
	for instance, s := range c.masters {
		rec.Masters[instance] = s.now
	}
}

// hidden is a master that has been replaced, and may still have workers.
type hidden struct {
	instance string
	master   intent.Master
	lives    bool // seen to; otherwise it cannot be seen
	err      error
}

// unseen: nothing will ever tell whether it has ended.
func (h hidden) unseen() bool { return !h.lives && h.err == nil }

// String says what is not known.
func (h hidden) String() string {
	switch {
	case h.err != nil:
		return h.err.Error()
	case h.lives:
		return fmt.Sprintf("master %d of haproxy %s, which another one has replaced, still lives: its workers may have streams that nothing shows", h.master.PID, h.instance)
	}
	return fmt.Sprintf("haproxy %s has another master than before, %d: workers of that one may have streams that nothing shows, and whether it lives cannot be seen from here", h.instance, h.master.PID)
}

// hidden looks for a master before the one that answers now which has not ended, since
// a tier-agent first saw the instance or since the target was quiesced.
func (r *run) hidden(ctx context.Context) *hidden {
	record, _ := r.intents.get(r.Target)
	for _, i := range r.set.Instances() {
		if !i.HasMaster() {
			continue
		}
		now, err := r.askMaster(ctx, i, process{})
		if err != nil {
			return &hidden{instance: i.Name(), err: err}
		}
		if limit, set := r.o.HardStopAfter[i.Name()]; set && time.Since(time.Unix(now.Started, 0)) > limit {
			continue
		}
		r.mu.Lock()
		earlier := slices.Clone(r.masters[i.Name()].earlier)
		r.mu.Unlock()
		if then, known := record.Masters[i.Name()]; known && !sameMaster(then, now) {
			earlier = append(earlier, then)
		}
		for _, m := range earlier {
			switch lives, known := r.o.Lives(m, now); {
			case !known:
				return &hidden{instance: i.Name(), master: m}
			case lives:
				return &hidden{instance: i.Name(), master: m, lives: true}
			}
		}
	}
	return nil
}

// lives reports whether a master's process is there, judged by this machine's /proc.
// known is false where that does not show the master that answers now, as in another
// container: then it shows nothing of the one before either.
func lives(m, now intent.Master) (lives, known bool) {
	if !isHAProxy(now) {
		return false, false
	}
	return isHAProxy(m), true
}

// loading is how long after its start a HAProxy may have begun to count its uptime.
const loading = 60

// isHAProxy reports whether the process of that id is a HAProxy of that start.
func isHAProxy(m intent.Master) bool {
	if m.PID == os.Getpid() {
		return false
	}
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(m.PID), "stat"))
	boot := bootTime()
	if err != nil || boot == 0 {
		return false
	}
	// "PID (NAME) STATE ...", the start in hundredths of a second since the boot in
	// column 22; a name may hold anything.
	head, rest, _ := strings.Cut(string(text), "(")
	end := strings.LastIndexByte(rest, ')')
	if head == "" || end < 0 {
		return false
	}
	fields := strings.Fields(rest[end+1:])
	if len(fields) < 20 || fields[0] == "Z" || !strings.HasPrefix(rest, "haproxy") {
		return false
	}
	ticks, err := strconv.ParseInt(fields[19], 10, 64)
	started := boot + ticks/100
	return err == nil && started <= m.Started+secondsApart && started >= m.Started-loading
}

// bootTime is in seconds since 1970, 0 where it is not known.
func bootTime() int64 {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, "btime "); ok {
			boot, _ := strconv.ParseInt(strings.TrimSpace(value), 10, 64)
			return boot
		}
	}
	return 0
}
