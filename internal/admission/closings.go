package admission

import "sync"

// closings counts the closings of ours, by place: what one transition finds
// closed, another may have closed since the first one read it.
type closings struct {
	mu sync.Mutex // protects of
	of map[place]closingCount
}

type closingCount struct {
	begun   uint64 // ever
	running int
}

// mark is how the places stand now.
func (c *closings) mark(places []place) map[place]closingCount {
	c.mu.Lock()
	defer c.mu.Unlock()
	marks := make(map[place]closingCount, len(places))
	for _, at := range places {
		marks[at] = c.of[at]
	}
	return marks
}

func (c *closings) begin(at place) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.of[at]
	c.of[at] = closingCount{n.begun + 1, n.running + 1}
}

func (c *closings) end(at place) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.of[at]
	c.of[at] = closingCount{n.begun, n.running - 1}
}

// aloneSince reports whether the caller's closing of a place is the only one
// since the mark, and none ran then.
func (c *closings) aloneSince(mark closingCount, at place) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return mark.running == 0 && c.of[at].begun == mark.begun+1
}
