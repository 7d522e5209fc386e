package runtimeapi

import (
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func FuzzUnframe(f *testing.F) {
	for _, version := range recorded {
		f.Add(golden(f, version, "drain"), 3)
		f.Add(golden(f, version, "info"), 0)
	}
	f.Add(golden(f, "2.6", "description"), 3)
	f.Fuzz(func(t *testing.T, text string, commands int) {
		commands = min(max(commands, 0), 8)
		a, err := unframe(text, commands)
		if err != nil {
			assert.Less(t, len(err.Error()), 2000)
			assert.Zero(t, a)
			return
		}
		require.Len(t, a.texts, commands)
		require.Positive(t, a.info.PID)
	})
}

func FuzzServers(f *testing.F) {
	for _, version := range recorded {
		text := golden(f, version, "servers")
		f.Add(text[strings.Index(text, "\n\n")+2:strings.LastIndex(text, "Name: ")], "")
	}
	f.Add(stateText(12), "llm")
	f.Fuzz(func(t *testing.T, text, backend string) {
		state, err := parseServers(text, backend)
		if err != nil {
			assert.Less(t, len(err.Error()), 2000)
			assert.Zero(t, state)
			return
		}
		for _, s := range state.Servers {
			assert.NotEmpty(t, s.Backend)
			assert.NotEmpty(t, s.Server)
		}
	})
}

func FuzzLoad(f *testing.F) {
	// Small ones: the fuzzer spends a minute on making a recorded answer smaller.
	f.Add(statHeader+"\nllm,gpu1,,,,2,3,7,UP 1/3,50,2,* L4OK,L7OK,\"a, \"\"b\"\"\",,\nllm,BACKEND,,,,4,5,,UP,150,1,,,,uri,\n\n", "llm")
	f.Add("No such proxy.\n\n", "llm")
	f.Fuzz(func(t *testing.T, text, backend string) {
		load, found, err := parseLoad(text, backend)
		if err != nil {
			assert.Less(t, len(err.Error()), 2000)
			assert.False(t, found)
			assert.Zero(t, load)
		}
		for _, s := range load.Servers {
			assert.LessOrEqual(t, len(s.LastAgent), maxText)
		}
	})
}

func FuzzProc(f *testing.F) {
	for _, name := range []string{"2.6-proc", "3.2-procloading", "3.2-procfailed"} {
		f.Add(golden(f, name[:3], name[4:]))
	}
	f.Fuzz(func(t *testing.T, text string) {
		workers, err := parseProc(text)
		if err != nil {
			assert.Less(t, len(err.Error()), 2000)
			assert.Nil(t, workers)
			return
		}
		require.LessOrEqual(t, len(text), maxProc)
		seen := map[int]bool{}
		for _, w := range workers {
			assert.Positive(t, w.PID)
			assert.GreaterOrEqual(t, w.Uptime, time.Duration(0))
			assert.GreaterOrEqual(t, w.Reloads, 0)
			assert.False(t, seen[w.PID])
			seen[w.PID] = true
		}
	})
}

func FuzzClean(f *testing.F) {
	f.Add("a\x00\x1b[1m\né" + strings.Repeat("é", 300))
	f.Fuzz(func(t *testing.T, text string) {
		got := clean(text)
		assert.True(t, utf8.ValidString(got))
		assert.LessOrEqual(t, len(got), maxText)
		assert.NotContains(t, got, "\n")
	})
}

func BenchmarkServers1000(b *testing.B) {
	var text strings.Builder
	text.WriteString("1\n" + stateHeader + "\n")
	for n := range 1000 {
		text.WriteString(stateRowText("llm", fmt.Sprintf("gpu%d", n), 8) + "\n")
	}
	text.WriteString("\n")
	b.SetBytes(int64(text.Len()))
	b.ReportAllocs()
	for b.Loop() {
		state, err := parseServers(text.String(), "llm")
		if err != nil || len(state.Servers) != 1000 {
			b.Fatal(err)
		}
	}
}

func BenchmarkLoad1000(b *testing.B) {
	recorded := golden(b, "3.2", "load")
	header := recorded[strings.Index(recorded, "# pxname"):]
	header = header[:strings.Index(header, "\n")]
	row := recorded[strings.Index(recorded, "llm,gpu1,"):]
	row = row[:strings.Index(row, "\n")]
	text := header + strings.Repeat("\n"+row, 1000) + "\n\n"
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		load, _, err := parseLoad(text, "llm")
		if err != nil || len(load.Servers) != 1000 {
			b.Fatal(err)
		}
	}
}
