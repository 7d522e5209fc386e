package broken

import "testing"

func TestBroken(t *testing.T) { t.Fatal("wrong each time") }
