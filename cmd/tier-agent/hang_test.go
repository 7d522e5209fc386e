package main

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tier-agent/internal/config"
	"tier-agent/internal/durable"
	"tier-agent/internal/httpapi"
	"tier-agent/test/guarantee"
	"tier-agent/test/hangfs"
)

// What a start has to read may be on a mount that hangs: a signal ends the start all the
// same.
//
// Control: with openDisk called by itself, serve did not return.
func TestAStartAtADiskThatHangsCanBeEnded(t *testing.T) {
	f := newFile(t)
	f.tiers(t, probed("heavy", newEngine(t), "blue"))
	cfg, err := config.Load(f.path)
	require.NoError(t, err)
	// What hung goes on once it is healed, and may yet make files: not t.TempDir.
	cfg.StateDir, err = os.MkdirTemp("", "hang")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(cfg.StateDir) })
	heal := hangfs.Mount(t, cfg.StateDir)
	defer heal()
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- serve(ctx, cfg, slog.New(slog.DiscardHandler)) }()
	stop()
	select {
	case err := <-ended:
		assert.ErrorContains(t, err, "stopped before it was open")
	case <-time.After(startWithin / 2):
		guarantee.T(t).Errorf("it goes on")
	}
}

// The state disk hangs while tier-agent serves: what reads answers as before, a command says
// that it is not written, and a stop ends.
//
// Control: with the intents written under the lock that status reads them by, status waited.
func TestADiskThatHangsStopsNobody(t *testing.T) {
	f := newFile(t)
	f.tiers(t, probed("heavy", newEngine(t), "blue"))
	d := f.start(t)
	d.awaitReady(t, "heavy")
	heal := hangfs.Mount(t, d.stateDir)
	defer heal()
	result := make(chan string, 1)
	go func() {
		r, err := d.client().Run(t.Context(), "quiesce", httpapi.Command{Tier: "heavy", Reason: "swap"}, nil)
		if err != nil {
			r.Code = err.Error()
		}
		result <- r.Code
	}()
	require.Eventually(t, func() bool { return d.poll("heavy/s1") == "drain # quiesced\n" }, durable.Within, time.Millisecond)
	for range 5 {
		ctx, cancel := context.WithTimeout(t.Context(), durable.Within/2)
		_, err := d.client().Status(ctx)
		cancel()
		require.NoError(guarantee.T(t), err, "status is from memory")
	}
	assert.Equal(t, "not_durable", <-result)
	d.end(t)
	heal()
	require.Eventually(t, func() bool { // what waited behind the write that hung
		text, _ := os.ReadFile(filepath.Join(d.stateDir, "intents.json"))
		return strings.Contains(string(text), `"heavy"`)
	}, 10*time.Second, time.Millisecond)
}
