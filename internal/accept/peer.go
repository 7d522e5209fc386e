package accept

import (
	"net"
	"net/netip"
)

// Peer is the address that a cap is counted by: an IPv4 peer of a dual-stack
// listener is the same peer. Without an IP address it is the zero Addr.
func Peer(a net.Addr) netip.Addr {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.Addr{}
	}
	return tcp.AddrPort().Addr().Unmap().WithZone("")
}
