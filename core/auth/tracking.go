package auth

import (
	"sync"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/sdk/hook"
)

// connTracker are the connections of all users.
type connTracker struct {
	mu    sync.Mutex // guards what follows
	taken map[string]*userConns
}

// userConns is what one user has open.
type userConns struct {
	seats    map[*TrackedConn]struct{}
	channels int64
}

// TrackedConn is a connection's place among those of its user. One goroutine at a time uses it.
type TrackedConn struct {
	store    *Store
	user     string
	evict    func(reason string)
	channels int64
}

// Track counts a connection in, unless its user has as many as it may, or is not any more. evict is called, once at most and
// from any goroutine, if the connection must end; it must not wait. The error is an [*amqp.Error].
func (s *Store) Track(u User, evict func(reason string)) (*TrackedConn, error) {
	s.seats.mu.Lock()
	defer s.seats.mu.Unlock()
	now := s.user(u.Name)
	if now == nil || now.born != u.born {
		return nil, amqp.Errorf(amqp.ReplyNotAllowed, "user '%s' is deleted", u.Name)
	}
	p := s.seats.of(u.Name)
	if full(now.Limits.Connections, int64(len(p.seats))) {
		return nil, amqp.Errorf(amqp.ReplyNotAllowed, "connection refused for user '%s': user connection limit (%d) is reached",
			u.Name, now.Limits.Connections.N())
	}
	seat := &TrackedConn{store: s, user: u.Name, evict: evict}
	p.seats[seat] = struct{}{}
	s.seats.taken[u.Name] = p
	return seat, nil
}

// full reports whether there may be no more.
func full(limit hook.Limit, n int64) bool { return limit.Set() && n >= limit.N() }

// of returns the presence of a user, which may be one to be. The caller holds mu.
func (s *connTracker) of(user string) *userConns {
	if s.taken == nil {
		s.taken = map[string]*userConns{}
	}
	if p := s.taken[user]; p != nil {
		return p
	}
	return &userConns{seats: map[*TrackedConn]struct{}{}}
}

// evict sends everybody away who is there as a user.
func (s *connTracker) evict(user, reason string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for seat := range s.of(user).seats {
		seat.evict(reason)
	}
}

// Leave counts the connection out, with all its channels. Nil has left.
func (s *TrackedConn) Leave() {
	if s == nil {
		return
	}
	all := &s.store.seats
	all.mu.Lock()
	defer all.mu.Unlock()
	p := all.of(s.user)
	delete(p.seats, s)
	p.channels -= s.channels
	s.channels = 0
	if len(p.seats) == 0 {
		delete(all.taken, s.user)
	}
}

// OpenChannel counts a channel in, unless the user has as many as it may. The error is an [*amqp.Error]. Nil counts nothing.
func (s *TrackedConn) OpenChannel() error {
	if s == nil {
		return nil
	}
	all := &s.store.seats
	all.mu.Lock()
	defer all.mu.Unlock()
	p := all.of(s.user)
	if u := s.store.user(s.user); u != nil && full(u.Limits.Channels, p.channels) {
		return amqp.Errorf(amqp.ReplyNotAllowed,
			"number of channels opened for user '%s' has reached the maximum allowed user limit of (%d)", s.user, u.Limits.Channels.N())
	}
	p.channels++
	s.channels++
	return nil
}

// CloseChannel counts a channel out. Nil counts nothing.
func (s *TrackedConn) CloseChannel() {
	if s == nil {
		return
	}
	all := &s.store.seats
	all.mu.Lock()
	defer all.mu.Unlock()
	if s.channels > 0 {
		s.channels--
		all.of(s.user).channels--
	}
}

// Connections is how many connections a user has.
func (s *Store) Connections(name string) int {
	s.seats.mu.Lock()
	defer s.seats.mu.Unlock()
	return len(s.seats.of(name).seats)
}
