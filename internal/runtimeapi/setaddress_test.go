package runtimeapi

import (
	"context"
	"net"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tier-agent/test/guarantee"
)

// sequence is an instance whose connections bring these texts in turn, the last
// one for good.
func sequence(texts ...string) (*Instance, *atomic.Int64) {
	var dialled atomic.Int64
	return New("hap1", "unix", "x", Options{Dial: func(context.Context, string, string) (net.Conn, error) {
		n := min(int(dialled.Add(1)), len(texts)) - 1
		return &spoken{answer: strings.NewReader(texts[n])}, nil
	}}), &dialled
}

func TestRecordedAddresses(t *testing.T) {
	for _, version := range recorded {
		t.Run(version, func(t *testing.T) {
			for _, mutation := range []string{"addr", "addrsame"} {
				i, dialled := sequence(golden(t, version, mutation), golden(t, version, "addrread"))
				change, err := i.SetAddress(t.Context(), "llm", "gpu1", "127.0.0.2", 18182)
				require.NoError(t, err)
				assert.Equal(t, "127.0.0.2", change.After.Address)
				assert.Equal(t, 18182, change.After.Port)
				assert.Equal(t, mutation == "addrsame", change.Before.Address == "127.0.0.2")
				assert.EqualValues(t, 2, dialled.Load(), "read back in an exchange of its own")
			}
			_, err := answering(golden(t, version, "addrunix")).SetAddress(t.Context(), "qq", "unx", "127.0.0.2", 18182)
			require.ErrorIs(t, err, ErrRefused)
			assert.ErrorContains(t, err, "only supported through configuration file")
		})
	}
}

const addrChanged = "IP changed from '127.0.0.1' to '127.0.0.2', port changed from '18081' to '18082' by 'stats socket command'\n\n"

// mutated is the answer to the exchange with the mutation, reread that to the next.
func mutated(before, text, after string) string {
	return strings.Join([]string{"", addressText(before), text, addressText(after), ""}, infoText(7))
}

func reread(address string) string { return infoText(7) + addressText(address) + infoText(7) }

// addressText is stateText for a server at address:port; 18081 when it has no port.
func addressText(address string) string {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		host, port = address, "18081"
	}
	row := strings.Replace(stateRowText("llm", "gpu4", 0), " 127.0.0.1 ", " "+host+" ", 1)
	return "1\n" + stateHeader + "\n" + strings.Replace(row, " 18081 ", " "+port+" ", 1) + "\n\n"
}

// As 3.0 and 3.2 may do it: the read within the exchange is still the old one, and
// so is the first one after. Negative control: without the loop in setAddress the
// change is not seen.
func TestSetAddressWaitsUntilItIsApplied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		old, now := "127.0.0.1", "127.0.0.2:18082"
		i, dialled := sequence(mutated(old, addrChanged, old), reread(old), reread("127.0.0.2"), reread(now))
		started := time.Now()
		change, err := i.SetAddress(t.Context(), "llm", "gpu4", "127.0.0.2", 18082)
		require.NoError(t, err)
		assert.Equal(t, old, change.Before.Address)
		assert.Equal(t, "127.0.0.2", change.After.Address)
		assert.Equal(t, 18082, change.After.Port)
		assert.EqualValues(t, 4, dialled.Load())
		assert.Equal(t, 2*applyPoll, time.Since(started))
	})
}

// The read within the exchange already shows the wanted address, but somebody
// else's is on its way. Negative control: with Change.After of the exchange taken
// for proof in setAddress this is a success.
func TestSetAddressIsNotDoneUntilItIsReadAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		want := "127.0.0.2:18082"
		i, _ := sequence(mutated(want, "nothing changed\n\n", want), reread("127.0.0.9:18082"))
		started := time.Now()
		change, err := i.SetAddress(t.Context(), "llm", "gpu4", "127.0.0.2", 18082)
		require.ErrorIs(t, err, ErrNotApplied)
		assert.ErrorIs(t, err, ErrUncertain)
		assert.ErrorContains(t, err, "llm/gpu4 wanted 127.0.0.2:18082, is 127.0.0.9:18082 after 500ms")
		assert.Equal(t, "127.0.0.9", change.After.Address)
		assert.Equal(t, applyWithin+applyPoll, time.Since(started))
	})
}

func TestSetAddressEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i, _ := sequence(mutated("127.0.0.1", addrChanged, "127.0.0.1"), reread("127.0.0.1"))
		ctx, cancel := context.WithTimeout(t.Context(), 12*time.Millisecond)
		defer cancel()
		started := time.Now()
		_, err := i.SetAddress(ctx, "llm", "gpu4", "127.0.0.2", 18082)
		require.ErrorIs(t, err, ErrTimeout)
		assert.ErrorIs(t, err, ErrUncertain)
		assert.Equal(t, 12*time.Millisecond, time.Since(started))
	})
}

