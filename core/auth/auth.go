// Package auth holds the users: their passwords, permissions and limits. It authenticates
// logins, authorises access to queues and exchanges, and tracks each user's connections.
package auth

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/curfewmq/curfew/core/definition"
)

// Guest is the user that a new broker has. Its password is public, so it may log in from a loopback address only
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

// Options configure a [Store].
type Options struct {
	// Hashing is the algorithm for new passwords: PBKDF2, which is the default, or SHA512.
	Hashing Algorithm
	// Definitions is the log that changes are written to; nil = nothing is durable.
	Definitions definition.Log
	// VHost reports whether a vhost exists. It is asked before permissions for a vhost are
	// set, and must not call the store; nil = all exist.
	VHost func(name string) bool
	// Follows says that changes take effect only by [Store.Follow]: Definitions.WaitDurable
	// returns after the written changes have taken effect. If nothing was written,
	// WaitDurable returns an error if the store may be out of date. The store calls Follows
	// before it plans a change; the change's write must fail if other nodes may have
	// written since. nil = changes take effect immediately.
	Follows func()
}

// Store holds the users and their permissions. It is safe for concurrent use.
type Store struct {
	options    Options
	iterations uint32 // of PBKDF2, for new passwords

	verifier *verifier
	tracker  connTracker
	version  atomic.Uint64
	followed atomic.Bool // definitions were followed; until then a store that follows has no users
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
	epoch      uint64                   // number of the password; a new password has a new number, even if it is equal
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

// CreateDefaults adds the default user to a store without users: guest with the password
// guest, an administrator with every permission in the vhost "/".
func (s *Store) CreateDefaults() error {
	h, err := s.hashPublic(Guest)
	if err != nil {
		return err
	}
	s.plan()
	defer s.changing.Unlock()
	guest := s.with(nil, Account{Name: Guest, Tags: []string{Administrator}, Password: h})
	guest.grants = map[string]compiledGrant{"/": {Permissions: Permissions{Configure: ".*", Write: ".*", Read: ".*"}}}
	s.apply(&change{users: map[string]*user{Guest: guest}})
	if log := s.options.Definitions; log != nil {
		log.Rewrite(definition.Parts(s.definitions))
	}
	return s.waitDurable()
}

// Version changes with every change of users and permissions. Each change invalidates cached results of Check.
func (s *Store) Version() uint64 { return s.version.Load() }

// loggedIn returns the user as if it had logged in with its present password.
func (u *user) loggedIn() User { return u.loggedInWith(u.epoch) }

// loggedInWith is loggedIn with the password of the given epoch.
func (u *user) loggedInWith(epoch uint64) User {
	return User{Name: u.Name, Tags: u.Tags, generation: u.generation, epoch: epoch}
}

// user returns the user of this name; nil = there is none.
func (s *Store) user(name string) *user {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.users[name]
}

// Errors about a missing user or vhost wrap one of these.
var (
	ErrNoUser  = errors.New("no such user")
	ErrNoVHost = errors.New("no such vhost")
)

// Invalid is the error for a value that is not allowed.
type Invalid struct{ Text string }

func (e *Invalid) Error() string { return e.Text }

func invalid(layout string, args ...any) error { return &Invalid{fmt.Sprintf(layout, args...)} }

func errNoUser(name string) error { return fmt.Errorf("user %q: %w", name, ErrNoUser) }

func errNoVHost(name string) error { return fmt.Errorf("vhost %q: %w", name, ErrNoVHost) }
