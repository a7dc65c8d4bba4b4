// Package auth holds the users: their passwords, permissions and limits. It authenticates logins, authorises access to queues
// and exchanges, and tracks each user's connections.
package auth

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/curfewmq/curfew/core/definition"
)

// Guest is the user of a new broker. Its password is public, so it may log in from a loopback address only
// [RabbitMQ: access-control.html#loopback-users].
const Guest = "guest"

// User is a user that is logged in.
type User struct {
	Name string
	Tags []string

	generation uint64 // distinguishes users who had the same name at different times
	epoch      uint64 // of the password that the user logged in with
}

// Has reports whether the user has a tag, such as administrator.
func (u User) Has(tag string) bool { return slices.Contains(u.Tags, tag) }

// Options are what a store is made with.
type Options struct {
	// Hashing is the algorithm for new passwords: PBKDF2, which is the default, or SHA512.
	Hashing Algorithm
	// Definitions is where changes are written; nil = nothing is durable.
	Definitions definition.Log
	// VHost reports whether a vhost exists, before permissions for it are set; nil = all do. It must not call the store.
	VHost func(name string) bool
	// Follows means that changes take effect by [Store.Follow] only: Definitions.WaitDurable returns once those that were written have.
	// If nothing was written, it returns an error if what the store has may be out of date. Follows is called before each change is
	// planned: what is written for it must fail if others may have written since. nil = changes take effect by themselves.
	Follows func()
}

// Store holds the users and what they may do. It is safe for concurrent use.
type Store struct {
	options    Options
	iterations uint32 // of PBKDF2, for new passwords

	verifier *verifier
	tracker  connTracker
	version  atomic.Uint64
	followed atomic.Bool // users were, if they are followed: before, the store has none
	logins   [ways]loginCounts
	unlogged unlogged
	sessions sessions

	changing   definition.Lock // held during a change of users, until it has taken effect
	generation atomic.Uint64   // number of users ever added
	epochs     atomic.Uint64   // number of passwords ever set

	mu    sync.RWMutex     // guards users; a change of users that does not follow also holds changing
	users map[string]*user // a user in it is replaced, never modified
}

type user struct {
	Account
	generation uint64
	epoch      uint64                   // number of the password; another one has another number, even if they are equal
	grants     map[string]compiledGrant // by vhost
	topics     map[topicKey]compiledTopicGrant
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

// CreateDefaults gives a store without users what a new broker has: guest with the password guest, an administrator with every
// permission in the vhost "/".
func (s *Store) CreateDefaults() error {
	h, err := s.hashPublic(Guest)
	if err != nil {
		return err
	}
	s.plan()
	defer s.changing.Unlock()
	guest := s.with(nil, Account{Name: Guest, Tags: []string{"administrator"}, Password: h})
	guest.grants = map[string]compiledGrant{"/": {Permissions: Permissions{Configure: ".*", Write: ".*", Read: ".*"}}}
	s.apply(&change{users: map[string]*user{Guest: guest}})
	if log := s.options.Definitions; log != nil {
		log.Rewrite(definition.Parts(s.definitions))
	}
	return s.waitDurable()
}

// Version changes with every change of users and permissions. Cached results of Check are void then.
func (s *Store) Version() uint64 { return s.version.Load() }

// loggedIn returns the user as one who is logged in.
func (u *user) loggedIn() User { return u.loggedInWith(u.epoch) }

// loggedInWith is loggedIn with the password of an epoch.
func (u *user) loggedInWith(epoch uint64) User {
	return User{Name: u.Name, Tags: u.Tags, generation: u.generation, epoch: epoch}
}

// user returns the user of this name, nil if there is none.
func (s *Store) user(name string) *user {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.users[name]
}
