package admission

import (
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// texts are the forms of a version's answers, cut out of what it was recorded
// to answer.
type texts struct {
	infoBlock                 string
	stateColumns, statColumns []string
	stateRow                  []string // of a server that is open and runs
}

var (
	pidLine   = regexp.MustCompile(`(?m)^Pid: \d+$`)
	startLine = regexp.MustCompile(`(?m)^Start_time_sec: (\d+)$`)
)

func record(t testing.TB, version string) texts {
	t.Helper()
	read := func(name string) string {
		text, err := os.ReadFile("../runtimeapi/testdata/" + version + "-" + name + ".txt")
		require.NoError(t, err)
		return string(text)
	}
	block, _, ok := strings.Cut(read("info"), "\n\n")
	require.True(t, ok)
	_, states, ok := strings.Cut(read("servers"), "\n1\n# ")
	require.True(t, ok)
	rows := strings.Split(states, "\n")
	_, stat, ok := strings.Cut(read("load"), "\n# ")
	require.True(t, ok)
	header, _, _ := strings.Cut(stat, "\n")
	return texts{
		infoBlock: block + "\n", stateColumns: strings.Split(rows[0], " "),
		statColumns: strings.Split(header, ","), stateRow: strings.Split(rows[1], " "),
	}
}

func (x texts) info(pid, later int) string {
	was, _ := strconv.Atoi(startLine.FindStringSubmatch(x.infoBlock)[1])
	block := startLine.ReplaceAllString(x.infoBlock, "Start_time_sec: "+strconv.Itoa(was+later))
	return pidLine.ReplaceAllString(block, "Pid: "+strconv.Itoa(pid))
}

func (x texts) state(set map[string]string) string {
	row := make([]string, len(x.stateRow))
	for n, column := range x.stateColumns {
		if row[n] = x.stateRow[n]; set[column] != "" {
			row[n] = set[column]
		}
	}
	return strings.Join(row, " ")
}

func (x texts) stat(set map[string]string) string {
	row := make([]string, len(x.statColumns))
	for n, column := range x.statColumns {
		row[n] = set[column]
	}
	return strings.Join(row, ",")
}

// The emulator is worth what it has in common with HAProxy: for the servers
// that were recorded it answers a mutation and both reads around it with the
// recorded text, but for numbers that are the machine's.
func TestTheEmulatorAnswersAsRecorded(t *testing.T) {
	for _, version := range []string{"2.6", "3.0", "3.2"} {
		text, err := os.ReadFile("../runtimeapi/testdata/" + version + "-drain.txt")
		require.NoError(t, err)
		var servers []string
		for _, n := range []string{"1", "2", "3", "4", "5", "6", "7"} {
			servers = append(servers, "llm/gpu"+n)
		}
		h := newHAProxy(t, "hap1", version, &journal{}, servers...)
		said := h.run("show info;show servers state llm;show info;set server llm/gpu4 state drain;show info;show servers state llm;show info", &fault{})
		assert.Equal(t, shape(string(text), "llm/gpu4"), shape(said, "llm/gpu4"), version)
	}
}

// shape keeps the order of the answers, where each begins and ends, and of the
// one server its name, admin state and number of columns.
func shape(text, server string) []string {
	var all []string
	for line := range strings.SplitSeq(text, "\n") {
		fields := strings.Fields(line)
		switch {
		case len(fields) > 20 && fields[0] != "#":
			if fields[1]+"/"+fields[3] == server {
				all = append(all, fields[1]+"/"+fields[3]+" "+fields[6]+" of "+strconv.Itoa(len(fields)))
			}
		case strings.Contains(line, ": "):
			if strings.HasPrefix(line, "Name: ") {
				all = append(all, "info")
			}
		default:
			all = append(all, line)
		}
	}
	return all
}
