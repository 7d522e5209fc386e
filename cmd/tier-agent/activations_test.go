package main

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tier-agent/internal/activation"
	"tier-agent/internal/tier"
)

// What cannot be written is written as soon as it can be, and said once.
//
// Control: with again left nil in run, it was never written.
func TestAnActivationThatCouldNotBeWrittenIsWrittenLater(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "state")
	store, err := activation.Open(dir)
	require.NoError(t, err)
	model, err := tier.New([]tier.Spec{{
		Name: "heavy", MinReady: 1, Interval: time.Second, MaxAge: 5 * time.Second,
		Servers: []tier.ServerSpec{{Backend: "heavy", Name: "h1"}},
	}}, time.Now)
	require.NoError(t, err)
	model.Activate(func(string) bool { return true })
	log := new(journal)
	a := &activations{model: model, store: store, log: slog.New(slog.NewJSONHandler(log, nil))}
	ended := make(chan error, 1)
	go func() { ended <- a.run(t.Context()) }()
	t.Cleanup(func() { assert.NoError(t, <-ended) })
	d := &running{log: log}
	d.awaitLog(t, "could not be written")
	require.NoError(t, os.Mkdir(dir, 0o700))
	d.awaitLog(t, "is written again")
	assert.Equal(t, 1, strings.Count(log.String(), "could not be written"))
	again, err := activation.Open(dir)
	require.NoError(t, err)
	assert.True(t, again.Has("heavy"))
}
