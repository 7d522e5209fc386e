package httpapi

import (
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"tier-agent/test/guarantee"
)

// A page that has led its own name here reads nothing, and none shows ours in a frame.
//
// Control: with named left out, the first was 200.
func TestABrowserIsNoWayIn(t *testing.T) {
	ro := everything().readOnly()
	ro.Hosts = []string{"agent.example.com"}
	h := ro.Handler()
	get := func(host, path string) *http.Response {
		r := httptest.NewRequest(http.MethodGet, path, nil)
		r.Host = host
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Result()
	}
	for _, path := range []string{"/api/v1/status", "/metrics"} {
		for _, host := range []string{"attacker.example", "attacker.example:7780", "127.0.0.1.attacker.example", "localhost.attacker.example."} {
			assert.Equal(guarantee.T(t), http.StatusMisdirectedRequest, get(host, path).StatusCode, "%s%s", host, path)
		}
		for _, host := range []string{"", "127.0.0.1", "127.0.0.1:7780", "[::1]:7780", "::1", "localhost:7780", "tier-agent", "AGENT.example.com.", "agent.example.com:80"} {
			assert.Equal(t, http.StatusOK, get(host, path).StatusCode, "%s%s", host, path)
		}
	}
	assert.NotEqual(t, http.StatusMisdirectedRequest, get("attacker.example", "/readyz/heavy").StatusCode, "a check may say any Host")
	for _, path := range []string{"/api/v1/status", "/metrics", "/readyz/heavy", "/livez", "/nothing"} {
		header := get("localhost", path).Header
		assert.Equal(t, "nosniff", header.Get("X-Content-Type-Options"), path)
		assert.Equal(t, "DENY", header.Get("X-Frame-Options"), path)
	}
}

// What an engine has written leaves by the admin socket alone.
func TestMetadataIsHashedForOthers(t *testing.T) {
	assert.Nil(t, hashed(nil))
	one, two := hashed(map[string]string{"v": "s3cret"}), hashed(map[string]string{"v": "other"})
	assert.Regexp(t, "^sha256:[0-9a-f]{12}$", one["v"])
	assert.NotEqual(t, one, two)
}

// Control: without turns, all were answered at once.
func TestFewAnswersAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		under, most := 0, 0
		var mu sync.Mutex
		h := few(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			mu.Lock()
			under++
			most = max(most, under)
			mu.Unlock()
			time.Sleep(500 * time.Millisecond)
			mu.Lock()
			under--
			mu.Unlock()
		}))
		codes := make(chan int, 20)
		for range 20 {
			go func() {
				w := httptest.NewRecorder()
				h(w, httptest.NewRequest(http.MethodGet, "/", nil))
				codes <- w.Code
			}()
		}
		answered := map[int]int{}
		for range 20 {
			answered[<-codes]++
		}
		assert.Equal(t, fewAtOnce, most)
		assert.Equal(t, 20, answered[http.StatusOK]+answered[http.StatusServiceUnavailable])
		assert.GreaterOrEqual(t, answered[http.StatusOK], 8, "in two seconds, two at once")
		assert.NotZero(t, answered[http.StatusServiceUnavailable])
	})
}
