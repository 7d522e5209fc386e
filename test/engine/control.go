package engine

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"
)

const maxCommand = 64 << 10 // bytes

// command is the body of POST /control. Fields that are left out change nothing, but for
// endpoint: with it the endpoint's whole behaviour is replaced, so {"endpoint":"health"}
// alone makes it behave well again.
type command struct {
	Reset         bool      `json:"reset"` // first of all
	Model         *string   `json:"model"`
	WeightsDigest *string   `json:"weights_digest"`
	Loaded        *bool     `json:"loaded"`
	Early         *Early    `json:"early"`
	Endpoint      *Endpoint `json:"endpoint"`
	Delay         duration  `json:"delay"`
	Status        int       `json:"status"`
	Fault         Fault     `json:"fault"`
	Interval      duration  `json:"interval"`
	Size          int64     `json:"size"`
}

// duration is written as "250ms" in JSON.
type duration time.Duration

func (d *duration) UnmarshalText(text []byte) error {
	parsed, err := time.ParseDuration(string(text))
	*d = duration(parsed)
	return err
}

func (e *Engine) control(w http.ResponseWriter, r *http.Request) {
	var cmd command
	in := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxCommand))
	in.DisallowUnknownFields()
	if err := in.Decode(&cmd); err != nil {
		fail(w, http.StatusBadRequest, fmt.Sprintf("control: %v", err))
		return
	}
	if err := e.apply(cmd); err != nil {
		fail(w, http.StatusBadRequest, fmt.Sprintf("control: %v", err))
		return
	}
	e.showStats(w, r)
}

// apply checks before it changes: what can be refused comes first.
func (e *Engine) apply(cmd command) error {
	if cmd.Early != nil {
		switch *cmd.Early {
		case EarlyUnavailable, EarlyHealthy, EarlyEmpty:
		default:
			return fmt.Errorf("%w: early %q is none of %q", ErrBehaviour, *cmd.Early, []Early{EarlyUnavailable, EarlyHealthy, EarlyEmpty})
		}
	}
	behaviour := Behaviour{
		Delay: time.Duration(cmd.Delay), Status: cmd.Status, Fault: cmd.Fault,
		Interval: time.Duration(cmd.Interval), Size: cmd.Size,
	}
	if cmd.Endpoint == nil && behaviour != (Behaviour{}) {
		return fmt.Errorf("%w: endpoint is missing; it is one of %v", ErrBehaviour, Endpoints)
	}
	if cmd.Endpoint != nil {
		if err := behaviour.check(*cmd.Endpoint); err != nil {
			return err
		}
	}
	if cmd.Reset {
		e.Reset()
	}
	if cmd.Endpoint != nil {
		if err := e.Set(*cmd.Endpoint, behaviour); err != nil {
			return err
		}
	}
	if cmd.Model != nil {
		e.SetModel(*cmd.Model)
	}
	if cmd.WeightsDigest != nil {
		e.SetWeightsDigest(*cmd.WeightsDigest)
	}
	if cmd.Early != nil {
		e.SetEarly(*cmd.Early)
	}
	if cmd.Loaded != nil {
		e.SetLoaded(*cmd.Loaded)
	}
	return nil
}

func (e *Engine) showStats(w http.ResponseWriter, _ *http.Request) {
	reply(w, http.StatusOK, e.Stats())
}
