package spoeload

import (
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestHTTP(t *testing.T) {
	for _, tc := range []struct {
		name    string
		answer  func(w http.ResponseWriter, n int64)
		measure time.Duration
		err     string
	}{
		// A second, so that one request at least is answered in it on any machine.
		{"the same", func(w http.ResponseWriter, _ int64) { _, _ = w.Write([]byte("ok\n")) }, time.Second, ""},
		// These end by what they are told, not by the clock.
		{"denied at once", func(w http.ResponseWriter, _ int64) { w.WriteHeader(503) }, time.Hour, "status 503"},
		{"denied later", func(w http.ResponseWriter, n int64) {
			if n > 10 {
				w.WriteHeader(503)
			}
			_, _ = w.Write([]byte("ok\n"))
		}, time.Hour, "503 Service Unavailable"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var asked atomic.Int64
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header()["Date"] = nil // would change
				tc.answer(w, asked.Add(1))
			}))
			defer srv.Close()
			r, err := RunHTTP(t.Context(), HTTPLoad{
				Network: "tcp", Addr: srv.Listener.Addr().String(), Conns: 2, Measure: tc.measure,
			})
			if tc.err != "" {
				require.ErrorIs(t, err, ErrAnswer)
				require.ErrorContains(t, err, tc.err)
				return
			}
			require.NoError(t, err)
			const first = 2 // each connection's first request is asked before the turn
			assert.EqualValues(t, asked.Load()-first, r.Total)
			assert.Positive(t, r.P99)
		})
	}
}
