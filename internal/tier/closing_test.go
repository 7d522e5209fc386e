package tier

import (
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// Controls: with each case of voids taken out, its row was empty; with the look at Admit
// left out of Closes, servers that are not ready or quiesced were in each; with newcomers
// left out, the renamed ones.
func TestCloses(t *testing.T) {
	edited := func(edit func(s []Spec) []Spec) []Spec { return edit(specs()) }
	exercised := func(s []Spec, subject string) []Spec {
		s[1].Exercise = &Exercise{Interval: time.Second, MaxAge: 5 * time.Second, Subject: subject}
		return s
	}
	for name, c := range map[string]struct {
		from []Spec // specs() where it is nil
		to   []Spec
		want []string
	}{
		"nothing": {to: specs()},
		"another subject": {to: edited(func(s []Spec) []Spec {
			s[0].Servers[1].Subject = "other"
			return s
		}), want: []string{"heavy/h2: its url or what is asked of it has changed"}},
		"one that is not ready": {to: edited(func(s []Spec) []Spec {
			s[0].Servers[2].Subject = "other"
			return s
		})},
		"another manner": {to: edited(func(s []Spec) []Spec {
			s[0].Servers[1].Manner, s[0].Interval, s[0].Fall = "other", 7, 3
			return s
		})},
		"a server gone": {to: edited(func(s []Spec) []Spec {
			s[0].Servers, s[0].MinReady = s[0].Servers[1:], 1
			return s
		}), want: []string{"heavy/h1: it is no longer in the file"}},
		"a tier gone":   {to: specs()[:1], want: []string{"fast/f1: tier fast is no longer in the file"}},
		"a tier is new": {to: append(specs(), Spec{Name: "new", MinReady: 1, Servers: []ServerSpec{{Backend: "n", Name: "n1", Subject: "n1"}}})},
		"a tier renamed": {to: edited(func(s []Spec) []Spec {
			s[1].Name = "faster"
			return s
		})},
		"a server renamed": {to: edited(func(s []Spec) []Spec {
			s[1].Servers[0].Name = "f7"
			return s
		})},
		"two of one subject, one renamed": {from: edited(func(s []Spec) []Spec {
			s[0].Servers[0].Subject, s[0].Servers[1].Subject = "same", "same"
			return s
		}), to: edited(func(s []Spec) []Spec {
			s[0].Servers = []ServerSpec{{Backend: "heavy", Name: "h7", Subject: "same"}, s[0].Servers[2]}
			return s
		}), want: []string{"heavy/h2: it is no longer in the file"}},
		"min_ready": {to: edited(func(s []Spec) []Spec {
			s[0].MinReady = 3
			return s
		}), want: []string{"heavy: fewer of its servers are ready than min_ready asks for"}},
		"an exercise":        {to: exercised(specs(), "a"), want: []string{"fast/f1: it has not been exercised yet"}},
		"the same exercise":  {from: exercised(specs(), "a"), to: exercised(specs(), "a")},
		"another exercise":   {from: exercised(specs(), "a"), to: exercised(specs(), "b"), want: []string{"fast/f1: its exercise has changed"}},
		"an exercise is out": {from: exercised(specs(), "a"), to: specs()},
		"another host": {to: edited(func(s []Spec) []Spec {
			s[1].Servers[0].Address = netip.MustParseAddrPort("192.0.2.1:80")
			return s
		}), want: []string{"fast/f1: it is another host, or has become a member or is none any more"}},
	} {
		from := c.from
		if from == nil {
			from = specs()
		}
		m := newModel(t)
		if err := m.Replace(from); err != nil {
			t.Fatal(err)
		}
		m.set("heavy/h1", "heavy/h2", "fast/f1") // h3 is not ready
		if from[1].Exercise != nil {
			m.set("fast/f1 exercise")
		}
		var got []string
		for _, one := range m.Closes(c.to) {
			about := one.Tier
			if one.Server.Name != "" {
				about = one.Server.FullName()
			}
			got = append(got, about+": "+one.Why)
		}
		assert.Equal(t, c.want, got, name)

		_, _ = m.Close(heavy, Closure{Reason: "swap"})
		_, _ = m.Close(Target{Tier: "fast", Server: "fast/f1"}, Closure{Reason: "swap"})
		assert.Empty(t, m.Closes(c.to), "%s: what is quiesced serves nothing", name)
	}
}
