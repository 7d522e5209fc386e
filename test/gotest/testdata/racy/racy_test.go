package racy

import (
	"sync"
	"testing"
)

func TestRacy(t *testing.T) {
	var n int
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for range 1000 {
				n++
			}
		})
	}
	wg.Wait()
}
