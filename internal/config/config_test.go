package config

import (
	"flag"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tier-agent/test/guarantee"
)

var update = flag.Bool("update", false, "write the golden files anew")

// Negative controls, each taken out by itself, and the file that then differed:
// d.sockets in config.go (invalid-collisions, invalid-wildcard), d.admissions
// (invalid-admission), d.references in document.go (invalid-references), the call
// of overgrown in guard.go (invalid-deep, invalid-wide), d.claim in server.go
// (invalid-duplicates), the relation in probeRelation (invalid-max-age), streams,
// seen and the relation in exercise.go (invalid-exercise), the relation in
// activationRelation (invalid-activation), the test
// for a key given twice in decode.go (invalid-duplicates), slices.Contains in
// withoutInline (invalid-secrets).
func TestInvalidFiles(t *testing.T) {
	files, err := filepath.Glob("testdata/invalid-*.yaml")
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(files), 14)
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			cfg, err := Load(file)
			require.Error(t, err)
			assert.Nil(t, cfg)
			got := err.Error() + "\n"
			golden := strings.TrimSuffix(file, ".yaml") + ".golden"
			if *update {
				require.NoError(t, os.WriteFile(golden, []byte(got), 0o644))
			}
			want, err := os.ReadFile(golden)
			require.NoError(t, err)
			assert.Equal(t, string(want), got)
		})
	}
}

// Negative controls: with quote(s) put before the message in url, tokenFile or
// tokenCredential, or with the YAML error's full text in syntaxProblem, the value
// shows.
func TestProblemsHoldNoCredential(t *testing.T) {
	for _, file := range []string{"testdata/invalid-secrets.yaml", "testdata/invalid-syntax.yaml"} {
		_, err := Load(file)
		require.Error(t, err)
		assert.NotContains(guarantee.T(t), err.Error(), "hunter2")
	}
}

func TestMinimalFile(t *testing.T) {
	const file = "testdata/valid-minimal.yaml"
	cfg, err := Load(file)
	require.NoError(t, err)
	assert.Len(t, cfg.Remarks, 3)
	cfg.Remarks, cfg.places = nil, nil
	assert.Equal(t, &Config{
		File: file,
		HAProxy: []Instance{{
			Name: "edge", Runtime: Address{"unix", "/run/haproxy/admin.sock"}, Timeout: 2 * time.Second,
			HardStopAfter: 30 * time.Minute,
		}},
		StateDir: "/var/lib/tier-agent",
		Listen: Listen{
			AgentCheck: "127.0.0.1:7777",
			HTTP:       "127.0.0.1:7780",
			SPOE:       SPOE{Address: "127.0.0.1:7778", Unix: UnixSocket{Mode: 0o660}, RetryAfter: 5 * time.Second},
			Admin:      UnixSocket{Path: "/run/tier-agent/admin.sock", Mode: 0o660},
		},
		StaleAfter:  time.Hour,
		StartBudget: 2 * time.Second,
		Tiers: []Tier{{
			Name:     "heavy",
			Servers:  []Server{{Backend: "heavy", Name: "h1", URL: parseURL(t, "http://127.0.0.1:9001"), Weight: 100}},
			Health:   Health{Path: "/health", StatusMin: 200, StatusMax: 399},
			MinReady: 1, ActivationMin: 1,
			Rise: 1, Fall: 2,
			Admission: AdmissionRuntime,
			Probe: Probe{
				Interval: time.Second, Timeout: 800 * time.Millisecond, MaxAge: 5 * time.Second,
				Jitter: 0.1, MaxBody: 64 << 10,
			},
		}},
	}, cfg)
	assert.Equal(t, "heavy/h1", cfg.Tiers[0].Servers[0].FullName())
	assert.Equal(t, "unix:/run/haproxy/admin.sock", cfg.HAProxy[0].Runtime.String())
}

