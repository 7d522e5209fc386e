package observe

import (
	"fmt"
	"time"

	"tier-agent/internal/runtimeapi"
	"tier-agent/internal/statefile"
)

// keep writes the instance's state file and says what is wrong with it.
func (w *Watcher) keep(one *watched, dump runtimeapi.ServersState, now View, started bool) string {
	if one.file == nil || !w.files.Load() {
		return ""
	}
	shown := &dump
	if now.Err != nil {
		shown = nil
	}
	if one.busy == nil {
		busy := make(chan string, 1)
		one.busy = busy
		go func() { busy <- keepFile(one.file, shown, started) }()
	}
	late := time.NewTimer(keepWithin)
	defer late.Stop()
	select {
	case wrong := <-one.busy:
		one.busy = nil
		return wrong
	case <-late.C:
		return fmt.Sprintf("not written in %v: its disk hangs, or has very much to do", keepWithin)
	}
}

// keepWithin is how long a look waits for the state file. One goroutine is left at a disk
// that hangs, and later looks wait for that.
const keepWithin = 2 * time.Second

// keepFile says what is wrong with the file.
func keepFile(f *statefile.File, shown *runtimeapi.ServersState, started bool) (wrong string) {
	defer func() {
		if p := recover(); p != nil {
			wrong = fmt.Sprintf("not written: %v", p)
		}
	}()
	if shown != nil && started {
		f.Started(*shown)
	}
	if _, err := f.Keep(shown); err != nil {
		return "not written: " + err.Error()
	}
	if name := f.Forgotten(); name != "" {
		return "not loaded: its row for " + name + " was there and " + name + " came up open; does server-state-file name it?"
	}
	return ""
}
