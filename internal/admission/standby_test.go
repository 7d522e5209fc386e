package admission

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tier-agent/internal/members"
	"tier-agent/internal/probe"
	"tier-agent/internal/runtimeapi"
)

// newStandby is a lab in which gpu2's line disables it on hap1, whose intents and
// openings are on disk.
func newStandby(t testing.TB) (*lab, *members.Openings) {
	t.Helper()
	openings, err := members.Open(t.TempDir())
	require.NoError(t, err)
	l := newLab(t, func(o *Options, _ *runtimeapi.Options) { o.Openings = openings })
	l.hap1.with(func() { l.hap1.disabled["llm/gpu2"] = true })
	l.hap1.operator("llm/gpu2", "maint")
	l.hap1.with(func() { l.hap1.admin["llm/gpu2"] |= runtimeapi.ConfigMaint })
	for _, s := range []string{"llm/gpu1", "llm/gpu2"} {
		require.True(t, l.monitor.ProbeNow(t.Context(), s).Ready)
	}
	l.watching(t)
	return l, openings
}

var onHap1 = members.Place{HAProxy: "hap1", Server: "llm/gpu2"}

// A server whose line disables it is closed until somebody opens it, and open after that:
// where a reload closes it again, on evidence. Nothing is known of any other.
//
// Controls: without standbys it stayed closed after the reload; with any listed server
// taken for a newcomer it was opened although nobody had.
func TestAStandbyThatWasOpenedIsOpenedAgain(t *testing.T) {
	l, openings := newStandby(t)
	l.turn(t)
	require.Equal(t, asStarted, l.hap1.state("llm/gpu2").String(), "nobody has opened it")
	require.Equal(t, map[string][]string{"hap1": {"llm/gpu2 is maint(forced,config)"}}, l.held())
	l.quiesced(t, llm)
	require.Equal(t, Done, l.take(t, llm).Outcome)
	l.turn(t)
	require.Equal(t, asOpened, l.hap1.state("llm/gpu2").String())
	assert.Len(t, openings.Of("hap1"), 1)
	assert.Empty(t, openings.Of("hap2"), "its line there does not disable it")

	l.prober.says("llm/gpu2", probe.Result{Reason: "health_http_503"})
	l.monitor.ProbeNow(t.Context(), "llm/gpu2")
	l.hap1.reload()
	l.turn(t)
	assert.Equal(t, asStarted, l.hap1.state("llm/gpu2").String(), "there is no evidence")
	assert.Empty(t, l.held())
	l.prober.set("llm/gpu2", nil)
	l.monitor.ProbeNow(t.Context(), "llm/gpu2")
	l.turn(t)
	assert.Equal(t, asOpened, l.hap1.state("llm/gpu2").String())

	// A quiesce keeps it closed over a reload, and its readmit takes nobody's hold.
	l.quiesced(t, llm)
	l.hap1.reload()
	l.turn(t)
	assert.Equal(t, asStarted, l.hap1.state("llm/gpu2").String())
	r := l.readmit(t, llm)
	assert.Equal(t, Done, r.Outcome, r.Message)
	assert.Equal(t, asOpened, l.hap1.state("llm/gpu2").String())

	// Its line does not disable it any more.
	l.hap1.with(func() { delete(l.hap1.disabled, "llm/gpu2") })
	l.hap1.reload()
	l.turn(t)
	assert.Empty(t, openings.Of("hap1"))
}

// Control: without hold in standby, what somebody had put in maintenance was opened after
// the next reload.
func TestG10_AStandbyInMaintenanceStaysSo(t *testing.T) {
	l, openings := newStandby(t)
	l.hap1.operator("llm/gpu2", "ready") // by hand, which is as good
	l.turn(t)
	l.hap1.operator("llm/gpu2", "maint")
	l.hap1.with(func() { l.hap1.admin["llm/gpu2"] |= runtimeapi.ConfigMaint })
	l.turn(t)
	opening, _ := openings.Get(onHap1)
	assert.True(t, opening.Held)
	l.hap1.reload()
	l.turn(t)
	assert.Equal(t, asStarted, l.hap1.state("llm/gpu2").String())
	assert.Equal(t, map[string][]string{"hap1": {"llm/gpu2 is maint(forced,config)"}}, l.held())
}
