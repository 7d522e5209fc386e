package runtimeapi

import (
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
)

// Negative controls: without the look at Admin, the open ones were spare; without that at
// the backend, other/x was.
func TestSpareSlots(t *testing.T) {
	const disabled = ForcedMaint | ConfigMaint
	row := func(name, address string, port, weight int, admin AdminState) ServerState {
		return ServerState{Backend: "gpu", Server: name, Address: address, Port: port, Weight: weight, Admin: admin}
	}
	state := ServersState{Servers: []ServerState{
		row("weightless", "192.0.2.1", 8000, 0, disabled),
		row("discard", "127.0.0.1", 1, 100, disabled),
		row("one", "127.0.0.1", 8080, 1, disabled),
		row("two", "127.0.0.1", 8080, 1, disabled),
		row("six", "::1", 1023, 1, disabled),

		row("alone", "127.0.0.1", 8081, 1, disabled), // as members start
		row("host", "192.0.2.1", 8000, 1, disabled),
		row("open", "127.0.0.1", 1023, 0, 0),
		row("filled", "127.0.0.1", 8080, 1, ConfigMaint),
		row("drained", "127.0.0.1", 1023, 0, ForcedDrain),
		row("by hand", "127.0.0.1", 1023, 0, ForcedMaint),
		row("empty", "", 0, 1, disabled|DNSMaint),
		{Backend: "other", Server: "x", Address: "127.0.0.1", Port: 8081, Weight: 1, Admin: disabled},
	}}
	assert.Equal(t, []string{"gpu/discard", "gpu/one", "gpu/six", "gpu/two", "gpu/weightless"}, slices.Sorted(maps.Keys(state.Spare())))
}
