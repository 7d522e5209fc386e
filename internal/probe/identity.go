package probe

import (
	"context"
	"encoding/json"
)

// matchIdentity says whether the list in body has an object with this id. The list is the
// document itself or the "data" of the OpenAI style; anything else, and a list that holds
// something other than objects, is malformed. An id that is no string equals nothing.
func matchIdentity(ctx context.Context, body []byte, id string) (bool, error) {
	d, err := newDocument(ctx, body)
	if err != nil {
		return false, err
	}
	token, err := d.Token()
	if err != nil {
		return false, err
	}
	switch token {
	case json.Delim('['):
		return d.entries(id)
	case json.Delim('{'):
		found, listed := false, false
		err := d.members(func(key string) (err error) {
			if key != "data" {
				return d.skip()
			}
			if token, err := d.Token(); err != nil || token != json.Delim('[') {
				return errMalformed
			}
			listed = true
			found, err = d.entries(id)
			return err
		})
		if err == nil && !listed {
			err = errMalformed
		}
		return found && err == nil, err
	}
	return false, errMalformed
}

// entries reads the array just begun to its end, past a match too: what follows may be malformed.
func (d *document) entries(id string) (bool, error) {
	found := false
	for d.More() {
		if err := d.ctx.Err(); err != nil {
			return false, err
		}
		if token, err := d.Token(); err != nil || token != json.Delim('{') {
			return false, errMalformed
		}
		err := d.members(func(key string) error {
			if key != "id" {
				return d.skip()
			}
			token, err := d.Token()
			if err != nil {
				return err
			}
			if got, ok := token.(string); ok && same(got, id) {
				found = true
			}
			return d.leave(token)
		})
		if err != nil {
			return false, err
		}
	}
	_, err := d.Token()
	return found && err == nil, err
}
