package httpapi

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tier-agent/internal/observe"
	"tier-agent/internal/tier"
	"tier-agent/test/guarantee"
)

const hostile = "zz-wire-zz"

// Every path, for both faces that serve it. An empty body means: not looked at.
//
// Controls: with `if a.Admit` in ready turned to `if a.Ready`, the quiesced
// tier and server were 200; without exact, the untidy paths were redirects.
func TestReadOnlyPaths(t *testing.T) {
	const heavy = `{"name":"heavy","ready":true,"reason":"identity_passed","generation":"1.2.3","age_ms":1500}`
	for _, c := range []struct {
		path, body string
		code       int
	}{
		{"/livez", `{"status":"alive"}`, 200},
		{"/readyz", `{"name":"tier-agent","ready":true,"reason":"serving"}`, 200},
		{"/readyz/heavy", heavy, 200},
		{"/readyz/heavy?verbose=1", heavy, 200},
		{"/readyz/heavy/h1", `{"name":"heavy/h1","ready":true,"reason":"identity_passed","generation":"1.2.3","age_ms":1500}`, 200},
		{"/readyz/heavy/h2", `{"name":"heavy/h2","ready":false,"reason":"probe_stale","generation":"1.2.4","age_ms":60000}`, 503},
		{"/readyz/light", `{"name":"light","ready":false,"reason":"probe_pending","generation":"1.5.6"}`, 503},
		{"/readyz/old", `{"name":"old","ready":false,"reason":"quiesced","generation":"1.7","age_ms":250}`, 503},
		{"/readyz/old/o1", `{"name":"old/o1","ready":false,"reason":"quiesced","generation":"1.7.8","age_ms":250}`, 503},
		{"/readyz/" + hostile, `{"name":"","ready":false,"reason":"unknown_tier"}`, 404},
		{"/readyz/heavy/" + hostile, `{"name":"","ready":false,"reason":"unknown_server"}`, 404},
		{"/readyz/%0a" + hostile, `{"name":"","ready":false,"reason":"unknown_tier"}`, 404},
		{"/readyz/heavy%2Fh1", `{"name":"","ready":false,"reason":"unknown_tier"}`, 404},
		{"/readyz/", "", 404},
		{"/readyz/heavy/", "", 404},
		{"/readyz/heavy/h1/", "", 404},
		{"/readyz/heavy/h1/" + hostile, "", 404},
		{"/readyz//heavy", "", 404},
		{"/readyz/./heavy", "", 404},
		{"//readyz/heavy", "", 404},
		{"/" + hostile + "/../readyz/heavy", "", 404},
		{"//", "", 404},
		{"/", "", 404},
		{"/" + hostile, "", 404},
		{"/api/v1/", "", 404},
		{"/api/v1/status", "", 200},
		{"/metrics", "", 200},
	} {
		for face, h := range map[string]http.Handler{"read-only": everything().readOnly().Handler(), "admin": new(controller).admin()} {
			for _, method := range []string{http.MethodGet, http.MethodHead} {
				w := httptest.NewRecorder()
				h.ServeHTTP(w, httptest.NewRequest(method, c.path, nil))
				about := face + " " + method + " " + c.path
				assert.Equal(guarantee.T(t), c.code, w.Code, about)
				assert.NotContains(guarantee.T(t), w.Body.String(), hostile, about)
				assert.Empty(t, w.Header().Get("Location"), about)
				if c.body != "" {
					assert.Equal(t, c.body+"\n", w.Body.String(), about) // net/http cuts a HEAD's
					assert.Equal(t, "application/json", w.Header().Get("Content-Type"), about)
					assert.Equal(t, "no-store", w.Header().Get("Cache-Control"), about)
				}
			}
		}
	}
}

func TestReadyzOfAnAgentWithoutAReadyTier(t *testing.T) {
	w := httptest.NewRecorder()
	none := world{tiers: everything().tiers[1:]}
	none.readOnly().Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/readyz", nil))
	assert.Equal(t, 503, w.Code)
	assert.Equal(t, `{"name":"tier-agent","ready":false,"reason":"no_tier_ready"}`+"\n", w.Body.String())
}

