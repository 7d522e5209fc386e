package runtimeapi

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The files in testdata are whole answers of real processes of 2.6.12, 3.0.11 and
// 3.2.26, byte for byte, to the exchanges that the calls below send.
func TestRecordedAnswers(t *testing.T) {
	for _, version := range recorded {
		t.Run(version, func(t *testing.T) {
			ctx := t.Context()
			at := func(name string) *Instance { return answering(golden(t, version, name)) }

			info, err := at("info").Info(ctx)
			require.NoError(t, err)
			wanted := map[string]Version{
				"2.6": {2, 6, 12, "2.6.12-1+deb12u4"},
				"3.0": {3, 0, 11, "3.0.11-1+deb13u4"},
				"3.2": {3, 2, 26, "3.2.26-1"},
			}
			assert.Equal(t, wanted[version], info.Version)
			assert.Positive(t, info.PID)
			assert.Positive(t, info.Uptime)
			assert.Less(t, info.Uptime, time.Hour)
			assert.Equal(t, 2026, info.StartTime.UTC().Year())
			assert.False(t, info.Stopping)
			assert.Contains(t, info.Node, "lab-")

			state, err := at("servers").Servers(ctx, "")
			require.NoError(t, err)
			require.Len(t, state.Servers, 11)
			gpu1, ok := state.Find("llm", "gpu1")
			require.True(t, ok)
			assert.Equal(t, ServerState{
				Backend: "llm", Server: "gpu1", Address: "127.0.0.1", Port: 18081,
				Admin: 0, Operational: OpRunning, Weight: 100, InitialWeight: 100, SinceChange: gpu1.SinceChange,
				CheckStatus: 6, CheckResult: 3, CheckHealth: 4, CheckState: 6, AgentState: 22,
				AgentAddress: "127.0.0.1", AgentPort: 18080,
			}, gpu1)
			gpu3, ok := state.Find("llm", "gpu3")
			require.True(t, ok)
			assert.Equal(t, "maint(forced,config)", gpu3.Admin.String())
			assert.Equal(t, OpStopped, gpu3.Operational)
			_, ok = state.Find("other", "s.x:y_z-1")
			assert.True(t, ok)

			load, err := at("load").Load(ctx, "llm")
			require.NoError(t, err)
			assert.Equal(t, "UP", load.Status)
			assert.Equal(t, "leastconn", load.Algo)
			require.Len(t, load.Servers, 7)
			assert.Equal(t, ServerLoad{
				Server: "gpu1", Status: "UP", Weight: 100, CheckStatus: "L4OK", AgentStatus: "L7OK", CheckHealth: 4, AgentHealth: 1,
				LastAgent: `via agent : up (say "hi", ok; a,b)`,
			}, load.Servers[0])
			up := map[string]bool{}
			for _, s := range load.Servers {
				up[s.Server+" "+s.Status] = s.Up()
			}
			assert.Equal(t, map[string]bool{
				"gpu1 UP": true, "gpu2 UP": true, "gpu3 MAINT": false, "gpu4 no check": true,
				"gpu5 DOWN": false, "gpu6 UP": true, "gpu7 DOWN (agent)": false,
			}, up)

			change, err := at("drain").SetState(ctx, "llm", "gpu4", StateDrain)
			require.NoError(t, err)
			assert.Equal(t, "ready", change.Before.Admin.String())
			assert.Equal(t, "drain(forced)", change.After.Admin.String())
			change, err = at("maint").SetState(ctx, "llm", "gpu4", StateMaint)
			require.NoError(t, err)
			assert.Equal(t, ForcedDrain, change.Before.Admin)
			assert.Equal(t, ForcedMaint, change.After.Admin)
			change, err = at("ready").Restore(ctx, "llm", "gpu4", 0)
			require.NoError(t, err)
			assert.True(t, change.After.Admin.Open())

			change, err = at("denied").SetState(ctx, "llm", "gpu4", StateDrain)
			require.ErrorIs(t, err, ErrPermission)
			assert.True(t, change.After.Admin.Open())
			_, err = at("nosuchserver").SetState(ctx, "llm", "gpu9", StateDrain)
			assert.ErrorIs(t, err, ErrNoSuchServer)
			_, err = at("nosuchbackend").SetState(ctx, "nosuch", "gpu9", StateDrain)
			assert.ErrorIs(t, err, ErrNoSuchServer)
			_, err = at("disabledproxy").SetState(ctx, "off", "g1", StateDrain)
			require.ErrorIs(t, err, ErrRefused)
			assert.ErrorContains(t, err, `"Proxy is disabled."`)
			_, err = at("nosuchproxy").Load(ctx, "nosuch")
			assert.ErrorIs(t, err, ErrNoSuchServer)
		})
	}
}

// 2.6 prints a configured description as it is, newlines and all, and this one
// looks like the beginning of an info block.
func TestDescriptionThatLooksLikeASentinel(t *testing.T) {
	_, err := answering(golden(t, "2.6", "description")).SetState(t.Context(), "off", "g1", StateDrain)
	require.ErrorIs(t, err, ErrMalformed)
	assert.ErrorContains(t, err, "show info has no Stopping")
}
