package main

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"tier-agent/internal/admission"
	"tier-agent/internal/httpapi"
)

// Each target is a command of its own, and one that is refused keeps none back.
//
// Controls: with the first failure returned at once, the third was not asked for; with
// failed not kept, the exit code was that of the last.
func TestForgetTakesSeveralTargets(t *testing.T) {
	f := newFakeAgent(t)
	f.answer = func(w http.ResponseWriter, _ *http.Request) {
		r := forgottenResult
		if len(f.requests()) == 2 {
			r.Outcome, r.Code, r.Message = admission.Refused, admission.CodeInForce, "it is in force"
		}
		_ = json.NewEncoder(w).Encode(httpapi.Event{Result: &r})
	}
	s := f.cli("forget", "old", "heavy/h1", "heavy/h3@[2001:db8::1]:9000")
	assert.Equal(t, exitFailed, s.code)
	assert.Empty(t, s.err)
	assert.Equal(t, 3, strings.Count(s.out, "haproxy edge: heavy/h3 drain(forced)"), s.out)
	assert.Equal(t, []request{
		{"forget", httpapi.Command{Tier: "old"}},
		{"forget", httpapi.Command{Server: "heavy/h1"}},
		{"forget", httpapi.Command{Server: "heavy/h3@[2001:db8::1]:9000"}},
	}, f.requests())

	f = newFakeAgent(t, one(forgottenResult)...)
	assert.Equal(t, exitDone, f.cli("forget", "heavy", "--server", "heavy/h3@192.0.2.1:9000").code)
	assert.Equal(t, []request{{"forget", httpapi.Command{Tier: "heavy", Server: "heavy/h3@192.0.2.1:9000"}}}, f.requests())
}

// An empty variable of a script names nothing; nothing is begun before all are looked at.
//
// Control: with the look for "" taken out of Args, the first was forgotten.
func TestForgetTakesNoEmptyTarget(t *testing.T) {
	f := newFakeAgent(t, one(forgottenResult)...)
	assert.Equal(t, exitUsage, f.cli("forget", "old", "").code)
	assert.Equal(t, exitUsage, f.cli("forget", "", "--server", "heavy/h1").code)
	assert.Empty(t, f.requests())
}

// Where nobody answers, the rest is not asked for.
func TestForgetStopsWhereNobodyAnswers(t *testing.T) {
	f := newFakeAgent(t)
	f.answer = func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) }
	assert.Equal(t, exitFailed, f.cli("forget", "old", "older").code)
	assert.Len(t, f.requests(), 1)
}

// What status says is to be forgotten is named so that forget takes it.
//
// Control: with i.Host left out of printIntents, the first was told by its slot alone,
// which another record may have by then.
func TestStatusNamesWhatCanBeForgotten(t *testing.T) {
	const host = "192.0.2.1:9000"
	for want, i := range map[string]httpapi.IntentStatus{
		"tier-agent forget heavy/h3@" + host + " ends that": {Tier: "heavy", Server: "heavy/h3", Stale: true, Host: host},
		"tier-agent forget heavy/h4@" + host + " ends that": {Tier: "heavy", Server: "heavy/h4@" + host, Stale: true, Host: host},
		"tier-agent forget heavy/h5 ends it":                {Tier: "heavy", Server: "heavy/h5", Stale: true},
		"tier-agent forget light ends it":                   {Tier: "light", Stale: true},
		"tier-agent forget old ends that":                   {Tier: "old", Orphan: true},
		"tier-agent forget old/o1 ends that":                {Tier: "old", Server: "old/o1", Orphan: true},
	} {
		var out strings.Builder
		printIntents(&out, []httpapi.IntentStatus{i})
		assert.True(t, strings.HasSuffix(out.String(), "; "+want+"\n"), out.String())
	}
	var out strings.Builder
	printIntents(&out, []httpapi.IntentStatus{{Tier: "heavy"}})
	assert.Empty(t, out.String(), "one that holds is readmitted")
}
