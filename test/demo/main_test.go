package main

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The test's program plays a make that is killed, and its demo.
func TestMain(m *testing.M) {
	switch os.Getenv("DEMO_TEST") {
	case "":
		os.Exit(m.Run())
	case "make":
		c := exec.Command(os.Args[0])
		c.Env = append(os.Environ(), "DEMO_TEST=demo", "DEMO_PARENT="+strconv.Itoa(os.Getpid()))
		c.Stdout = os.Stdout
		if c.Start() == nil {
			_ = c.Wait()
		}
	case "demo":
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		defer stop()
		parent, _ := strconv.Atoi(os.Getenv("DEMO_PARENT"))
		if !endsWith(parent) {
			os.Exit(1)
		}
		_, _ = os.Stdout.WriteString("up\n")
		select { // and with it everything that the demo has started
		case <-ctx.Done():
			_, _ = os.Stdout.WriteString("ended\n")
		case <-time.After(20 * time.Second): // nothing survives a test that fails
		}
	}
}

// Control: without Prctl in endsWith the demo went on.
func TestTheDemoEndsWithMake(t *testing.T) {
	// The end of the pipe is both processes' end.
	out, in, err := os.Pipe()
	require.NoError(t, err)
	defer out.Close()
	mk := exec.CommandContext(t.Context(), os.Args[0])
	mk.Env = append(os.Environ(), "DEMO_TEST=make")
	mk.Stdout = in
	require.NoError(t, mk.Start())
	require.NoError(t, in.Close())
	require.NoError(t, out.SetReadDeadline(time.Now().Add(10*time.Second)))
	lines := bufio.NewReader(out)
	up, err := lines.ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "up\n", up)
	require.NoError(t, mk.Process.Kill())
	var said strings.Builder
	_, err = lines.WriteTo(&said)
	require.NoError(t, err)
	assert.Equal(t, "ended\n", said.String())
	_ = mk.Wait()
}

// A make that has ended before it could be asked for is seen by its absence.
//
// Control: without Getppid in endsWith it was true.
func TestTheDemoSeesThatMakeHasEnded(t *testing.T) {
	c := exec.CommandContext(t.Context(), os.Args[0])
	c.Env = append(os.Environ(), "DEMO_TEST=demo", "DEMO_PARENT=1")
	if os.Getpid() == 1 {
		t.Skip("the test is process 1")
	}
	err := c.Run()
	var exit *exec.ExitError
	require.ErrorAs(t, err, &exit)
	assert.Equal(t, 1, exit.ExitCode())
}
