package telemetry

import (
	"maps"
	"sync"
	"sync/atomic"
)

// Strategies keeps something for each expiry strategy. Any goroutine may use it; the zero value is empty.
type Strategies[T any] struct {
	byName atomic.Pointer[map[string]*T] // is replaced, never changed
	mu     sync.Mutex                    // held while it is replaced
}

// Users choose the names of strategies: what is beyond MaxStrategies shares what OtherStrategy has.
const (
	MaxStrategies = 64
	OtherStrategy = "other"
)

// Of returns what a strategy has, which is made when it is asked for first. It is cheap from then on.
func (s *Strategies[T]) Of(name string, fresh func() *T) *T {
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
	if len(all) >= MaxStrategies {
		name = OtherStrategy
	}
	all[name] = fresh()
	s.byName.Store(&all)
	return all[name]
}

// find returns what a strategy has already, nil if that is nothing.
func (s *Strategies[T]) find(name string) *T {
	all := s.All()
	if t := all[name]; t != nil || len(all) < MaxStrategies {
		return t
	}
	return all[OtherStrategy]
}

// All returns what all of them have, by name. Nobody may change the map.
func (s *Strategies[T]) All() map[string]*T {
	if all := s.byName.Load(); all != nil {
		return *all
	}
	return nil
}
