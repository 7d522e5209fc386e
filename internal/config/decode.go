package config

import (
	"fmt"
	"regexp"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"

	"tier-agent/internal/similar"
)

// place is where in the file something stands.
type place struct {
	path         string
	line, column int
}

// value is a node together with its place.
type value struct {
	place
	node ast.Node
}

// field is one key that a mapping may have.
type field struct {
	key      string
	required bool
	remedy   string // for a required key that is missing
	decode   func(value)
}

// decoder walks the syntax tree and collects what is wrong. Its methods go on
// after a mistake, and return ok false where the result is of no use.
type decoder struct {
	file     string
	problems Problems
	told     map[Problem]bool // problems, by themselves
	dropped  int              // problems beyond maxProblems
	given    map[string]place // every key and list item that the file gives, by path
	faulty   map[string]bool  // paths of wrong values, which no relation is checked with
	taken    map[string]place // names that must be unique, by kind and name
	remarks  Problems
	secrets  secrets
}

func newDecoder(file string) *decoder {
	return &decoder{
		file:   file,
		told:   map[Problem]bool{},
		given:  map[string]place{},
		faulty: map[string]bool{},
		taken:  map[string]place{},
	}
}

// report notes that the value at a place is wrong.
func (d *decoder) report(at place, message, remedy string) {
	d.faulty[at.path] = true
	d.add(at, message, remedy)
}

// add notes a problem between values each of which is right, once.
func (d *decoder) add(at place, message, remedy string) {
	problem := Problem{File: d.file, Line: at.line, Column: at.column, Path: at.path, Message: message, Remedy: remedy}
	switch {
	case d.told[problem]:
	case len(d.problems) == maxProblems:
		d.dropped++
	default:
		d.told[problem] = true
		d.problems = append(d.problems, problem)
	}
}

// sorted is what was found, in the order of the file.
func (d *decoder) sorted() Problems {
	d.problems.sort()
	if d.dropped > 0 {
		last := d.problems[len(d.problems)-1]
		d.problems = append(d.problems, Problem{
			File: d.file, Line: last.Line, Column: last.Column,
			Message: fmt.Sprintf("%d more problems are not shown", d.dropped), Remedy: "correct those above first",
		})
	}
	return d.problems
}

// sound says that nothing has been found wrong at any of paths.
func (d *decoder) sound(paths ...string) bool {
	for _, path := range paths {
		if d.faulty[path] {
			return false
		}
	}
	return true
}

// claim reports a name that an earlier place has taken already.
func (d *decoder) claim(at place, kind, name, remedy string) {
	key := kind + " " + name
	if first, ok := d.taken[key]; ok {
		d.report(at, fmt.Sprintf("%s %s is taken by %s in line %d", kind, quote(name), first.path, first.line), remedy)
		return
	}
	d.taken[key] = at
}

// mapping decodes v by the table, in the table's order, and reports keys that are
// unknown, given twice or missing.
func (d *decoder) mapping(v value, fields []field) {
	known := make([]string, len(fields))
	for i, f := range fields {
		known[i] = f.key
	}
	found, ok := d.entries(v, func(key string, at place) bool {
		for _, k := range known {
			if k == key {
				return true
			}
		}
		d.unknown(key, at, known)
		return false
	})
	if !ok {
		return
	}
	for _, f := range fields {
		if entry, ok := found[f.key]; ok {
			f.decode(entry)
		} else if _, merges := found["<<"]; f.required && !merges {
			at := v.place
			at.path = child(v.path, f.key)
			d.report(at, "is missing", f.remedy)
		}
	}
}

func (d *decoder) unknown(key string, at place, known []string) {
	message := "unknown key " + quote(key)
	if hint := similar.To(key, known); hint != "" {
		d.report(at, message, "did you mean "+hint+"?")
		return
	}
	d.report(at, message, "use "+list(known))
}

