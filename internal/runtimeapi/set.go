package runtimeapi

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"
)

// Set is the HAProxies that serve the same tiers. Admin state is per process, so
// what is to hold must be made to hold in each of them.
type Set struct {
	instances []*Instance
}

// NewSet keeps the order of instances.
func NewSet(instances ...*Instance) *Set {
	return &Set{instances: slices.Clone(instances)}
}

// Instances are those given to NewSet, in that order.
func (s *Set) Instances() []*Instance { return slices.Clone(s.instances) }

// Result is what one instance brought.
type Result[T any] struct {
	Instance string
	Value    T
	Err      error
	Took     time.Duration
}

// eachBudget is how many Timeouts one call of Each gives an instance. A tier of
// five hundred servers takes as many exchanges; what ends early at an instance
// that hangs is one exchange, by its own Timeout, and f, which should not try
// again then.
const eachBudget = 15

// Each runs f on every instance at once, each with its own deadline, 15 of the
// instance's Timeouts, and returns the results in the set's order. An instance
// that fails, hangs or panics touches no other's result. Each returns when all
// have, so f must return when its context ends; what this package does, does.
func Each[T any](ctx context.Context, s *Set, f func(context.Context, *Instance) (T, error)) []Result[T] {
	results := make([]Result[T], len(s.instances))
	var wg sync.WaitGroup
	for n, instance := range s.instances {
		wg.Go(func() { runOne(ctx, instance, f, &results[n]) })
	}
	wg.Wait()
	return results
}

func runOne[T any](ctx context.Context, i *Instance, f func(context.Context, *Instance) (T, error), r *Result[T]) {
	started := time.Now()
	// What stands if f does not return: runtime.Goexit leaves no panic to recover,
	// and a zero Result would read as success.
	*r = Result[T]{Instance: i.name, Err: fmt.Errorf("haproxy %s: %w", i.name, ErrPanicked)}
	defer func() {
		if p := recover(); p != nil {
			r.Err = fmt.Errorf("%w: %s", r.Err, clean(fmt.Sprint(p)))
		}
		r.Took = time.Since(started)
	}()
	ctx, cancel := context.WithTimeout(ctx, eachBudget*i.options.Timeout)
	defer cancel()
	value, err := f(ctx, i)
	r.Value, r.Err = value, err
}
