package httpapi

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"tier-agent/internal/admission"
	"tier-agent/internal/runtimeapi"
	"tier-agent/internal/tier"
	"tier-agent/test/document"
)

// showing is a HAProxy that has old/o1 and counted this on it; nil for not
// counted.
func showing(instance string, left *admission.Left) admission.Observed {
	o := admission.Observed{
		Instance: instance, At: noon, Servers: map[string]runtimeapi.AdminState{"old/o1": runtimeapi.ForcedDrain},
	}
	if left != nil {
		o.Left = map[string]admission.Left{"old/o1": *left}
	}
	return o
}

func lost(instance string) admission.Observed {
	o := showing(instance, &admission.Left{Streams: 9}) // of the last good read
	o.Err = errors.New("gone")
	return o
}

// shown is what status says of old/o1.
func shown(a tier.Answer, observed ...admission.Observed) ServerStatus {
	w := world{observed: observed, tiers: []tier.Status{{
		Name: "old", Answer: a, Servers: []tier.ServerStatus{{Backend: "old", Name: "o1", Answer: a}},
	}}}
	return w.readOnly().Status().Tiers[0].Servers[0]
}

// Controls: with left.some taken out of Status, each was quiesced; with the case of
// o.Err taken out of leftOf, the 9 of a HAProxy that is gone counted; with that of
// !counted, what nobody had counted was 0.
func TestWhatIsLeftOnAServer(t *testing.T) {
	none, two, queued := &admission.Left{}, &admission.Left{Streams: 2}, &admission.Left{Queue: 1}
	elsewhere := admission.Observed{Instance: "other", At: noon, Servers: map[string]runtimeapi.AdminState{"x/y": 0}}
	for what, c := range map[string]struct {
		answer   tier.Answer
		observed []admission.Observed
		state    string
		left     *LeftStatus
	}{
		"open":                       {ready, []admission.Observed{showing("edge", two)}, "ready", nil},
		"nothing left":               {quiesced, []admission.Observed{showing("edge", none)}, "quiesced", &LeftStatus{}},
		"streams":                    {quiesced, []admission.Observed{showing("edge", two), showing("core", two)}, "draining", &LeftStatus{Streams: 4}},
		"a queue alone":              {quiesced, []admission.Observed{showing("edge", queued)}, "draining", &LeftStatus{Queue: 1}},
		"not counted":                {quiesced, []admission.Observed{showing("edge", nil)}, "quiesced", &LeftStatus{Unknown: []string{"edge"}}},
		"not readable":               {quiesced, []admission.Observed{lost("edge")}, "quiesced", &LeftStatus{Unknown: []string{"edge"}}},
		"not yet read":               {quiesced, []admission.Observed{{Instance: "edge"}}, "quiesced", &LeftStatus{Unknown: []string{"edge"}}},
		"one of two readable":        {quiesced, []admission.Observed{lost("edge"), showing("core", two)}, "draining", &LeftStatus{Streams: 2, Unknown: []string{"edge"}}},
		"nothing on that one":        {quiesced, []admission.Observed{lost("edge"), showing("core", none)}, "quiesced", &LeftStatus{Unknown: []string{"edge"}}},
		"a HAProxy without the name": {quiesced, []admission.Observed{elsewhere, showing("core", none)}, "quiesced", &LeftStatus{}},
		"no HAProxy":                 {quiesced, nil, "quiesced", nil},
	} {
		s := shown(c.answer, c.observed...)
		assert.Equal(t, c.state, s.State, what)
		assert.Equal(t, c.left, s.Left, what)
	}
}

// The table for people is what the code says.
func TestTheTableOfDraining(t *testing.T) {
	const heading = "| the server is | its streams and queue in HAProxy | somebody else holds it | state |\n|---|---|---|---|\n"
	var b strings.Builder
	for _, server := range []struct {
		is     string
		answer tier.Answer
	}{{"quiesced", quiesced}, {"open, and ready", ready}} {
		for _, left := range []struct {
			is   string
			seen []admission.Observed
		}{
			{"some", []admission.Observed{showing("edge", &admission.Left{Streams: 1})}},
			{"some in one, not known of another", []admission.Observed{showing("edge", &admission.Left{Streams: 1}), lost("core")}},
			{"not known", []admission.Observed{lost("edge")}},
			{"none", []admission.Observed{showing("edge", &admission.Left{})}},
		} {
			for _, held := range []bool{false, true} {
				s := shown(server.answer, left.seen...)
				state := s.State
				if held {
					state = server.answer.State.With(s.Left.some(), true).String()
				}
				fmt.Fprintf(&b, "| %s | %s | %s | `%s` |\n", server.is, left.is, map[bool]string{true: "yes", false: "no"}[held], state)
			}
		}
	}
	document.Table(t, heading, b.String(), *update)
}
