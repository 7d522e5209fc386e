package admission

import (
	"bytes"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tier-agent/internal/override"
	"tier-agent/internal/tier"
	"tier-agent/test/guarantee"
)

// overrideLab is a controller of one tier, over what is in dir.
type overrideLab struct {
	*Controller
	model *tier.Model
	log   bytes.Buffer
}

func newOverrideLab(t *testing.T, store Overrides) *overrideLab {
	t.Helper()
	l := &overrideLab{}
	var err error
	l.model, err = tier.New([]tier.Spec{{Name: "llm", MinReady: 1, MaxAge: time.Minute, Servers: []tier.ServerSpec{server("llm", "gpu1")}}}, time.Now)
	require.NoError(t, err)
	l.Controller = New(Options{Model: l.model, Overrides: store, Log: slog.New(slog.NewTextHandler(&l.log, nil))})
	l.restoreOverrides()
	return l
}

func openOverrides(t *testing.T, dir string) *override.Store {
	t.Helper()
	s, err := override.Open(dir, time.Now())
	require.NoError(t, err)
	return s
}

var halfHour = OverrideRequest{Tier: "llm", For: 30 * time.Minute, Reason: "wrong-id", Who: "ann"}

// disk is a store that tells of a write before it is done, or fails it.
type disk struct {
	*override.Store
	before func()
	err    error
}

func (d *disk) Put(r override.Record) error {
	d.before()
	if d.err != nil {
		return d.err
	}
	return d.Store.Put(r)
}

// Controls: with the model told before the disk, it was in force while it was being
// written, and where it could not be.
func TestG_AnOverrideIsOnDiskBeforeItIsInForce(t *testing.T) {
	d := &disk{Store: openOverrides(t, t.TempDir())}
	l := newOverrideLab(t, d)
	d.before = func() { assert.Nil(guarantee.T(t), l.model.Override("llm")) }
	d.err = errors.New("full")
	r := l.Override(halfHour)
	assert.Equal(t, []any{Refused, CodeNotDurable}, []any{r.Outcome, r.Code}, r.Message)
	assert.Nil(guarantee.T(t), l.model.Override("llm"))
	d.err = nil
	r = l.Override(halfHour)
	assert.Equal(t, Done, r.Outcome, r.Message)
	require.NotNil(t, l.model.Override("llm"))
	assert.Equal(t, []string{"wrong-id", "ann"}, []string{d.All()[0].Reason, d.All()[0].Who})
	assert.Contains(t, l.log.String(), "level=WARN")
}

// Controls: with restoreOverrides taken out, a restart ended it; with Lasting that of the
// whole record, the restart prolonged it; with the log left out of endOverrides nothing
// said that it is over.
func TestG_AnOverrideOutlivesARestartAndEndsOnTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		l := newOverrideLab(t, openOverrides(t, dir))
		require.Equal(t, Done, l.Override(halfHour).Outcome)
		time.Sleep(20 * time.Minute)
		l = newOverrideLab(t, openOverrides(t, dir))
		require.NotNil(t, l.model.Override("llm"))
		assert.Contains(t, l.log.String(), "an override is in force")
		time.Sleep(10*time.Minute - 1)
		assert.NotNil(t, l.model.Override("llm"))
		time.Sleep(time.Nanosecond)
		assert.Nil(guarantee.T(t), l.model.Override("llm"))
		l.endOverrides()
		assert.Contains(t, l.log.String(), "an override has ended")
		assert.Empty(t, l.model.Overrides())
		assert.Empty(t, openOverrides(t, dir).All())
	})
}

func TestAnOverrideIsEnded(t *testing.T) {
	dir := t.TempDir()
	l := newOverrideLab(t, openOverrides(t, dir))
	end := OverrideRequest{Tier: "llm", Who: "bob", End: true}
	assert.Equal(t, "llm is not overridden", l.Override(end).Message)
	require.Equal(t, Done, l.Override(halfHour).Outcome)
	longer := halfHour
	longer.For = time.Hour
	require.Equal(t, Done, l.Override(longer).Outcome, "it takes the place of the first")
	assert.Greater(t, l.model.Override("llm").Left(time.Now()), 59*time.Minute)
	r := l.Override(end)
	assert.Equal(t, Done, r.Outcome, r.Message)
	assert.Nil(guarantee.T(t), l.model.Override("llm"))
	assert.Empty(t, openOverrides(t, dir).All())

	require.Equal(t, Done, l.Override(halfHour).Outcome)
	require.NoError(t, l.model.Replace(nil))
	assert.Equal(t, Done, l.Override(end).Outcome, "its tier has left the configuration")
	assert.Equal(t, CodeUnknown, l.Override(end).Code)
}

func TestAnOverrideThatIsRefused(t *testing.T) {
	l := newOverrideLab(t, openOverrides(t, t.TempDir()))
	for _, c := range []struct {
		change func(*OverrideRequest)
		code   string
	}{
		{func(q *OverrideRequest) { q.Tier = "lmm" }, CodeUnknown},
		{func(q *OverrideRequest) { q.Reason = "" }, CodeInvalid},
		{func(q *OverrideRequest) { q.Reason = "two words" }, CodeInvalid},
		{func(q *OverrideRequest) { q.For = time.Minute - 1 }, CodeInvalid},
		{func(q *OverrideRequest) { q.For = 24*time.Hour + 1 }, CodeInvalid},
	} {
		q := halfHour
		c.change(&q)
		r := l.Override(q)
		assert.Equal(t, []any{Refused, c.code}, []any{r.Outcome, r.Code}, r.Message)
	}
	assert.Empty(guarantee.T(t), l.model.Overrides())
}
