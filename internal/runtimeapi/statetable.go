package runtimeapi

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// stateColumns are the columns read of `show servers state`. They are found by
// name: their order and number are HAProxy's business.
var stateColumns = []string{
	"be_name", "srv_name", "srv_addr", "srv_port", "srv_fqdn", "srvrecord",
	"srv_admin_state", "srv_op_state", "srv_uweight", "srv_iweight",
	"srv_time_since_last_change", "srv_check_status", "srv_check_result",
	"srv_check_health", "srv_check_state", "srv_agent_state",
	"srv_check_port", "srv_agent_addr", "srv_agent_port",
}

// stateTable knows where each column is.
type stateTable struct {
	at    map[string]int
	width int
}

func newStateTable(header string) (stateTable, error) {
	names, ok := strings.CutPrefix(header, "# ")
	if !ok {
		return stateTable{}, fmt.Errorf("%w: servers state without a header but %q", ErrMalformed, clean(header))
	}
	columns := strings.Split(names, " ")
	t := stateTable{at: make(map[string]int, len(columns)), width: len(columns)}
	for n, column := range columns {
		t.at[column] = n
	}
	for _, column := range stateColumns {
		if _, ok := t.at[column]; !ok {
			return stateTable{}, fmt.Errorf("%w: servers state without column %s", ErrMalformed, column)
		}
	}
	return t, nil
}

// parse reads one row. A missing or surplus field shifts the others, so any other
// number of them than the header's is an error.
func (t stateTable) parse(line string) (ServerState, error) {
	fields := strings.Split(line, " ")
	if len(fields) != t.width {
		return ServerState{}, fmt.Errorf("%w: servers state row of %d fields, want %d: %q",
			ErrMalformed, len(fields), t.width, clean(line))
	}
	r := stateRow{table: t, fields: fields}
	s := ServerState{
		Backend:       r.proper("be_name"),
		Server:        r.proper("srv_name"),
		Address:       r.text("srv_addr"),
		Port:          int(r.number("srv_port", 0, 65535)),
		FQDN:          r.text("srv_fqdn"),
		SRV:           r.text("srvrecord"),
		Admin:         AdminState(r.number("srv_admin_state", 0, 1<<32-1)),
		Operational:   OpState(r.number("srv_op_state", 0, int64(OpStopping))),
		Weight:        r.int("srv_uweight"),
		InitialWeight: r.int("srv_iweight"),
		SinceChange:   time.Duration(r.int("srv_time_since_last_change")) * time.Second,
		CheckStatus:   r.int("srv_check_status"),
		CheckResult:   r.int("srv_check_result"),
		CheckHealth:   r.int("srv_check_health"),
		CheckState:    r.int("srv_check_state"),
		AgentState:    r.int("srv_agent_state"),
		CheckPort:     int(r.number("srv_check_port", 0, 65535)),
		AgentAddress:  r.text("srv_agent_addr"),
		AgentPort:     int(r.number("srv_agent_port", 0, 65535)),
	}
	if r.err != nil {
		return ServerState{}, r.err
	}
	return s, nil
}

// stateRow reads the fields of one row and keeps the first error.
type stateRow struct {
	table  stateTable
	fields []string
	err    error
}

// name is a text that may well be "-".
func (r *stateRow) name(column string) string {
	value := r.fields[r.table.at[column]]
	if value == "" {
		r.fail(column, "is empty")
	}
	return value
}

// proper is a name that HAProxy can have been configured with.
func (r *stateRow) proper(column string) string {
	value := r.name(column)
	if !alphabet.MatchString(value) {
		r.fail(column, "is no name: "+clean(value))
	}
	return value
}

func (r *stateRow) text(column string) string {
	if value := r.name(column); value != "-" {
		return value
	}
	return ""
}

func (r *stateRow) int(column string) int {
	return int(r.number(column, -1<<31, 1<<32-1))
}

func (r *stateRow) number(column string, least, most int64) int64 {
	value := r.fields[r.table.at[column]]
	n, err := strconv.ParseInt(value, 10, 64)
	if err != nil || n < least || n > most {
		r.fail(column, fmt.Sprintf("is %q, want a number from %d to %d", clean(value), least, most))
		return 0
	}
	return n
}

func (r *stateRow) fail(column, what string) {
	if r.err == nil {
		r.err = fmt.Errorf("%w: servers state: %s %s in %q", ErrMalformed, column, what, clean(strings.Join(r.fields, " ")))
	}
}
