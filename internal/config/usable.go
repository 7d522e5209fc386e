package config

import (
	"context"
	"errors"
	"time"
)

// secretsWithin bounds how long all the secrets of a file may take to be tried.
const secretsWithin = 2 * time.Second

// secrets says what a decoder does about the secrets that a file names.
type secrets struct {
	tried   bool      // they are read, not only named
	start   bool      // nothing is in force yet
	outside bool      // this is not the service, and may lack its credentials
	until   time.Time // the last moment for it, from the first one on
}

// usable reports a secret that cannot be used as it is. The messages name neither the
// file nor what is in it: either may be a token that was put in the wrong place.
func (d *decoder) usable(at place, s *Secret) {
	if !d.secrets.tried {
		return
	}
	if d.secrets.until.IsZero() {
		d.secrets.until = time.Now().Add(secretsWithin)
	}
	switch err := s.try(d.secrets.until); {
	case err == nil:
	case d.secrets.start:
		d.remark(at, "the file with the token "+err.Error(), "see to it; until it can be read, the probes that send it fail")
	case errors.Is(err, errNoFolder) && d.secrets.outside:
		d.remark(at, "the credential cannot be looked at outside of the service", "set CREDENTIALS_DIRECTORY to a folder that has it, to have it checked")
	case errors.Is(err, errNoFolder):
		d.report(at, errNoFolder.Error(), "load the credential with LoadCredential= in the service")
	default:
		d.report(at, "the file with the token "+err.Error(), "make it a file that tier-agent's user can read, with the token as its one line")
	}
}

// try reads the secret, and gives up at that time.
func (s *Secret) try(until time.Time) error {
	path, err := s.path()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithDeadline(context.Background(), until)
	defer cancel()
	_, err = s.within(ctx, path)
	return err
}
