// Package hangfs mounts a file system that never answers, as a dead NFS server does.
package hangfs

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// Mount makes dir hang: whoever opens anything below it waits. heal, which may be called
// again, ends that: what waits gets an error, and dir is an empty folder. So does the end of
// the test. It needs root and /dev/fuse; without them the test is skipped, or in CI fails.
func Mount(t testing.TB, dir string) (heal func()) {
	t.Helper()
	dev, err := syscall.Open("/dev/fuse", syscall.O_RDWR|syscall.O_CLOEXEC, 0)
	if err == nil {
		options := fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other", dev)
		err = syscall.Mount("hang", dir, "fuse.hang", 0, options)
	}
	if err != nil {
		why := fmt.Sprintf("no file system that hangs: %v: run it as root, where there is a /dev/fuse", err)
		if os.Getenv("CI") != "" {
			t.Fatal(why)
		}
		t.Skip(why)
	}
	heal = sync.OnceFunc(func() {
		_ = syscall.Unmount(dir, syscall.MNT_DETACH)
		_ = syscall.Close(dev)
	})
	t.Cleanup(heal)
	require.NoError(t, greet(dev))
	return heal
}

// greet answers the kernel's INIT (fuse(4), struct fuse_init_out of 7.31), and nothing after.
func greet(dev int) error {
	question := make([]byte, 1<<17)
	n, err := syscall.Read(dev, question)
	if err != nil {
		return err
	}
	if n < 16 {
		return fmt.Errorf("%d bytes", n)
	}
	var answer bytes.Buffer
	for _, field := range []any{
		uint32(16 + 64), int32(0), binary.LittleEndian.Uint64(question[8:]), // length, error, whose answer
		uint32(7), uint32(31), uint32(1 << 16), uint32(0), // version, read ahead, flags
		uint16(12), uint16(9), uint32(1 << 16), uint32(1), uint16(0), uint16(0), [32]byte{}, // the rest: limits, and nothing
	} {
		if err := binary.Write(&answer, binary.LittleEndian, field); err != nil {
			return err
		}
	}
	_, err = syscall.Write(dev, answer.Bytes())
	return err
}
