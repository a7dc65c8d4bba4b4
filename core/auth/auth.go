// Package auth knows the users: who they are, what they may touch, and whether
// somebody who wants to log in is one of them.
package auth

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
)

// Guest is the user a new broker has. Its password is no secret, and so it may
// log in over a loopback address only [RabbitMQ: access-control.html#loopback-users].
const Guest = "guest"

// User is somebody who is logged in.
type User struct {
	Name string
	Tags []string
}

// Has reports whether the user has a tag, such as administrator.
func (u User) Has(tag string) bool { return slices.Contains(u.Tags, tag) }

// Store holds the users and what they may do. Any goroutine may use it.
type Store struct {
	mu       sync.RWMutex // guards users; a user in it is replaced, never changed
	users    map[string]*user
	verifier *verifier
	version  atomic.Uint64
}

type user struct {
	User
	hash   hash
	grants map[string]grant // by vhost
}

// New returns a store without users.
func New() *Store {
	return &Store{users: map[string]*user{}, verifier: newVerifier()}
}

// Default returns the store of a new broker: guest with the password guest, an
// administrator with every permission in the vhost "/".
func Default() (*Store, error) {
	s := New()
	if err := s.put(Guest, Guest, publicIterations, "administrator"); err != nil {
		return nil, err
	}
	return s, s.Grant(Guest, "/", Permissions{Configure: ".*", Write: ".*", Read: ".*"})
}

// PutUser adds a user, or gives an existing one this password and these tags
// instead; what it may do stays. It takes about a tenth of a second, as long as
// one guess at the password takes.
func (s *Store) PutUser(name, password string, tags ...string) error {
	return s.put(name, password, iterations, tags...)
}

func (s *Store) put(name, password string, iterations int, tags ...string) error {
	if name == "" {
		return errors.New("user name: empty")
	}
	h, err := newHash(password, iterations)
	if err != nil {
		return fmt.Errorf("user %q: %w", name, err)
	}
	u := &user{User: User{Name: name, Tags: slices.Clone(tags)}, hash: h}
	s.mu.Lock()
	defer s.mu.Unlock()
	if old := s.users[name]; old != nil {
		u.grants = old.grants
	}
	s.users[name] = u
	s.version.Add(1)
	return nil
}

// Version changes with every change to users and permissions: results of Check
// that were kept are void then.
func (s *Store) Version() uint64 { return s.version.Load() }

// user returns the user of this name, nil if there is none.
func (s *Store) user(name string) *user {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.users[name]
}
