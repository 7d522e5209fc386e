package runtimeapi

import (
	"context"
	"errors"
	"fmt"
)

// WorkerLoad reads what a backend carries in one worker, an old one included,
// through the master. An answer from any other process is none, ErrOtherProcess;
// what ExpectPID says is about the stats socket and not looked at. ErrNoMaster
// without Options.Master. ErrNoSuchServer when that worker knows no such backend.
// ErrWorkerGone when it could not be read and the master lists it no longer; one
// that is still listed has the error of the read. On 3.2 that includes the new
// worker for as long as it loads its configuration: the master lists it and says
// "Can't find the target PID" (measured).
func (i *Instance) WorkerLoad(ctx context.Context, pid int, backend string) (BackendLoad, error) {
	load, err := i.workerLoad(ctx, pid, backend)
	if err != nil {
		return BackendLoad{}, i.wrap(err)
	}
	return load, nil
}

func (i *Instance) workerLoad(ctx context.Context, pid int, backend string) (load BackendLoad, err error) {
	if err := checkName("backend", backend); err != nil {
		return BackendLoad{}, err
	}
	err = i.askWorker(ctx, pid, func(ask func(command string) (answer, error)) error {
		load, err = loadOf(backend, ask)
		return err
	})
	return load, err
}

// askWorker lets read ask one worker through the master.
func (i *Instance) askWorker(ctx context.Context, pid int, read func(ask func(command string) (answer, error)) error) error {
	if !i.HasMaster() {
		return ErrNoMaster
	}
	if pid <= 0 {
		return fmt.Errorf("%w: process id %d must be positive", ErrInvalidName, pid)
	}
	err := read(func(command string) (answer, error) { return i.exchangeWith(ctx, pid, command) })
	if err == nil || errors.Is(err, ErrNoSuchServer) {
		return err
	}
	// Only the master's list tells an end from a failure: the texts that come when a
	// worker ends are as many as the moments at which it can.
	if workers, failed := i.workers(ctx); failed == nil && !listed(workers, pid) {
		return fmt.Errorf("%w: %d is not in show proc: %s", ErrWorkerGone, pid, err.Error())
	}
	return fmt.Errorf("worker %d: %w", pid, err)
}

// AllWorkersLoad reads what a backend carries in every worker of the HAProxy that
// answers on the stats socket, old ones included, in the order of `show proc`. It
// fails whole: nil error means that each worker that the master lists after the
// last read has been read, so that none was missed, whatever reloads came between.
//
//   - A worker that ends meanwhile is left out once the master lists it no longer.
//   - One that does not know the backend, while another does, has no Servers.
//     ErrNoSuchServer when none knows it.
//   - ErrOtherProcess when the process on the stats socket is no worker of this
//     master (another HAProxy's), or a worker was added by a reload: read again.
func (i *Instance) AllWorkersLoad(ctx context.Context, backend string) ([]BackendLoad, error) {
	loads, err := i.allWorkersLoad(ctx, backend)
	return loads, i.wrap(err)
}

func (i *Instance) allWorkersLoad(ctx context.Context, backend string) ([]BackendLoad, error) {
	if err := checkName("backend", backend); err != nil {
		return nil, err
	}
	var loads []BackendLoad
	var nowhere error
	known := false
	err := i.inEveryWorker(ctx, func(pid int) error {
		load, err := i.workerLoad(ctx, pid, backend)
		switch {
		case errors.Is(err, ErrNoSuchServer):
			nowhere = err
			load.Backend = backend
		case err != nil:
			return err
		default:
			known = true
		}
		loads = append(loads, load)
		return nil
	})
	switch {
	case err != nil:
		return nil, err
	case !known:
		return nil, nowhere
	}
	return loads, nil
}

// AllWorkersLoads is AllWorkersLoad of every backend that each worker knows, one worker
// after the other.
func (i *Instance) AllWorkersLoads(ctx context.Context) ([][]BackendLoad, error) {
	var all [][]BackendLoad
	err := i.inEveryWorker(ctx, func(pid int) error {
		return i.askWorker(ctx, pid, func(ask func(command string) (answer, error)) error {
			loads, err := loadsOf(ask)
			if err == nil {
				all = append(all, loads)
			}
			return err
		})
	})
	return all, i.wrap(err)
}

// inEveryWorker reads each worker of the HAProxy that answers on the stats socket. It
// fails unless each worker that the master lists after the last read has been read.
func (i *Instance) inEveryWorker(ctx context.Context, read func(pid int) error) error {
	if !i.HasMaster() {
		return ErrNoMaster
	}
	direct, err := i.exchange(ctx, reading)
	if err != nil {
		return err
	}
	workers, err := i.workers(ctx)
	if err != nil {
		return err
	}
	if !listed(workers, direct.info.PID) {
		return fmt.Errorf("%w: process %d on the stats socket is no worker of the master at %s",
			ErrOtherProcess, direct.info.PID, i.options.Master.Address)
	}
	some := false
	for _, w := range workers {
		switch err := read(w.PID); {
		case errors.Is(err, ErrWorkerGone):
		case err != nil:
			return err
		default:
			some = true
		}
	}
	now, err := i.workers(ctx)
	if err != nil {
		return err
	}
	for _, w := range now {
		if !listed(workers, w.PID) {
			return fmt.Errorf("%w: worker %d was added while the others were read", ErrOtherProcess, w.PID)
		}
	}
	if !some {
		return fmt.Errorf("%w: each of the %d that were listed", ErrWorkerGone, len(workers))
	}
	return nil
}
