package runtimeapi

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tier-agent/test/guarantee"
)

// The recorded ones are of -Ws with three reloads, streams in each old worker, and
// a program.
func TestRecordedWorkers(t *testing.T) {
	for _, version := range recorded {
		t.Run(version, func(t *testing.T) {
			i := mastered(t, say(golden(t, version, "proc")), Options{})
			workers, err := i.Workers(t.Context())
			require.NoError(t, err)
			require.Len(t, workers, 4)
			for n, w := range workers {
				assert.Equal(t, n > 0, w.Old)
				assert.Equal(t, n, w.Reloads)
				assert.Positive(t, w.PID)
				assert.Less(t, w.Uptime, 5*time.Second)
				assert.Equal(t, version, fmt.Sprintf("%d.%d", w.Version.Major, w.Version.Minor))
			}
		})
	}
	// On 3.2 the serving worker is an old one while the new one loads, and after that failed.
	workers, err := parseProc(golden(t, "3.2", "procloading"))
	require.NoError(t, err)
	require.Len(t, workers, 2)
	assert.False(t, workers[0].Old)
	assert.True(t, workers[1].Old)
	workers, err = parseProc(golden(t, "3.2", "procfailed"))
	require.NoError(t, err)
	require.Len(t, workers, 1)
	assert.True(t, workers[0].Old)
	assert.Equal(t, 1, workers[0].Reloads)
}

func TestWorkersReadsTheWholeList(t *testing.T) {
	i := mastered(t, say(procText("741 worker 0 20737d09h06m59s 3.2.26-1\n", "")), Options{})
	workers, err := i.Workers(t.Context())
	require.NoError(t, err)
	assert.Equal(t, []Worker{{
		PID: 741, Uptime: 20737*24*time.Hour + 9*time.Hour + 6*time.Minute + 59*time.Second, Version: Version{3, 2, 26, "3.2.26-1"},
	}}, workers)

	// Up to 2.4 there was one column more, with a blank in its name.
	workers, err = parseProc("#<PID>          <type>          <relative PID>  <reloads>       <uptime>        <version>\n" +
		"7 master 0 0 0d00h00m01s 2.4.0\n# workers\n8 worker 1 2 0d00h00m01s 2.4.0\n# programs\n\n")
	require.NoError(t, err)
	require.Len(t, workers, 1)
	assert.Equal(t, 2, workers[0].Reloads)
}

// Negative controls: without the Suffix check "cut off" is a list of one worker;
// without the default case in parseProc "new section" loses one, and so on.
func TestWorkersRefusesWhatItDoesNotUnderstand(t *testing.T) {
	row := "741 worker 0 0d00h00m01s 3.2.26-1\n"
	whole := procText(row, "")
	var many strings.Builder
	for n := range 500 {
		many.WriteString(strings.Replace(row, "741", fmt.Sprint(1000+n), 1))
	}
	for name, tc := range map[string]struct {
		text string
		kind error
		want string
	}{
		"closes at once":    {"", ErrIncomplete, "nothing"},
		"cut off":           {strings.TrimSuffix(whole, "\n"), ErrIncomplete, "without its end"},
		"stats socket":      {"Unknown command: 'show', but maybe\nhelp\n", ErrRefused, "Unknown command"},
		"low level":         {"Permission denied\n\n", ErrPermission, ""},
		"a column less":     {strings.Replace(whole, "<uptime>", "<up>", 1), ErrMalformed, "without column uptime"},
		"new section":       {procText(row, "# leaving workers\n742 worker 1 0d00h00m01s 3.2.26-1\n"), ErrMalformed, `section "leaving workers"`},
		"not a worker":      {procText("741 helper 0 0d00h00m01s 3.2.26-1\n", ""), ErrMalformed, "741 helper"},
		"too few fields":    {procText("741 worker 0 0d00h00m01s\n", ""), ErrMalformed, "741 worker"},
		"too many fields":   {procText("741 worker 0 0 0d00h00m01s 3.2.26-1\n", ""), ErrMalformed, "741 worker"},
		"blank between":     {procText(row+"\n", ""), ErrMalformed, `worker ""`},
		"no pid":            {procText("x worker 0 0d00h00m01s 3.2.26-1\n", ""), ErrMalformed, "x worker"},
		"pid zero":          {procText("0 worker 0 0d00h00m01s 3.2.26-1\n", ""), ErrMalformed, "0 worker"},
		"pid negative":      {procText("-1 worker 0 0d00h00m01s 3.2.26-1\n", ""), ErrMalformed, "-1 worker"},
		"reloads of a word": {procText("741 worker x 0d00h00m01s 3.2.26-1\n", ""), ErrMalformed, "741 worker x"},
		"odd uptime":        {procText("741 worker 0 1h 3.2.26-1\n", ""), ErrMalformed, "741 worker 0 1h"},
		"long uptime":       {procText("741 worker 0 999999d00h00m01s 3.2.26-1\n", ""), ErrMalformed, "999999d"},
		"twice":             {procText(row, "# old workers\n"+row), ErrMalformed, "worker 741 twice"},
		"full buffer":       {procText(many.String(), ""), ErrTooLarge, "may leave workers out"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			workers, err := mastered(t, say(tc.text), Options{}).Workers(t.Context())
			require.ErrorIs(t, err, tc.kind)
			assert.ErrorContains(t, err, "haproxy hap1: master at ")
			assert.ErrorContains(t, err, tc.want)
			assert.Nil(t, workers)
		})
	}
}

