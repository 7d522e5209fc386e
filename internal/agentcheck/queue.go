package agentcheck

import "time"

// The two queues that a session is in.
const (
	ofAll = iota
	ofPeer
)

// patience is how long a session that has begun its name counts as a poll that may
// still end. One without LF needs Options.Silence; whoever sends a byte now and then
// to keep its slot needs more.
const patience = 100 * time.Millisecond

// tenure is how long a session may be silent before it counts as such: its byte
// may be there, and nobody has had the time to read it. In it a flood does not
// bring as many connections as one peer may have.
const tenure = 5 * time.Millisecond

type link struct{ older, newer *session }

// queue has sessions in the order of their coming. It is a value, and its links
// are in the sessions, so that a poll allocates nothing for it.
type queue struct {
	oldest, newest *session
	n              int
}

func (q *queue) push(which int, x *session) {
	x.links[which] = link{older: q.newest}
	if q.newest == nil {
		q.oldest = x
	} else {
		q.newest.links[which].newer = x
	}
	q.newest = x
	q.n++
}

func (q *queue) remove(which int, x *session) {
	at := x.links[which]
	if at.older == nil {
		q.oldest = at.newer
	} else {
		at.older.links[which].newer = at.newer
	}
	if at.newer == nil {
		q.newest = at.older
	} else {
		at.newer.links[which].older = at.older
	}
	x.links[which] = link{}
	q.n--
}

// dawdler is the oldest session that is silent, or has had more time than a poll
// needs; where there is none, the oldest. The queue must not be empty.
func (q *queue) dawdler(which int, now time.Time) *session {
	for x := q.oldest; x != nil; x = x.links[which].newer {
		age := now.Sub(x.began)
		if age < tenure {
			break // and so is whoever came later
		}
		if !x.heard.Load() || age > patience {
			return x
		}
	}
	return q.oldest
}