// The wanted address is read back in every case. Negative control: with an
// accepted in setAddress that takes any text the refusals succeed.
func TestSetAddressTexts(t *testing.T) {
	for text, want := range map[string]error{
		addrChanged: nil,
		"IP changed from '127.0.0.1' to '127.0.0.2' by 'stats socket command'\n\n":                             nil,
		"IP changed from '127.0.0.1' to '127.0.0.2', no need to change the port by 'stats socket command'\n\n": nil,
		"port changed from '+1' to '18082' by 'stats socket command'\n\n":                                      nil,
		"no need to change the addr, port changed from '18081' to '18082' by 'stats socket command'\n\n":       nil,
		"no need to change the addr, no need to change the port by 'stats socket command'\n\n":                 nil,
		"[6]: nothing changed\n\n": nil,
		"\n":                       ErrMalformed,
		"Invalid addr '127.0.0.2' by 'stats socket command'\n\n": ErrRefused,
		"Invalid addr '127.0.0.2'\n\n":                           ErrRefused,
		"IP changed from '127.0.0.1' to '127.0.0.2', can't change <port> to port map because it is incompatible by 'stats socket command'\n\n": ErrRefused,
		"no need to change the addr, problem converting port 'x' to an int by 'stats socket command'\n\n":                                      ErrRefused,
		"problem converting port 'x' to an int\n\n": ErrRefused,
		"nothing changed, but\n\n":                  ErrRefused,
		"Permission denied\n\n":                     ErrPermission,
		"No such server.\n\n":                       ErrNoSuchServer,
		"Proxy is disabled.\n\n":                    ErrRefused,
	} {
		now := "127.0.0.2:18082"
		i, _ := sequence(mutated("127.0.0.1", text, now), reread(now))
		change, err := i.SetAddress(t.Context(), "llm", "gpu4", "127.0.0.2", 18082)
		assert.Equal(t, "127.0.0.2", change.After.Address, text)
		if want == nil {
			assert.NoError(t, err, text)
			continue
		}
		assert.ErrorIs(t, err, want, text)
		assert.NotErrorIs(t, err, ErrUncertain, text)
	}
}

// Negative control: without ExpectPID in setAddress the other process's address,
// which its configuration has, is taken for ours.
func TestSetAddressIsReadBackFromTheSameProcess(t *testing.T) {
	now := "127.0.0.2:18082"
	i, _ := sequence(mutated("127.0.0.1", addrChanged, now), infoText(8)+addressText(now)+infoText(8))
	_, err := i.SetAddress(t.Context(), "llm", "gpu4", "127.0.0.2", 18082)
	require.ErrorIs(t, err, ErrOtherProcess)
	assert.ErrorIs(t, err, ErrUncertain)

	i, _ = sequence(mutated("127.0.0.1", addrChanged, now), infoText(7)+"1\n"+stateHeader+"\n\n"+infoText(7))
	_, err = i.SetAddress(t.Context(), "llm", "gpu4", "127.0.0.2", 18082)
	require.ErrorIs(t, err, ErrNoSuchServer)
	assert.ErrorIs(t, err, ErrUncertain)
}

// Negative control: without checkAddress, or checkName, each call reaches the listener.
func TestAddressesAreCheckedBeforeAnythingIsSent(t *testing.T) {
	f := serve(t, "unix", hang)
	i := f.instance(Options{})
	for _, ip := range []string{
		"", "localhost", "gpu1.example", "127.0.0.1;show env", "127.0.0.1 port 1\n", "127.0.0.256", "127.1", "127.0.0.01", "[::1]",
		"fe80::1%lo", "0.0.0.0", "::", "127.0.0.1:80", "127.0.0.0/8", "/run/s", "ipv4@127.0.0.1", "\\127.0.0.1", "-",
	} {
		_, err := i.SetAddress(t.Context(), "llm", "gpu4", ip, 80)
		assert.ErrorIs(t, err, ErrInvalidName, "%q", ip)
	}
	for _, port := range []int{0, -1, 65536, 1 << 32} {
		_, err := i.SetAddress(t.Context(), "llm", "gpu4", "127.0.0.1", port)
		require.ErrorIs(t, err, ErrInvalidName, port)
		assert.ErrorContains(t, err, "must be 1 to 65535")
	}
	for _, name := range []string{"", "a;b", "a b", "a/b", "a\n"} {
		_, err := i.SetAddress(t.Context(), name, "gpu4", "127.0.0.1", 80)
		assert.ErrorIs(t, err, ErrInvalidName, "%q", name)
		_, err = i.SetAddress(t.Context(), "llm", name, "127.0.0.1", 80)
		assert.ErrorIs(t, err, ErrInvalidName, "%q", name)
	}
	assert.Zero(t, f.accepted.Load())
}

// What is sent is the address in its one short form, and what is read is compared
// as an address.
func TestSetAddressForms(t *testing.T) {
	for given, sent := range map[string]string{
		"127.0.0.2": "127.0.0.2", "2001:DB8:0:0::1": "2001:db8::1", "::ffff:127.0.0.1": "::ffff:127.0.0.1", "0:0:0:0:0:0:0:1": "::1",
	} {
		var line string
		f := serve(t, "unix", func(c net.Conn, l string) {
			now := net.JoinHostPort(sent, "18082")
			if strings.Contains(l, "set server") {
				line = l
				say(mutated("127.0.0.1", "nothing changed\n\n", now))(c, l)
				return
			}
			say(reread(now))(c, l)
		})
		_, err := f.instance(Options{}).SetAddress(t.Context(), "llm", "gpu4", given, 18082)
		require.NoError(t, err)
		assert.Contains(t, line, ";set server llm/gpu4 addr "+sent+" port 18082;")
	}
	assert.True(t, ServerState{Address: "2001:DB8:0::1", Port: 1}.at(addrPort(t, "2001:db8::1", 1)))
	assert.False(guarantee.T(t), ServerState{Address: "::ffff:127.0.0.1", Port: 1}.at(addrPort(t, "127.0.0.1", 1)))
	assert.False(guarantee.T(t), ServerState{Port: 1}.at(addrPort(t, "127.0.0.1", 1)))
}

func addrPort(t *testing.T, ip string, port int) netip.AddrPort {
	want, err := checkAddress(ip, port)
	require.NoError(t, err)
	return want
}
