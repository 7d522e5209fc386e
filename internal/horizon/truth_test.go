package horizon

import (
	"flag"
	"fmt"
	"strings"
	"testing"
	"time"

	"tier-agent/test/document"
)

var update = flag.Bool("update", false, "write the table in docs/readiness.md anew")

// The table for people is what the code says, played through its own API.
func TestTheTruthTable(t *testing.T) {
	const heading = "| a tier | its last change | another tier serves | daemon | reason | the tier is named in |\n|---|---|---|---|---|---|\n"
	var b strings.Builder
	for _, tier := range []struct {
		is     string
		before Row
		now    Row
	}{
		{is: "serves", before: broken("tier"), now: serving("tier")},
		{is: "fails to serve what it once served", before: serving("tier"), now: broken("tier")},
		{is: "is quiesced", before: serving("tier"), now: quiesced("tier")},
		{is: "has never served", before: broken("tier"), now: broken("tier")},
	} {
		for _, last := range []struct {
			change string
			ago    time.Duration
		}{{"live: up to `stale_after` ago", horizon}, {"aged: longer ago", horizon + 1}} {
			for _, other := range []struct {
				serves string
				row    Row
			}{{"yes", serving("other")}, {"no", broken("other")}} {
				h, c := newHorizon()
				h.Publish([]Row{tier.before, other.row})
				h.Publish([]Row{tier.now, other.row})
				c.step(last.ago)
				v := h.Judge()
				fmt.Fprintf(&b, "| %s | %s | %s | %s | `%s` | %s |\n", tier.is, last.change, other.serves,
					map[bool]string{true: "**ready**", false: "not ready"}[v.Ready], v.Reason, named(v))
			}
		}
	}
	document.Table(t, heading, b.String(), *update)
}

func named(v Verdict) string {
	switch {
	case len(v.Failing) > 0:
		return "`failing`"
	case len(v.StaleDegraded) > 0:
		return "`stale_degraded`"
	}
	return "-"
}
