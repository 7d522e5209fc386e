package config

import (
	"regexp"
	"slices"
	"strings"
	"unicode"

	"github.com/goccy/go-yaml/ast"
)

// credentialPattern is what systemd takes as the name of a credential
// (systemd.exec(5), LoadCredential), less the odd characters.
var credentialPattern = regexp.MustCompile(`^[A-Za-z0-9_-][A-Za-z0-9_.@-]{0,254}$`)

// inline are keys under which people put a credential itself.
var inline = []string{
	"api_key", "apikey", "auth", "authorization", "bearer", "bearer_token", "credential", "credentials",
	"header", "headers", "key", "pass", "passwd", "password", "secret", "token", "token_value",
}

func (d *decoder) identity(v value) *Identity {
	id := &Identity{Path: "/v1/models"}
	d.tokened(v, &id.Token, []field{
		{key: "path", decode: func(v value) {
			id.Path = d.path(v)
		}},
		{key: "id", required: true, remedy: "write the identity that the answer must name, such as the model's id", decode: func(v value) {
			id.ID = d.id(v)
		}},
	})
	return id
}

// tokened decodes a request that may carry a bearer token.
func (d *decoder) tokened(v value, token **Secret, fields []field) {
	var file, credential *Secret
	d.mapping(d.withoutInline(v), append(fields,
		field{key: "token_file", decode: func(v value) {
			file = d.tokenFile(v)
		}},
		field{key: "token_credential", decode: func(v value) {
			credential = d.tokenCredential(v)
		}},
	))
	at := d.locate(child(v.path, "token_credential"))
	switch {
	case file != nil && credential != nil:
		d.add(at, "token_file and token_credential are both given", "keep the one that holds the token")
	case file != nil:
		*token = file
		d.usable(d.locate(child(v.path, "token_file")), file)
	case credential != nil:
		*token = credential
		d.usable(at, credential)
	}
}

// withoutInline reports the keys of a credential written into the file, which is
// readable to more people than a token may be, and takes them out. Their values
// are not repeated.
func (d *decoder) withoutInline(v value) value {
	node, ok := collection(v.node).(*ast.MappingNode)
	if !ok {
		return v
	}
	rest := *node
	rest.Values = nil
	for _, pair := range node.Values {
		key, ok := pair.Key.(*ast.StringNode)
		name := ""
		if ok {
			name = strings.ReplaceAll(strings.ToLower(key.Value), "-", "_")
		}
		if !slices.Contains(inline, name) {
			rest.Values = append(rest.Values, pair)
			continue
		}
		at := nodePlace(key, v.place)
		at.path = child(v.path, key.Value)
		d.report(at, "a credential does not belong in this file",
			"put it in a file of its own and name that with token_file, or use token_credential with a systemd credential")
	}
	v.node = &rest
	return v
}

func (d *decoder) id(v value) string {
	s, ok := d.text(v)
	printable := func(r rune) bool { return r >= ' ' && r <= '~' }
	if ok && (s == "" || len(s) > 256 || strings.TrimFunc(s, printable) != "") {
		d.report(v.place, quote(s)+" is not an identity", "write 1 to 256 printable ASCII characters")
	}
	return s
}

func (d *decoder) tokenFile(v value) *Secret {
	s, ok := d.text(v)
	if !ok {
		return nil
	}
	// The value may be a token that was put in the wrong place: not repeated.
	if !strings.HasPrefix(s, "/") || len(s) > 4096 || strings.ContainsFunc(s, unicode.IsControl) {
		d.report(v.place, "not the absolute path of a file", "write the path of the file that holds the token, such as /etc/tier-agent/token")
		return nil
	}
	return FileSecret(s)
}

func (d *decoder) tokenCredential(v value) *Secret {
	s, ok := d.text(v)
	if !ok {
		return nil
	}
	if !credentialPattern.MatchString(s) {
		d.report(v.place, "not the name of a credential", "write the name that LoadCredential= gives it: up to 255 of A-Z a-z 0-9 _ . @ -")
		return nil
	}
	return CredentialSecret(s)
}
