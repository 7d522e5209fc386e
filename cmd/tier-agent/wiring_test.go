package main

import (
	"log/slog"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tier-agent/internal/agentcheck"
	"tier-agent/internal/observe"
	"tier-agent/internal/probe"
	"tier-agent/internal/tier"
	"tier-agent/test/guarantee"
)

const wired = `
tiers:
  - name: heavy
    servers: [{server: b/h1, url: "http://127.0.0.1:9001/engine", weight: 80}, {server: b/h2, url: "http://127.0.0.1:9002"}]
    health: {path: /up, status: 200-204}
    identity: {path: /v1/models, id: m1}
    metadata: {path: /info, fields: {build: "42"}, changes_are_restarts: boot, same_across_tier: digest, weight: capacity}
    rise: 2
    fall: 3
    start_window: 30s
    ramp: 1m
    exercise: {path: /v1/completions, body: {max_tokens: 1}, interval: 9s, timeout: 3s, max_age: 20s, answer: text, status: 200-201}
    min_ready: 2
    admission: agent-check
    probe: {interval: 2s, timeout: 1s, max_age: 7s, jitter: 20%, max_body: 4096}
  - name: bare
    servers: [{server: bare/b1, url: "http://127.0.0.1:9003"}]
    admission: agent-check
`

// Everything of the file arrives where it is used.
func TestSpecs(t *testing.T) {
	all := specs(configure(t, wired), nil)
	require.Len(t, all, 2)
	heavy, h1 := all[0], all[0].Servers[0]
	assert.Equal(t, []any{"heavy", 2, true, true, 2 * time.Second, 0.2, 7 * time.Second},
		[]any{heavy.Name, heavy.MinReady, heavy.Identified, heavy.AgentWords, heavy.Interval, heavy.Jitter, heavy.MaxAge})
	assert.Equal(t, []any{"b", "h1", 80, "http://127.0.0.1:9001/engine"},
		[]any{h1.Backend, h1.Name, h1.Weight, h1.Target.URL.String()})
	assert.Equal(t, probe.Health{Path: "/up", StatusMin: 200, StatusMax: 204}, h1.Target.Health)
	assert.Equal(t, "/v1/models m1", h1.Target.Identity.Path+" "+h1.Target.Identity.ID)
	assert.Nil(t, h1.Target.Identity.Token)
	assert.Equal(t, "/info", h1.Target.Metadata.Path)
	assert.Equal(t, time.Second, h1.Target.Timeout)
	assert.EqualValues(t, 4096, h1.Target.MaxBody)
	assert.Equal(t, []any{2, 3, 30 * time.Second, time.Minute, "boot", "digest", "capacity"},
		[]any{heavy.Rise, heavy.Fall, heavy.StartWindow, heavy.Ramp, heavy.Instance, heavy.SameField, heavy.WeightField})
	assert.Equal(t, []string{"boot", "digest", "capacity"}, h1.Target.Metadata.Collect)
	assert.Equal(t, []any{1, 2, time.Duration(0)}, []any{all[1].Rise, all[1].Fall, all[1].Ramp})
	assert.Equal(t, &probe.Exercise{
		Path: "/v1/completions", Body: []byte(`{"max_tokens":1}`), StatusMin: 200, StatusMax: 201, Answer: "text", Timeout: 3 * time.Second,
	}, h1.Target.Exercise)
	x := *heavy.Exercise
	x.Subject, x.Manner = "", ""
	assert.Equal(t, tier.Exercise{Interval: 9 * time.Second, MaxAge: 20 * time.Second, Timeout: 3 * time.Second}, x)
	bare := all[1]
	assert.Nil(t, bare.Exercise)
	assert.Nil(t, bare.Servers[0].Target.Exercise)
	assert.False(t, bare.Identified)
	assert.Nil(t, bare.Servers[0].Target.Identity)
	assert.Nil(t, bare.Servers[0].Target.Metadata)
}

// The subject of evidence changes with all that the evidence is about, and with
// nothing else.
func TestSubject(t *testing.T) {
	subjects := map[string]string{}
	of := func(text string) string { return specs(configure(t, text), nil)[0].Servers[0].Subject }
	const server = `servers: [{server: b/h1, url: "http://127.0.0.1:9001"}], admission: agent-check`
	for name, rest := range map[string]string{
		"bare":             "",
		"health path":      ", health: {path: /up}",
		"health status":    ", health: {status: 200}",
		"identity":         ", identity: {id: m1}",
		"another identity": ", identity: {id: m2}",
		"identity's path":  ", identity: {id: m1, path: /models}",
		"metadata":         ", metadata: {path: /info, fields: {build: a}}",
		"another value":    ", metadata: {path: /info, fields: {build: b}}",
		"another field":    ", metadata: {path: /info, fields: {rev: a}}",
		"a text":           `, metadata: {path: /info, fields: {build: "42"}}`,
		"a number":         ", metadata: {path: /info, fields: {build: 42}}",
		"one of":           ", metadata: {path: /info, fields: {build: {one_of: [42]}}}",
		"restarts":         ", metadata: {path: /info, fields: {build: a}, changes_are_restarts: boot}",
		"the same":         ", metadata: {path: /info, fields: {build: a}, same_across_tier: boot}",
		"a weight":         ", metadata: {path: /info, fields: {build: a}, weight: boot}",
	} {
		s := of("tiers: [{name: t, " + server + rest + "}]")
		assert.Empty(guarantee.T(t), subjects[s], "%s is as %s", name, subjects[s])
		subjects[s] = name
	}
	with := func(rest string) string { return of("tiers: [{name: t, " + server + rest + "}]") }
	assert.Equal(t, with(", identity: {id: m1}"), with(", identity: {id: m1, token_file: /etc/token}"))
	assert.Equal(t, with(""), with(", probe: {interval: 2s}, min_ready: 1"))
	assert.Equal(t, with(", metadata: {path: /info, fields: {a: v, b: w}}"), with(", metadata: {path: /info, fields: {b: w, a: v}}"))
}

