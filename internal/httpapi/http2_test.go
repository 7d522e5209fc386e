package httpapi

import (
	"io"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// preface is how a client of HTTP/2 begins, with settings that say nothing.
const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + "\x00\x00\x00\x04\x00\x00\x00\x00\x00"

// Each request has a connection of its own in HTTP/2 as well.
//
// Controls: without UnencryptedHTTP2 there was no answer; without the end of keep-alive,
// both requests came over one connection.
func TestReadOnlyOverHTTP2(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var peers []string
	h := everything().readOnly().Handler()
	startServe(t, Limit(ln, 0), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		peers = append(peers, r.RemoteAddr)
		h.ServeHTTP(w, r)
	}), silent)
	transport := &http.Transport{Protocols: new(http.Protocols)}
	transport.Protocols.SetUnencryptedHTTP2(true)
	t.Cleanup(transport.CloseIdleConnections)
	for range 2 {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+ln.Addr().String()+"/livez", nil)
		require.NoError(t, err)
		res, err := (&http.Client{Transport: transport}).Do(req)
		require.NoError(t, err)
		_, err = io.Copy(io.Discard, res.Body)
		require.NoError(t, err)
		require.NoError(t, res.Body.Close())
		assert.Equal(t, "HTTP/2.0 200", res.Proto+" "+res.Status[:3])
	}
	require.Len(t, peers, 2)
	assert.NotEqual(t, peers[0], peers[1])
}

// tcpPipes call themselves a TCP listener.
type tcpPipes struct{ *pipes }

func (tcpPipes) Addr() net.Addr { return &net.TCPAddr{} }

// A peer that is slow is cut off here as well, in either protocol.
//
// Controls: without ReadTimeout a silent connection of HTTP/2 stayed; with HTTP/2 on any
// listener, the admin socket took the preface.
func TestSlowPeersOfHTTP2AreCutOff(t *testing.T) {
	for _, c := range []struct {
		name, send string
		least      time.Duration
		most       time.Duration
	}{
		{"says nothing", "", time.Second, time.Second},
		{"half a header", "GET /livez HTTP/1.1\r\nHost:", time.Second, time.Second},
		{"half a preface", preface[:10], time.Second, time.Second},
		{"a preface and no request", preface, time.Second, 12 * time.Second},
		{"half the headers of a request", preface + "\x00\x00\x01\x01\x00\x00\x00\x00\x01\x82", time.Second, 12 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ln := newPipes()
				startServe(t, tcpPipes{ln}, everything().readOnly().Handler(), silent)
				conn, err := ln.dial()
				require.NoError(t, err)
				defer conn.Close()
				began := time.Now()
				go func() { _, _ = io.WriteString(conn, c.send) }()
				_, _ = io.Copy(io.Discard, conn)
				took := time.Since(began)
				assert.True(t, took >= c.least && took <= c.most, took.String())
			})
		})
	}
	synctest.Test(t, func(t *testing.T) {
		ln := newPipes()
		startServe(t, ln, new(controller).admin(), silent)
		conn, err := ln.dial()
		require.NoError(t, err)
		defer conn.Close()
		go func() { _, _ = io.WriteString(conn, preface) }()
		answer, _ := io.ReadAll(conn)
		assert.Contains(t, string(answer), "HTTP/1.1 4", "the admin socket")
	})
}
