package runtimeapi

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// around is a handler that shows the server in one state before the mutation and
// in another after it, with a text of its own for the mutation.
func around(before AdminState, mutation string, after AdminState) func(net.Conn, string) {
	return func(conn net.Conn, line string) {
		say(strings.Join([]string{"", stateText(before), mutation, stateText(after), ""}, infoText(7)))(conn, line)
	}
}

func TestSetStateIsReadBack(t *testing.T) {
	for _, tc := range []struct {
		want          State
		before, after AdminState
		applied       bool
	}{
		{StateDrain, 0, 8, true},
		{StateDrain, 5, 12, true},
		{StateDrain, 16, 24, true},
		{StateDrain, 0, 0, false},
		{StateDrain, 1, 9, false},
		{StateDrain, 0, 16, false},
		{StateMaint, 8, 1, true},
		{StateMaint, 2, 3, true},
		{StateMaint, 4, 4, false},
		{StateMaint, 2, 2, false},
		{StateReady, 12, 4, true},
		{StateReady, 1, 0, true},
		{StateReady, 35, 34, true},
		{StateReady, 9, 8, false},
		{StateReady, 1, 1, false},
	} {
		t.Run(tc.want.String()+" to "+tc.after.String(), func(t *testing.T) {
			i := serve(t, "unix", around(tc.before, "\n", tc.after)).instance(Options{})
			change, err := i.SetState(t.Context(), "llm", "gpu4", tc.want)
			assert.Equal(t, tc.before, change.Before.Admin)
			assert.Equal(t, tc.after, change.After.Admin)
			assert.Equal(t, 7, change.Info.PID)
			if tc.applied {
				assert.NoError(t, err)
				return
			}
			// Negative control: without the reached check in setState these pass as done.
			require.ErrorIs(t, err, ErrNotApplied)
			assert.ErrorContains(t, err, "llm/gpu4 wanted "+tc.want.String()+", is "+tc.after.String())
			assert.NotErrorIs(t, err, ErrUncertain)
		})
	}
}

// The state read back is the wanted one in every case: only the mutation's own
// answer tells that it was refused. Negative control: without the check of
// accepted in mutate each of them succeeds but those that shift the blocks.
func TestSetStateRefused(t *testing.T) {
	for _, tc := range []struct {
		name, answer string
		want         error
		text         string
	}{
		{"text", "Proxy is disabled.\n\n", ErrRefused, `drain llm/gpu4: haproxy refused: "Proxy is disabled."`},
		{"text with severity", "[3]: Proxy is disabled.\n\n", ErrRefused, `refused: "Proxy is disabled."`},
		{"text of one newline", "Trailing garbage\n", ErrRefused, "Trailing garbage"},
		{"text without newline", "odd", ErrIncomplete, "3 of 4 sentinels"},
		{"permission", "Permission denied\n\n", ErrPermission, "/s: permission denied by haproxy: the stats socket needs `level admin`"},
		{"permission with severity", "[err]: Permission denied\n\n", ErrPermission, ""},
		{"server", "No such server.\n\n", ErrNoSuchServer, ""},
		{"backend", "No such backend.\n\n", ErrNoSuchServer, ""},
		{"control bytes and length", "\x1b[31mbad\x00\n" + strings.Repeat("é", 300) + "\n", ErrRefused, `"[31mbad ` + strings.Repeat("é", 96) + `"`},
		{"looks like a state", stateText(8), ErrRefused, `"1 # be_id`},
		{"looks like statistics", "# pxname,svname\nllm,gpu4\n\n", ErrRefused, "pxname"},
		{"begins like an info block", "Name: HAProxy\nPid: 7\n\n", ErrRefused, "Name: HAProxy"},
		{"is an info block", infoText(7), ErrMalformed, "after the last sentinel"},
		{"holds an info block", "x\n" + infoText(7) + "\n", ErrMalformed, "after the last sentinel"},
		{"is an info block of another process", infoText(6), ErrOtherProcess, "7 before, 6 after"},
		{"runs into the sentinel", "odd Name: x\n\n", ErrRefused, "odd Name: x"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			i := serve(t, "unix", around(0, tc.answer, 8)).instance(Options{})
			change, err := i.SetState(t.Context(), "llm", "gpu4", StateDrain)
			require.ErrorIs(t, err, tc.want)
			assert.ErrorContains(t, err, tc.text)
			assert.LessOrEqual(t, len(err.Error()), 400)
			// Where the blocks are out of place nothing is taken from them.
			refused := tc.want == ErrRefused || tc.want == ErrPermission || tc.want == ErrNoSuchServer
			assert.Equal(t, refused, change.After.Admin == ForcedDrain)
			assert.NotEqual(t, refused, errors.Is(err, ErrUncertain))
		})
	}
}

func TestSetStateWithoutReadBackIsUncertain(t *testing.T) {
	for name, table := range map[string]string{
		"other version": "2\n" + stateHeader + "\n\n",
		"short row":     "1\n" + stateHeader + "\n3 llm 1 gpu4 127.0.0.1 2 8\n\n",
		"no row":        "1\n" + stateHeader + "\n\n",
		"empty":         "\n",
	} {
		t.Run(name, func(t *testing.T) {
			i := answering(strings.Join([]string{"", stateText(0), "\n", table, ""}, infoText(7)))
			_, err := i.SetState(t.Context(), "llm", "gpu4", StateDrain)
			require.Error(t, err)
			assert.ErrorIs(t, err, ErrUncertain)
		})
	}
}

