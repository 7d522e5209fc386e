package probe

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
)

// judgeAnswer returns what is wrong with the answer to an exercise, by the rules of
// Exercise.Answer. models are the names that it may give as its model; none: any.
func judgeAnswer(ctx context.Context, body []byte, field string, models []string) error {
	if len(bytes.Trim(body, " \t\r\n")) == 0 {
		return errEmpty
	}
	d, err := newObject(ctx, body)
	if err != nil {
		return err
	}
	if err := d.vouches(models); err != nil {
		return err
	}
	if d, err = newObject(ctx, body); err != nil { // once more from its beginning
		return err
	}
	judge := func() (bool, error) { return d.answered(field == choicesField) }
	if field != "" && field != choicesField {
		judge = func() (bool, error) { return d.has(strings.Split(field, ".")) }
	}
	answered, err := judge()
	if err == nil && !answered {
		return errEmpty
	}
	return err
}

const choicesField = "choices"

// newObject is newDocument of an object, just begun.
func newObject(ctx context.Context, body []byte) (*document, error) {
	d, err := newDocument(ctx, body)
	if err != nil {
		return nil, err
	}
	if token, err := d.Token(); err != nil || token != json.Delim('{') {
		return nil, errMalformed
	}
	return d, nil
}

// vouches reads the object just begun to its end, and returns what it says against itself:
// that another model has answered, or that the engine gave the work up.
func (d *document) vouches(models []string) error {
	finish := func(key string) error {
		token, err := d.Token()
		if err != nil {
			return err
		}
		if said, _ := token.(string); key == "finish_reason" && slices.Contains(gaveUp, strings.ToLower(said)) {
			return errMalformed
		}
		return d.leave(token)
	}
	return d.members(func(key string) error {
		switch key {
		case "model":
			token, err := d.Token()
			if err != nil {
				return err
			}
			named, is := token.(string)
			if is && len(models) > 0 && !slices.ContainsFunc(models, func(m string) bool { return same(named, m) }) {
				return errMismatch
			}
			return d.leave(token)
		case choicesField:
			return d.objects(finish)
		}
		return finish(key)
	})
}

// gaveUp are the values of finish_reason for a completion that did not come to its end.
var gaveUp = []string{"error", "abort"}

// objects calls f for each key of the objects in the value that comes next, if it is a list,
// and passes over everything else.
func (d *document) objects(f func(key string) error) error {
	token, err := d.Token()
	if err != nil || token != json.Delim('[') {
		return errors.Join(err, d.leave(token))
	}
	for d.More() {
		token, err := d.Token()
		switch {
		case err != nil:
			return err
		case token == json.Delim('{'):
			err = d.members(f)
		default:
			err = d.leave(token)
		}
		if err != nil {
			return err
		}
	}
	_, err = d.Token()
	return err
}

// modelOf is the model that the body of a request asks for; "" where it asks for none.
func modelOf(ctx context.Context, body []byte) (model string) {
	d, err := newObject(ctx, body)
	if err != nil {
		return ""
	}
	_ = d.members(func(key string) error { // what is malformed asks for nothing
		token, err := d.Token()
		if err != nil {
			return err
		}
		if key == "model" {
			model, _ = token.(string)
		}
		return d.leave(token)
	})
	return model
}

// has reads the object just begun to its end, and says whether it holds something at this path.
func (d *document) has(path []string) (bool, error) {
	there := false
	err := d.members(func(key string) error {
		if !same(key, path[0]) {
			return d.skip()
		}
		if len(path) == 1 {
			h, err := d.holds()
			there = h != nothing
			return err
		}
		token, err := d.Token()
		if err != nil {
			return err
		}
		if token != json.Delim('{') {
			return d.leave(token)
		}
		there, err = d.has(path[1:])
		return err
	})
	return there, err
}

// answered reads the object just begun to its end, by the rules without a field, or of
// the field "choices".
func (d *document) answered(byChoices bool) (bool, error) {
	holds, listed, chosen := false, false, false
	err := d.members(func(key string) error {
		switch key {
		case choicesField:
			listed = true
			return d.list(func(key string) error {
				c, err := d.choice(key)
				chosen = chosen || c
				return err
			})
		case "object":
			token, err := d.Token()
			if err != nil {
				return err
			}
			if token == "error" {
				return errMalformed
			}
			return d.leave(token)
		}
		h, err := d.holds()
		if key == "error" && h != nothing {
			return errMalformed
		}
		holds = holds || h != nothing
		return err
	})
	if listed || byChoices {
		return chosen, err
	}
	return holds, err
}

// choice reads the value of one key of a choice, and says whether it is an answer.
func (d *document) choice(key string) (bool, error) {
	switch key {
	case "text":
		h, err := d.holds()
		return h == more, err
	case "message":
		said := false
		err := d.object(func(key string) error {
			switch key {
			// The reasoning of a model that thinks first has two names: DeepSeek's, and the one that
			// vLLM went over to.
			case "content", "tool_calls", "function_call", "reasoning_content", "reasoning", "refusal":
				h, err := d.holds()
				said = said || h == more
				return err
			}
			return d.skip()
		})
		return said, err
	}
	return false, d.skip()
}

// list calls f for each key of the objects in the list that comes next; null is an empty one.
func (d *document) list(f func(key string) error) error {
	token, err := d.Token()
	if err != nil || token == nil {
		return err
	}
	if token != json.Delim('[') {
		return errMalformed
	}
	for d.More() {
		if err := d.ctx.Err(); err != nil {
			return err
		}
		if err := d.object(f); err != nil {
			return err
		}
	}
	_, err = d.Token()
	return err
}

// object calls f for each key of the object that comes next; null is an empty one.
func (d *document) object(f func(key string) error) error {
	token, err := d.Token()
	if err != nil || token == nil {
		return err
	}
	if token != json.Delim('{') {
		return errMalformed
	}
	return d.members(f)
}

type holding int

const (
	nothing holding = iota // null, an empty or blank string, or an empty list or object
	scalar                 // a number or a boolean
	more                   // anything else
)

// holds reads the next value.
func (d *document) holds() (holding, error) {
	token, err := d.Token()
	if err != nil {
		return nothing, err
	}
	h := scalar
	switch v := token.(type) {
	case nil:
		h = nothing
	case string:
		h = more
		if strings.TrimSpace(v) == "" {
			h = nothing
		}
	case json.Delim:
		h = nothing
		if d.More() {
			h = more
		}
	}
	return h, d.leave(token)
}
