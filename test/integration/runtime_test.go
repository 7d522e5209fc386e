package integration

import (
	"context"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/haproxytech/client-native/v5/models"
	native "github.com/haproxytech/client-native/v5/runtime"
	"github.com/haproxytech/client-native/v5/runtime/options"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tier-agent/internal/runtimeapi"
	"tier-agent/test/guarantee"
)

var newWitnesses sync.Mutex

// newWitness is one at a time: client-native asks for HAProxy's version while it sets
// itself up, and keeps the first answer for the whole process without a lock.
func newWitness(t *testing.T, socket string) native.Runtime {
	t.Helper()
	newWitnesses.Lock()
	defer newWitnesses.Unlock()
	witness, err := native.New(t.Context(), options.Sockets(map[int]string{1: socket}), options.DoNotCheckRuntimeOnInit)
	require.NoError(t, err)
	return witness
}

// Our client and client-native's look at the same server after each change.
// The witness reads the admin state's decimal mask as hexadecimal, so it is
// asked only about masks that read the same in both (0, 1 and 8).
func TestRuntimeClientAgreesWithAnIndependentWitness(t *testing.T) {
	onEach(t, func(t *testing.T, haproxy string) {
		w := newWorld(t, haproxy, "")
		ours := runtimeapi.New("edge", "unix", w.RuntimeSocket(), runtimeapi.Options{Timeout: 5 * time.Second})
		witness := newWitness(t, w.RuntimeSocket())

		for _, step := range []struct {
			want    runtimeapi.State
			admin   runtimeapi.AdminState
			witness string
		}{
			{runtimeapi.StateDrain, runtimeapi.ForcedDrain, models.RuntimeServerAdminStateDrain},
			{runtimeapi.StateMaint, runtimeapi.ForcedMaint, models.RuntimeServerAdminStateMaint},
			{runtimeapi.StateReady, 0, models.RuntimeServerAdminStateReady},
		} {
			change, err := ours.SetState(t.Context(), "heavy", "h1", step.want)
			require.NoError(t, err)
			assert.Equal(t, step.admin, change.After.Admin)

			state, err := ours.Servers(t.Context(), "heavy")
			require.NoError(t, err)
			row, ok := state.Find("heavy", "h1")
			require.True(t, ok)
			assert.Equal(t, step.admin, row.Admin)

			seen, err := witness.GetServerState("heavy", "h1")
			require.NoError(t, err)
			assert.Equal(t, step.witness, seen.AdminState)
			assert.Equal(t, row.Address, seen.Address)
			require.NotNil(t, seen.Port)
			assert.EqualValues(t, row.Port, *seen.Port)
		}
		info, err := ours.Info(t.Context())
		require.NoError(t, err)
		pid, err := w.WorkerPID()
		require.NoError(t, err)
		assert.Equal(t, pid, strconv.Itoa(info.PID))
	})
}

// A stopped HAProxy is no HAProxy: the command ends at its deadline, says that
// its outcome is unknown, and the tier stays closed.
func TestAStoppedHAProxyLeavesTheTierClosed(t *testing.T) {
	onEach(t, func(t *testing.T, haproxy string) {
		w := newWorld(t, haproxy, "")
		ours := runtimeapi.New("edge", "unix", w.RuntimeSocket(), runtimeapi.Options{Timeout: 5 * time.Second})
		info, err := ours.Info(t.Context())
		require.NoError(t, err)
		resume := stopProcess(t, info.PID)

		r := w.verb(1, "quiesce", "heavy", "--reason", "swap")
		assert.Equal(t, "incomplete", string(r.Outcome))
		assert.True(guarantee.T(t), r.Quiesced, "closed here, whatever HAProxy does")
		assert.NotEmpty(t, r.HAProxy[0].Error)
		r = w.verb(1, "readmit", "heavy")
		assert.Equal(t, "haproxy_failed", r.Code)
		assert.True(guarantee.T(t), r.Quiesced)

		resume()
		r = w.verb(0, "quiesce", "heavy", "--reason", "again")
		assert.Equal(t, "swap", r.Closure.Reason, "the first reason stands")
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		state, err := ours.Servers(ctx, "heavy")
		require.NoError(t, err)
		assert.Equal(guarantee.T(t), runtimeapi.ForcedDrain, state.Servers[0].Admin)
		w.verb(0, "readmit", "heavy", "--wait", "5s")
	})
}
