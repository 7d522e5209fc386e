package httpapi

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"tier-agent/internal/observe"
	"tier-agent/internal/runtimeapi"
	"tier-agent/internal/tier"
	"tier-agent/test/document"
)

// showing is a HAProxy that has old/o1 and counted this on it; nil for not
// counted.
func showing(instance string, left *observe.InFlight) observe.View {
	o := observe.View{
		Instance: instance, At: noon, Servers: map[string]observe.Server{"old/o1": {Admin: runtimeapi.ForcedDrain}},
	}
	if left != nil {
		o.InFlight = map[string]observe.InFlight{"old/o1": *left}
	}
	return o
}

func lost(instance string) observe.View {
	o := showing(instance, &observe.InFlight{Streams: 9}) // of the last good read
	o.Err = errors.New("gone")
	return o
}

// shown is what status says of old/o1.
func shown(a tier.Answer, observed ...observe.View) ServerStatus {
	w := world{observed: observed, tiers: []tier.Status{{
		Name: "old", Answer: a, Servers: []tier.ServerStatus{{Backend: "old", Name: "o1", Answer: a}},
	}}}
	return w.readOnly().Status().Tiers[0].Servers[0]
}

// Controls: with left.some taken out of Status, each was quiesced; with the case of
// o.Err taken out of leftOf, the 9 of a HAProxy that is gone counted; with that of
// !counted, what nobody had counted was 0.
func TestWhatIsLeftOnAServer(t *testing.T) {
	none, two, queued := &observe.InFlight{}, &observe.InFlight{Streams: 2}, &observe.InFlight{Queue: 1}
	elsewhere := observe.View{Instance: "other", At: noon, Servers: map[string]observe.Server{"x/y": up}}
	for what, c := range map[string]struct {
		answer   tier.Answer
		observed []observe.View
		state    string
		left     *LeftStatus
	}{
		"open":                       {ready, []observe.View{showing("edge", two)}, "ready", nil},
		"nothing left":               {quiesced, []observe.View{showing("edge", none)}, "quiesced", &LeftStatus{}},
		"streams":                    {quiesced, []observe.View{showing("edge", two), showing("core", two)}, "draining", &LeftStatus{Streams: 4}},
		"a queue alone":              {quiesced, []observe.View{showing("edge", queued)}, "draining", &LeftStatus{Queue: 1}},
		"not counted":                {quiesced, []observe.View{showing("edge", nil)}, "quiesced", &LeftStatus{Unknown: []string{"edge"}}},
		"not readable":               {quiesced, []observe.View{lost("edge")}, "quiesced", &LeftStatus{Unknown: []string{"edge"}}},
		"not yet read":               {quiesced, []observe.View{{Instance: "edge"}}, "quiesced", &LeftStatus{Unknown: []string{"edge"}}},
		"one of two readable":        {quiesced, []observe.View{lost("edge"), showing("core", two)}, "draining", &LeftStatus{Streams: 2, Unknown: []string{"edge"}}},
		"nothing on that one":        {quiesced, []observe.View{lost("edge"), showing("core", none)}, "quiesced", &LeftStatus{Unknown: []string{"edge"}}},
		"a HAProxy without the name": {quiesced, []observe.View{elsewhere, showing("core", none)}, "quiesced", &LeftStatus{}},
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
			seen []observe.View
		}{
			{"some", []observe.View{showing("edge", &observe.InFlight{Streams: 1})}},
			{"some in one, not known of another", []observe.View{showing("edge", &observe.InFlight{Streams: 1}), lost("core")}},
			{"not known", []observe.View{lost("edge")}},
			{"none", []observe.View{showing("edge", &observe.InFlight{})}},
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