func TestFullFile(t *testing.T) {
	const file = "testdata/valid-full.yaml"
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	cfg, err := Parse(file, text) // its secrets are nowhere
	require.NoError(t, err)
	cfg.Remarks, cfg.places = nil, nil
	common := Probe{
		Interval: 2 * time.Second, Timeout: 1500 * time.Millisecond, MaxAge: 10 * time.Second,
		Jitter: 0.125, MaxBody: 1 << 20,
	}
	faster := common
	faster.Interval = 500 * time.Millisecond
	assert.Equal(t, &Config{
		File: file,
		HAProxy: []Instance{
			{
				Name: "edge", Runtime: Address{"unix", "/run/haproxy/admin.sock"},
				Master: &Address{"unix", "/run/haproxy/master.sock"}, Timeout: 750 * time.Millisecond,
				StateFile: "/var/lib/tier-agent/edge.state", HardStopAfter: 5 * time.Minute,
			},
			{
				Name: "edge:2", Runtime: Address{"tcp", "127.0.0.1:9999"}, Timeout: 2 * time.Second,
				StateFile: "/var/lib/tier-agent/edge2.state", HardStopAfter: 30 * time.Minute,
			},
		},
		Listen: Listen{
			AgentCheck: "0.0.0.0:0",
			HTTP:       "[::]:0",
			SPOE: SPOE{
				Unix:   UnixSocket{Path: "/tmp/gate.sock", Mode: 0o600, Group: "haproxy"},
				Linger: 3 * time.Second, RetryAfter: 90 * time.Second,
			},
			Admin: UnixSocket{Path: "/tmp/admin.sock", Mode: 0o600, Group: "1000"},
		},
		StaleAfter:  24 * time.Hour,
		StartBudget: 0,
		StateDir:    "/srv/tier-agent",
		Tiers: []Tier{
			{
				Name: "heavy",
				Servers: []Server{
					{Backend: "heavy", Name: "h1", URL: parseURL(t, "http://127.0.0.1:9001"), Weight: 80, Separate: true},
					{Backend: "heavy", Name: "h2", URL: parseURL(t, "https://[::1]:9002/engine/v2"), Weight: 100},
				},
				Health:   Health{Path: "/healthz", StatusMin: 200, StatusMax: 204},
				Identity: &Identity{Path: "/models", ID: "big-70b", Token: FileSecret("/etc/tier-agent/token")},
				Metadata: &Metadata{Path: "/info", Fields: map[string]any{
					"weights_digest": "abc", "0123": "0123", "ready": true, "replicas": int64(2), "offset": int64(-7),
					"largest": uint64(18446744073709551615), "load.limit": 0.75,
					"release": []any{"v1", "2", int64(3)},
				}, Instance: "boot_id", Same: "weights_digest", Weight: "capacity.percent"},
				MinReady: 2, ActivationMin: 2, Rise: 2, Fall: 3, StartWindow: 30 * time.Second, Ramp: 2 * time.Minute,
				Admission:      AdmissionRuntime,
				QuiescedHealth: true,
				Probe: Probe{
					Interval: 5 * time.Second, Timeout: 3 * time.Second, MaxAge: 20 * time.Second,
					Jitter: 0, MaxBody: 4096,
				},
			},
			{
				Name:     "light",
				Servers:  []Server{{Backend: "light", Name: "l1", URL: parseURL(t, "http://light.internal"), Weight: 100}},
				Health:   Health{Path: "/health", StatusMin: 200, StatusMax: 200},
				Identity: &Identity{Path: "/v1/models", ID: "small-7b", Token: CredentialSecret("light-token")},
				Exercise: &Exercise{
					Path: "/v1/completions", Body: []byte(`{"prompt": "hi", "max_tokens": 1}`),
					Interval: 30 * time.Second, Timeout: 4 * time.Second, MaxAge: 35 * time.Second,
					Answer: "choices", StatusMin: 200, StatusMax: 200, Token: FileSecret("/etc/tier-agent/light"),
				},
				MinReady: 1, ActivationMin: 1, Rise: 1, Fall: 2,
				Admission: AdmissionAgentCheck,
				Probe:     faster,
			},
			{
				Name: "bare",
				Servers: []Server{
					{Backend: "bare", Name: "b1", URL: parseURL(t, "http://127.0.0.1:9005"), Weight: 100},
					{Backend: "bare", Name: "b2", URL: parseURL(t, "http://127.0.0.1:9006"), Weight: 100},
				},
				Health: Health{Path: "/health", StatusMin: 200, StatusMax: 399},
				Exercise: &Exercise{
					Path: "/v1/chat/completions",
					Body: []byte(`{"model":"7","messages":[{"role":"user","content":"say <hi> & \n\"bye\""}],` +
						`"stop":null,"max_tokens":1,"temperature":0.5,"stream":false,"note":"two\nlines\n"}`),
					Interval: time.Minute, Timeout: 10 * time.Second, MaxAge: 190 * time.Second, StatusMin: 200, StatusMax: 299,
				},
				MinReady: 1, ActivationMin: 2, Rise: 1, Fall: 2,
				Admission: AdmissionRuntime,
				Probe:     common,
			},
			{
				Name:     "pool",
				Members:  &Members{Backend: "gpu", Probe: ProbeURL{"https://{address}:8443/engine"}, Max: 40},
				Health:   Health{Path: "/health", StatusMin: 200, StatusMax: 399},
				MinReady: 40, ActivationMin: 40, Rise: 1, Fall: 2,
				Admission: AdmissionRuntime,
				Probe:     common,
			},
			{
				Name:     "plain",
				Members:  &Members{Backend: "cpu", Max: 100},
				Health:   Health{Path: "/health", StatusMin: 200, StatusMax: 399},
				MinReady: 1, ActivationMin: 1, Rise: 1, Fall: 2,
				Admission: AdmissionRuntime,
				Probe:     common,
			},
		},
	}, cfg)
}

