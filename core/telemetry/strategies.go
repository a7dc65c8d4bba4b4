package telemetry

import (
	"maps"
	"sync"
	"sync/atomic"
)

// Strategies maps expiry strategies to values. Any goroutine may use it; the zero value is empty.
type Strategies[T any] struct {
	byName atomic.Pointer[map[string]*T] // replaced, never changed
	mu     sync.Mutex                    // held while byName is replaced
}

// Users choose the names of strategies. Strategies beyond maxStrategies share the value of otherStrategy.
const (
	maxStrategies = 64
	otherStrategy = "other"
)

// Of returns the value of a strategy. The first call makes it with create; later calls are cheap.
func (s *Strategies[T]) Of(name string, create func() *T) *T {
	if t := s.find(name); t != nil {
		return t
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := s.find(name); t != nil {
		return t
	}
	all := map[string]*T{}
	if now := s.byName.Load(); now != nil {
		all = maps.Clone(*now)
	}
	if len(all) >= maxStrategies {
		name = otherStrategy
	}
	all[name] = create()
	s.byName.Store(&all)
	return all[name]
}

// find returns the existing value of a strategy; nil = there is none.
func (s *Strategies[T]) find(name string) *T {
	all := s.All()
	if t := all[name]; t != nil || len(all) < maxStrategies {
		return t
	}
	return all[otherStrategy]
}

// All returns all values by name. The caller must not change the map.
func (s *Strategies[T]) All() map[string]*T {
	if all := s.byName.Load(); all != nil {
		return *all
	}
	return nil
}
