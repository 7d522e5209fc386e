package panics

import "testing"

func TestFailsFirst(t *testing.T) { t.Error("and goes on") }

func TestPanics(t *testing.T) {
	done := make(chan bool)
	go func() {
		defer close(done)
		panic("in a goroutine")
	}()
	<-done
}