func TestLoadOfWhatCannotBeRead(t *testing.T) {
	folder := t.TempDir()
	_, err := Load(filepath.Join(folder, "absent.yaml"))
	assert.ErrorIs(t, err, fs.ErrNotExist)
	assert.ErrorContains(t, err, "absent.yaml")
	assert.ErrorContains(t, err, "does not exist: create it or name another one")

	_, err = Load(folder)
	assert.ErrorContains(t, err, "is a directory")

	large := filepath.Join(folder, "large.yaml")
	require.NoError(t, os.WriteFile(large, []byte(strings.Repeat("#", MaxFileSize+1)), 0o600))
	_, err = Load(large)
	assert.ErrorIs(t, err, ErrTooLarge)

	require.NoError(t, os.Truncate(large, MaxFileSize))
	_, err = Load(large)
	assert.IsType(t, Problems{}, err, "a file of exactly the limit is read")
}

func TestByteOrderMarkAndLineEndings(t *testing.T) {
	data, err := os.ReadFile("testdata/valid-minimal.yaml")
	require.NoError(t, err)
	text := "\ufeff" + strings.ReplaceAll(string(data), "\n", "\r\n")
	_, err = Parse("windows.yaml", []byte(text))
	assert.NoError(t, err)
}

func parseURL(t testing.TB, s string) *url.URL {
	t.Helper()
	u, err := url.Parse(s)
	require.NoError(t, err)
	return u
}

// Negative control: without the maxItems check in sequence the list is walked and
// its items are reported.
func TestListsAreBounded(t *testing.T) {
	_, err := Parse("f", []byte("tiers:\n"+strings.Repeat("  - x\n", maxItems+1)))
	assert.EqualError(t, err, "f:2:3: tiers: 10001 items; list at most 10000")
}

// The parser recurses and copies for every one of these; each has to be refused
// before it. Negative control: without the call of overgrown in syntax "flow" and
// "block" reach the parser, and the messages differ.
func TestOvergrownFilesAreRefusedUnparsed(t *testing.T) {
	for name, text := range map[string]string{
		"flow":      strings.Repeat("[", 1000),
		"mappings":  strings.Repeat("{a: ", 1000),
		"block":     strings.Repeat("- ", 1000),
		"keys":      strings.Repeat("? ", 1000),
		"one line":  strings.Repeat("a: ", 1000),
		"flow keys": "[" + strings.Repeat("a: ", 1000),
		"anchors":   strings.Repeat("&a ", 1000),
		"tags":      strings.Repeat("!!str ", 1000),
		"wide":      strings.Repeat("a: 1\n", 1001),
		"wide list": "- " + strings.Repeat("a: 1\n  ", 1001),
	} {
		_, err := Parse("f", []byte(text))
		assert.Regexp(t, `^f:\d+:\d+: (nested deeper than 64 levels|more than 1000 keys in one mapping); [^\n]*$`, err.Error(), name)
	}
}

// Evidence outlives one probe without an answer, unless the file says otherwise.
func TestMaxAgeFollowsTheInterval(t *testing.T) {
	for probe, want := range map[string]time.Duration{
		"":                        5 * time.Second,
		"probe: {interval: 3s}":   9800 * time.Millisecond,
		"probe: {interval: 1m}":   180800 * time.Millisecond,
		"probe: {max_age: 4s}":    4 * time.Second,
		"probe: {timeout: 3s}":    6 * time.Second,
		"probe: {interval: 50ms}": 5 * time.Second,
	} {
		for _, common := range []bool{true, false} {
			tier, top := "", ""
			if common {
				top = probe
			} else if probe != "" {
				tier = ", " + probe
			}
			cfg, err := Parse("x.yaml", []byte(top+"\ntiers: [{name: a, admission: agent-check, servers: [{server: b/1, url: 'http://127.0.0.1'}]"+tier+"}]\n"))
			require.NoError(t, err, probe)
			assert.Equal(t, want, cfg.Tiers[0].Probe.MaxAge, probe)
		}
	}
}
