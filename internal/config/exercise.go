package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"
)

// MaxExerciseBody is the longest Exercise.Body, in bytes of JSON.
const MaxExerciseBody = 16 << 10

// Exercise is a request that makes a server do what it is for, such as one short
// completion, as a probe of its own.
type Exercise struct {
	Path string // default /v1/chat/completions
	// Body is one JSON object that does not ask for a stream, which an exercise
	// does not read. It is never shown.
	Body     []byte
	Interval time.Duration // between the starts of two, 5s to 24h, default 1m
	Timeout  time.Duration // for one, 10ms to 5m, default 10s
	// MaxAge is as Probe.MaxAge, for evidence of this kind, up to 168h, default 3 x
	// Interval + Timeout.
	MaxAge time.Duration
	// Answer is a field of the answer, as in Metadata, that must hold something;
	// empty for what probe.Exercise takes for an answer without it.
	Answer               string
	StatusMin, StatusMax int // as in Health, within 200 to 299, which is the default
	Token                *Secret
}

func (d *decoder) exercise(v value) *Exercise {
	x := &Exercise{
		Path: "/v1/chat/completions", Interval: time.Minute, Timeout: 10 * time.Second, StatusMin: 200, StatusMax: 299,
	}
	d.tokened(v, &x.Token, []field{
		{key: "path", decode: func(v value) {
			x.Path = d.path(v)
		}},
		{key: "body", required: true, remedy: "give the request to send, as a mapping or as JSON text in quotes", decode: func(v value) {
			x.Body = d.body(v)
		}},
		{key: "interval", decode: func(v value) {
			x.Interval, _ = d.duration(v, 5*time.Second, 24*time.Hour)
		}},
		{key: "timeout", decode: func(v value) {
			x.Timeout, _ = d.duration(v, 10*time.Millisecond, 5*time.Minute)
		}},
		{key: "max_age", decode: func(v value) {
			x.MaxAge, _ = d.duration(v, time.Millisecond, 168*time.Hour)
		}},
		{key: "answer", decode: func(v value) {
			if s, ok := d.text(v); ok && d.fieldName(s, v.place) {
				x.Answer = s
			}
		}},
		{key: "status", decode: func(v value) {
			x.StatusMin, x.StatusMax = d.status(v)
			// Whatever a body says with another status, the engine has not done its work.
			if d.sound(v.path) && (x.StatusMin < 200 || x.StatusMax > 299) {
				d.report(v.place, "a status other than 2xx is no answer to an exercise", "write one status or a range within 200-299, such as 200")
			}
		}},
	})
	at := child(v.path, "max_age")
	switch _, given := d.given[at]; {
	case !given:
		x.MaxAge = 3*x.Interval + x.Timeout
	case x.MaxAge <= x.Interval+x.Timeout && d.sound(at, child(v.path, "interval"), child(v.path, "timeout")):
		least := units(x.Interval + x.Timeout)
		d.add(d.locate(at), fmt.Sprintf("max_age %s is not more than interval %s + timeout %s", units(x.MaxAge), units(x.Interval), units(x.Timeout)),
			fmt.Sprintf("give a max_age above %s, or a shorter interval or timeout", least))
	}
	return x
}

// body decodes a request, which is a mapping or the JSON text of one. Its problems
// repeat none of it: it may be a prompt.
func (d *decoder) body(v value) []byte {
	remedy := fmt.Sprintf("give one JSON object of at most %d bytes, such as a chat of one message with max_tokens 16", MaxExerciseBody)
	var body []byte
	if text, ok := characters(v); ok {
		body = []byte(text)
	} else if _, ok := collection(v.node).(*ast.MappingNode); ok {
		b := &bodyText{decoder: d}
		b.value(v)
		body = b.out.Bytes()
	} else {
		d.wrongType(v, "a mapping or JSON text")
	}
	if !d.sound(v.path) || body == nil {
		return nil
	}
	if len(body) > MaxExerciseBody {
		d.report(v.place, "the request is too long", remedy)
		return nil
	}
	switch streams, err := inspect(body); {
	case err != nil:
		d.report(v.place, err.Error(), remedy)
	case streams:
		d.report(v.place, "the request asks for a stream", `leave "stream" out, or make it false: the answer has to come whole`)
	}
	return body
}

