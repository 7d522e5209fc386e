package config

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

// MaxSecretSize is the longest secret, in bytes, its closing newline not counted.
const MaxSecretSize = 8 << 10

// settleTime is how old a file's last change must be before an unchanged time is
// taken for an unchanged file. Two writes within one tick of the file system's
// clock leave the same time; the coarsest tick in use is FAT's 2 s.
const settleTime = 2 * time.Second

// ErrSecret is wrapped by every error of Secret.Value.
var ErrSecret = errors.New("secret cannot be used")

var errNoFolder = errors.New("$CREDENTIALS_DIRECTORY is not set")

// Secret is a value that is kept in a file and may be replaced there at any time.
// It is safe for concurrent use and prints as where it comes from, never as what
// it is.
type Secret struct {
	file       string
	credential string
	last       atomic.Pointer[reading]
}

// reading is one successful read.
type reading struct {
	version version
	value   string
}

// version tells whether a file is still the one that was read.
type version struct {
	path     string
	modified int64 // ns since 1970
	size     int64
	inode    uint64
	device   uint64
}

// FileSecret is a secret in the file at path.
func FileSecret(path string) *Secret { return &Secret{file: path} }

// CredentialSecret is a secret that systemd passes under name (systemd.exec(5),
// LoadCredential). The folder, $CREDENTIALS_DIRECTORY, is looked up with each
// Value, since only the service has it.
func CredentialSecret(name string) *Secret { return &Secret{credential: name} }

// Value gives the secret as it is now, read again when the file has changed. The
// error wraps ErrSecret and never holds any of the content; a secret that has
// become unusable does not fall back to an earlier value. It returns at the latest when ctx
// ends, also where the file is on a mount that hangs.
func (s *Secret) Value(ctx context.Context) (string, error) {
	path, err := s.path()
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrSecret, err)
	}
	value, err := s.within(ctx, path)
	if err != nil {
		return "", fmt.Errorf("%w: %s %w", ErrSecret, path, err)
	}
	return value, nil
}

func (s *Secret) within(ctx context.Context, path string) (string, error) {
	read, err := reads.read(ctx, path, func() (any, error) { return s.read(path) })
	value, _ := read.(string) // empty with an error
	return value, err
}

// read gives what the file at path holds. Its errors complete a sentence that begins
// with the file's name.
func (s *Secret) read(path string) (string, error) {
	// Without O_NONBLOCK a named pipe would hold up the caller for ever.
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return "", fmt.Errorf("cannot be opened: %w", unnamed(err))
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return "", fmt.Errorf("cannot be read: %w", unnamed(err))
	}
	if !info.Mode().IsRegular() {
		return "", errors.New("is not a regular file")
	}
	now := versionOf(path, info)
	if last := s.last.Load(); last != nil && last.version == now && time.Since(info.ModTime()) > settleTime {
		return last.value, nil
	}
	value, err := readSecret(file)
	if err != nil {
		return "", err
	}
	s.last.Store(&reading{version: now, value: value})
	return value, nil
}

// unnamed is an error of package os less the file's name.
func unnamed(err error) error {
	if file, ok := errors.AsType[*fs.PathError](err); ok {
		return file.Err
	}
	return err
}

// String says where the secret comes from.
func (s *Secret) String() string {
	switch {
	case s == nil:
		return "secret(none)"
	case s.credential != "":
		return "secret(credential " + s.credential + ")"
	}
	return "secret(file " + s.file + ")"
}

// GoString is String, so that %#v reveals no more.
func (s *Secret) GoString() string { return s.String() }

// LogValue is String, so that a log reveals no more.
func (s *Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

func (s *Secret) path() (string, error) {
	if s.credential == "" {
		return s.file, nil
	}
	folder := os.Getenv("CREDENTIALS_DIRECTORY")
	if folder == "" {
		return "", fmt.Errorf("credential %s: %w: load it with LoadCredential= in the service", s.credential, errNoFolder)
	}
	return filepath.Join(folder, s.credential), nil
}

func versionOf(path string, info os.FileInfo) version {
	v := version{path: path, modified: info.ModTime().UnixNano(), size: info.Size()}
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		v.inode, v.device = uint64(stat.Ino), uint64(stat.Dev)
	}
	return v
}

// readSecret reads and checks the content. Its errors complete a sentence that
// begins with the file's name.
func readSecret(r io.Reader) (string, error) {
	// Two bytes more for a newline, one more to tell what is too long.
	data, err := io.ReadAll(io.LimitReader(r, MaxSecretSize+3))
	if err != nil {
		return "", fmt.Errorf("cannot be read: %w", unnamed(err))
	}
	value := string(data)
	if trimmed, ok := strings.CutSuffix(value, "\n"); ok {
		value = strings.TrimSuffix(trimmed, "\r")
	}
	switch {
	case strings.TrimSpace(value) == "":
		return "", errors.New("is empty")
	case len(value) > MaxSecretSize:
		return "", fmt.Errorf("holds more than %d bytes", MaxSecretSize)
	case strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r == 0x7f }):
		return "", errors.New("holds control characters or more than one line")
	}
	return value, nil
}
