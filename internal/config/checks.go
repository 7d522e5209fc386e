package config

import (
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"unicode"

	"github.com/goccy/go-yaml/ast"
)

const (
	maxPath   = 1024
	maxFields = 32
)

var statusPattern = regexp.MustCompile(`^([1-5][0-9]{2})(?:-([1-5][0-9]{2}))?$`)

// Health is the request whose status tells whether a server works.
type Health struct {
	Path                 string // below Server.URL, default /health
	StatusMin, StatusMax int    // statuses that pass, both included, default 200 to 399
}

// Identity is the request that tells whether a server is the one that the tier
// stands for.
type Identity struct {
	Path  string // default /v1/models
	ID    string // what the answer must name, 1 to 256 printable ASCII characters
	Token *Secret
}

// Metadata is the request whose JSON answer must hold the given values. A value
// that is a []any stands for one of several.
type Metadata struct {
	Path string
	// Fields maps a key of the answer, dots leading into nested objects, to the
	// value it must have: a string, bool, int64, float64, or for whole numbers
	// above int64 a uint64. At most 32 of them, and none only where another key is given.
	Fields map[string]any
	// Instance is the key of what changes with each start of an engine; "" for none.
	Instance string
	// Same is the key of what all ready servers of the tier must have alike; "" for none.
	Same string
	// Weight is the key of the weight that an engine gives itself, in percent; "" for
	// none.
	Weight string
}

func defaultHealth() Health {
	return Health{Path: "/health", StatusMin: 200, StatusMax: 399}
}

func (d *decoder) health(v value, h *Health) {
	d.mapping(v, []field{
		{key: "path", decode: func(v value) {
			h.Path = d.path(v)
		}},
		{key: "status", decode: func(v value) {
			h.StatusMin, h.StatusMax = d.status(v)
		}},
	})
}

func (d *decoder) status(v value) (low, high int) {
	const remedy = "write one status or a range within 100-599, such as 200 or 200-399"
	s, ok := number(v)
	if !ok {
		if s, ok = d.text(v); !ok {
			return 0, 0
		}
	}
	match := statusPattern.FindStringSubmatch(s)
	if match == nil {
		d.report(v.place, quote(s)+" is not a status", remedy)
		return 0, 0
	}
	low, _ = strconv.Atoi(match[1])
	high = low
	if match[2] != "" {
		high, _ = strconv.Atoi(match[2])
	}
	if low > high {
		d.report(v.place, quote(s)+" begins above its end", remedy)
	}
	return low, high
}

func (d *decoder) metadata(v value) *Metadata {
	m := &Metadata{Fields: map[string]any{}}
	d.mapping(v, []field{
		{key: "path", required: true, remedy: "write the path that answers with the metadata, such as /info", decode: func(v value) {
			m.Path = d.path(v)
		}},
		{key: "fields", decode: func(v value) {
			d.fields(v, m.Fields)
		}},
		{key: "changes_are_restarts", decode: d.fieldOf(&m.Instance)},
		{key: "same_across_tier", decode: d.fieldOf(&m.Same)},
		{key: "weight", decode: d.fieldOf(&m.Weight)},
	})
	if len(m.Fields) == 0 && m.Instance == "" && m.Same == "" && m.Weight == "" &&
		d.sound(v.path, child(v.path, "fields"), child(v.path, "changes_are_restarts"), child(v.path, "same_across_tier"), child(v.path, "weight")) {
		d.report(v.place, "nothing that is asked of the answer", "give fields, with 1 to 32 keys of the answer and the values they must have, or changes_are_restarts, same_across_tier or weight")
	}
	return m
}

// fieldOf decodes the name of a field into s.
func (d *decoder) fieldOf(s *string) func(value) {
	return func(v value) {
		if name, ok := d.text(v); ok && d.fieldName(name, v.place) {
			*s = name
		}
	}
}

// fieldName says whether key can be the name of a field, and reports where it
// cannot.
func (d *decoder) fieldName(key string, at place) bool {
	if key == "" || len(key) > 256 || strings.ContainsFunc(key, unicode.IsControl) || strings.Contains("."+key+".", "..") {
		d.report(at, quote(key)+" is not the name of a field", "write a key of the JSON answer, dots leading into nested objects: a.b.c")
		return false
	}
	return true
}

func (d *decoder) fields(v value, into map[string]any) {
	entries, ok := d.entries(v, d.fieldName)
	if !ok {
		return
	}
	// A field that was refused still counts as given.
	node := collection(v.node).(*ast.MappingNode)
	if len(entries) > maxFields || len(node.Values) == 0 {
		d.report(v.place, strconv.Itoa(len(entries))+" fields", "give 1 to 32 keys of the answer with the values they must have")
		return
	}
	for key, entry := range entries {
		if key == "<<" && entry.node == nil {
			continue
		}
		if _, several := collection(entry.node).(*ast.MappingNode); several {
			into[key] = d.oneOf(entry)
		} else if scalar, ok := d.scalar(entry); ok {
			into[key] = scalar
		}
	}
}

// oneOf decodes the values of which a field must have one.
func (d *decoder) oneOf(v value) (values []any) {
	const remedy = "give 1 to 32 values of which the field must have one"
	d.mapping(v, []field{{key: "one_of", required: true, remedy: remedy, decode: func(v value) {
		n := 0
		d.sequence(v, func(i int, item value) {
			n++
			if scalar, ok := d.scalar(item); ok {
				values = append(values, scalar)
			}
		})
		if d.sound(v.path) && (n > maxFields || n == 0) {
			d.report(v.place, strconv.Itoa(n)+" values", remedy)
		}
	}}})
	return values
}

// path decodes a request path below a server's URL.
func (d *decoder) path(v value) string {
	s, ok := d.text(v)
	if !ok {
		return ""
	}
	problem := pathProblem(s)
	if _, err := url.PathUnescape(s); problem == "" && err != nil {
		problem = "a percent sign without two hexadecimal digits"
	}
	if problem != "" {
		d.report(v.place, quote(s)+": "+problem, "write a path that begins with / and has at most 1024 characters, without ? # or spaces")
	}
	return s
}

func pathProblem(s string) string {
	bad := func(r rune) bool {
		return r == '?' || r == '#' || unicode.IsSpace(r) || unicode.IsControl(r)
	}
	switch {
	case !strings.HasPrefix(s, "/"):
		return "the path does not begin with /"
	case len(s) > maxPath:
		return "the path is too long"
	case strings.ContainsFunc(s, bad):
		return "the path holds a query, a fragment, a space or a control character"
	}
	return ""
}
