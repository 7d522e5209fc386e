package statefile

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"tier-agent/internal/runtimeapi"
)

// header names the columns of a row, as version 1 has them (management guide 9.3),
// up to the last that a row needs. Those behind it (TLS, and where the checks go)
// would beat an edited configuration.
const header = "# be_id be_name srv_id srv_name srv_addr srv_op_state srv_admin_state srv_uweight srv_iweight " +
	"srv_time_since_last_change srv_check_status srv_check_result srv_check_health srv_check_state srv_agent_state " +
	"bk_f_forced_id srv_f_forced_id srv_fqdn srv_port srvrecord"

// Row is how one server is to start. HAProxy finds it by its two names, whatever the
// ids. Of the address it takes the port, always, and the rest where the configuration
// has a host name and "init-addr last". The weight of a row counts only where the
// configuration has the same.
type Row struct {
	Backend, Server string
	Admin           runtimeapi.AdminState
	// Down: it starts down, and comes up by a check of its own that passes.
	Down bool
	// Checked: it has such a check.
	Checked bool
	Port    int
	// Address, FQDN and SRV are those of a slot that DNS has filled; empty otherwise.
	Address, FQDN, SRV string
}

// Name is "backend/server".
func (r Row) Name() string { return r.Backend + "/" + r.Server }

// String is the line in the file.
func (r Row) String() string {
	op, check := runtimeapi.OpRunning, 0
	if r.Down {
		op = runtimeapi.OpStopped
	}
	if r.Checked {
		check = 6
	}
	return fmt.Sprintf("0 %s 0 %s %s %d %d 1 1 0 6 1 0 %d 0 0 0 %s %d %s",
		r.Backend, r.Server, orDash(r.Address), op, r.Admin, check, orDash(r.FQDN), r.Port, orDash(r.SRV))
}

func orDash(s string) string { return cmp.Or(s, "-") }

// rowOf is a server as HAProxy shows it, with nothing that its own line says.
func rowOf(s runtimeapi.ServerState) Row {
	r := Row{Backend: s.Backend, Server: s.Server, Port: s.Port, Checked: s.HasCheck()}
	if s.FQDN != "" {
		r.Address, r.FQDN, r.SRV = s.Address, s.FQDN, s.SRV
	}
	return r
}

// parse reads the rows of a file, ours or a dump: what HAProxy was last known to have.
// A line that is no row is passed over: HAProxy does the same.
func parse(text string) []runtimeapi.ServerState {
	var all []runtimeapi.ServerState
	for line := range strings.Lines(text) {
		p := strings.Fields(line)
		if len(p) < 20 || strings.HasPrefix(line, "#") {
			continue
		}
		numbers := map[int]int{}
		for _, n := range []int{5, 6, 13, 14, 18} {
			v, err := strconv.ParseUint(p[n], 10, 32)
			if err != nil {
				numbers = nil
				break
			}
			numbers[n] = int(v)
		}
		if numbers == nil || numbers[18] > 65535 {
			continue
		}
		dash := func(n int) string { return strings.TrimPrefix(p[n], "-") }
		all = append(all, runtimeapi.ServerState{
			Backend: p[1], Server: p[3], Address: dash(4), FQDN: dash(17), SRV: dash(19), Port: numbers[18],
			Operational: runtimeapi.OpState(numbers[5]), Admin: runtimeapi.AdminState(numbers[6]),
			CheckState: numbers[13], AgentState: numbers[14],
		})
	}
	return all
}
