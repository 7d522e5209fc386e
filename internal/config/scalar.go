package config

import (
	"fmt"
	"math"
	"path"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"
)

var (
	namePattern    = regexp.MustCompile(`^[A-Za-z0-9_.:-]{1,64}$`)
	percentPattern = regexp.MustCompile(`^([0-9]{1,3}(?:\.[0-9]{1,6})?)%$`)
	sizePattern    = regexp.MustCompile(`^([0-9]{1,12})(B|KiB|MiB)$`)
)

const nameRemedy = "use 1 to 64 of the characters A-Z a-z 0-9 _ . : -"

// text gives a string. A number or a boolean is none: what YAML makes of 0660 or
// 1e3 is seldom what was written.
func (d *decoder) text(v value) (string, bool) {
	if s, ok := characters(v); ok {
		return s, true
	}
	switch v.node.(type) {
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode:
		d.report(v.place, "expected text, found "+kind(v.node), "put the value in quotes")
	default:
		d.wrongType(v, "text")
	}
	return "", false
}

// isName also refuses what a URL's path cannot carry: the companion check asks
// for /readyz/<backend>/<server>.
func isName(s string) bool { return namePattern.MatchString(s) && s != "." && s != ".." }

// name gives a string of the characters that HAProxy allows in a name.
func (d *decoder) name(v value) (string, bool) {
	s, ok := d.text(v)
	if ok && !isName(s) {
		d.report(v.place, quote(s)+" is not a name", nameRemedy)
		return "", false
	}
	return s, ok
}

// ownName gives a name that no other of its kind has.
func (d *decoder) ownName(v value, kind, remedy string) string {
	name, ok := d.name(v)
	if ok {
		d.claim(v.place, kind, name, remedy)
	}
	return name
}

// word gives one of two words; the first is the default.
func (d *decoder) word(v value, what, one, other string) string {
	s, ok := d.text(v)
	if !ok || s == one || s == other {
		return s
	}
	d.report(v.place, quote(s)+" is no "+what, "write "+one+" or "+other)
	return ""
}

// absolute gives the path of a file or folder.
func (d *decoder) absolute(v value, example string) (string, bool) {
	s, ok := d.text(v)
	if ok && (!path.IsAbs(s) || path.Clean(s) != s || s == "/" || len(s) > 1024 || strings.ContainsFunc(s, unicode.IsControl)) {
		d.report(v.place, quote(s)+" is not a plain absolute path", "write an absolute path such as "+example)
		return "", false
	}
	return s, ok
}

// integer gives a whole number within bounds.
func (d *decoder) integer(v value, low, high int) (int, bool) {
	return d.whole(v, low, high, fmt.Sprintf("a whole number from %d to %d", low, high))
}

// whole is integer with bounds in words.
func (d *decoder) whole(v value, low, high int, want string) (int, bool) {
	n, ok := v.node.(*ast.IntegerNode)
	if !ok {
		d.wrongType(v, want)
		return 0, false
	}
	if !decimal(n) {
		d.report(v.place, quote(n.Token.Value)+" is not plain decimal", "write "+want)
		return 0, false
	}
	number, err := strconv.Atoi(n.Token.Value)
	if err != nil || number < low || number > high {
		d.report(v.place, quote(n.Token.Value)+" is out of range", "write "+want)
		return 0, false
	}
	return number, true
}

// duration gives a time with units within bounds.
func (d *decoder) duration(v value, low, high time.Duration) (time.Duration, bool) {
	remedy := fmt.Sprintf("write a time from %s to %s, such as 800ms, 5s or 1m30s", units(low), units(high))
	s, ok := number(v)
	if !ok {
		s, ok = characters(v)
	}
	if !ok {
		d.wrongType(v, fmt.Sprintf("a time with its unit from %s to %s", units(low), units(high)))
		return 0, false
	}
	if _, err := strconv.ParseFloat(s, 64); err == nil {
		d.report(v.place, quote(s)+" is a bare number, a time without its unit", remedy)
		return 0, false
	}
	t, err := time.ParseDuration(s)
	if err != nil {
		d.report(v.place, quote(s)+" is not a time", remedy)
		return 0, false
	}
	if t < low || t > high {
		d.report(v.place, quote(s)+" is out of range", remedy)
		return 0, false
	}
	return t, true
}

// characters gives quoted, plain or block text.
func characters(v value) (string, bool) {
	switch n := v.node.(type) {
	case *ast.StringNode:
		return n.Value, true
	case *ast.LiteralNode:
		return n.Value.Value, true
	}
	return "", false
}

