package horizon

import (
	"maps"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// changes has one change for each field of a Row.
var changes = map[string]func(*Row){
	"Name":       func(r *Row) { r.Name = "renamed" },
	"Serving":    func(r *Row) { r.Serving = true },
	"Quiesced":   func(r *Row) { r.Quiesced = true },
	"Ready":      func(r *Row) { r.Ready++ },
	"Servers":    func(r *Row) { r.Servers++ },
	"State":      func(r *Row) { r.State = "initializing" },
	"Reason":     func(r *Row) { r.Reason = "health_http_503" },
	"Generation": func(r *Row) { r.Generation = "1.3" },
}

// A field that is added to Row needs a change of its own here.
//
// Control: with the comparison in Publish made one of all fields but Generation,
// that field's case failed; with a field added to Row, the first assertion did.
func TestEachFieldRefreshesTheStampAlone(t *testing.T) {
	var fields []string
	for field := range reflect.TypeFor[Row]().Fields() {
		fields = append(fields, field.Name)
	}
	require.ElementsMatch(t, fields, slices.Collect(maps.Keys(changes)))

	for name, change := range changes {
		t.Run(name, func(t *testing.T) {
			h, c := newHorizon()
			breaks(h, []string{"dead"}, serving("live"))
			c.step(2 * horizon)
			row := broken("dead")
			change(&row)
			onlyThisFieldDiffers(t, name, broken("dead"), row)
			h.Publish([]Row{serving("live"), row})
			changed, known := h.LastChange(row.Name)
			assert.True(t, known)
			assert.Equal(t, c.now(), changed)

			c.step(time.Minute)
			h.Publish([]Row{serving("live"), row})
			again, _ := h.LastChange(row.Name)
			assert.Equal(t, changed, again, "the same once more is no change")
		})
	}
}

func onlyThisFieldDiffers(t *testing.T, name string, a, b Row) {
	t.Helper()
	for field := range reflect.TypeFor[Row]().Fields() {
		same := reflect.DeepEqual(reflect.ValueOf(a).FieldByIndex(field.Index).Interface(), reflect.ValueOf(b).FieldByIndex(field.Index).Interface())
		require.Equal(t, field.Name != name, same, field.Name)
	}
}

// Control: with every row stamped at each Publish, the dead tier never aged.
func TestAByteIdenticalRepublishDoesNotRefreshTheStamp(t *testing.T) {
	h, c := newHorizon()
	breaks(h, []string{"dead"}, serving("live"))
	broke := c.now()
	for range 120 {
		c.step(time.Minute)
		h.Publish([]Row{serving("live"), broken("dead")}) // made anew each time
	}
	changed, _ := h.LastChange("dead")
	assert.Equal(t, broke, changed)
	assert.Equal(t, ready(Stale{"dead", "probe_timeout", 7200}), h.Judge())
}

// The order of publication is no field of a row.
func TestAnotherOrderIsNoChange(t *testing.T) {
	h, c := newHorizon()
	breaks(h, []string{"dead"}, serving("live"))
	broke := c.now()
	c.step(time.Minute)
	h.Publish([]Row{broken("dead"), serving("live")})
	changed, _ := h.LastChange("dead")
	assert.Equal(t, broke, changed)
}
