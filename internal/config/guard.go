package config

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

const (
	// maxDepth is the deepest nesting that is handed to the YAML parser, which
	// recurses without a limit of its own: a Go stack that overflows cannot be
	// recovered from. The schema needs six levels.
	maxDepth = 64
	// maxKeys bounds one mapping: the parser recurses once for each key of a block
	// mapping and copies the rest each time (20000 keys took 0.7 s, measured on
	// goccy/go-yaml 1.19.2).
	maxKeys = 1000
	// maxItems bounds one list: half a million tiers of one wrong key each took
	// 20 s to refuse.
	maxItems = 10000
)

const quotingRemedy = "correct the YAML here; a value that begins with one of [ ] { } * & ! % @ ` | > or holds a colon and a space needs quotes"

// syntax parses the text without decoding it. Any failure here ends the reading,
// since nothing behind the place can be trusted.
func (d *decoder) syntax(data []byte) (docs []*ast.DocumentNode, ok bool) {
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	if at, message := unprintable(data); message != "" {
		d.report(at, message, "save the file as plain UTF-8 text")
		return nil, false
	}
	if at, message := crowded(data); message != "" {
		d.report(at, message, "keep to the structure of the documentation")
		return nil, false
	}
	// The YAML library is not ours and has had panics on odd input.
	defer func() {
		if recover() != nil {
			d.report(place{line: 1, column: 1}, "the YAML reader fails on this file", quotingRemedy)
			docs, ok = nil, false
		}
	}()
	tokens := lexer.Tokenize(string(data))
	if at, message, remedy := overgrown(tokens); message != "" {
		d.report(at, message, remedy)
		return nil, false
	}
	// Duplicates are let through here because the decoder reports all of them.
	file, err := parser.Parse(tokens, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		d.report(syntaxProblem(err))
		return nil, false
	}
	return file.Docs, true
}

// maxMarks bounds the characters of a file that may begin or part values. Of each the YAML
// library makes a token of some hundred bytes. Ten thousand servers have three quarters of them.
const maxMarks = 80_000

// crowded says where there are too many.
func crowded(data []byte) (at place, message string) {
	marks, line := 0, 1
	for n, c := range data {
		switch c {
		case '\n':
			line++
			continue
		case ',', '[', ']', '{', '}', '#', '&', '*', '!', '|', '>', '\'', '"':
		case '-', '?':
			if n+1 < len(data) && data[n+1] != ' ' && data[n+1] != '\n' {
				continue
			}
		default:
			continue
		}
		if marks++; marks > maxMarks {
			return place{line: line, column: 1}, fmt.Sprintf("more than %d values", maxMarks)
		}
	}
	return at, ""
}

func syntaxProblem(err error) (at place, message, remedy string) {
	at, remedy = place{line: 1, column: 1}, quotingRemedy
	var located yaml.Error
	if !errors.As(err, &located) {
		return at, "not valid YAML", remedy
	}
	// Error() would print the lines around the place, and a line can hold a
	// credential; the bare message names no more than a character.
	message = "not valid YAML: " + strings.Join(strings.Fields(located.GetMessage()), " ")
	if strings.Contains(located.GetMessage(), "'\t'") {
		message, remedy = "not valid YAML: a tab in the indentation", "indent with spaces"
	}
	return tokenPlace(located.GetToken(), at), message, remedy
}

func unprintable(data []byte) (at place, message string) {
	at = place{line: 1, column: 1}
	for len(data) > 0 {
		r, size := utf8.DecodeRune(data)
		switch {
		case r == utf8.RuneError && size == 1:
			return at, fmt.Sprintf("byte 0x%02x is not UTF-8", data[0])
		case r < ' ' && r != '\t' && r != '\n' && r != '\r', r == 0x7f:
			return at, fmt.Sprintf("control character 0x%02x", r)
		case r == '\n':
			at.line, at.column = at.line+1, 1
		default:
			at.column++
		}
		data = data[size:]
	}
	return at, ""
}

// overgrown finds where the tokens nest deeper than maxDepth or one mapping has
// more than maxKeys keys. It counts generously: what it lets through may be
// nested up to twice as deep.
func overgrown(tokens token.Tokens) (at place, message, remedy string) {
	type level struct{ column, keys int }
	var (
		block  []level // open block collections, by column
		flow   int     // open brackets
		prefix int     // anchors and tags in a row: each one nests
		chain  int     // keys within one flow entry: each one nests
	)
	enter := func(column int) *level {
		for len(block) > 0 && block[len(block)-1].column > column {
			block = block[:len(block)-1]
		}
		if len(block) == 0 || block[len(block)-1].column != column {
			block = append(block, level{column: column})
		}
		return &block[len(block)-1]
	}
	for _, tk := range tokens {
		named := tk.Prev != nil && tk.Prev.Type == token.AnchorType
		switch {
		case tk.Type == token.AnchorType, tk.Type == token.TagType:
			prefix++
		case !named:
			prefix = 0
		}
		switch tk.Type {
		case token.MappingStartType, token.SequenceStartType:
			flow, chain = flow+1, 0
		case token.MappingEndType, token.SequenceEndType:
			flow, chain = max(flow-1, 0), 0
		case token.CollectEntryType:
			chain = 0
		case token.MappingKeyType, token.MappingValueType, token.SequenceEntryType:
			if flow > 0 {
				chain++
				break
			}
			start := tk
			if tk.Type == token.MappingValueType && tk.Prev != nil {
				start = tk.Prev
			}
			open := enter(start.Position.Column)
			if tk.Type != token.SequenceEntryType {
				open.keys++
			}
			if open.keys > maxKeys {
				return tokenPlace(tk, place{line: 1, column: 1}),
					fmt.Sprintf("more than %d keys in one mapping", maxKeys), "keep to the keys of the documentation"
			}
		}
		if len(block)+flow+prefix+chain > maxDepth {
			return tokenPlace(tk, place{line: 1, column: 1}),
				fmt.Sprintf("nested deeper than %d levels", maxDepth), "keep to the structure of the documentation, six levels at most"
		}
	}
	return place{}, "", ""
}
