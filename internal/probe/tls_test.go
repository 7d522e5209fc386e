package probe

import (
	"crypto/ed25519"
	"crypto/tls"
	"crypto/x509"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// certificate is self-signed for engine.example and 127.0.0.1, and valid at the time of a
// synctest bubble too.
type certificate struct {
	pair  tls.Certificate
	roots *x509.CertPool
}

func newCertificate(t testing.TB) certificate {
	public, private, err := ed25519.GenerateKey(nil)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		NotBefore:    time.Date(1999, 1, 1, 0, 0, 0, 0, time.UTC),
		NotAfter:     time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC),
		DNSNames:     []string{inBubble.Host},
		IPAddresses:  []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(nil, template, template, public, private)
	require.NoError(t, err)
	parsed, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	c := certificate{pair: tls.Certificate{Certificate: [][]byte{der}, PrivateKey: private}, roots: x509.NewCertPool()}
	c.roots.AddCert(parsed)
	return c
}

func (c certificate) client() *tls.Config { return &tls.Config{RootCAs: c.roots} }

func (c certificate) server(conn net.Conn) *tls.Conn {
	return tls.Server(conn, &tls.Config{Certificates: []tls.Certificate{c.pair}})
}

// https is a well engine that would rather speak HTTP/2, and the protocols that it was asked in.
func https(t testing.TB, c certificate) (*url.URL, *[]string) {
	var protocols []string
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		protocols = append(protocols, r.Proto)
		_, _ = w.Write([]byte(models))
	}))
	s.EnableHTTP2 = true
	s.TLS = &tls.Config{Certificates: []tls.Certificate{c.pair}}
	s.Config.ErrorLog = quiet
	s.StartTLS()
	t.Cleanup(s.Close)
	u, err := url.Parse(s.URL)
	require.NoError(t, err)
	return u, &protocols
}

// Negative controls: without NextProtos in New the server chose HTTP/2 and the first row failed; without the operation's name in classify, the row of the client certificate read
// as protocol.
func TestTLS(t *testing.T) {
	cert := newCertificate(t)
	trusting := cert.client()
	trusting.NextProtos = []string{"h2"}
	u, protocols := https(t, cert)

	t.Run("trusted, HTTP/1.1 only", func(t *testing.T) {
		r := New(Options{TLS: trusting}).Probe(t.Context(), want(u).withIdentity())
		assert.Equal(t, IdentityPassed, r.Reason)
		assert.Equal(t, []string{"HTTP/1.1", "HTTP/1.1"}, *protocols)
	})
	t.Run("unknown authority", func(t *testing.T) {
		assert.Equal(t, "health_transport_tls", probeOnce(t, want(u)).Reason)
	})
	t.Run("wrong name", func(t *testing.T) {
		p := New(Options{TLS: trusting, DialContext: toLoopback(u.Host)})
		other := &url.URL{Scheme: "https", Host: "other.example"}
		assert.Equal(t, "health_transport_tls", p.Probe(t.Context(), want(other)).Reason)
		other.Host = inBubble.Host
		assert.Equal(t, HealthPassed, p.Probe(t.Context(), want(other)).Reason)
	})
	t.Run("client certificate missing", func(t *testing.T) {
		l, err := tls.Listen("tcp", "127.0.0.1:0",
			&tls.Config{Certificates: []tls.Certificate{cert.pair}, ClientAuth: tls.RequireAnyClientCert})
		require.NoError(t, err)
		e := serveScript(t, l, turn(says(ok(""))))
		e.url.Scheme = "https"
		assert.Equal(t, "health_transport_tls", New(Options{TLS: trusting}).Probe(t.Context(), want(e.url)).Reason)
	})
	t.Run("TLS to plain", func(t *testing.T) {
		e := startEngine(t, func(p *peer, _ int) { p.say(reply("400 Bad Request", "")); p.silent() })
		e.url.Scheme = "https"
		assert.Equal(t, "health_transport_tls", probeOnce(t, want(e.url)).Reason)
	})
	t.Run("plain to TLS", func(t *testing.T) {
		plain := &url.URL{Scheme: "http", Host: u.Host}
		assert.Equal(t, "health_http_400", probeOnce(t, want(plain)).Reason, "net/http says so in plain text")
		e := startEngine(t, func(p *peer, _ int) { p.say("\x15\x03\x01\x00\x02\x02\x0a"); p.silent() })
		assert.Equal(t, "health_transport_protocol", probeOnce(t, want(e.url)).Reason, "OpenSSL sends an alert")
	})
	t.Run("closed and reset in the handshake", func(t *testing.T) {
		e := startEngine(t, func(p *peer, n int) {
			_, _ = p.in.Peek(1)
			if n == 1 {
				p.reset()
				return
			}
			_ = p.Conn.(*net.TCPConn).CloseWrite()
			p.silent()
		})
		e.url.Scheme = "https"
		assert.Equal(t, "health_transport_closed", probeOnce(t, want(e.url)).Reason)
		assert.Equal(t, "health_transport_reset", probeOnce(t, want(e.url)).Reason)
	})
}