// Negative control: without the HasMaster checks each call dials "".
func TestNoMaster(t *testing.T) {
	f := serve(t, "unix", hang)
	i := f.instance(Options{})
	assert.False(t, i.HasMaster())
	_, err := i.Workers(t.Context())
	require.ErrorIs(t, err, ErrNoMaster)
	_, err = i.WorkerLoad(t.Context(), 7, "llm")
	require.ErrorIs(t, err, ErrNoMaster)
	_, err = i.AllWorkersLoad(t.Context(), "llm")
	require.ErrorIs(t, err, ErrNoMaster)
	assert.Zero(t, f.accepted.Load())
	assert.True(t, f.instance(Options{Master: Socket{"unix", "/x"}}).HasMaster())
}

// A list that can be cut without notice would lose the worker with the streams.
func TestNoCutOfAListIsAList(t *testing.T) {
	for _, version := range recorded {
		whole := golden(t, version, "proc")
		for cut := range len(whole) {
			workers, err := parseProc(whole[:cut])
			if err == nil || workers != nil {
				guarantee.T(t).Errorf("%s: cut at %d of %d: %v", version, cut, len(whole), workers)
				guarantee.T(t).FailNow()
			}
		}
	}
}

func procText(current, rest string) string {
	return "#<PID>          <type>          <reloads>       <uptime>        <version>      \n" +
		"700             master          3 [failed: 0]   0d00h01m00s     3.2.26-1       \n" +
		"# workers\n" + current + rest + "\n"
}

// Control: with the third column taken for the uptime, 2.6 to 3.2 had none, since the
// failed reloads stand in columns without a name.
func TestMaster(t *testing.T) {
	want := map[string]Master{"2.6": {7488, 3 * time.Second}, "3.0": {8790, 5 * time.Second}, "3.2": {10655, 2 * time.Second}}
	for _, version := range recorded {
		whole := golden(t, version, "proc")
		m, err := mastered(t, say(whole), Options{}).Master(t.Context())
		require.NoError(t, err)
		assert.Equal(t, want[version], m, version)
	}
	for _, text := range []string{"", "#<PID> <type>\n", "#<PID>\n0 master 0 0d00h00m01s\n\n", "#<PID>\n7 master 0 1h 3.2\n\n"} {
		_, err := mastered(t, say(text), Options{}).Master(t.Context())
		require.Error(t, err, text)
		assert.ErrorContains(t, err, "haproxy hap1: ")
	}
}
