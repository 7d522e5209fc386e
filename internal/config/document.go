package config

import (
	"fmt"

	"github.com/goccy/go-yaml/ast"
)

// document gives the root of the only document in data.
func (d *decoder) document(data []byte) (value, bool) {
	docs, ok := d.syntax(data)
	if !ok {
		return value{}, false
	}
	start := place{line: 1, column: 1}
	var bodies []value
	for _, doc := range docs {
		if _, ok := doc.Body.(*ast.DirectiveNode); ok {
			d.report(nodePlace(doc.Body, start), "YAML directives are not supported", "remove the line")
			continue
		}
		at := nodePlace(doc.Body, start)
		if doc.Start != nil {
			at = tokenPlace(doc.Start, at)
		}
		bodies = append(bodies, value{place: at, node: doc.Body})
	}
	for _, extra := range bodies[min(1, len(bodies)):] {
		d.report(extra.place, "more than one document in the file", "keep one document and remove the --- line")
	}
	if len(bodies) == 0 || bodies[0].node == nil {
		d.report(start, "the file is empty", "give at least tiers, with one tier in it")
		return value{}, false
	}
	root := bodies[0]
	root.place = nodePlace(root.node, start)
	d.references(root)
	return root, true
}

// references reports what makes one part of a file stand for another, wherever it
// is. None of it is followed: an alias can make a small file unfold without end,
// and a value that is written elsewhere has no place of its own to report.
func (d *decoder) references(v value) {
	switch n := v.node.(type) {
	case *ast.AnchorNode:
		d.report(v.place, "anchors (&name) are not supported", "write the value out where it is needed")
		d.references(value{place: v.place, node: n.Value})
	case *ast.AliasNode:
		d.report(v.place, "aliases (*name) are not supported", "write the value out")
	case *ast.TagNode:
		d.report(v.place, "tags (!type) are not supported", "remove the tag")
		d.references(value{place: v.place, node: n.Value})
	case *ast.MappingNode:
		for _, pair := range n.Values {
			at := nodePlace(pair.Key, v.place)
			switch key := pair.Key.(type) {
			case *ast.MergeKeyNode:
				d.report(at, "merge keys (<<) are not supported", "write the keys out")
			case *ast.StringNode:
				at.path = child(v.path, key.Value)
			default:
				if inner, ok := pair.Key.(ast.Node); ok && referential(inner) {
					d.references(value{place: at, node: inner})
				}
			}
			d.references(value{place: withPath(nodePlace(pair.Value, at), at.path), node: pair.Value})
		}
	case *ast.SequenceNode:
		for i, item := range n.Values {
			d.references(value{place: withPath(nodePlace(item, v.place), index(v.path, i)), node: item})
		}
	}
}

func withPath(at place, path string) place {
	at.path = path
	return at
}

// locate gives the place of the first of paths that the file gives, for a problem
// between several values of which some may be defaults.
func (d *decoder) locate(paths ...string) place { return locate(d.given, paths...) }

func locate(given map[string]place, paths ...string) place {
	for _, path := range paths {
		if at, ok := given[path]; ok {
			return at
		}
	}
	return place{path: paths[0], line: 1, column: 1}
}

// list joins words for a message.
func list(words []string) string {
	switch len(words) {
	case 0:
		return ""
	case 1:
		return words[0]
	}
	last := len(words) - 1
	text := words[0]
	for _, word := range words[1:last] {
		text += ", " + word
	}
	return fmt.Sprintf("%s or %s", text, words[last])
}
