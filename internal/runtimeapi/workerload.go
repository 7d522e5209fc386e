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

func (i *Instance) workerLoad(ctx context.Context, pid int, backend string) (BackendLoad, error) {
	if !i.HasMaster() {
		return BackendLoad{}, ErrNoMaster
	}
	if err := checkName("backend", backend); err != nil {
		return BackendLoad{}, err
	}
	if pid <= 0 {
		return BackendLoad{}, fmt.Errorf("%w: process id %d must be positive", ErrInvalidName, pid)
	}
	load, err := loadOf(backend, func(command string) (answer, error) {
		return i.exchangeWith(ctx, pid, command)
	})
	if err == nil || errors.Is(err, ErrNoSuchServer) {
		return load, err
	}
	// Only the master's list tells an end from a failure: the texts that come when a
	// worker ends are as many as the moments at which it can.
	if workers, failed := i.workers(ctx); failed == nil && !listed(workers, pid) {
		return BackendLoad{}, fmt.Errorf("%w: %d is not in show proc: %s", ErrWorkerGone, pid, err.Error())
	}
	return BackendLoad{}, fmt.Errorf("worker %d: %w", pid, err)
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
	if !i.HasMaster() {
		return nil, ErrNoMaster
	}
	direct, err := i.exchange(ctx, reading)
	if err != nil {
		return nil, err
	}
	workers, err := i.workers(ctx)
	if err != nil {
		return nil, err
	}
	if !listed(workers, direct.info.PID) {
		return nil, fmt.Errorf("%w: process %d on the stats socket is no worker of the master at %s",
			ErrOtherProcess, direct.info.PID, i.options.Master.Address)
	}
	var loads []BackendLoad
	var nowhere error
	known := false
	for _, w := range workers {
		load, err := i.workerLoad(ctx, w.PID, backend)
		switch {
		case errors.Is(err, ErrWorkerGone):
			continue
		case errors.Is(err, ErrNoSuchServer):
			nowhere = err
			load.Backend = backend
		case err != nil:
			return nil, err
		default:
			known = true
		}
		loads = append(loads, load)
	}
	now, err := i.workers(ctx)
	if err != nil {
		return nil, err
	}
	for _, w := range now {
		if !listed(workers, w.PID) {
			return nil, fmt.Errorf("%w: worker %d was added while the others were read", ErrOtherProcess, w.PID)
		}
	}
	switch {
	case len(loads) == 0:
		return nil, fmt.Errorf("%w: each of the %d that were listed", ErrWorkerGone, len(workers))
	case !known:
		return nil, nowhere
	}
	return loads, nil
}

// EveryWorkerLoad reads what a backend carries in every worker that can be seen: with
// Options.Master as AllWorkersLoad does, otherwise in the worker that answers alone.
func (i *Instance) EveryWorkerLoad(ctx context.Context, backend string) ([]BackendLoad, error) {
	if i.HasMaster() {
		return i.AllWorkersLoad(ctx, backend)
	}
	one, err := i.Load(ctx, backend)
	if err != nil {
		return nil, err
	}
	return []BackendLoad{one}, nil
}
