package probe

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Bounds of Result.Metadata: required fields, and bytes of a name or value.
const (
	maxFields = 64
	maxText   = 256
)

// wanted is one key on the way to fields, and what is wanted of the field that ends here.
type wanted struct {
	field   string // whole path
	value   any    // nil: none is required
	collect bool
	below   map[string]*wanted
}

// sighting is what a document was seen to hold.
type sighting struct {
	doc       *document
	matched   map[string]any // required fields, each with the wanted value that it equals
	collected map[string]string
	tooLong   bool // a field to collect
}

// readMetadata returns Result.Metadata from the object in body if that has every field. A required
// one that is missing, of another type, or below something that is no object is a mismatch; a
// document that is no object, or an object on the way that has a key twice, is malformed.
func readMetadata(ctx context.Context, body []byte, want Metadata) (map[string]string, error) {
	d, err := newDocument(ctx, body)
	if err != nil {
		return nil, err
	}
	if token, err := d.Token(); err != nil || token != json.Delim('{') {
		return nil, errMalformed
	}
	root, fields := tree(want)
	s := &sighting{doc: d, matched: map[string]any{}, collected: map[string]string{}}
	switch err := s.of(root); {
	case err != nil:
		return nil, err
	case len(s.matched) < len(want.Fields):
		return nil, errMismatch
	case s.tooLong:
		return nil, errOversized
	case len(s.collected) < fields, fields > MaxCollect:
		return nil, errMissing
	}
	seen := rendered(s.matched)
	maps.Copy(seen, s.collected)
	return seen, nil
}

// of reads the object just begun to its end.
func (s *sighting) of(at *wanted) error {
	return s.doc.members(func(key string) error {
		next := at.below[key]
		if next == nil || !same(key, key) {
			return s.doc.skip()
		}
		token, err := s.doc.Token()
		if err != nil {
			return err
		}
		if token == json.Delim('{') && next.below != nil {
			return s.of(next)
		}
		if value, ok := oneOf(token, next.value); ok {
			s.matched[next.field] = value
		}
		if next.collect {
			s.collect(next.field, token)
		}
		return s.doc.leave(token)
	})
}

func (s *sighting) collect(field string, token json.Token) {
	switch value, ok := canonical(token); {
	case len(value) > maxText:
		s.tooLong = true
	case ok:
		s.collected[field] = value
	}
}

// tree also counts the fields to collect.
func tree(want Metadata) (root *wanted, collect int) {
	root = &wanted{}
	for field, value := range want.Fields {
		root.at(field).value = value
	}
	for _, field := range want.Collect {
		at := root.at(field)
		if !at.collect {
			collect++
		}
		at.collect = true
	}
	return root, collect
}

func (w *wanted) at(field string) *wanted {
	for key := range strings.SplitSeq(field, ".") {
		if w.below == nil {
			w.below = map[string]*wanted{}
		}
		if w.below[key] == nil {
			w.below[key] = &wanted{}
		}
		w = w.below[key]
	}
	w.field = field
	return w
}

// oneOf is equal for one wanted value or a list of them, and returns the one.
func oneOf(token json.Token, want any) (any, bool) {
	list, ok := want.([]any)
	if !ok {
		return want, equal(token, want)
	}
	i := slices.IndexFunc(list, func(w any) bool { return equal(token, w) })
	if i < 0 {
		return nil, false
	}
	return list[i], true
}

// equal compares a scalar of the document with a wanted value; types do not mix.
func equal(token json.Token, want any) bool {
	switch got := token.(type) {
	case string:
		w, ok := want.(string)
		return ok && same(got, w)
	case bool:
		w, ok := want.(bool)
		return ok && got == w
	case json.Number:
		if _, ok := want.(string); ok {
			return false
		}
		g, ok := decimalOf(got.String())
		w, wok := decimalOf(text(want))
		return ok && wok && g == w
	}
	return false
}

// canonical writes a scalar so that two texts are the same exactly when equal would say so of
// what they were written from. It is not ok where that cannot be: nothing equals half a surrogate
// pair, and an empty string names nothing, on however many servers it is the same.
func canonical(token json.Token) (text string, ok bool) {
	switch v := token.(type) {
	case string:
		ambiguous := func(c rune) bool { return !strconv.IsPrint(c) }
		if strings.HasPrefix(v, `"`) || json.Valid([]byte(v)) || strings.ContainsFunc(v, ambiguous) {
			return strconv.Quote(v), same(v, v)
		}
		return v, v != "" && same(v, v)
	case bool:
		return strconv.FormatBool(v), true
	case json.Number:
		d, ok := decimalOf(v.String())
		return d.String(), ok
	}
	return "", false
}

// text writes a wanted value, "" for a type that is not one of the five.
func text(want any) string {
	switch w := want.(type) {
	case string:
		return w
	case bool:
		return strconv.FormatBool(w)
	case int64:
		return strconv.FormatInt(w, 10)
	case uint64:
		return strconv.FormatUint(w, 10)
	case float64:
		return strconv.FormatFloat(w, 'g', -1, 64)
	}
	return ""
}

// rendered writes the required fields from what was wanted, not from what the server sent.
func rendered(fields map[string]any) map[string]string {
	seen := make(map[string]string, min(len(fields), maxFields))
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		if len(seen) == maxFields {
			break
		}
		seen[cut(name)] = cut(text(fields[name]))
	}
	return seen
}

// cut shortens without leaving half a character.
func cut(s string) string {
	if len(s) <= maxText {
		return s
	}
	return strings.ToValidUTF8(s[:maxText], "")
}
