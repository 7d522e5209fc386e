package runtimeapi

import (
	"context"
	"fmt"
	"net/netip"
	"regexp"
	"time"
)

const (
	// applyWithin: on 3.0 and 3.2 a change was in force up to 4 ms after its answer,
	// and in 200 of 200 runs not yet in a read right behind it on one line.
	applyWithin = 500 * time.Millisecond
	applyPoll   = 5 * time.Millisecond
)

// addressAnswers are what HAProxy says when it has taken an address (testdata):
// 2.6 tells of both parts, 3.0 and 3.2 of those that change, or "nothing changed".
// A part that 2.6 refuses stands in the place of that part's text.
var addressAnswers = regexp.MustCompile(`^(?:nothing changed|` +
	`(?:IP changed from '[^']*' to '[^']*'|no need to change the addr)?(?:, )?` +
	`(?:port changed from '[^']*' to '[^']*'|no need to change the port)? by 'stats socket command')$`)

// SetAddress makes HAProxy send to ip:port instead of to the server's address,
// until its next start or reload, and reads it back. Streams under way stay where
// they are, pooled connections to the old address are dropped, and the admin and
// operational states do not change (measured on 2.6, 3.0 and 3.2). ip is an IPv4
// or IPv6 address, no name and no zone, and not the unspecified one, which HAProxy
// takes for the address that the client used. port is 1 to 65535. A health check
// without an address or port of its own moves as well.
//
// 3.0 and 3.2 apply an address after they have answered, and call it "nothing
// changed" when the new one equals the present one, though a change by somebody
// else is still to come (measured). So the text and the read within the exchange
// prove nothing: nil means that a later exchange with the same process showed the
// address. Change.After and Info are of the last read. Errors are those of
// SetState; ErrNotApplied comes with ErrUncertain.
func (i *Instance) SetAddress(ctx context.Context, backend, server, ip string, port int) (Change, error) {
	change, err := i.setAddress(ctx, backend, server, ip, port)
	return change, i.wrap(err)
}

func (i *Instance) setAddress(ctx context.Context, backend, server, ip string, port int) (Change, error) {
	want, err := checkAddress(ip, port)
	if err != nil {
		return Change{}, err
	}
	change, err := i.mutate(ctx, backend, server, fmt.Sprintf("addr %s port %d", want.Addr(), want.Port()), func(text string) bool {
		return addressAnswers.MatchString(severity.ReplaceAllString(clean(text), ""))
	})
	if err != nil {
		return change, err
	}
	same := ExpectPID(ctx, change.Info.PID)
	for deadline := time.Now().Add(applyWithin); ; {
		state, err := i.exchange(same, reading, showServers(backend))
		var row ServerState
		if err == nil {
			row, err = readBack(state.texts[0], backend, server)
		}
		if err != nil {
			return change, fmt.Errorf("reading back %s: %w (%w)", want, err, ErrUncertain)
		}
		change.After, change.Info = row, state.info
		if row.at(want) {
			return change, nil
		}
		if time.Now().After(deadline) {
			return change, fmt.Errorf("%w: %s wanted %s, is %s:%d after %v (%w)",
				ErrNotApplied, row.Name(), want, row.Address, row.Port, applyWithin, ErrUncertain)
		}
		select {
		case <-ctx.Done():
			return change, fmt.Errorf("%w (%w)", gaveUp(ctx, "waiting for "+want.String()), ErrUncertain)
		case <-time.After(applyPoll):
		}
	}
}

func checkAddress(ip string, port int) (netip.AddrPort, error) {
	addr, err := netip.ParseAddr(ip)
	if err != nil || addr.Zone() != "" || addr.IsUnspecified() {
		return netip.AddrPort{}, fmt.Errorf("%w: address %q must be one IPv4 or IPv6 address, without zone, and a specified one",
			ErrInvalidName, clean(ip))
	}
	if port < 1 || port > 65535 {
		return netip.AddrPort{}, fmt.Errorf("%w: port %d must be 1 to 65535", ErrInvalidName, port)
	}
	return netip.AddrPortFrom(addr, uint16(port)), nil
}

// at reports whether HAProxy sends to want.
func (s ServerState) at(want netip.AddrPort) bool {
	addr, err := netip.ParseAddr(s.Address)
	return err == nil && netip.AddrPortFrom(addr, uint16(s.Port)) == want
}