// The manner of a probe changes with what the subject is silent about.
func TestManner(t *testing.T) {
	manners := map[string]string{}
	for name, rest := range map[string]string{
		"plain":         "",
		"a timeout":     ", probe: {timeout: 700ms}",
		"a bound":       ", probe: {max_body: 4096}",
		"a token":       ", identity: {id: m1, token_file: /etc/token}",
		"another token": ", identity: {id: m1, token_file: /etc/token2}",
		"a credential":  ", identity: {id: m1, token_credential: token}",
	} {
		text := `tiers: [{name: t, servers: [{server: b/h1, url: "http://127.0.0.1:9001"}], admission: agent-check` + rest + "}]"
		m := specs(configure(t, text), nil)[0].Servers[0].Manner
		assert.Empty(t, manners[m], "%s is as %s", name, manners[m])
		manners[m] = name
		assert.Equal(t, m, specs(configure(t, text), nil)[0].Servers[0].Manner)
	}
}

// What an exercise asks, how, and when are told apart: the first makes its evidence
// new, any makes it be asked anew, and none touches the server's own.
func TestExerciseSubjectAndManner(t *testing.T) {
	of := func(rest string) tier.Spec {
		return specs(configure(t, `tiers: [{name: t, servers: [{server: b/h1, url: "http://127.0.0.1:9001"}], admission: agent-check, `+rest+"}]"), nil)[0]
	}
	plain := of("exercise: {body: {}}")
	assert.Equal(t, of("min_ready: 1").Servers[0].Subject, plain.Servers[0].Subject)
	subjects, all := map[string]string{}, map[tier.Exercise]string{}
	for rest, subject := range map[string]bool{
		"exercise: {body: {}}":                          true,
		"exercise: {body: {a: 1}}":                      true,
		"exercise: {body: {}, path: /p}":                true,
		"exercise: {body: {}, answer: a}":               true,
		"exercise: {body: {}, status: 200}":             true,
		"exercise: {body: {}, interval: 2m}":            false,
		"exercise: {body: {}, max_age: 5m}":             false,
		"exercise: {body: {}, timeout: 9s}":             false,
		"exercise: {body: {}, token_file: /a}":          false,
		"exercise: {body: {}, token_credential: a}":     false,
		"exercise: {body: {}}, probe: {max_body: 4096}": false,
	} {
		x := *of(rest).Exercise
		assert.Empty(t, all[x], "%s is as %s", rest, all[x])
		all[x] = rest
		if subject {
			assert.Empty(guarantee.T(t), subjects[x.Subject], "%s is as %s", rest, subjects[x.Subject])
			subjects[x.Subject] = rest
		} else {
			assert.Equal(t, plain.Exercise.Subject, x.Subject, rest)
		}
		assert.Equal(t, x, *of(rest).Exercise)
	}
}

// agent-check may ask for a server or for a whole tier; an unknown name is
// neither.
func TestAgentSource(t *testing.T) {
	model, err := tier.New(specs(configure(t, wired), nil), time.Now)
	require.NoError(t, err)
	source := agentSource{model, new(observe.Polls)}
	state, known := source.AgentState([]byte("b/h1"))
	assert.True(t, known)
	assert.Equal(t, agentcheck.State{Reason: "probe_pending", Weight: 80, AdminWords: true}, state)
	state, known = source.AgentState([]byte("heavy"))
	assert.True(t, known)
	assert.Equal(t, agentcheck.State{Reason: "probe_pending", AdminWords: true}, state)
	_, err = model.Close(tier.Target{Tier: "heavy"}, tier.Closure{})
	require.NoError(t, err)
	state, _ = source.AgentState([]byte("b/h2"))
	assert.True(guarantee.T(t), state.Quiesced)
	_, known = source.AgentState([]byte("b/h3"))
	assert.False(t, known)
	for begun, want := range map[string]bool{"": true, "b/h": true, "b/h1": false, "b/h1 ": false, "b/h3": false, "heav": true, "heavy": false} {
		assert.Equal(t, want, source.Continues([]byte(begun)), "%q", begun)
	}
}

// A process that may not have many files gives each listener a part of them, and keeps some.
func TestCaps(t *testing.T) {
	var was syscall.Rlimit
	require.NoError(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &was))
	defer func() { require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &was)) }()
	for limit, want := range map[uint64]caps{256: {128, 64, 32, 16, 32, 16}, 1024: {512, 256, 128, 64, 128, 64}, enoughFiles: {}} {
		if limit > was.Max {
			continue // the machine does not let it be tried
		}
		require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: limit, Max: was.Max}))
		assert.Equal(t, want, newCaps(slog.New(slog.DiscardHandler)), "%d", limit)
	}
}
