package httpapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strings"

	strict "github.com/go-json-experiment/json"

	"tier-agent/internal/admission"
	"tier-agent/internal/tier"
)

// maxCommand bounds a command's body, in bytes.
const maxCommand = 16 << 10

// Command is the body of every POST to the admin socket. A field that the verb
// does not know must be left out.
type Command struct {
	Tier              string `json:"tier,omitempty"`
	Server            Server `json:"server,omitempty"` // "backend/server"; for forget also "backend/server@address"
	All               bool   `json:"all,omitempty"`    // invalidate
	Reason            string `json:"reason,omitempty"` // quiesce and override
	For               string `json:"for,omitempty"`    // override
	End               bool   `json:"end,omitempty"`    // override
	Timeout           string `json:"timeout,omitempty"`
	IgnoreOldWorkers  bool   `json:"ignore_old_workers,omitempty"`
	AllowUnidentified bool   `json:"allow_unidentified,omitempty"`
	Partial           bool   `json:"partial,omitempty"`
	TakeHold          bool   `json:"take_hold,omitempty"`
	KeepHold          bool   `json:"keep_hold,omitempty"`
	SetAddress        bool   `json:"set_address,omitempty"`
	Wait              string `json:"wait,omitempty"` // readmit
	Confirm           string `json:"confirm,omitempty"`
	WhenReady         bool   `json:"when_ready,omitempty"` // readmit
	Rollback          bool   `json:"rollback,omitempty"`
	Force             bool   `json:"force,omitempty"`
	// AcceptQueueRelease is quiesce's.
	AcceptQueueRelease bool `json:"accept_queue_release,omitempty"`
	// AcceptClosing is reload's.
	AcceptClosing bool `json:"accept_closing,omitempty"`
	// Without names instances, with commas between them.
	Without string `json:"without,omitempty"`
}

// Server narrows a Command to one server. Where it is said at all it has to name
// one: a script whose variable is empty does not mean the whole tier.
type Server string

var errNoServer = errors.New(`"server" is empty: give "backend/server", or leave it out for the whole tier`)

// UnmarshalJSON refuses null and "".
func (s *Server) UnmarshalJSON(text []byte) error {
	if err := json.Unmarshal(text, (*string)(s)); err != nil {
		return err
	}
	if *s == "" || string(text) == "null" {
		return errNoServer
	}
	return nil
}

// instances are those that Without names.
func (c Command) instances() []string {
	if c.Without == "" {
		return nil
	}
	return strings.Split(c.Without, ",")
}

// readCommand reads the one JSON object that body holds.
func readCommand(body io.Reader) (Command, error) {
	var c Command
	text, err := io.ReadAll(body)
	if err != nil {
		return Command{}, explain(err)
	}
	// This one has the errors that can be explained, and the strict one sees more.
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&c); err != nil {
		return Command{}, explain(err)
	}
	if _, err := d.Token(); err != io.EOF {
		return Command{}, errors.New("there is more after the command's JSON object: send one command at a time")
	}
	if err := strict.Unmarshal(text, new(Command), strict.RejectUnknownMembers(true)); err != nil {
		return Command{}, fmt.Errorf("the command is not understood: %.200s: give each field once, and as it is written here", err)
	}
	return c, nil
}

// explain says in the command's words what was wrong with it.
func explain(err error) error {
	var wrong *json.UnmarshalTypeError
	var large *http.MaxBytesError
	var syntax *json.SyntaxError
	switch {
	case errors.Is(err, errNoServer):
		return errNoServer
	case errors.As(err, &large):
		return fmt.Errorf("the command is too large: it may have %d bytes", large.Limit)
	case errors.As(err, &wrong) && wrong.Field == "":
		return fmt.Errorf(`the command is a JSON %s: give an object, such as {"tier": "heavy"}`, wrong.Value)
	case errors.As(err, &wrong):
		right := "a string"
		if wrong.Type.Kind() == reflect.Bool {
			right = "true or false"
		}
		return fmt.Errorf(`%.40q is a JSON %s: give %s`, wrong.Field, wrong.Value, right)
	case errors.Is(err, io.EOF):
		return errors.New(`there is no command: give a JSON object, such as {"tier": "heavy"}`)
	case errors.Is(err, io.ErrUnexpectedEOF):
		return errors.New("the command's JSON object is cut short")
	case errors.As(err, &syntax):
		return fmt.Errorf("the command is no JSON: %w", err)
	}
	return fmt.Errorf("the command is not understood: %.200s", strings.TrimPrefix(err.Error(), "json: "))
}

func (c Command) target() tier.Target { return tier.Target{Tier: c.Tier, Server: string(c.Server)} }

// only reports an error where c says more than the verb understands, or not
// enough: a field that is silently ignored is one that somebody relies on.
func (c Command) only(v admission.Verb, understood Command) error {
	if err := c.beyond(v, understood); err != nil {
		return err
	}
	switch {
	case c.All && c.Tier != "":
		return errors.New(`"tier" and "all" exclude each other: give one of them`)
	case c.All && c.Server != "":
		return errors.New(`"server" and "all" exclude each other: give one of them`)
	case c.Tier == "" && v == admission.VerbInvalidate && !c.All:
		return errors.New(`"tier" is missing: give the name of a tier, or "all"`)
	case c.Tier == "" && v == admission.VerbForget && c.Server != "":
	case c.Tier == "" && v == admission.VerbForget:
		return errors.New(`"tier" and "server" are missing: give the name of a tier, or of a server, as status shows it`)
	case c.Tier == "" && !c.All:
		return errors.New(`"tier" is missing: give the name of a tier`)
	}
	return nil
}

// beyond reports an error where c says more than the verb understands.
func (c Command) beyond(v admission.Verb, understood Command) error {
	said, known := reflect.ValueOf(c), reflect.ValueOf(understood)
	for i := range said.NumField() {
		if !said.Field(i).Equal(known.Field(i)) {
			name, _, _ := strings.Cut(said.Type().Field(i).Tag.Get("json"), ",")
			return fmt.Errorf("%q is not for %s: leave it out", name, v)
		}
	}
	return nil
}
