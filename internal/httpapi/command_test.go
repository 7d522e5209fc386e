package httpapi

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tier-agent/internal/admission"
	"tier-agent/internal/tier"
)

func post(h http.Handler, verb, body string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/api/v1/"+verb, strings.NewReader(body)))
	return w
}

func TestCommandsReachTheController(t *testing.T) {
	c := new(controller)
	for _, one := range []struct {
		verb, body string
		want       any
	}{
		{"quiesce", `{"tier":"heavy","reason":"swap"}`, admission.QuiesceRequest{Target: tier.Target{Tier: "heavy"}, Reason: "swap", Who: "unknown"}},
		{"quiesce", `{"tier":"heavy","server":"heavy/h1"}`, admission.QuiesceRequest{Target: tier.Target{Tier: "heavy", Server: "heavy/h1"}, Who: "unknown"}},
		{"drain", `{"tier":"heavy","timeout":"90s","ignore_old_workers":true}`, admission.DrainRequest{Target: tier.Target{Tier: "heavy"}, Timeout: 90 * time.Second, IgnoreOldWorkers: true}},
		{"readmit", ` {"tier":"heavy","partial":true} ` + "\n", admission.ReadmitRequest{Target: tier.Target{Tier: "heavy"}, Who: "unknown", Partial: true}},
		{"readmit", `{"tier":"heavy","allow_unidentified":true,"take_hold":true}`, admission.ReadmitRequest{Target: tier.Target{Tier: "heavy"}, Who: "unknown", AllowUnidentified: true, TakeHold: true}},
		{"readmit", `{"tier":"heavy","confirm":"2m","wait":"3s"}`, admission.ReadmitRequest{Target: tier.Target{Tier: "heavy"}, Who: "unknown", Wait: 3 * time.Second, Confirm: 2 * time.Minute}},
		{"readmit", `{"tier":"heavy","when_ready":true,"keep_hold":true}`, admission.ReadmitRequest{Target: tier.Target{Tier: "heavy"}, Who: "unknown", WhenReady: true, KeepHold: true}},
		{"invalidate", `{"tier":"heavy"}`, tier.Target{Tier: "heavy"}},
		{"invalidate", `{"all":true}`, tier.Target{}},
		{"forget", `{"tier":"old"}`, admission.ForgetRequest{Target: tier.Target{Tier: "old"}, Who: "unknown"}},
		{"forget", `{"tier":"heavy","server":"heavy/h3@192.0.2.1:9000"}`, admission.ForgetRequest{Target: tier.Target{Tier: "heavy", Server: "heavy/h3@192.0.2.1:9000"}, Who: "unknown"}},
		{"forget", `{"server":"heavy/h3@[2001:db8::1]:9000"}`, admission.ForgetRequest{Target: tier.Target{Server: "heavy/h3@[2001:db8::1]:9000"}, Who: "unknown"}},
		{"override", `{"tier":"heavy","for":"30m","reason":"wrong-id"}`, admission.OverrideRequest{Tier: "heavy", For: 30 * time.Minute, Reason: "wrong-id", Who: "unknown"}},
		{"override", `{"tier":"heavy","end":true}`, admission.OverrideRequest{Tier: "heavy", Who: "unknown", End: true}},
	} {
		w := post(c.admin(), one.verb, one.body)
		require.Equal(t, http.StatusOK, w.Code, w.Body)
		assert.Equal(t, "application/x-ndjson", w.Header().Get("Content-Type"))
		assert.Equal(t, "no-store", w.Header().Get("Cache-Control"))
		assert.True(t, strings.HasSuffix(w.Body.String(), "}\n"), w.Body)
		seen := c.requests()
		assert.Equal(t, one.want, seen[len(seen)-1])
	}
}

