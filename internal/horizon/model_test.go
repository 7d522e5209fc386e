package horizon

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"pgregory.net/rapid"
)

// history is what the horizon should know, told another way: for each name all
// publications of its present life, and nothing that is carried along.
type history struct {
	clock time.Time
	lives map[string][]publication
	order []string
}

type publication struct {
	at  time.Time
	row Row
}

func (m *history) publish(rows []Row) {
	lives := map[string][]publication{}
	m.order = nil
	for _, row := range rows {
		lives[row.Name] = append(m.lives[row.Name], publication{m.clock, row})
		m.order = append(m.order, row.Name)
	}
	m.lives = lives
}

// changed goes back from the last publication to the first that said the same.
func (m *history) changed(name string) time.Time {
	life := m.lives[name]
	i := len(life) - 1
	for i > 0 && life[i-1].row == life[i].row {
		i--
	}
	return life[i].at
}

func (m *history) everServed(name string) bool {
	for _, p := range m.lives[name] {
		if p.row.Serving {
			return true
		}
	}
	return false
}

func (m *history) judge(staleAfter time.Duration) Verdict {
	v := Verdict{Reason: ReasonNoTier}
	someServe := false
	for _, name := range m.order {
		life := m.lives[name]
		row := life[len(life)-1].row
		switch {
		case row.Quiesced:
		case row.Serving:
			someServe = true
		case m.everServed(name):
			last := m.changed(name)
			aged := staleAfter > 0 && m.clock.After(last.Add(staleAfter))
			if aged {
				v.StaleDegraded = append(v.StaleDegraded, Stale{name, row.Reason, int64(m.clock.Sub(last).Seconds())})
			} else {
				v.Failing = append(v.Failing, Failing{name, row.Reason})
			}
		}
	}
	if someServe {
		v.Ready = len(v.Failing) == 0
		v.Reason = map[bool]string{true: ReasonServing, false: ReasonFailing}[v.Ready]
	}
	return v
}

// Control: each of these, taken out alone, made it fail within 100 runs:
// `row == was.row` made always true or always false, `|| was.served`, `known`
// (rows that are gone are carried along), `!e.row.Quiesced` in failing and in
// serves, `age <= staleAfter` made `<`, `staleAfter <= 0`.
func TestTheHorizonAgreesWithItsModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h, c := newHorizon()
		m := &history{clock: c.now()}
		staleAfter := horizon
		names := []string{"a", "b", "c"}
		bit := rapid.IntRange(0, 1)
		var last []Row
		publish := func(rows []Row) {
			last = rows
			h.Publish(rows)
			m.publish(rows)
		}
		drawn := func(t *rapid.T, name string) Row {
			return Row{
				Name: name, Serving: rapid.Bool().Draw(t, "serving"), Quiesced: rapid.IntRange(0, 3).Draw(t, "quiesced") == 0,
				Ready: bit.Draw(t, "ready"), Reason: []string{"probe_timeout", "health_http_503"}[bit.Draw(t, "reason")],
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"publish": func(t *rapid.T) {
				var rows []Row
				for _, name := range rapid.Permutation(names).Draw(t, "order")[:rapid.IntRange(0, 3).Draw(t, "how many")] {
					rows = append(rows, drawn(t, name))
				}
				publish(rows)
			},
			"publish one change": func(t *rapid.T) {
				if len(last) == 0 {
					t.Skip("nothing to change")
				}
				rows := slices.Clone(last)
				i := rapid.IntRange(0, len(rows)-1).Draw(t, "which")
				rows[i] = drawn(t, rows[i].Name)
				publish(rows)
			},
			"publish the same": func(*rapid.T) { publish(slices.Clone(last)) },
			"clock": func(t *rapid.T) {
				d := rapid.SampledFrom([]time.Duration{
					1, -1, time.Minute, -time.Minute, horizon - 1, horizon, horizon + 1, -horizon, 41 * day,
				}).Draw(t, "step")
				c.step(d)
				m.clock = m.clock.Add(d)
			},
			"stale after": func(t *rapid.T) {
				staleAfter = rapid.SampledFrom([]time.Duration{horizon, horizon, horizon, time.Minute, 0, -1}).Draw(t, "horizon")
				h.SetStaleAfter(staleAfter)
			},
			"": func(t *rapid.T) { // after every action
				if want, got := m.judge(staleAfter), h.Judge(); !assert.ObjectsAreEqual(want, got) {
					t.Fatalf("%+v, the model says %+v", got, want)
				}
				for _, name := range names {
					changed, known := h.LastChange(name)
					if known != (len(m.lives[name]) > 0) || known && !changed.Equal(m.changed(name)) {
						t.Fatalf("%s: changed %v (known: %v), the model says otherwise", name, changed, known)
					}
				}
			},
		})
	})
}
