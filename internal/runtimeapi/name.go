package runtimeapi

import (
	"fmt"
	"regexp"
)

// names is what a backend's or server's name may hold before it reaches a
// socket. It is HAProxy's own alphabet for names, so none that can be configured
// is lost except those above 64 bytes; `;`, newline, blank and backslash, which
// could start a second command, are not in it. Nothing is ever escaped.
var names = regexp.MustCompile(`^[A-Za-z0-9_.:-]{1,64}$`)

// alphabet is of names of any length: what HAProxy shows goes on to labels, logs and
// terminals.
var alphabet = regexp.MustCompile(`^[A-Za-z0-9_.:-]+$`)

// ValidName reports whether a backend or a server can be named in a command.
func ValidName(name string) bool { return names.MatchString(name) }

func checkName(kind, name string) error {
	if !names.MatchString(name) {
		return fmt.Errorf("%w: %s %q must be 1 to 64 of A-Z a-z 0-9 _ . : -", ErrInvalidName, kind, clean(name))
	}
	return nil
}