// Nothing that a command says is ignored, and none of these reaches the
// Controller.
//
// Controls, each taken out by itself: DisallowUnknownFields (the misspelt
// fields were ignored), the call of d.Token (trailing data was), the loop in
// only (another verb's fields were), MaxBytesReader (the large ones ran), Server's
// UnmarshalJSON (an empty server was the whole tier); with only asking no server of
// forget, a command of nothing reached it.
func TestStrictCommands(t *testing.T) {
	long := `{"tier":"` + strings.Repeat("x", maxCommand) + `"}`
	for _, one := range []struct{ verb, body, says string }{
		{"quiesce", ``, `there is no command: give a JSON object, such as {"tier": "heavy"}`},
		{"quiesce", `null`, `"tier" is missing: give the name of a tier`},
		{"quiesce", `{}`, `"tier" is missing: give the name of a tier`},
		{"quiesce", `{"tier":""}`, `"tier" is missing: give the name of a tier`},
		{"quiesce", `{"tier":"heavy"`, `the command's JSON object is cut short`},
		{"quiesce", `{tier:heavy}`, `the command is no JSON: invalid character 't' looking for beginning of object key string`},
		{"quiesce", `["heavy"]`, `the command is a JSON array: give an object, such as {"tier": "heavy"}`},
		{"quiesce", `"heavy"`, `the command is a JSON string: give an object, such as {"tier": "heavy"}`},
		{"quiesce", `{"tier":7}`, `"tier" is a JSON number: give a string`},
		{"quiesce", `{"tier":"heavy","reason":["swap"]}`, `"reason" is a JSON array: give a string`},
		{"readmit", `{"tier":"heavy","partial":"yes"}`, `"partial" is a JSON string: give true or false`},
		{"readmit", `{"tier":"heavy","take_hold":1}`, `"take_hold" is a JSON number: give true or false`},
		{"quiesce", `{"tier":"heavy","resaon":"swap"}`, `the command is not understood: unknown field "resaon"`},
		{"quiesce", `{"tier":"heavy"}{"tier":"light"}`, `there is more after the command's JSON object: send one command at a time`},
		{"quiesce", `{"tier":"a","tier":"heavy"}`, `the command is not understood: jsontext: duplicate object member name "tier": give each field once, and as it is written here`},
		{"quiesce", `{"tier":"heavy"} x`, `there is more after the command's JSON object: send one command at a time`},
		{"quiesce", `{"tier":"heavy","timeout":"1m"}`, `"timeout" is not for quiesce: leave it out`},
		{"drain", `{"tier":"heavy","timeout":"1m","reason":"swap"}`, `"reason" is not for drain: leave it out`},
		{"drain", `{"tier":"heavy","timeout":"1m","all":true}`, `"all" is not for drain: leave it out`},
		{"readmit", `{"tier":"heavy","ignore_old_workers":true}`, `"ignore_old_workers" is not for readmit: leave it out`},
		{"override", `{"tier":"heavy","reason":"wrong-id"}`, `"for" is "": give a duration with its unit, such as "30m"`},
		{"override", `{"tier":"heavy","for":"30","reason":"wrong-id"}`, `"for" is "30": give a duration with its unit, such as "30m"`},
		{"override", `{"tier":"heavy","end":true,"for":"30m"}`, `"end" ends an override now: leave out "for" and "reason"`},
		{"override", `{"tier":"heavy","server":"heavy/h1","end":true}`, `"server" is not for override: leave it out`},
		{"quiesce", `{"tier":"heavy","for":"30m"}`, `"for" is not for quiesce: leave it out`},
		{"invalidate", `{"tier":"heavy","take_hold":true}`, `"take_hold" is not for invalidate: leave it out`},
		{"quiesce", `{"tier":"heavy","server":""}`, `"server" is empty: give "backend/server", or leave it out for the whole tier`},
		{"readmit", `{"tier":"heavy","server":null}`, `"server" is empty: give "backend/server", or leave it out for the whole tier`},
		{"drain", `{"tier":"heavy","timeout":"1m","server":"heavy/h1","server":""}`, `"server" is empty: give "backend/server", or leave it out for the whole tier`},
		{"invalidate", `{"all":true,"server":""}`, `"server" is empty: give "backend/server", or leave it out for the whole tier`},
		{"quiesce", `{"tier":"heavy","server":1}`, `"server" is a JSON number: give a string`},
		{"drain", `{"tier":"heavy","timeout":"99999999h"}`, `"timeout" is "99999999h": give a positive duration with its unit, such as "10m", of at most 2562047h`},
		{"drain", `{"tier":"heavy"}`, `"timeout" is "": give a positive duration with its unit, such as "10m", of at most 2562047h`},
		{"drain", `{"tier":"heavy","timeout":"10"}`, `"timeout" is "10": give a positive duration with its unit, such as "10m", of at most 2562047h`},
		{"drain", `{"tier":"heavy","timeout":"-1s"}`, `"timeout" is "-1s": give a positive duration with its unit, such as "10m", of at most 2562047h`},
		{"drain", `{"tier":"heavy","timeout":"0s"}`, `"timeout" is "0s": give a positive duration with its unit, such as "10m", of at most 2562047h`},
		{"readmit", `{"tier":"heavy","wait":"6m"}`, `"wait" is "6m": give a duration with its unit, such as "10s", of at most 5m0s`},
		{"readmit", `{"tier":"heavy","confirm":"2"}`, `"confirm" is "2": give a duration with its unit, such as "10s", of at most 1h0m0s`},
		{"readmit", `{"tier":"heavy","when_ready":true,"partial":true}`, `"when_ready" leaves all to the evidence: "partial", "wait" and "confirm" do not go with it`},
		{"invalidate", `{}`, `"tier" is missing: give the name of a tier, or "all"`},
		{"invalidate", `{"tier":"heavy","all":true}`, `"tier" and "all" exclude each other: give one of them`},
		{"invalidate", `{"server":"heavy/h1","all":true}`, `"server" and "all" exclude each other: give one of them`},
		{"invalidate", `{"server":"heavy/h1"}`, `"tier" is missing: give the name of a tier, or "all"`},
		{"forget", `{}`, `"tier" and "server" are missing: give the name of a tier, or of a server, as status shows it`},
		{"forget", `{"tier":"heavy","server":""}`, `"server" is empty: give "backend/server", or leave it out for the whole tier`},
		{"forget", `{"all":true}`, `"all" is not for forget: leave it out`},
		{"forget", `{"tier":"heavy","reason":"swap"}`, `"reason" is not for forget: leave it out`},
		{"quiesce", `{"server":"heavy/h1","reason":"swap"}`, `"tier" is missing: give the name of a tier`},
		{"quiesce", long, `the command is too large: it may have 16384 bytes`},
		{"quiesce", `{"tier":"heavy"}` + strings.Repeat(" ", maxCommand), `the command is too large: it may have 16384 bytes`},
	} {
		c := new(controller)
		w := post(c.admin(), one.verb, one.body)
		about := one.verb + " " + one.body[:min(len(one.body), 80)]
		assert.Equal(t, http.StatusBadRequest, w.Code, about)
		assert.Equal(t, "application/json", w.Header().Get("Content-Type"), about)
		var said Event
		decode(t, w.Body.String(), &said)
		assert.Equal(t, Event{Error: one.says}, said, about)
		assert.Empty(t, c.requests(), about)
	}
}

func TestLongestCommand(t *testing.T) {
	c := new(controller)
	body := `{"tier":"heavy"}`
	w := post(c.admin(), "readmit", body+strings.Repeat(" ", maxCommand-len(body)))
	assert.Equal(t, http.StatusOK, w.Code)
	assert.Len(t, c.requests(), 1)
}

// A name that is not known is repeated only to a bounded length.
func TestUnknownFieldIsCut(t *testing.T) {
	w := post(new(controller).admin(), "quiesce", `{"`+strings.Repeat("f", 4000)+`":1}`)
	assert.Equal(t, http.StatusBadRequest, w.Code)
	assert.Less(t, w.Body.Len(), 300)
}
