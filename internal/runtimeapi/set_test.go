package runtimeapi

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Negative controls: without the recover in runOne the test binary dies; without
// the error set before f runs "exits" reads as a success.
func TestEachKeepsInstancesApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		failure := errors.New("failed")
		s := NewSet(
			New("hangs", "unix", "x", Options{Timeout: 3 * time.Second}),
			New("works", "unix", "x", Options{}),
			New("panics", "unix", "x", Options{}),
			New("exits", "unix", "x", Options{}),
			New("fails", "unix", "x", Options{}),
			New("ends itself", "unix", "x", Options{}),
		)
		results := Each(t.Context(), s, func(ctx context.Context, i *Instance) (int, error) {
			switch i.Name() {
			case "hangs":
				<-ctx.Done()
				return 0, ctx.Err()
			case "panics":
				panic("nil map\n")
			case "exits":
				runtime.Goexit()
			case "fails":
				return 0, failure
			case "ends itself":
				own, cancel := context.WithCancel(ctx)
				cancel()
				return 0, own.Err()
			}
			time.Sleep(time.Second)
			return 7, ctx.Err()
		})
		require.Len(t, results, 6)
		assert.Equal(t, Result[int]{Instance: "works", Value: 7, Took: time.Second}, results[1])
		assert.Equal(t, "hangs", results[0].Instance)
		assert.ErrorIs(t, results[0].Err, context.DeadlineExceeded)
		assert.Equal(t, eachBudget*3*time.Second, results[0].Took, "its own deadline, not another's")
		assert.ErrorIs(t, results[2].Err, ErrPanicked)
		assert.EqualError(t, results[2].Err, "haproxy panics: function did not return: nil map")
		assert.ErrorIs(t, results[3].Err, ErrPanicked)
		assert.Equal(t, failure, results[4].Err)
		assert.ErrorIs(t, results[5].Err, context.Canceled)
	})
}

func TestEachRunsAtOnce(t *testing.T) {
	s := NewSet(New("a", "unix", "x", Options{}), New("b", "unix", "x", Options{}))
	meet := make(chan struct{})
	results := Each(t.Context(), s, func(ctx context.Context, i *Instance) (string, error) {
		// Whichever comes first waits for the other.
		select {
		case meet <- struct{}{}:
		case <-meet:
		case <-ctx.Done():
			return "", ctx.Err()
		}
		return i.Name(), nil
	})
	for n, name := range []string{"a", "b"} {
		assert.NoError(t, results[n].Err)
		assert.Equal(t, name, results[n].Value)
	}
}

func TestEachOverSockets(t *testing.T) {
	state := map[string]string{"show servers state": stateText(8)}
	dead := serve(t, "unix", hang).instance(Options{Timeout: 250 * time.Millisecond})
	live := serve(t, "tcp", obey(9, state)).instance(Options{})
	results := Each(t.Context(), NewSet(dead, live), func(ctx context.Context, i *Instance) (ServersState, error) {
		return i.Servers(ctx, "")
	})
	require.Len(t, results, 2)
	assert.ErrorIs(t, results[0].Err, ErrTimeout)
	require.NoError(t, results[1].Err)
	assert.Equal(t, 9, results[1].Value.Info.PID)
	assert.Len(t, results[1].Value.Servers, 1)
}

func TestSetIsItsOwn(t *testing.T) {
	given := []*Instance{New("a", "unix", "x", Options{}), New("b", "unix", "x", Options{})}
	s := NewSet(given...)
	given[0] = nil
	s.Instances()[1] = nil
	require.Len(t, s.Instances(), 2)
	assert.Equal(t, "a", s.Instances()[0].Name())
	assert.Equal(t, "b", s.Instances()[1].Name())
	assert.Empty(t, Each(t.Context(), NewSet(), func(context.Context, *Instance) (int, error) { return 0, nil }))
}
