package owner

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tier-agent/test/socketdir"
)

const (
	nobody = 65534
	asked  = "TIER_AGENT_TEST_SOCKET"
)

// TestMain is, in a process that a test has started, somebody who opens a socket.
func TestMain(m *testing.M) {
	path := os.Getenv(asked)
	if path == "" {
		os.Exit(m.Run())
	}
	conn, err := net.Dial("unix", path)
	if errors.Is(err, fs.ErrPermission) {
		fmt.Print(Hint(path))
	} else {
		fmt.Print(conn, err)
	}
}

// The kernel asks a root process for no permission, so it is another process, of a user
// without rights, that meets the socket.
//
// Control: with Stat of the path alone, a folder on the way gave no hint.
func TestWhoMayNotOpenASocketHearsWhoseItIs(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root may be somebody else")
	}
	dir := socketdir.New(t)
	path := filepath.Join(dir, "s")
	ln, err := net.Listen("unix", path)
	require.NoError(t, err)
	defer ln.Close()
	for _, c := range []struct {
		dir, socket os.FileMode
		says        string
	}{
		{0o755, 0o600, "SOCKET belongs to root(0), group gid(4711), with mode 0600, and this is nobody(65534): let its group in by its mode, and have this user in the group"},
		{0o755, 0o660, "SOCKET belongs to root(0), group gid(4711), with mode 0660, and this is nobody(65534): make this user a member of group gid(4711)"},
		{0o700, 0o666, "DIR belongs to root(0), group root(0), with mode 0700, and this is nobody(65534): let its group in by its mode, and have this user in the group"},
		{0o710, 0o666, "DIR belongs to root(0), group root(0), with mode 0710, and this is nobody(65534): make this user a member of group root(0)"},
	} {
		require.NoError(t, os.Chown(path, 0, 4711))
		require.NoError(t, os.Chmod(path, c.socket))
		require.NoError(t, os.Chmod(dir, c.dir))
		cmd := exec.CommandContext(t.Context(), "/proc/self/exe") // its folder is root's alone
		cmd.Env = append(os.Environ(), asked+"="+path)
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		assert.Equal(t, " ("+strings.NewReplacer("SOCKET", path, "DIR", dir).Replace(c.says)+")", string(out))
	}
}
