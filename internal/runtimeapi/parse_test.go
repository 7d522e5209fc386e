package runtimeapi

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Negative control: a length check of `<` for `!=` in stateTable.parse lets the
// surplus field through.
func TestServersRefusesWhatItDoesNotUnderstand(t *testing.T) {
	row := stateRowText("llm", "gpu4", 0)
	replace := func(old, new string) string {
		require.Contains(t, row, old)
		return "1\n" + stateHeader + "\n" + strings.Replace(row, old, new, 1) + "\n\n"
	}
	for name, tc := range map[string]struct{ text, want string }{
		"another version":      {strings.Replace(stateText(0), "1\n", "2\n", 1), "servers state of version 2, want 1"},
		"no header":            {"1\n" + row + "\n\n", "without a header"},
		"nothing":              {"\n", "empty line"},
		"version only":         {"1\n", "without a header"},
		"a column less":        {strings.Replace(stateText(0), "srv_admin_state", "srv_adm", 1), "without column srv_admin_state"},
		"too few fields":       {replace(" 18080", ""), "row of 24 fields, want 25"},
		"surplus field":        {replace(" 18080", " 18080 1"), "row of 26 fields, want 25"},
		"empty field":          {replace("llm", ""), "be_name is empty"},
		"escape in a name":     {replace("llm", "l\x1b[2Jm"), "be_name is no name: l[2Jm"},
		"a name that is none":  {replace("llm", "l\xffm"), "be_name is no name: lm"},
		"cut in the middle":    {"1\n" + stateHeader + "\n" + row + "\n" + row[:20] + "\n\n", "fields, want 25"},
		"row without end":      {"1\n" + stateHeader + "\n" + row + "\n", "row of 1 fields"},
		"blank between rows":   {"1\n" + stateHeader + "\n" + row + "\n\n" + row + "\n\n", "row of 1 fields"},
		"hexadecimal admin":    {replace(" 2 0 50", " 2 0x8 50"), `srv_admin_state is "0x8", want a number from 0 to 4294967295`},
		"negative admin":       {replace(" 2 0 50", " 2 -1 50"), "srv_admin_state"},
		"unknown op state":     {replace(" 2 0 50", " 4 0 50"), `srv_op_state is "4", want a number from 0 to 3`},
		"port out of range":    {replace("18081", "65536"), "srv_port"},
		"weight not a number":  {replace(" 50 100", " x 100"), "srv_uweight"},
		"row of other backend": {replace("llm", "other"), "asked for backend llm"},
	} {
		t.Run(name, func(t *testing.T) {
			state, err := parseServers(tc.text, "llm")
			require.ErrorIs(t, err, ErrMalformed)
			assert.ErrorContains(t, err, tc.want)
			assert.Zero(t, state)
		})
	}
}

func TestServersGoesByColumnName(t *testing.T) {
	header := "# new " + strings.TrimPrefix(stateHeader, "# ") + " newer"
	text := "1\n" + header + "\nx " + stateRowText("llm", "-", 72) + " y\n\n"
	state, err := parseServers(text, "")
	require.NoError(t, err)
	require.Len(t, state.Servers, 1)
	assert.Equal(t, "llm/-", state.Servers[0].Name())
	assert.Equal(t, "drain(forced) [host changed]", state.Servers[0].Admin.String())
	assert.Empty(t, state.Servers[0].FQDN)
	assert.Equal(t, 50, state.Servers[0].Weight)
	assert.Equal(t, 100, state.Servers[0].InitialWeight)

	state, err = parseServers("1\n"+stateHeader+"\n\n", "llm")
	require.NoError(t, err)
	assert.Empty(t, state.Servers)
}

func TestServersOfUnknownBackend(t *testing.T) {
	f := serve(t, "unix", obey(7, map[string]string{"show servers state nosuch": "Can't find backend.\n\n"}))
	_, err := f.instance(Options{}).Servers(t.Context(), "nosuch")
	assert.ErrorIs(t, err, ErrNoSuchServer)
}

const statHeader = "# pxname,svname,tracked,check_health,agent_health,qcur,scur,slim,status,weight,type,check_status,agent_status,last_agt,algo,wretr"

