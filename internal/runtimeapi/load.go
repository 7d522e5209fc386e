package runtimeapi

import (
	"context"
	"encoding/csv"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

// BackendLoad is what a backend carries, from one `show stat`. Counts are
// those of the process that answered; an old worker of a reload has its own.
type BackendLoad struct {
	Info    Info
	Backend string
	Status  string // of the backend row, "UP" or "DOWN"
	// Algo is the balance algorithm's name without its argument, one of roundrobin,
	// static-rr, leastconn, first, or of the hashes source, uri, url_param, hdr,
	// rdp-cookie and hash, or "unknown", which is random. With a hash requests can
	// queue on a server. Empty on a socket of `level user` (all measured on 2.6, 3.0
	// and 3.2).
	Algo string
	// Sessions under way in the backend, and requests in its own queue.
	Sessions, Queue int
	// Cookie: clients are sent back to a server by its cookie. Empty columns, and so
	// false, on a socket of `level user`.
	Cookie  bool
	Servers []ServerLoad
}

// ServerLoad is one server's row of `show stat` (management guide 9.1).
type ServerLoad struct {
	Server string
	Status string // as HAProxy writes it, "UP 1/3" or "DRAIN (agent)"
	// Sessions under way on the server, and requests in its own queue.
	Sessions, Queue int
	// Retries is how often HAProxy has tried a failed connection again, since its
	// start. It waits a second before each (configuration manual, "retries"), in which
	// the request is in no other count (measured on 2.6, 3.0 and 3.2).
	Retries uint64
	// MaxConn is the server's configured limit of sessions, above which requests
	// queue; 0 for none. With a minconn the limit in force may be lower.
	MaxConn int
	// Weight is the effective one. Zero means no new request though Status is "UP".
	Weight int
	// CheckStatus and AgentStatus are HAProxy's codes ("L7OK", "L4CON"), empty
	// where there is no such check.
	CheckStatus, AgentStatus string
	// CheckHealth and AgentHealth count what the checks have seen: 0 while they say no,
	// and one more with each that passes until the server is up by it. HAProxy shows how
	// many that takes and not in what time, but each one is seen here. 0 where there is
	// no such check.
	CheckHealth, AgentHealth int
	// Tracked is the "backend/server" whose state this server follows, empty for none. Of
	// several that follow each other it is the next one (measured on 2.6, 3.0 and 3.2).
	Tracked string
	// LastAgent is what the agent check reported last, at most 200 bytes of it.
	LastAgent string
	// Cookie: the server has a cookie, which counts where its backend has one, too.
	Cookie bool
}

// Up reports whether HAProxy would send the server a new request, judged by its
// state: "UP", also on the way down ("UP 1/3"), and "no check", which HAProxy
// writes only while a server without a check is neither drained nor down. Not
// so DRAIN, NOLB, DOWN and MAINT. Weight, maxconn and `backup` are not looked at.
func (s ServerLoad) Up() bool {
	return s.Status == "UP" || strings.HasPrefix(s.Status, "UP ") || s.Status == "no check"
}

// Find returns the server of that name.
func (b BackendLoad) Find(server string) (ServerLoad, bool) {
	for _, s := range b.Servers {
		if s.Server == server {
			return s, true
		}
	}
	return ServerLoad{}, false
}

// Load reads a backend's row and its servers' in one exchange. ErrNoSuchServer
// when there is no such backend, or it is `disabled` and so has no statistics.
func (i *Instance) Load(ctx context.Context, backend string) (BackendLoad, error) {
	if err := checkName("backend", backend); err != nil {
		return BackendLoad{}, i.wrap(err)
	}
	load, err := loadOf(backend, func(command string) (answer, error) {
		return i.exchange(ctx, reading, command)
	})
	if err != nil {
		return BackendLoad{}, i.wrap(err)
	}
	return load, nil
}

// Loads reads the rows of every backend in one exchange, in HAProxy's order.
func (i *Instance) Loads(ctx context.Context) ([]BackendLoad, error) {
	loads, err := loadsOf(func(command string) (answer, error) {
		return i.exchange(ctx, reading, command)
	})
	return loads, i.wrap(err)
}

// loadOf asks one process for a backend's rows. With ErrNoSuchServer the Info is
// filled: that process answered and has no such backend.
func loadOf(backend string, ask func(command string) (answer, error)) (BackendLoad, error) {
	load, found, err := oneLoad(backend, backend, ask)
	if err == nil && !found {
		// A frontend of the same name hides the backend: HAProxy looks the name up
		// among both and then finds no backend row (measured on 2.6, 3.0 and 3.2).
		load, found, err = oneLoad(everyProxy, backend, ask)
	}
	if err == nil && !found {
		err = fmt.Errorf("%w: no statistics of backend %s", ErrNoSuchServer, backend)
	}
	if err != nil {
		return BackendLoad{Info: load.Info}, err
	}
	return load, nil
}

// everyProxy is what `show stat` calls all of them.
const everyProxy = "-1"

// oneLoad asks for one proxy, or for all of them, and keeps backend's rows.
func oneLoad(proxy, backend string, ask func(command string) (answer, error)) (BackendLoad, bool, error) {
	a, err := ask(showStat(proxy))
	if err != nil {
		return BackendLoad{}, false, err
	}
	load, found, err := parseLoad(a.texts[0], backend)
	load.Info = a.info
	return load, found, err
}

// loadsOf asks one process for the rows of every backend.
func loadsOf(ask func(command string) (answer, error)) ([]BackendLoad, error) {
	a, err := ask(showStat(everyProxy))
	if err != nil {
		return nil, err
	}
	loads, err := parseLoads(a.texts[0], "")
	for n := range loads {
		loads[n].Info = a.info
	}
	return loads, err
}

// showStat asks for backends (2) and servers (4), without frontends; -1 is any server.
func showStat(proxy string) string { return "show stat " + proxy + " 6 -1" }

// The row types of `show stat`, column "type".
const (
	statBackend = "1"
	statServer  = "2"
)

// parseLoad reads the whole table or fails, and keeps one backend's rows.
func parseLoad(text, backend string) (BackendLoad, bool, error) {
	loads, err := parseLoads(text, backend)
	if err != nil || len(loads) == 0 {
		return BackendLoad{}, false, err
	}
	return loads[0], true, nil
}

// parseLoads reads the whole table or fails. Unless only is empty the rows of other
// backends are passed over: HAProxy takes a name of digits that it does not know for a
// proxy's id. A backend without a row of its own is none.
func parseLoads(text, only string) ([]BackendLoad, error) {
	table, isTable := strings.CutPrefix(text, "# ")
	if !isTable {
		return nil, refusal(text)
	}
	// The first record fixes the number of fields; the reader refuses any other.
	rows := csv.NewReader(strings.NewReader(table))
	header, err := rows.Read()
	if err != nil {
		return nil, fmt.Errorf("%w: statistics: %w", ErrMalformed, err)
	}
	columns, err := statColumns(header)
	if err != nil {
		return nil, err
	}
	var loads []BackendLoad
	at, found := map[string]int{}, map[string]bool{}
	for {
		fields, err := rows.Read()
		if err == io.EOF {
			return slices.DeleteFunc(loads, func(b BackendLoad) bool { return !found[b.Backend] }), nil
		}
		if err != nil {
			return nil, fmt.Errorf("%w: statistics: %w", ErrMalformed, err)
		}
		r := statRow{columns: columns, fields: fields}
		backend := r.text("pxname")
		if only != "" && backend != only {
			continue
		}
		if kind := r.text("type"); (kind == statBackend || kind == statServer) && !(alphabet.MatchString(backend) && alphabet.MatchString(r.text("svname"))) {
			return nil, fmt.Errorf("%w: statistics of %q/%q, which is no name", ErrMalformed, clean(backend), clean(r.text("svname")))
		}
		n, known := at[backend]
		if !known {
			n = len(loads)
			at[backend], loads = n, append(loads, BackendLoad{Backend: backend})
		}
		load := &loads[n]
		switch r.text("type") {
		case statBackend:
			found[backend] = true
			load.Status, load.Algo = clean(r.text("status")), clean(r.text("algo"))
			load.Sessions, load.Queue = r.count("scur"), r.count("qcur")
			load.Cookie = r.given("cookie")
		case statServer:
			load.Servers = append(load.Servers, r.server())
		}
		if r.err != nil {
			return nil, r.err
		}
	}
}

func statColumns(header []string) (map[string]int, error) {
	at := make(map[string]int, len(header))
	for n, column := range header {
		at[column] = n
	}
	for _, column := range []string{
		"pxname", "svname", "type", "status", "scur", "qcur", "slim", "weight",
		"algo", "check_status", "agent_status", "check_health", "agent_health", "last_agt", "wretr", "tracked",
	} {
		if _, ok := at[column]; !ok {
			return nil, fmt.Errorf("%w: statistics without column %s", ErrMalformed, column)
		}
	}
	return at, nil
}

// statRow reads the fields of one row and keeps the first error.
type statRow struct {
	columns map[string]int
	fields  []string
	err     error
}

func (r *statRow) server() ServerLoad {
	return ServerLoad{
		Server:   r.text("svname"),
		Status:   clean(r.text("status")),
		Sessions: r.count("scur"),
		Queue:    r.count("qcur"),
		Retries:  r.total("wretr"),
		MaxConn:  r.optional("slim"),
		Weight:   r.count("weight"),
		// "* " marks a check that is under way.
		CheckStatus: strings.TrimPrefix(clean(r.text("check_status")), "* "),
		AgentStatus: strings.TrimPrefix(clean(r.text("agent_status")), "* "),
		LastAgent:   clean(r.text("last_agt")),
		CheckHealth: r.optional("check_health"),
		AgentHealth: r.optional("agent_health"),
		Tracked:     r.text("tracked"),
		Cookie:      r.given("cookie"),
	}
}

func (r *statRow) text(column string) string { return r.fields[r.columns[column]] }

// given reports whether a column that need not be there says anything.
func (r *statRow) given(column string) bool {
	n, there := r.columns[column]
	return there && r.fields[n] != ""
}

// optional is a count that is empty where there is none.
func (r *statRow) optional(column string) int {
	if r.text(column) == "" {
		return 0
	}
	return r.count(column)
}

func (r *statRow) count(column string) int { return int(r.parse(column, 32)) }

// total only ever grows while HAProxy runs; empty where nothing is counted.
func (r *statRow) total(column string) uint64 {
	if r.text(column) == "" {
		return 0
	}
	return r.parse(column, 64)
}

func (r *statRow) parse(column string, bits int) uint64 {
	n, err := strconv.ParseUint(r.text(column), 10, bits)
	if err != nil && r.err == nil {
		r.err = fmt.Errorf("%w: statistics: %s of %s/%s is %q, want a count", ErrMalformed,
			column, clean(r.text("pxname")), clean(r.text("svname")), clean(r.text(column)))
	}
	return n
}
