package auth

import (
	"sync"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/sdk/hook"
)

// connTracker tracks the connections of all users.
type connTracker struct {
	mu    sync.Mutex // guards the fields below, and the channels of tracked connections
	users map[string]*userConns
}

// userConns holds the open connections of one user.
type userConns struct {
	conns    map[*TrackedConn]struct{}
	channels int64
}

// TrackedConn is an open connection of a user. One goroutine at a time uses it.
type TrackedConn struct {
	store    *Store
	user     string
	evict    func(reason string)
	channels int64
}

// Track counts a connection, unless its user was deleted or has reached the limit. evict is called at most once, from any goroutine, when
// the connection must end; it must not block. The error is an [*amqp.Error].
func (s *Store) Track(u User, evict func(reason string)) (*TrackedConn, error) {
	t := &s.tracker
	t.mu.Lock()
	defer t.mu.Unlock()
	now := s.user(u.Name)
	if now == nil || now.generation != u.generation {
		return nil, amqp.Errorf(amqp.ReplyNotAllowed, "user '%s' is deleted", u.Name)
	}
	open := t.of(u.Name)
	if reached(now.Limits.Connections, int64(len(open.conns))) {
		return nil, amqp.Errorf(amqp.ReplyNotAllowed, "connection refused for user '%s': user connection limit (%d) is reached",
			u.Name, now.Limits.Connections.N())
	}
	c := &TrackedConn{store: s, user: u.Name, evict: evict}
	open.conns[c] = struct{}{}
	t.users[u.Name] = open
	return c, nil
}

func reached(limit hook.Limit, n int64) bool { return limit.Set() && n >= limit.N() }

// of returns a user's open connections and channels. The caller holds mu, and adds the entry of a new user to the map.
func (t *connTracker) of(user string) *userConns {
	if t.users == nil {
		t.users = map[string]*userConns{}
	}
	if open := t.users[user]; open != nil {
		return open
	}
	return &userConns{conns: map[*TrackedConn]struct{}{}}
}

// evict ends all connections of a user.
func (t *connTracker) evict(user, reason string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for c := range t.of(user).conns {
		c.evict(reason)
	}
}

// Leave stops counting the connection and its channels. It does nothing on nil, or if the connection left before.
func (c *TrackedConn) Leave() {
	if c == nil {
		return
	}
	t := &c.store.tracker
	t.mu.Lock()
	defer t.mu.Unlock()
	open := t.of(c.user)
	delete(open.conns, c)
	open.channels -= c.channels
	c.channels = 0
	if len(open.conns) == 0 {
		delete(t.users, c.user)
	}
}

// OpenChannel counts a channel, unless the user has reached the limit. The error is an [*amqp.Error]. It does nothing on nil.
func (c *TrackedConn) OpenChannel() error {
	if c == nil {
		return nil
	}
	t := &c.store.tracker
	t.mu.Lock()
	defer t.mu.Unlock()
	open := t.of(c.user)
	if u := c.store.user(c.user); u != nil && reached(u.Limits.Channels, open.channels) {
		return amqp.Errorf(amqp.ReplyNotAllowed,
			"number of channels opened for user '%s' has reached the maximum allowed user limit of (%d)", c.user, u.Limits.Channels.N())
	}
	open.channels++
	c.channels++
	return nil
}

// CloseChannel stops counting a channel. It does nothing on nil.
func (c *TrackedConn) CloseChannel() {
	if c == nil {
		return
	}
	t := &c.store.tracker
	t.mu.Lock()
	defer t.mu.Unlock()
	if c.channels > 0 {
		c.channels--
		t.of(c.user).channels--
	}
}

// Connections returns how many connections a user has.
func (s *Store) Connections(name string) int {
	s.tracker.mu.Lock()
	defer s.tracker.mu.Unlock()
	return len(s.tracker.of(name).conns)
}