var (
	errNoObject = errors.New("the request is not one JSON object")
	errTwice    = errors.New("the request has a key twice")
)

// inspect checks that body is one JSON object, and says whether it asks for a
// stream. Of a key that is there twice some engines take the first value.
func inspect(body []byte) (streams bool, err error) {
	if !json.Valid(body) {
		return false, errNoObject
	}
	dec := json.NewDecoder(bytes.NewReader(body))
	if open, err := dec.Token(); err != nil || open != json.Delim('{') {
		return false, errNoObject
	}
	seen := map[string]bool{}
	for dec.More() {
		key, err := dec.Token()
		if err != nil {
			return false, errNoObject
		}
		var inner json.RawMessage
		if err := dec.Decode(&inner); err != nil {
			return false, errNoObject
		}
		name, _ := key.(string)
		if seen[name] {
			return false, errTwice
		}
		seen[name] = true
		if name == "stream" && string(inner) != "false" && string(inner) != "null" {
			streams = true
		}
	}
	return streams, nil
}

// bodyText writes a mapping of the file as JSON, in the file's order.
type bodyText struct {
	*decoder
	out bytes.Buffer
}

func (b *bodyText) value(v value) {
	switch n := collection(v.node).(type) {
	case *ast.MappingNode:
		b.object(v, n)
	case *ast.SequenceNode:
		b.list(v)
	case *ast.NullNode:
		b.json(nil)
	case *ast.BoolNode:
		b.json(n.Value)
	case *ast.IntegerNode:
		if !decimal(n) {
			b.ambiguous(v)
			return
		}
		b.json(n.Value)
	case *ast.FloatNode:
		if math.IsInf(n.Value, 0) || math.IsNaN(n.Value) || strings.Contains(n.Token.Value, "_") {
			b.ambiguous(v)
			return
		}
		b.json(n.Value)
	case *ast.StringNode:
		if n.Token.Type == token.StringType && looksTyped(n.Value) {
			b.ambiguous(v)
			return
		}
		b.json(n.Value)
	case *ast.LiteralNode:
		b.json(n.Value.Value)
	default:
		b.wrongType(v, "what JSON can hold")
	}
}

func (b *bodyText) object(v value, n *ast.MappingNode) {
	entries, ok := b.entries(v, func(string, place) bool { return true })
	if !ok {
		return
	}
	b.out.WriteByte('{')
	first := true
	for _, pair := range n.Values {
		key, ok := pair.Key.(*ast.StringNode)
		if !ok {
			continue // entries has told
		}
		entry, ok := entries[key.Value]
		if !ok {
			continue
		}
		delete(entries, key.Value) // a second one has been reported
		if !first {
			b.out.WriteByte(',')
		}
		first = false
		b.json(key.Value)
		b.out.WriteByte(':')
		b.inner(v, entry)
	}
	b.out.WriteByte('}')
}

func (b *bodyText) list(v value) {
	b.out.WriteByte('[')
	b.sequence(v, func(i int, item value) {
		if i > 0 {
			b.out.WriteByte(',')
		}
		b.inner(v, item)
	})
	b.out.WriteByte(']')
}

// inner writes a value of v, and lets v know of what is wrong in it.
func (b *bodyText) inner(v, item value) {
	b.value(item)
	if !b.sound(item.path) {
		b.faulty[v.path] = true
	}
}

func (b *bodyText) ambiguous(v value) {
	b.report(v.place, "a value that can be read in more than one way", "write text, true, false or a decimal number; put text that looks like something else in quotes")
}

// json writes what always has a JSON form. An engine may show it as it stands, so
// that nothing is escaped that need not be.
func (b *bodyText) json(value any) {
	enc := json.NewEncoder(&b.out)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(value)
	b.out.Truncate(b.out.Len() - 1) // the line end that Encode adds
}
