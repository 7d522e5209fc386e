package httpapi

import (
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tier-agent/internal/admission"
	"tier-agent/internal/fence"
	"tier-agent/internal/probe"
	"tier-agent/internal/tier"
)

func newMetrics(t testing.TB) *Metrics {
	t.Helper()
	m := NewMetrics("1.2.3", []string{"up", "down"})
	m.Watch(everything(), everything())
	return m
}

// own are the names of the metrics that are not Go's or the process's.
func own(t testing.TB, m *Metrics) []string {
	t.Helper()
	families, err := m.registry.Gather()
	require.NoError(t, err)
	var names []string
	for _, f := range families {
		if strings.HasPrefix(f.GetName(), "tier_agent_") {
			names = append(names, f.GetName())
		}
	}
	return names
}

// The names, labels and help are an interface: dashboards stand on them.
func TestMetricsGolden(t *testing.T) {
	m := newMetrics(t)
	m.ProbeEnded(tier.Probed{Tier: "heavy", Verdict: fence.Verdict{Ready: true}, Took: 4 * time.Millisecond})
	m.Answered("up")
	m.TransitionEnded(admission.Result{Verb: admission.VerbDrain, Outcome: admission.TimedOut})
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	require.Equal(t, http.StatusOK, w.Code)
	var lines []string
	for line := range strings.Lines(w.Body.String()) {
		if strings.Contains(line, "tier_agent_") {
			lines = append(lines, line)
		}
	}
	golden(t, "metrics.txt", []byte(strings.Join(lines, "")))
}

func TestMetricsLint(t *testing.T) {
	m := newMetrics(t)
	m.ProbeEnded(tier.Probed{Tier: "heavy"})
	names := own(t, m)
	require.Len(t, names, 17)
	problems, err := testutil.GatherAndLint(m.registry, names...)
	require.NoError(t, err)
	assert.Empty(t, problems)
}

// A discarded probe has seen something; that must not read as a verdict.
//
// Control: with the first two cases of outcomeOf taken out, the discarded
// probes counted as failed and as timeout.
func TestProbeOutcomes(t *testing.T) {
	m := newMetrics(t)
	for n, p := range []tier.Probed{
		{Verdict: fence.Verdict{Ready: true, Reason: probe.IdentityPassed}, Observed: probe.IdentityPassed},
		{Verdict: fence.Verdict{Reason: probe.IdentityMismatch}, Observed: probe.IdentityMismatch},
		{Verdict: fence.Verdict{Reason: probe.Timeout}, Observed: probe.Timeout},
		{Verdict: fence.Verdict{Reason: fence.ReasonInvalidated}, Observed: probe.IdentityPassed},
		{Verdict: fence.Verdict{Reason: fence.ReasonSuperseded}, Observed: probe.Timeout},
	} {
		p.Tier = "light"
		for range n + 1 {
			m.ProbeEnded(p)
		}
	}
	for n, outcome := range []string{"passed", "failed", "timeout", "discarded_invalidated", "discarded_superseded"} {
		assert.InDelta(t, n+1, testutil.ToFloat64(m.probes.WithLabelValues("light", outcome)), 0, outcome)
		assert.Zero(t, testutil.ToFloat64(m.probes.WithLabelValues("heavy", outcome)), outcome)
	}
}

// A completion of some seconds is counted, and is no time of a probe.
func TestExercisesAreCountedAndNotTimed(t *testing.T) {
	m := newMetrics(t)
	m.ProbeEnded(tier.Probed{Tier: "light", Exercise: true, Verdict: fence.Verdict{Ready: true, Reason: probe.ExercisePassed}, Took: 7 * time.Second})
	assert.InDelta(t, 1, testutil.ToFloat64(m.probes.WithLabelValues("light", "passed")), 0)
	assert.Zero(t, testutil.CollectAndCount(m.took))
}

// Whatever comes over the wire, no series appears: requests for unknown names
// leave the set of label values as it was.
func TestLabelValuesComeFromTheConfiguration(t *testing.T) {
	m := newMetrics(t)
	ro := everything().readOnly()
	ro.Metrics = m.Handler()
	h := ro.Handler()
	for _, path := range []string{"/readyz/" + hostile, "/readyz/" + hostile + "/h1", "/" + hostile, "/metrics?name[]=" + hostile} {
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, path, nil))
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	label := regexp.MustCompile(`[{,](\w+)="([^"]*)"`)
	values := map[string][]string{}
	for line := range strings.Lines(w.Body.String()) {
		if !strings.HasPrefix(line, "tier_agent_") {
			continue
		}
		for _, pair := range label.FindAllStringSubmatch(line, -1) {
			if name, value := pair[1], pair[2]; name != "le" && !slices.Contains(values[name], value) {
				values[name] = append(values[name], value)
			}
		}
	}
	for name := range values {
		slices.Sort(values[name])
	}
	assert.Equal(t, map[string][]string{
		"haproxy": {"edge", "lost", "new", "odd"},
		"kind":    {"down", "up"},
		"outcome": {"discarded_invalidated", "discarded_superseded", "done", "failed", "incomplete", "passed", "refused", "timed_out", "timeout"},
		"server":  {"heavy/h1", "heavy/h2", "light/l1", "old/o1"},
		"tier":    {"heavy", "light", "old"},
		"verb":    {"drain", "invalidate", "override", "quiesce", "readmit"},
		"version": {"1.2.3"},
	}, values)
}
