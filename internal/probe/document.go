package probe

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"unicode/utf8"
)

// document reads a JSON answer token by token. Decoding into structs or maps would not do:
// encoding/json matches the keys of structs in any case, and takes the last of two equal keys
// where another reader takes the first.
type document struct {
	*json.Decoder
	ctx     context.Context // looked at once a value: a megabyte made for it takes a tenth of a second
	skipped json.RawMessage // what skip read last; kept for its memory
}

// newDocument refuses everything that is not exactly one JSON value in UTF-8, which also bounds
// the nesting (10000 levels in encoding/json).
func newDocument(ctx context.Context, body []byte) (*document, error) {
	if !utf8.Valid(body) || !json.Valid(body) {
		return nil, errMalformed
	}
	d := &document{ctx: ctx, Decoder: json.NewDecoder(bytes.NewReader(body))}
	d.UseNumber()
	return d, nil
}

// members calls f for each key of the object just begun; f has to read the value. A key that
// comes twice makes the document malformed, since it says two things.
func (d *document) members(f func(key string) error) error {
	var first string
	var seen map[string]struct{}
	for n := 0; d.More(); n++ {
		if err := d.ctx.Err(); err != nil {
			return err
		}
		token, err := d.Token()
		if err != nil {
			return err
		}
		key, _ := token.(string)
		switch n {
		case 0: // the set is worth making only for a second key
			first = key
		case 1:
			seen = map[string]struct{}{first: {}}
			fallthrough
		default:
			if _, twice := seen[key]; twice {
				return errMalformed
			}
			seen[key] = struct{}{}
		}
		if err := f(key); err != nil {
			return err
		}
	}
	_, err := d.Token()
	return err
}

// skip reads the next value and forgets it.
func (d *document) skip() error { return d.Decode(&d.skipped) }

// leave reads what is left of the object or array that token has begun, if it began one.
func (d *document) leave(token json.Token) error {
	switch token {
	case json.Delim('{'):
		return d.members(func(string) error { return d.skip() })
	case json.Delim('['):
		for d.More() {
			if err := d.skip(); err != nil {
				return err
			}
		}
		_, err := d.Token()
		return err
	}
	return nil
}

// same is equality of strings. The replacement character equals nothing: the decoder also puts
// it where the document has half of a surrogate pair.
func same(got, want string) bool {
	return got == want && !strings.ContainsRune(got, utf8.RuneError)
}
