package httpapi

import (
	"context"
	"errors"
	"time"

	"tier-agent/internal/admission"
)

// VerbReload reads the configuration again. It is no transition.
const VerbReload admission.Verb = "reload"

// The codes of a Reload.
const (
	CodeReloaded      = "ok"
	CodeInvalidConfig = "invalid_config" // Problems says what is wrong, and where
	CodeUnreadable    = "unreadable_config"
	CodeNeedsRestart  = "needs_restart" // what has changed is read at a start alone
	CodeReloadBusy    = "busy"          // a tier that would change has a transition under way
	CodeWouldClose    = "would_close"   // Closing says what serves now and would not
)

// Reloader reads the configuration again, and carries it out whole or not at all.
type Reloader interface {
	Reload(ctx context.Context, who string, acceptClosing bool) Reload
}

// Reload is what came of it. Where Outcome is admission.Refused nothing has
// changed.
type Reload struct {
	Outcome admission.Outcome `json:"outcome"` // done or refused
	Code    string            `json:"code"`
	Message string            `json:"message"`
	By      string            `json:"by,omitempty"`
	// Names of tiers, in the order of the configuration that has them.
	Added   []string `json:"added,omitempty"`
	Removed []string `json:"removed,omitempty"`
	Changed []string `json:"changed,omitempty"`
	// Unproven: not every server that is new or changed has been probed yet.
	Unproven bool      `json:"unproven,omitempty"`
	Problems []Problem `json:"problems,omitempty"`
	// Closing are the servers and tiers that served and that it has closed, or would, each
	// with the reason: until they are probed again, or for good.
	Closing []string `json:"closing,omitempty"`
	Seconds float64  `json:"seconds"`
}

// Problem is one thing that is wrong in the file.
type Problem struct {
	File    string `json:"file"`
	Line    int    `json:"line"`
	Column  int    `json:"column"`
	Path    string `json:"path,omitempty"` // of the key
	Message string `json:"message"`
	Remedy  string `json:"remedy"`
}

func (a *Admin) reload(ctx context.Context, c Command, _ func(Event)) (func() Event, error) {
	if err := c.beyond(VerbReload, Command{AcceptClosing: c.AcceptClosing}); err != nil {
		return nil, err
	}
	return func() Event {
		r := a.Reloader.Reload(ctx, who(ctx), c.AcceptClosing)
		return Event{Reload: &r}
	}, nil
}

// Reload asks for a reload. Its errors are Run's.
func (c *Client) Reload(ctx context.Context, acceptClosing bool) (Reload, error) {
	e, err := c.run(ctx, VerbReload, Command{AcceptClosing: acceptClosing}, nil)
	switch {
	case err != nil:
		return Reload{}, err
	case e.Reload == nil:
		return Reload{}, c.explain(errors.New("a reload that is answered with the result of something else"))
	}
	return *e.Reload, nil
}

// Reloaded notes whether the last reload was carried out, and if so when. A start
// counts as one.
func (m *Metrics) Reloaded(done bool, now time.Time) {
	m.reloadDone.Set(one(done))
	if done {
		m.reloadTime.Set(float64(now.UnixMilli()) / 1000)
	}
}
