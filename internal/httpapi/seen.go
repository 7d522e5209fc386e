package httpapi

import (
	"net/http"
	"strings"

	"tier-agent/internal/observe"
	"tier-agent/internal/tier"
)

// byHAProxy reports whether a health check of HAProxy asks: those send no User-Agent,
// which everything else does (measured on 2.6, 3.0 and 3.2), or the one that somebody has
// given them, as long as it names HAProxy. HAProxy is told what the
// evidence says and never that its own servers are down: they would stay so for that.
func byHAProxy(r *http.Request) bool {
	agent := strings.ToLower(r.UserAgent())
	return agent == "" || strings.Contains(agent, "haproxy")
}

// tier is a tier's answer, held against what HAProxy does: it is not ready while HAProxy
// has its servers down. That is for people and orchestrators.
func (ro *ReadOnly) tier(name []byte) (tier.Answer, bool) {
	st, known := ro.Model.StatusOf(name)
	if !known {
		return tier.Answer{}, false
	}
	return inHAProxy(st, ro.Watcher.Views()).Answer, true
}

// inHAProxy is what the model says of a tier, less the servers that no HAProxy sends to.
func inHAProxy(st tier.Status, views []observe.View) tier.Status {
	st.Serving = 0
	for _, s := range st.Servers {
		if takes, known := taken(views, s.Backend+"/"+s.Name); s.Answer.Admit && (takes || !known) {
			st.Serving++
		}
	}
	if st.Answer.Admit && st.Serving < st.Needed {
		st.Answer.Admit, st.Answer.Up, st.Answer.Reason = false, false, tier.ReasonDown
	}
	return st
}

// taken reports whether some HAProxy sends new requests to a server; known is false where
// one of them may, which cannot be read.
func taken(views []observe.View, server string) (takes, known bool) {
	known = len(views) > 0
	for _, v := range views {
		if !v.Readable() {
			known = false
		} else if v.Servers[server].Takes() {
			return true, true
		}
	}
	return false, known
}