// number gives a bare number as it is written.
func number(v value) (string, bool) {
	switch n := v.node.(type) {
	case *ast.IntegerNode:
		return n.Token.Value, true
	case *ast.FloatNode:
		return n.Token.Value, true
	}
	return "", false
}

// percent gives the fraction that a percentage with its sign stands for.
func (d *decoder) percent(v value, low, high float64) (float64, bool) {
	remedy := fmt.Sprintf("write a percentage from %g%% to %g%%, such as 10%%", low, high)
	if s, ok := number(v); ok {
		d.report(v.place, quote(s)+" is a bare number, a percentage without its sign", remedy)
		return 0, false
	}
	s, ok := characters(v)
	if !ok {
		d.wrongType(v, fmt.Sprintf("a percentage from %g%% to %g%%", low, high))
		return 0, false
	}
	match := percentPattern.FindStringSubmatch(s)
	if match == nil {
		d.report(v.place, quote(s)+" is not a percentage", remedy)
		return 0, false
	}
	hundredths, err := strconv.ParseFloat(match[1], 64)
	if err != nil || hundredths < low || hundredths > high {
		d.report(v.place, quote(s)+" is out of range", remedy)
		return 0, false
	}
	return hundredths / 100, true
}

// size gives a number of bytes within bounds.
func (d *decoder) size(v value, low, high int64) (int64, bool) {
	const remedy = "write a size from 256B to 1MiB, such as 4096, 512B, 64KiB or 1MiB"
	if _, ok := v.node.(*ast.IntegerNode); ok {
		n, ok := d.integer(v, int(low), int(high))
		return int64(n), ok
	}
	s, ok := characters(v)
	if !ok {
		d.wrongType(v, "a size in bytes, or with B, KiB or MiB")
		return 0, false
	}
	match := sizePattern.FindStringSubmatch(s)
	if match == nil {
		d.report(v.place, quote(s)+" is not a size", remedy)
		return 0, false
	}
	n, _ := strconv.ParseInt(match[1], 10, 64) // twelve digits at most, so it fits
	n <<= map[string]int{"B": 0, "KiB": 10, "MiB": 20}[match[2]]
	if n < low || n > high {
		d.report(v.place, quote(s)+" is out of range", remedy)
		return 0, false
	}
	return n, true
}

// scalar gives a value that is compared with one in a JSON answer.
func (d *decoder) scalar(v value) (any, bool) {
	const remedy = "write text, true, false or a decimal number; put text that looks like something else in quotes"
	ambiguous := func(s string) (any, bool) {
		d.report(v.place, quote(s)+" can be read in more than one way", remedy)
		return nil, false
	}
	switch n := v.node.(type) {
	case *ast.BoolNode:
		return n.Value, true
	case *ast.IntegerNode:
		if !decimal(n) {
			return ambiguous(n.Token.Value)
		}
		if i, err := strconv.ParseInt(n.Token.Value, 10, 64); err == nil {
			return i, true
		}
		return n.Value, true
	case *ast.FloatNode:
		if math.IsInf(n.Value, 0) || math.IsNaN(n.Value) || strings.Contains(n.Token.Value, "_") {
			return ambiguous(n.Token.Value)
		}
		return n.Value, true
	case *ast.StringNode:
		if n.Token.Type == token.StringType && looksTyped(n.Value) {
			return ambiguous(n.Value)
		}
		return d.fieldText(v, n.Value)
	case *ast.LiteralNode:
		return d.fieldText(v, n.Value.Value)
	}
	d.wrongType(v, "text, a number, true or false")
	return nil, false
}

func (d *decoder) fieldText(v value, s string) (any, bool) {
	if len(s) > 1024 || strings.ContainsFunc(s, unicode.IsControl) {
		d.report(v.place, quote(s)+" is too long or holds control characters", "write at most 1024 bytes of printable text")
		return nil, false
	}
	return s, true
}

// decimal says that a whole number is what it looks like: YAML reads 0100 as 64,
// 0x64 as 100 and 1_0 as 10.
func decimal(n *ast.IntegerNode) bool {
	return n.Token.Type == token.IntegerType && !strings.Contains(n.Token.Value, "_")
}

// looksTyped says that unquoted text is a number or a boolean to some readers of
// YAML, or to the one who wrote it, though the parser takes it for text.
func looksTyped(s string) bool {
	switch strings.ToLower(s) {
	case "yes", "no", "on", "off", "y", "n":
		return true
	}
	_, err := strconv.ParseFloat(s, 64)
	return err == nil
}

// units writes a duration without the zero units that its String adds.
func units(t time.Duration) string {
	s := t.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}
