package httpapi

import (
	"context"
	"net/http"
	"net/http/httptest"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tier-agent/internal/admission"
	"tier-agent/internal/fence"
	"tier-agent/internal/tier"
)

// reloads is a Reloader that does as it is told.
type reloads func(ctx context.Context, who string, acceptClosing bool) Reload

func (f reloads) Reload(ctx context.Context, who string, acceptClosing bool) Reload {
	return f(ctx, who, acceptClosing)
}

func TestReloadOverTheSocket(t *testing.T) {
	want := Reload{
		Outcome: admission.Refused, Code: CodeInvalidConfig, Message: "the file has 1 problem", By: "unknown", Seconds: 0.5,
		Problems: []Problem{{File: "a.yaml", Line: 3, Column: 7, Path: "tiers[0].name", Message: "not a name", Remedy: "use letters"}},
		Closing:  []string{"heavy/h1 (its url has changed)"},
	}
	accepted := false
	admin := (&Admin{ReadOnly: everything().readOnly(), Controller: new(controller), Reloader: reloads(func(_ context.Context, who string, acceptClosing bool) Reload {
		assert.Equal(t, "unknown", who)
		accepted = acceptClosing
		return want
	})}).Handler()
	p := newPipes()
	startServe(t, p, admin, silent)
	for _, accept := range []bool{true, false} {
		got, err := p.client().Reload(t.Context(), accept)
		require.NoError(t, err)
		assert.Equal(t, want, got)
		assert.Equal(t, accept, accepted)
	}
	_, err := p.client().Run(t.Context(), VerbReload, Command{}, nil)
	assert.ErrorContains(t, err, "the result of something else")
}

// Controls: with the call of beyond taken out the tier was ignored; with the
// route made whatever Reloader is, the handler panicked.
func TestReloadTakesNothing(t *testing.T) {
	none := reloads(func(context.Context, string, bool) Reload { panic("reloaded") })
	h := (&Admin{ReadOnly: everything().readOnly(), Controller: new(controller), Reloader: none}).Handler()
	for body, says := range map[string]string{
		`{"tier":"heavy"}`:  `"tier" is not for reload: leave it out`,
		`{"all":true}`:      `"all" is not for reload: leave it out`,
		`{"file":"x.yaml"}`: `the command is not understood: unknown field "file"`,
		``:                  `there is no command: give a JSON object, such as {"tier": "heavy"}`,
	} {
		w := post(h, "reload", body)
		assert.Equal(t, http.StatusBadRequest, w.Code, body)
		var said Event
		decode(t, w.Body.String(), &said)
		assert.Equal(t, Event{Error: says}, said, body)
	}
	assert.Equal(t, http.StatusNotFound, post(new(controller).admin(), "reload", `{}`).Code)
	w := httptest.NewRecorder()
	everything().readOnly().Handler().ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/api/v1/reload", nil))
	assert.Equal(t, http.StatusNotFound, w.Code, "not on the read-only side")
}

func TestReloadMetrics(t *testing.T) {
	m := newMetrics(t)
	m.Reloaded(true, noon)
	assert.InDelta(t, 1, testutil.ToFloat64(m.reloadDone), 0)
	m.Reloaded(false, noon.Add(time.Hour))
	assert.InDelta(t, 0, testutil.ToFloat64(m.reloadDone), 0)
	assert.InDelta(t, noon.Unix(), testutil.ToFloat64(m.reloadTime), 0, "of the one that is in force")
	m.Reloaded(true, noon.Add(time.Minute))
	assert.InDelta(t, noon.Unix()+60, testutil.ToFloat64(m.reloadTime), 0)
}

// Controls: without the deletions the series of old stayed; without the look at
// tiers in ProbeEnded its late probe brought them back.
func TestSeriesOfTiersThatAreGone(t *testing.T) {
	m := newMetrics(t)
	late := tier.Probed{Tier: "old", Verdict: fence.Verdict{Reason: fence.ReasonInvalidated}}
	m.ProbeEnded(late)
	m.ProbeEnded(tier.Probed{Tier: "heavy", Verdict: fence.Verdict{Ready: true}})
	require.Equal(t, 15, testutil.CollectAndCount(m.probes))
	require.Equal(t, 2, testutil.CollectAndCount(m.took))

	m.SetTiers([]string{"heavy", "new"})
	m.ProbeEnded(late)
	assert.Equal(t, 10, testutil.CollectAndCount(m.probes))
	assert.Equal(t, 1, testutil.CollectAndCount(m.took))
	assert.InDelta(t, 1, testutil.ToFloat64(m.probes.WithLabelValues("heavy", "passed")), 0, "what stays is counted on")

	m.SetTiers([]string{"heavy", "old"})
	assert.InDelta(t, 0, testutil.ToFloat64(m.probes.WithLabelValues("old", "discarded_invalidated")), 0, "a tier that comes back begins anew")
}

// Control: with mu not taken in ProbeEnded, a series of a tier that had gone was
// found at the end, and the race detector spoke.
func TestStress_SeriesOfTiersThatGo(t *testing.T) {
	m := newMetrics(t)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					m.ProbeEnded(tier.Probed{Tier: "old"})
					runtime.Gosched() // or one processor is theirs for most of the time
				}
			}
		})
	}
	for range 100 {
		m.SetTiers([]string{"heavy", "old"})
		m.SetTiers([]string{"heavy"})
		assert.Equal(t, 5, testutil.CollectAndCount(m.probes))
		assert.Zero(t, testutil.CollectAndCount(m.took))
	}
	close(stop)
	wg.Wait()
}
