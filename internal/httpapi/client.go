package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"syscall"
	"time"

	"tier-agent/internal/admission"
	"tier-agent/internal/owner"
	"tier-agent/internal/patient"
)

var (
	// ErrBadCommand: tier-agent could not read the command; nothing was done.
	ErrBadCommand = errors.New("not a command")
	// ErrGone: the connection ended in the middle of the answer. What the command
	// had begun is unknown.
	ErrGone = errors.New("tier-agent went away before it had answered")
	// ErrUnread: the connection was closed before the command was accepted, and
	// tier-agent begins nothing before it has said so.
	ErrUnread = errors.New("tier-agent closed the connection unread: nothing was begun")
	// ErrNotAccepted comes beside the context's error, where that ended before
	// tier-agent had accepted the command.
	ErrNotAccepted = errors.New("tier-agent had not accepted the command")
)

// lateAfter is how long tier-agent may take to accept a command before the
// caller is told that it waits. A tier-agent in its first round of probes, or
// one that is stopped, takes longer; to give up is the caller's decision.
const lateAfter = 10 * time.Second

// Client talks to a tier-agent through its admin socket.
type Client struct {
	// Late, if set, is called once for a command that is not accepted in 10 s. The
	// command is still waited for.
	Late func()

	path string
	http *http.Client
}

// NewClient returns a client of the socket at path.
func NewClient(path string) *Client {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return patient.Dial(ctx, "unix", path)
	}
	return &Client{path: path, http: &http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}}
}

// Status asks for the whole picture.
func (c *Client) Status(ctx context.Context) (Status, error) {
	var st Status
	res, err := c.send(ctx, http.MethodGet, "status", nil)
	if err != nil {
		return st, err
	}
	defer res.Body.Close()
	if err := json.NewDecoder(res.Body).Decode(&st); err != nil {
		return Status{}, c.explain(err)
	}
	return st, nil
}

// Run sends a command and returns its result; progress is told what comes
// before that, and may be nil. Without a result the error is ErrBadCommand,
// ErrUnread, ErrGone, ctx's own, or says why nothing was sent.
func (c *Client) Run(ctx context.Context, verb admission.Verb, cmd Command, progress func(admission.Progress)) (admission.Result, error) {
	e, err := c.run(ctx, verb, cmd, progress)
	switch {
	case err != nil:
		return admission.Result{}, err
	case e.Result == nil:
		return admission.Result{}, c.explain(errors.New("a command that is answered with the result of something else"))
	}
	return *e.Result, nil
}

// run sends a command and returns the event that ends its answer well.
func (c *Client) run(ctx context.Context, verb admission.Verb, cmd Command, progress func(admission.Progress)) (Event, error) {
	body, err := json.Marshal(cmd)
	if err != nil {
		return Event{}, err
	}
	inTime := c.late()
	res, err := c.send(ctx, http.MethodPost, string(verb), body)
	inTime()
	if err != nil && ctx.Err() != nil {
		err = fmt.Errorf("%w: %w", ErrNotAccepted, err)
	}
	if err != nil {
		return Event{}, err
	}
	defer res.Body.Close()
	for d := json.NewDecoder(res.Body); ; {
		var e Event
		if err := d.Decode(&e); err != nil {
			return Event{}, c.explain(err)
		}
		switch {
		case e.Error != "":
			return Event{}, errors.New(e.Error)
		case e.Result != nil, e.Reload != nil:
			return e, nil
		case e.Progress != nil && progress != nil:
			progress(*e.Progress)
		}
	}
}

// late calls Late, unless the function that it returns is called in time. After
// that Late is neither called nor running.
func (c *Client) late() (inTime func()) {
	if c.Late == nil {
		return func() {}
	}
	told := make(chan struct{})
	timer := time.AfterFunc(lateAfter, func() {
		defer close(told)
		c.Late()
	})
	return func() {
		if !timer.Stop() {
			<-told
		}
	}
}

func (c *Client) send(ctx context.Context, method, what string, body []byte) (*http.Response, error) {
	// The host is never looked up: every connection goes to the socket.
	req, err := http.NewRequestWithContext(ctx, method, "http://tier-agent/api/v1/"+what, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	res, err := c.http.Do(req)
	if err != nil {
		if err = c.explain(err); errors.Is(err, ErrGone) {
			err = fmt.Errorf("at %s: %w", c.path, ErrUnread)
		}
		return nil, err
	}
	if res.StatusCode == http.StatusOK {
		return res, nil
	}
	defer res.Body.Close()
	var said Event
	if json.NewDecoder(io.LimitReader(res.Body, maxCommand)).Decode(&said) != nil || said.Error == "" {
		said.Error = "tier-agent answered " + res.Status
	}
	if res.StatusCode == http.StatusBadRequest {
		return nil, fmt.Errorf("%w: %s", ErrBadCommand, said.Error)
	}
	return nil, errors.New(said.Error)
}

// explain turns what net/http says into what an operator can act on.
func (c *Client) explain(err error) error {
	var outer *url.Error // names an address that nobody asked for
	if errors.As(err, &outer) {
		err = outer.Err
	}
	var dial *net.OpError
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("there is no admin socket at %s: is tier-agent running, and is this the path in its configuration?", c.path)
	case errors.Is(err, syscall.ECONNREFUSED) && noSocket(c.path):
		return fmt.Errorf("%s is no socket: is this the path in tier-agent's configuration?", c.path)
	case errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("nobody answers at %s: tier-agent is not running", c.path)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("the admin socket %s may not be opened by this user%s: its group is listen.admin.group in tier-agent's configuration", c.path, owner.Hint(c.path))
	case errors.Is(err, syscall.EINVAL):
		return fmt.Errorf("%s cannot be a socket: give an absolute path of at most 107 bytes", c.path)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF),
		errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return fmt.Errorf("at %s: %w", c.path, ErrGone)
	case errors.As(err, &dial) && dial.Op == "dial":
		return fmt.Errorf("the admin socket %s cannot be opened: %w", c.path, dial.Err)
	}
	return fmt.Errorf("what answers at %s does not speak as tier-agent does: %w", c.path, err)
}

// noSocket says whether there is something else at path.
func noSocket(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().Type() != fs.ModeSocket
}
