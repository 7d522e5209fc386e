package panics

import "testing"

func TestFailsFirst(t *testing.T) { t.Error("and goes on") }

func TestPanics(*testing.T) {
	go panic("in a goroutine")
	select {}
}
