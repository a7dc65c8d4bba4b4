// Package auth knows the users: who they are, what they may touch, how many connections they may have, and whether somebody
// who wants to log in is one of them.
package auth

import (
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

	born uint64 // tells users apart who had the same name one after the other
}

// Has reports whether the user has a tag, such as administrator.
func (u User) Has(tag string) bool { return slices.Contains(u.Tags, tag) }

// Options are what a store is made with.
type Options struct {
	// Hashing is what new passwords are hashed with: PBKDF2, which is the default, or SHA512.
	Hashing Algorithm
	// DefinitionLog keeps what is changed; nil = nobody does.
	Keeper DefinitionLog
	// VHost reports whether a vhost exists that permissions are to be set for; nil = all do. It must not call the store.
	VHost func(name string) bool
}

// Store holds the users and what they may do. Any goroutine may use it.
type Store struct {
	options    Options
	iterations uint32 // of new passwords

	verifier *verifier
	seats    connTracker
	version  atomic.Uint64
	logins   [ways]loginCounts
	untold   untold

	changing sync.Mutex // held while users change, until that is durable; it guards what follows
	births   uint64     // users there ever were
	noted    []byte     // definitions of the change at hand

	mu    sync.RWMutex     // guards users, which are changed with changing held, too
	users map[string]*user // a user in it is replaced, never changed
}

type user struct {
	Account
	born   uint64
	grants map[string]grant // by vhost
	topics map[topicPlace]topicGrant
}

// New returns a store without users.
func New(o Options) *Store {
	if o.Hashing == "" {
		o.Hashing = PBKDF2
	}
	rounds := uint32(0)
	if o.Hashing == PBKDF2 {
		rounds = iterations
	}
	return &Store{options: o, iterations: iterations, users: map[string]*user{}, verifier: newVerifier(rounds)}
}

// Default returns the store of a new broker that keeps nothing, see [Store.Furnish].
func Default() (*Store, error) {
	s := New(Options{})
	return s, s.CreateDefaults()
}

// CreateDefaults gives a store without users what a new broker has: guest with the password guest, an administrator with every permission in the
// vhost "/".
func (s *Store) CreateDefaults() error {
	h, err := s.hashPublic(Guest)
	if err != nil {
		return err
	}
	s.changing.Lock()
	defer s.changing.Unlock()
	guest := s.with(Account{Name: Guest, Tags: []string{"administrator"}, Password: h})
	guest.grants = map[string]grant{"/": {Permissions: Permissions{Configure: ".*", Write: ".*", Read: ".*"}}}
	s.replace(replacement{Guest: guest})
	k := s.options.Keeper
	if k == nil {
		return nil
	}
	k.Rewrite(s.parts)
	if err := k.WaitDurable(); err != nil {
		return fmt.Errorf("users: definitions: %w", err)
	}
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
