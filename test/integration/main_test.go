// Package integration runs the real tier-agent beside real HAProxy with the
// shipped configuration, on each of the versions that the project supports.
package integration

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"tier-agent/test/lab"
)

// binaries are built once for all tests, so that what runs is what is there.
var binaries struct{ root, agent, engine string }

func TestMain(m *testing.M) { os.Exit(runTests(m)) }

func runTests(m *testing.M) int {
	dir, err := os.MkdirTemp("", "tier-agent-it")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	binaries.root, err = filepath.Abs("../..")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	binaries.agent, binaries.engine = filepath.Join(dir, "tier-agent"), filepath.Join(dir, "engine")
	for target, source := range map[string]string{binaries.agent: "./cmd/tier-agent", binaries.engine: "./test/engine/cmd/engine"} {
		build := exec.Command("go", "build", "-trimpath", "-o", target, source)
		build.Dir = binaries.root
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "building %s: %v\n%s", source, err, out)
			return 1
		}
	}
	return m.Run()
}

// versions are the HAProxy versions to run on.
func versions() []string {
	if list := os.Getenv("TIER_AGENT_HAPROXY_VERSIONS"); list != "" {
		return strings.Fields(list)
	}
	return []string{"2.6", "3.0", "3.2"}
}

// onEach runs a test on every version, side by side: what they do most is wait.
func onEach(t *testing.T, test func(t *testing.T, haproxy string)) {
	t.Helper()
	for _, version := range versions() {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			test(t, haproxy(t, version))
		})
	}
}

// mostlyWaits lets a test run beside others of the kind, after those that keep the machine
// busy: what takes it long is HAProxy's timers.
func mostlyWaits(t *testing.T) {
	t.Helper()
	t.Parallel()
}

// haproxy gives the binary of a version. Where it is missing the test is
// skipped; in CI that is a failure.
func haproxy(t *testing.T, version string) string {
	t.Helper()
	path := exec.Command(filepath.Join(binaries.root, "scripts", "haproxy.sh"), "path", version)
	out, err := path.Output()
	if err != nil {
		why := fmt.Sprintf("HAProxy %s is not here: scripts/haproxy.sh install %s brings it", version, version)
		if os.Getenv("CI") != "" {
			t.Fatal(why)
		}
		t.Skip(why)
	}
	binary := strings.TrimSpace(string(out))
	noteVersion(t, binary)
	return binary
}

var noted sync.Map

// noteVersion leaves a line about the version in the file that make test prints.
func noteVersion(t *testing.T, binary string) {
	t.Helper()
	file := os.Getenv("TIER_AGENT_RAN_ON")
	if _, known := noted.LoadOrStore(binary, true); known || file == "" {
		return
	}
	out, err := exec.Command(binary, "-v").Output()
	if err != nil {
		t.Fatal(err)
	}
	fields := strings.Fields(string(out))
	f, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if len(fields) < 3 {
		t.Fatalf("%s -v says %q", binary, out)
	}
	if _, err := fmt.Fprintln(f, fields[2]); err != nil {
		t.Fatal(err)
	}
}

func labOptions(t *testing.T, haproxy string) lab.Options {
	t.Helper()
	// Not t.TempDir: with a long test name its path does not fit a socket.
	dir, err := os.MkdirTemp("", "ta")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if !t.Failed() {
			_ = os.RemoveAll(dir)
		}
	})
	ports, err := lab.FreePorts()
	if err != nil {
		t.Fatal(err)
	}
	return lab.Options{
		Dir: dir, Root: binaries.root, HAProxy: haproxy, Agent: binaries.agent, Engine: binaries.engine, Ports: ports,
	}
}
