package spoeload

import (
	"testing"
	"time"

	libvarint "github.com/negasus/haproxy-spoe-go/varint"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestVarintAgreesWithTheLibrary(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.Uint64().Draw(t, "n")
		var buf [10]byte
		size := libvarint.PutUvarint(buf[:], n)
		ours := appendVarint(nil, n)
		require.Equal(t, buf[:size], ours)
		got, read, err := varint(ours)
		require.NoError(t, err)
		assert.Equal(t, n, got)
		assert.Equal(t, size, read)
		_, _, err = varint(ours[:size-1])
		assert.ErrorIs(t, err, errTruncated)
	})
}

// The ends of what idSize bytes can hold.
func TestIDsHaveOneSize(t *testing.T) {
	assert.Len(t, appendVarint(nil, minID), idSize)
	assert.Len(t, appendVarint(nil, minID-1), idSize-1)
	assert.Len(t, appendVarint(nil, maxID-1), idSize)
	assert.Len(t, appendVarint(nil, maxID), idSize+1)
}

func TestQuantilesAreCloseFromAbove(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := time.Duration(rapid.Int64Range(0, int64(20*time.Minute)).Draw(t, "d"))
		var l latencies
		l.add(d)
		got := l.quantile(0.99)
		assert.GreaterOrEqual(t, got, d)
		assert.LessOrEqual(t, got, d+d/steps)
	})
}

func TestQuantilesOfMany(t *testing.T) {
	var l latencies
	assert.Zero(t, l.quantile(0.5))
	for n := range 100 {
		l.add(time.Duration(n + 1)) // below 2*steps each has a bucket of its own
	}
	assert.EqualValues(t, 50, l.quantile(0.50))
	assert.EqualValues(t, 99, l.quantile(0.99))
	assert.EqualValues(t, 100, l.quantile(1))
}

func TestMedianIsOfEachFigure(t *testing.T) {
	got := Median([]Result{
		{PerSecond: 3, P50: 10, P99: 30, Measured: 1, Total: 2},
		{PerSecond: 1, P50: 30, P99: 20, Measured: 1, Total: 2},
		{PerSecond: 2, P50: 20, P99: 90, Measured: 1, Total: 2},
	})
	assert.Equal(t, Result{PerSecond: 2, P50: 20, P99: 30, Measured: 3, Total: 6}, got)
	assert.Zero(t, Median(nil))
}
