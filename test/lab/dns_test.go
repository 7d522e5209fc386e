package lab

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/net/dns/dnsmessage"
)

// resolver asks d with Go's own client.
func resolver(d *DNS) *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var dialer net.Dialer
		return dialer.DialContext(ctx, "udp4", d.Addr())
	}}
}

func startDNS(t *testing.T) *DNS {
	d, err := StartDNS(0)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	return d
}

// Negative control: with names compared as they are written, the last lookup
// still saw the first two addresses.
func TestDNS_AnswersWhatWasSetLast(t *testing.T) {
	d, ctx := startDNS(t), t.Context()
	r := resolver(d)
	require.NoError(t, d.Set("gpu.test", "127.0.0.2", "127.0.0.3"))
	ips, err := r.LookupHost(ctx, "gpu.test.") // asks for A and for AAAA
	require.NoError(t, err)
	assert.ElementsMatch(t, []string{"127.0.0.2", "127.0.0.3"}, ips)
	require.NoError(t, d.Set("GPU.test.", "127.0.0.4"))
	ips, err = r.LookupHost(ctx, "gpu.test.")
	require.NoError(t, err)
	assert.Equal(t, []string{"127.0.0.4"}, ips)
	assert.GreaterOrEqual(t, d.Asked("gpu.test"), 4) // a client may ask again
}

func TestDNS_SRVBringsItsAddressesAlong(t *testing.T) {
	d := startDNS(t)
	require.NoError(t, d.SetSRV("_http._tcp.gpu.test", SRV{"a.gpu.test", 9001}, SRV{"b.gpu.test", 9002}))
	require.NoError(t, d.Set("a.gpu.test", "127.0.0.2"))
	_, all, err := resolver(d).LookupSRV(t.Context(), "http", "tcp", "gpu.test.")
	require.NoError(t, err)
	ports := map[string]uint16{}
	for _, s := range all {
		ports[s.Target] = s.Port
	}
	assert.Equal(t, map[string]uint16{"a.gpu.test.": 9001, "b.gpu.test.": 9002}, ports)

	got := ask(t, d, dnsmessage.TypeSRV, "_http._tcp.gpu.test.", 4096)
	require.Len(t, got.Additionals, 1)
	assert.Equal(t, [4]byte{127, 0, 0, 2}, got.Additionals[0].Body.(*dnsmessage.AResource).A)
}

// An empty answer and an unknown name are two things to HAProxy.
// Negative control: without the case for unknown names, both were a success.
func TestDNS_NoAddressIsNoUnknownName(t *testing.T) {
	d := startDNS(t)
	require.NoError(t, d.Set("gpu.test"))
	for name, want := range map[string]dnsmessage.RCode{
		"gpu.test.": dnsmessage.RCodeSuccess, "other.test.": dnsmessage.RCodeNameError,
	} {
		got := ask(t, d, dnsmessage.TypeA, name, 1232)
		assert.Equal(t, want, got.RCode, name)
		assert.Empty(t, got.Answers, name)
	}
	require.NoError(t, d.Remove("gpu.test"))
	assert.Equal(t, dnsmessage.RCodeNameError, ask(t, d, dnsmessage.TypeA, "gpu.test.", 1232).RCode)
}

// Negative control: without the cut in answer, all 100 addresses came and the
// answer was not marked.
func TestDNS_MoreThanTheClientTakesIsCut(t *testing.T) {
	d := startDNS(t)
	var many []string
	for n := range 100 {
		many = append(many, net.IPv4(127, 0, 1, byte(n)).String())
	}
	require.NoError(t, d.Set("gpu.test", many...))
	cut := ask(t, d, dnsmessage.TypeA, "gpu.test.", 512)
	assert.True(t, cut.Truncated)
	assert.Empty(t, cut.Answers)
	whole := ask(t, d, dnsmessage.TypeA, "gpu.test.", 4096)
	assert.False(t, whole.Truncated)
	assert.Len(t, whole.Answers, len(many))
}

func TestDNS_WrongRecordsAreRefused(t *testing.T) {
	d := startDNS(t)
	require.EqualError(t, d.Set("gpu.test", "127.0.0.2", "::1"), `gpu.test: "::1" is no IPv4 address such as 127.0.0.2`)
	long := string(make([]byte, 300))
	require.Error(t, d.Set(long, "127.0.0.2"))
	require.ErrorContains(t, d.SetSRV("_http._tcp.gpu.test", SRV{Target: long}), "_http._tcp.gpu.test: target")
	assert.Equal(t, dnsmessage.RCodeNameError, ask(t, d, dnsmessage.TypeA, "gpu.test.", 512).RCode)
}

func TestDNS_MuteAndRubbishGetNoAnswer(t *testing.T) {
	d := startDNS(t)
	require.NoError(t, d.Set("gpu.test", "127.0.0.2"))
	assert.Nil(t, d.answer([]byte("rubbish")))
	packet := question(t, dnsmessage.TypeA, "gpu.test.", 512)
	d.Mute(true)
	assert.Nil(t, d.answer(packet))
	d.Mute(false)
	assert.NotNil(t, d.answer(packet))
}

// question is one as HAProxy sends it, with an EDNS record.
func question(t *testing.T, kind dnsmessage.Type, name string, fits uint16) []byte {
	q := dnsmessage.Message{
		Header: dnsmessage.Header{ID: 7, RecursionDesired: true},
		Questions: []dnsmessage.Question{{
			Name: dnsmessage.MustNewName(name), Type: kind, Class: dnsmessage.ClassINET,
		}},
		Additionals: []dnsmessage.Resource{{
			Header: dnsmessage.ResourceHeader{Name: dnsmessage.MustNewName("."), Class: dnsmessage.Class(fits)},
			Body:   &dnsmessage.OPTResource{},
		}},
	}
	packet, err := q.Pack()
	require.NoError(t, err)
	return packet
}

// ask asks until there is an answer: UDP may lose a packet, and under load the
// system refuses to send some.
func ask(t *testing.T, d *DNS, kind dnsmessage.Type, name string, fits uint16) dnsmessage.Message {
	buf := make([]byte, 4096)
	var n int
	require.NoError(t, Within(5*time.Second, func() error {
		c, err := net.Dial("udp4", d.Addr())
		if err != nil {
			return err
		}
		defer c.Close()
		if err = c.SetDeadline(time.Now().Add(time.Second)); err != nil {
			return err
		}
		if _, err = c.Write(question(t, kind, name, fits)); err != nil {
			return err
		}
		n, err = c.Read(buf)
		return err
	}))
	var m dnsmessage.Message
	require.NoError(t, m.Unpack(buf[:n]))
	assert.Equal(t, uint16(7), m.ID)
	return m
}