func TestOtherMethods(t *testing.T) {
	for _, path := range []string{"/livez", "/readyz", "/readyz/heavy", "/readyz/heavy/h1", "/api/v1/status", "/metrics"} {
		for _, method := range []string{"POST", "PUT", "DELETE", "OPTIONS", "TRACE", "CONNECT", "X"} {
			w := httptest.NewRecorder()
			everything().readOnly().Handler().ServeHTTP(w, httptest.NewRequest(method, path, nil))
			assert.Equal(t, http.StatusMethodNotAllowed, w.Code, "%s %s", method, path)
			assert.Equal(t, "GET, HEAD", w.Header().Get("Allow"), "%s %s", method, path)
		}
	}
	for _, verb := range []string{"quiesce", "drain", "readmit", "invalidate", "forget"} {
		w := httptest.NewRecorder()
		new(controller).admin().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/api/v1/"+verb, nil))
		assert.Equal(t, http.StatusMethodNotAllowed, w.Code, verb)
		w = httptest.NewRecorder()
		everything().readOnly().Handler().ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/api/v1/"+verb, nil))
		assert.Equal(t, http.StatusNotFound, w.Code, "the read-only side has no %s", verb)
	}
}

// What HAProxy sends, byte for byte: its http-check speaks HTTP/1.0 without a
// Host unless it is told otherwise.
//
// Control: without DisableGeneralOptionsHandler, "OPTIONS *" was 200.
func TestRawRequests(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	startServe(t, Limit(ln, 0), everything().readOnly().Handler(), silent)
	for _, c := range []struct {
		request, status, body string
	}{
		{"GET /readyz/heavy/h1 HTTP/1.0\r\n\r\n", "HTTP/1.0 200 OK", `{"name":"heavy/h1","ready":true,"reason":"identity_passed","generation":"1.2.3","age_ms":1500}` + "\n"},
		{"GET /readyz/heavy/h2 HTTP/1.0\r\n\r\n", "HTTP/1.0 503 Service Unavailable", `{"name":"heavy/h2","ready":false,"reason":"probe_stale","generation":"1.2.4","age_ms":60000}` + "\n"},
		{"HEAD /readyz/heavy/h1 HTTP/1.0\r\n\r\n", "HTTP/1.0 200 OK", ""},
		{"OPTIONS / HTTP/1.0\r\n\r\n", "HTTP/1.0 404 Not Found", "404 page not found\n"},
		{"OPTIONS * HTTP/1.0\r\n\r\n", "HTTP/1.0 400 Bad Request", ""},
		{"GET /readyz/./h1 HTTP/1.0\r\n\r\n", "HTTP/1.0 404 Not Found", "404 page not found\n"},
		{"GET " + hostile + " HTTP/1.0\r\n\r\n", "HTTP/1.1 400 Bad Request", "400 Bad Request"},
		{hostile + "\r\n\r\n", "HTTP/1.1 400 Bad Request", "400 Bad Request"},
	} {
		conn, err := net.Dial("tcp", ln.Addr().String())
		require.NoError(t, err)
		_, err = io.WriteString(conn, c.request)
		require.NoError(t, err)
		all, err := io.ReadAll(bufio.NewReader(conn)) // the server closes
		require.NoError(t, err, c.request)
		require.NoError(t, conn.Close())
		header, body, _ := strings.Cut(string(all), "\r\n\r\n")
		status, _, _ := strings.Cut(header, "\r\n")
		assert.Equal(t, c.status, status, c.request)
		assert.Equal(t, c.body, body, c.request)
		assert.NotContains(guarantee.T(t), string(all), hostile)
	}
}

// HAProxy's health check may ask about a whole tier. It must not hear that its own servers
// are down: they would stay down for that.
//
// Control: with byHAProxy left out of the route, the check heard down_in_haproxy.
func TestATierThatHAProxyHasDownIsDownForPeopleAlone(t *testing.T) {
	w := everything()
	w.observed = []observe.View{{Instance: "edge", At: noon, Servers: map[string]observe.Server{"heavy/h1": {Weight: 100}, "heavy/h2": {Weight: 100}}}}
	h := w.readOnly().Handler()
	ask := func(agent string) (int, string) {
		r := httptest.NewRequest(http.MethodGet, "/readyz/heavy", nil)
		r.Header.Set("User-Agent", agent)
		rec := httptest.NewRecorder()
		h.ServeHTTP(rec, r)
		return rec.Code, rec.Body.String()
	}
	code, body := ask("curl/8")
	assert.Equal(t, http.StatusServiceUnavailable, code)
	assert.Contains(t, body, tier.ReasonDown)
	code, body = ask("")
	assert.Equal(t, http.StatusOK, code, body)
}
