package admission

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"tier-agent/internal/tier"
)

// queueLook bounds one look at the queues: a HAProxy that hangs must not hold up
// the closing of the others.
const queueLook = 250 * time.Millisecond

// hashes are the balance algorithms with which requests queue on the server
// itself, in the words of `show stat`. It says nothing at level user: then they
// may.
var hashes = []string{"", "source", "uri", "url_param", "hdr", "rdp-cookie", "hash"}

// queue is one that stands on a server of the target itself, in one HAProxy.
type queue struct {
	instance, text string
	loose          bool // a drain may let it loose
}

// queues waits a little for the queues that stand on the target's servers to empty
// by themselves, with new requests paused: where HAProxy asks about each, and the target is the
// tier that it asks about, none comes in meanwhile; otherwise it goes on sending, to
// servers that are up. Then it ends the pause and refuses where the quiesce would let a
// queue loose on its server: from 3.0 on, and with `option redispatch`, which no
// command shows, HAProxy releases the whole queue of a server that is drained or
// goes down onto that server at once, whatever its maxconn (measured on 3.0 and
// 3.2). 2.6 moves it to another server, or answers 503 where there is none.
func (r *run) queues(ctx context.Context, pause *tier.Pause) *Result {
	deadline := time.NewTimer(r.o.Queue)
	defer deadline.Stop()
	r.waits("the queues on its servers to empty")
	var queued []queue
	for !pause.Settled() { // what its servers hear then cannot be taken back
		if queued = r.queued(ctx, queued); queued == nil {
			return nil
		}
		select {
		case <-time.After(r.o.Poll):
			continue
		case <-deadline.C:
		}
		if !slices.ContainsFunc(queued, func(q queue) bool { return q.loose }) {
			return nil
		}
		pause.Release()
		left := "is open again, as it was found"
		if closed, _ := r.o.Model.Closed(r.Target); closed != nil {
			left = "is left to another quiesce of it, by " + closed.Who
		}
		var found []string
		for _, q := range queued {
			found = append(found, q.text)
		}
		return keep(r.refuse(CodeQueue, "%s %s: draining it may release requests that queue on a server onto it at once, its maxconn ignored (%s); that is so on this HAProxy with `option redispatch`. Wait for a quieter moment, or say --accept-queue-release", r.Target, left, strings.Join(found, "; ")))
	}
	return nil
}

// queued looks at the queues. A HAProxy that cannot be read keeps those that it
// showed last; one that has shown none is left to the closing to complain about.
func (r *run) queued(ctx context.Context, last []queue) (now []queue) {
	ctx, cancel := context.WithTimeout(ctx, queueLook)
	defer cancel()
	for _, one := range r.loads(ctx) {
		if one.Err != nil {
			for _, q := range last {
				if q.instance == one.Instance {
					now = append(now, q)
				}
			}
			continue
		}
		for _, s := range r.servers {
			load := one.Value[s.Backend]
			server, _ := load.Find(s.Name)
			if server.Queue > 0 && server.MaxConn > 0 && slices.Contains(hashes, load.Algo) {
				now = append(now, queue{
					instance: one.Instance, loose: load.Info.Version.AtLeast(3, 0, 0),
					text: fmt.Sprintf("%s has %d running and %d queued on haproxy %s, maxconn %d", s.FullName(), server.Sessions, server.Queue, one.Instance, server.MaxConn),
				})
			}
		}
	}
	return now
}
