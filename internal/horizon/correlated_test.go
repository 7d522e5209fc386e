package horizon

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// Controls, each seen to fail: `!m.Unreachable`, `m.Excluded`, `IsZero`,
// leastCorrelated made 1, the comparison with interval taken out, and `>` there
// made `>=`.
func TestACorrelatedFailureIsEverybodysAtOnce(t *testing.T) {
	const interval = time.Second
	t0 := time.Unix(1_800_000_000, 0)
	lost := func(after time.Duration) Member { return Member{Unreachable: true, Since: t0.Add(after)} }
	closed := func(m Member) Member { m.Excluded = true; return m }
	for name, tc := range map[string]struct {
		members []Member
		count   int
	}{
		"none":                               {nil, 0},
		"one alone":                          {[]Member{lost(0)}, 0},
		"two at once":                        {[]Member{lost(0), lost(0)}, 2},
		"within the interval, its edge":      {[]Member{lost(interval / 2), lost(0), lost(interval)}, 3},
		"just beyond it":                     {[]Member{lost(0), lost(interval + 1)}, 0},
		"just beyond it, the other way":      {[]Member{lost(interval + 1), lost(1), lost(0)}, 0},
		"one is reachable":                   {[]Member{lost(0), lost(0), {}}, 0},
		"reachable now, whatever was before": {[]Member{lost(0), lost(0), {Since: t0}}, 0},
		"it is not known since when":         {[]Member{{Unreachable: true}, {Unreachable: true}}, 0},
		"a closed one was stopped days ago":  {[]Member{lost(0), closed(lost(-41 * day)), lost(1)}, 2},
		"a closed one, not known since when": {[]Member{lost(0), closed(Member{Unreachable: true}), lost(1)}, 2},
		"a closed one that is reachable":     {[]Member{lost(0), lost(1), closed(Member{})}, 0},
		"all but one are closed":             {[]Member{lost(0), closed(lost(0)), closed(lost(0))}, 0},
		"all are closed":                     {[]Member{closed(lost(0)), closed(lost(0))}, 0},
	} {
		t.Run(name, func(t *testing.T) { assert.Equal(t, tc.count, CorrelatedFailure(tc.members, interval)) })
	}
	assert.Equal(t, 2, CorrelatedFailure([]Member{lost(0), lost(0)}, 0), "no interval: the same moment")
	assert.Zero(t, CorrelatedFailure([]Member{lost(0), lost(0)}, -1))
}