func TestLoadRefusesWhatItDoesNotUnderstand(t *testing.T) {
	for name, tc := range map[string]struct{ text, want string }{
		"nothing":        {"\n", "empty line"},
		"a column less":  {strings.Replace(statHeader, "qcur", "q", 1) + "\n\n", "without column qcur"},
		"too few fields": {statHeader + "\nllm,gpu1,0\n\n", "wrong number of fields"},
		"surplus field":  {statHeader + "\nllm,gpu1,,,,0,0,,UP,1,2,L4OK,,,,,\n\n", "wrong number of fields"},
		"open quote":     {statHeader + "\nllm,gpu1,,,,0,0,,UP,1,2,L4OK,,\"x,\n\n", `extraneous or missing " in quoted-field`},
		"no count":       {statHeader + "\nllm,gpu1,,,,,0,,UP,1,2,L4OK,,,,\n\n", `qcur of llm/gpu1 is "", want a count`},
		"negative count": {statHeader + "\nllm,gpu1,,,,0,-1,,UP,1,2,L4OK,,,,\n\n", "scur of llm/gpu1"},
		"odd retries":    {statHeader + "\nllm,gpu1,,,,0,0,,UP,1,2,L4OK,,,,-1\n\n", `wretr of llm/gpu1 is "-1", want a count`},
		"odd limit":      {statHeader + "\nllm,gpu1,,,,0,0,x,UP,1,2,L4OK,,,,\n\n", `slim of llm/gpu1 is "x", want a count`},
		"later bad row":  {statHeader + "\nllm,BACKEND,,,,0,0,,UP,1,1,,,,,\nllm,gpu1\n\n", "wrong number of fields"},
	} {
		t.Run(name, func(t *testing.T) {
			load, found, err := parseLoad(tc.text, "llm")
			require.ErrorIs(t, err, ErrMalformed)
			assert.ErrorContains(t, err, tc.want)
			assert.False(t, found)
			assert.Zero(t, load)
		})
	}
}

func TestLoad(t *testing.T) {
	i := serve(t, "unix", obey(7, map[string]string{"show stat llm 6 -1": statHeader +
		"\nllm,gpu1,,,,2,3,7,* UP 1/3,50,2,* L4OK,* L7OK,\"via agent : up (a, \"\"b\"\")\",,5000000000" +
		"\nllm,BACKEND,,,,0,1,,no check,1,2,,,,," +
		"\nllm,BACKEND,,,,4,5,998,UP,150,1,,,,source,\n\n"})).instance(Options{})
	load, err := i.Load(t.Context(), "llm")
	require.NoError(t, err)
	assert.Equal(t, 7, load.Info.PID)
	load.Info = Info{}
	assert.Equal(t, BackendLoad{Backend: "llm", Status: "UP", Algo: "source", Queue: 4, Sessions: 5, Servers: []ServerLoad{
		{Server: "gpu1", Status: "* UP 1/3", Queue: 2, Sessions: 3, Retries: 5e9, MaxConn: 7, Weight: 50,
			CheckStatus: "L4OK", AgentStatus: "L7OK", LastAgent: `via agent : up (a, "b")`},
		{Server: "BACKEND", Status: "no check", Sessions: 1, Weight: 1},
	}}, load)
	_, ok := load.Find("gpu1")
	assert.True(t, ok)
	_, ok = load.Find("gpu2")
	assert.False(t, ok)
}

// A frontend of the same name, and a name of digits that is another proxy's id.
// Negative control: without the second load, or without the pxname check in
// parseLoad, this fails.
func TestLoadFindsTheBackendItWasAskedFor(t *testing.T) {
	row := func(backend string) string { return "\n" + backend + ",BACKEND,,,,0,1,,UP,1,1,,,,," }
	i := serve(t, "unix", obey(7, map[string]string{
		"show stat llm 6 -1": statHeader + "\n\n",
		"show stat 4 6 -1":   statHeader + row("lis") + "\n\n",
		"show stat -1 6 -1":  statHeader + row("lis") + row("llm") + "\n\n",
	})).instance(Options{})
	load, err := i.Load(t.Context(), "llm")
	require.NoError(t, err)
	assert.Equal(t, 1, load.Sessions)
	_, err = i.Load(t.Context(), "4")
	require.ErrorIs(t, err, ErrNoSuchServer)
	assert.ErrorContains(t, err, "no statistics of backend 4")
}

// The words are those of HAProxy's table of server states, the same on 2.6, 3.0 and 3.2.
func TestUp(t *testing.T) {
	for status, up := range map[string]bool{
		"UP": true, "UP 1/3": true, "UP -1/2": true, "no check": true,
		"DOWN": false, "DOWN 1/2": false, "DOWN (agent)": false, "NOLB": false, "NOLB 1/3": false,
		"DRAIN": false, "DRAIN 1/3": false, "DRAIN (agent)": false,
		"MAINT": false, "MAINT (via llm/gpu2)": false, "MAINT (resolution)": false,
		"": false, "UPSIDE": false, "no": false,
	} {
		assert.Equal(t, up, ServerLoad{Status: status}.Up(), status)
	}
}

func TestAdminState(t *testing.T) {
	for mask, want := range map[AdminState]string{
		0: "ready", 1: "maint(forced)", 2: "maint(inherited)", 3: "maint(forced,inherited)", 4: "ready [config]",
		5: "maint(forced,config)", 8: "drain(forced)", 10: "maint(inherited)+drain(forced)",
		12: "drain(forced) [config]", 16: "drain(inherited)", 17: "maint(forced)+drain(inherited)",
		24: "drain(forced,inherited)", 32: "maint(dns)", 40: "maint(dns)+drain(forced)", 64: "ready [host changed]",
		72: "drain(forced) [host changed]", 128: "ready [unknown 128]",
	} {
		assert.Equal(t, want, mask.String(), uint32(mask))
		assert.Equal(t, strings.Contains(want, "maint("), mask.Maint(), want)
		assert.Equal(t, strings.Contains(want, "drain("), mask.Drain(), want)
		assert.Equal(t, strings.HasPrefix(want, "ready"), mask.Open(), want)
	}
	for mask := range AdminState(128) {
		assert.Equal(t, mask&35 != 0, mask.Maint())
		assert.Equal(t, mask&24 != 0, mask.Drain())
	}
	assert.Equal(t, "stopping", OpStopping.String())
	assert.Equal(t, "unknown 4", OpState(4).String())
}

