// Package owner says whose a file is, for the message about one that may not be opened.
package owner

import (
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
)

// Hint says, for behind the error about a unix socket at path that may not be opened or
// made, who owns it, or the folder on the way that lets nobody by, with which mode; who
// we are; and what would help. It is "" where that cannot be known.
func Hint(path string) string {
	at := path
	info, err := os.Stat(at)
	for err != nil && at != filepath.Dir(at) {
		at = filepath.Dir(at)
		info, err = os.Stat(at)
	}
	if err != nil {
		return ""
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return ""
	}
	group := groupName(stat.Gid)
	remedy := "something else than this keeps the user out, such as a security module"
	// To connect takes the right to write, to come by a folder that to enter it.
	needed := os.FileMode(0o020)
	if info.IsDir() {
		needed = 0o010
	}
	ours, _ := os.Getgroups()
	in := slices.Contains(ours, int(stat.Gid)) || os.Getegid() == int(stat.Gid)
	switch {
	case info.Mode()&needed == 0:
		remedy = "let its group in by its mode, and have this user in the group"
	case !in:
		remedy = "make this user a member of group " + group
	}
	return fmt.Sprintf(" (%s belongs to %s, group %s, with mode %#o, and this is %s: %s)",
		at, User(stat.Uid), group, info.Mode().Perm(), User(uint32(os.Geteuid())), remedy)
}

// User names a user: "alice(1000)", or "uid(1000)" where the system has no name for it.
func User(uid uint32) string {
	name := "uid"
	if known, err := user.LookupId(strconv.FormatUint(uint64(uid), 10)); err == nil {
		name = known.Username
	}
	return fmt.Sprintf("%s(%d)", name, uid)
}

func groupName(gid uint32) string {
	name := "gid"
	if known, err := user.LookupGroupId(strconv.FormatUint(uint64(gid), 10)); err == nil {
		name = known.Name
	}
	return fmt.Sprintf("%s(%d)", name, gid)
}