// entries gives the values of a mapping by key; accept decides on each key. A
// merge key, refused before, is left in under "<<", as what it would have brought
// along cannot be called missing.
func (d *decoder) entries(v value, accept func(key string, at place) bool) (map[string]value, bool) {
	node, ok := collection(v.node).(*ast.MappingNode)
	if !ok {
		d.wrongType(v, "a mapping (key: value)")
		return nil, false
	}
	found := make(map[string]value, len(node.Values))
	lines := map[string]int{}
	for _, pair := range node.Values {
		at := nodePlace(pair.Key, v.place)
		if _, ok := pair.Key.(*ast.MergeKeyNode); ok {
			found["<<"] = value{}
			continue
		}
		key, ok := pair.Key.(*ast.StringNode)
		if !ok {
			if !referential(pair.Key) {
				d.report(at, "a key that is not plain text", "write the key as text, in quotes if it looks like a number")
			}
			continue
		}
		at.path = child(v.path, key.Value)
		if line, twice := lines[key.Value]; twice {
			d.report(at, fmt.Sprintf("key %s is given twice, first in line %d", quote(key.Value), line), "keep one of the two")
			continue
		}
		lines[key.Value] = at.line
		if !accept(key.Value, at) {
			continue
		}
		entry := value{place: nodePlace(pair.Value, at), node: pair.Value}
		entry.path = at.path
		d.given[entry.path] = entry.place
		found[key.Value] = entry
	}
	return found, true
}

// sequence calls each for the items of a list.
func (d *decoder) sequence(v value, each func(i int, item value)) {
	node, ok := collection(v.node).(*ast.SequenceNode)
	if !ok {
		d.wrongType(v, "a list")
		return
	}
	if len(node.Values) > maxItems {
		d.report(v.place, fmt.Sprintf("%d items", len(node.Values)), fmt.Sprintf("list at most %d", maxItems))
		return
	}
	for i, n := range node.Values {
		item := value{place: nodePlace(n, v.place), node: n}
		item.path = index(v.path, i)
		d.given[item.path] = item.place
		each(i, item)
	}
}

func (d *decoder) wrongType(v value, want string) {
	if referential(v.node) {
		return // refused as such already
	}
	// The value itself is not repeated: under a wrong key it may be a credential.
	d.report(v.place, fmt.Sprintf("expected %s, found %s", want, kind(v.node)), "write "+want+" here")
}

// collection looks through the anchors and tags that references reports, so that
// what stands behind them is checked in the same go.
func collection(n ast.Node) ast.Node {
	for {
		switch t := n.(type) {
		case *ast.AnchorNode:
			n = t.Value
		case *ast.TagNode:
			n = t.Value
		default:
			return n
		}
	}
}

func referential(n ast.Node) bool {
	switch n.(type) {
	case *ast.AnchorNode, *ast.AliasNode, *ast.TagNode, *ast.MergeKeyNode:
		return true
	}
	return false
}

func kind(n ast.Node) string {
	switch collection(n).(type) {
	case nil, *ast.NullNode:
		return "nothing"
	case *ast.MappingNode, *ast.MappingValueNode:
		return "a mapping"
	case *ast.SequenceNode:
		return "a list"
	case *ast.StringNode, *ast.LiteralNode:
		return "text"
	case *ast.IntegerNode:
		return "a whole number"
	case *ast.FloatNode:
		return "a number"
	case *ast.InfinityNode, *ast.NanNode:
		return "a number that is not finite"
	case *ast.BoolNode:
		return "true or false"
	}
	return "something else"
}

// nodePlace gives the node's position. A block mapping's own token is the colon
// behind its first key, so the key stands for it.
func nodePlace(n ast.Node, fallback place) place {
	if n == nil {
		return fallback
	}
	if m, ok := n.(*ast.MappingNode); ok && !m.IsFlowStyle && len(m.Values) > 0 {
		return nodePlace(m.Values[0].Key, fallback)
	}
	return tokenPlace(n.GetToken(), fallback)
}

func tokenPlace(tk *token.Token, fallback place) place {
	if tk == nil || tk.Position == nil || tk.Position.Line < 1 || tk.Position.Column < 1 {
		return fallback
	}
	return place{path: fallback.path, line: tk.Position.Line, column: tk.Position.Column}
}

var plainKey = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

func child(path, key string) string {
	if !plainKey.MatchString(key) {
		key = quote(key)
	}
	if path == "" {
		return key
	}
	return path + "." + key
}

func index(path string, i int) string {
	return fmt.Sprintf("%s[%d]", path, i)
}