// Negative control: a sentinel that need not be complete in unframe, or one that
// need not come, lets some of the cuts through.
func TestNoCutOfAnAnswerIsSuccess(t *testing.T) {
	for _, version := range recorded {
		whole := golden(t, version, "drain")
		_, err := answering(whole).SetState(t.Context(), "llm", "gpu4", StateDrain)
		require.NoError(t, err)
		for cut := range len(whole) {
			change, err := answering(whole[:cut]).SetState(t.Context(), "llm", "gpu4", StateDrain)
			if err == nil || change != (Change{}) {
				t.Fatalf("%s: cut at %d of %d: %v, %v", version, cut, len(whole), change, err)
			}
			require.ErrorIs(t, err, ErrUncertain)
		}
	}
}

// Negative control: without the exchange before the mutation in mutate the
// second line arrives.
func TestMutationIsNotSentToAnotherProcess(t *testing.T) {
	var mutations atomic.Int64
	f := serve(t, "unix", func(conn net.Conn, line string) {
		if strings.Contains(line, "set server") {
			mutations.Add(1)
			around(0, "\n", 8)(conn, line)
			return
		}
		obey(7, nil)(conn, line)
	})
	i := f.instance(Options{})
	_, err := i.SetState(ExpectPID(t.Context(), 6), "llm", "gpu4", StateDrain)
	require.ErrorIs(t, err, ErrOtherProcess)
	assert.NotErrorIs(t, err, ErrUncertain)
	assert.Zero(t, mutations.Load())

	_, err = i.SetState(ExpectPID(t.Context(), 7), "llm", "gpu4", StateDrain)
	require.NoError(t, err)
	assert.EqualValues(t, 1, mutations.Load())
}

func TestRestore(t *testing.T) {
	for want, command := range map[AdminState]State{
		0: StateReady, 2: StateReady, 4: StateReady, 16: StateReady, 32: StateReady, 64: StateReady,
		8: StateDrain, 12: StateDrain, 24: StateDrain, 10: StateDrain,
		1: StateMaint, 5: StateMaint, 3: StateMaint, 9: StateMaint, 13: StateMaint,
	} {
		var sent string
		after := map[State]AdminState{StateReady: 0, StateDrain: 8, StateMaint: 1}[command]
		i := New("hap1", "unix", "x", Options{Dial: func(context.Context, string, string) (net.Conn, error) {
			near, far := net.Pipe()
			go func() {
				defer far.Close()
				line := make([]byte, 4096)
				n, _ := far.Read(line)
				sent = string(line[:n])
				around(9, "\n", after)(far, "")
			}()
			return near, nil
		}})
		change, err := i.Restore(t.Context(), "llm", "gpu4", want)
		require.NoError(t, err)
		assert.Contains(t, sent, ";set server llm/gpu4 state "+command.String()+";", want)
		assert.Equal(t, after, change.After.Admin)
	}
	i := answering(strings.Join([]string{"", stateText(0), "\n", stateText(8), ""}, infoText(7)))
	_, err := i.Restore(t.Context(), "llm", "gpu4", ForcedMaint)
	assert.ErrorIs(t, err, ErrNotApplied)
}

// Negative control: without checkName each call reaches the listener.
func TestNamesAreCheckedBeforeAnythingIsSent(t *testing.T) {
	f := serve(t, "unix", hang)
	i := f.instance(Options{})
	ctx := t.Context()
	for _, name := range []string{
		"", " ", "a b", "a;b", "a\nset server llm/gpu4 state maint", "a\n", "a\r", "a\\;b", "a/b", "#1", "@1", "a%", "é",
		"a\x00", "'a'", "<<", strings.Repeat("x", 65),
	} {
		_, err := i.SetState(ctx, name, "gpu4", StateMaint)
		assert.ErrorIs(t, err, ErrInvalidName, "%q", name)
		_, err = i.SetState(ctx, "llm", name, StateMaint)
		assert.ErrorIs(t, err, ErrInvalidName, "%q", name)
		_, err = i.Restore(ctx, "llm", name, ForcedMaint)
		assert.ErrorIs(t, err, ErrInvalidName, "%q", name)
		_, err = i.Load(ctx, name)
		assert.ErrorIs(t, err, ErrInvalidName, "%q", name)
		if name != "" {
			_, err = i.Servers(ctx, name)
			assert.ErrorIs(t, err, ErrInvalidName, "%q", name)
		}
	}
	for _, state := range []State{0, -1, 4} {
		_, err := i.SetState(ctx, "llm", "gpu4", state)
		assert.ErrorIs(t, err, ErrInvalidName, state)
	}
	assert.Zero(t, f.accepted.Load())
	assert.NoError(t, checkName("server", "s.x:y_z-1"))
	assert.NoError(t, checkName("server", strings.Repeat("x", 64)))
}
