package probe

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
)

// judgeAnswer returns what is wrong with the answer to an exercise, by the rules of
// Exercise.Answer.
func judgeAnswer(ctx context.Context, body []byte, field string) error {
	if len(bytes.Trim(body, " \t\r\n")) == 0 {
		return errEmpty
	}
	d, err := newDocument(ctx, body)
	if err != nil {
		return err
	}
	if token, err := d.Token(); err != nil || token != json.Delim('{') {
		return errMalformed
	}
	judge := d.answered
	if field != "" {
		judge = func() (bool, error) { return d.has(strings.Split(field, ".")) }
	}
	answered, err := judge()
	if err == nil && !answered {
		return errEmpty
	}
	return err
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

// answered reads the object just begun to its end, by the rules without a field.
func (d *document) answered() (bool, error) {
	holds, listed, chosen := false, false, false
	err := d.members(func(key string) error {
		switch key {
		case "choices":
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
	if listed {
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
	nothing holding = iota // null, or an empty string, list or object
	scalar                 // a number or a boolean
	more                   // a string, list or object that is not empty
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
		if v == "" {
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