func TestVersion(t *testing.T) {
	for raw, want := range map[string]Version{
		"2.6.12-1+deb12u4": {2, 6, 12, ""}, "3.4-dev13-1a2b": {3, 4, 0, ""}, "3.10.0": {3, 10, 0, ""},
		"": {}, "dev": {}, "99999999.1.1": {},
	} {
		want.Raw = raw
		assert.Equal(t, want, parseVersion(raw))
	}
	v := parseVersion("3.0.11")
	for _, older := range [][3]int{{2, 9, 99}, {3, 0, 0}, {3, 0, 11}} {
		assert.True(t, v.AtLeast(older[0], older[1], older[2]), older)
	}
	for _, newer := range [][3]int{{3, 0, 12}, {3, 1, 0}, {4, 0, 0}} {
		assert.False(t, v.AtLeast(newer[0], newer[1], newer[2]), newer)
	}
	assert.False(t, parseVersion("dev").AtLeast(1, 0, 0))
}

func TestInfoRefusesWhatItDoesNotUnderstand(t *testing.T) {
	whole := strings.TrimSuffix(infoText(7), "\n\n")
	for name, tc := range map[string]struct{ old, new, want string }{
		"no pid":         {"Pid: 7\n", "", "no Pid"},
		"pid zero":       {"Pid: 7", "Pid: 0", `Pid "0"`},
		"pid of letters": {"Pid: 7", "Pid: x", `Pid "x"`},
		"no uptime":      {"Uptime_sec: 5\n", "", "no Uptime_sec"},
		"long uptime":    {"Uptime_sec: 5", "Uptime_sec: 99999999999", "Uptime_sec"},
		"no stopping":    {"Stopping: 0\n", "", "no Stopping"},
		"odd start":      {"Start_time_sec: 1796002007", "Start_time_sec: -1", "Start_time_sec"},
	} {
		_, err := parseInfo(strings.Replace(whole, tc.old, tc.new, 1))
		require.ErrorIs(t, err, ErrMalformed, name)
		assert.ErrorContains(t, err, tc.want, name)
	}
	info, err := parseInfo(strings.Replace(strings.Replace(whole, "Stopping: 0", "Stopping: 1", 1), "\nStart_time_sec: 1796002007", "", 1))
	require.NoError(t, err)
	assert.True(t, info.Stopping)
	assert.True(t, info.StartTime.IsZero())
}

// Negative controls: a comparison of process ids alone takes the restarts for the
// same process; one of whole uptimes misses "lived longer".
func TestSameProcess(t *testing.T) {
	started := time.Unix(1796005200, 0)
	a := Info{PID: 3, Version: parseVersion("3.0.11"), Uptime: 100 * time.Second, StartTime: started}
	for name, tc := range map[string]struct {
		change func(b *Info)
		same   bool
	}{
		"itself":                         {func(b *Info) {}, true},
		"later":                          {func(b *Info) { b.Uptime += time.Hour }, true},
		"now stopping":                   {func(b *Info) { b.Stopping = true }, true},
		"clock of the machine went back": {func(b *Info) { b.Uptime -= time.Second }, true},
		"another id":                     {func(b *Info) { b.PID = 4 }, false},
		"restarted, lived longer":        {func(b *Info) { b.StartTime, b.Uptime = started.Add(time.Hour), 200*time.Second }, false},
		"restarted within a second":      {func(b *Info) { b.StartTime, b.Uptime = started.Add(time.Second), 100*time.Second }, false},
		"restarted, clock went back":     {func(b *Info) { b.StartTime = started.Add(-time.Second) }, false},
		"upgraded":                       {func(b *Info) { b.Version = parseVersion("3.0.12") }, false},
		"start time lost":                {func(b *Info) { b.StartTime = time.Time{} }, false},
	} {
		b := a
		tc.change(&b)
		assert.Equal(t, tc.same, a.SameProcess(b), name)
	}
	a.StartTime = time.Time{}
	b := a
	assert.True(t, a.SameProcess(b))
	b.Uptime++
	assert.True(t, a.SameProcess(b))
	assert.False(t, b.SameProcess(a), "its uptime went back")

	for _, version := range recorded {
		text := golden(t, version, "oldload")
		first, err := parseInfo(text[:strings.Index(text, "\n\n")])
		require.NoError(t, err)
		assert.False(t, first.StartTime.IsZero(), "each of them says when it started")
	}
}
