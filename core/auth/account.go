package auth

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"math"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/sdk/hook"
)

// Account describes a user, without permissions. Its tags must not be changed after it has been passed on.
type Account struct {
	Name     string
	Tags     []string
	Password Hash // the zero Hash matches no password
	Limits   Limits
}

// Limits bound how many connections and channels a user may have. An absent limit allows any number.
type Limits struct {
	Connections, Channels hook.Limit
}

const (
	maxName  = 255 // bytes; the most that AMQP's short strings hold
	maxTags  = 64
	maxLimit = math.MaxInt32
)

// Check returns an [*Invalid] if the account is not a valid one.
func (a *Account) Check() error {
	if err := checkName("user name", a.Name); err != nil {
		return err
	}
	if err := CheckTags(a.Tags); err != nil {
		return invalid("user %q: %v", a.Name, err)
	}
	return a.Limits.check(a.Name)
}

// Tags returns the tags that have a meaning. Users may have others, as in RabbitMQ.
func Tags() []string {
	return []string{Administrator, "monitoring", "policymaker", "management", "impersonator"}
}

// Administrator is the tag of users who may do everything.
const Administrator = "administrator"

// CheckTags returns an [*Invalid] if a user cannot have these tags.
func CheckTags(tags []string) error {
	if len(tags) > maxTags {
		return invalid("%d tags: at most %d are allowed", len(tags), maxTags)
	}
	for _, tag := range tags {
		if err := checkName("tag", tag); err != nil {
			return err
		}
	}
	return nil
}

func (l Limits) check(user string) error {
	for _, n := range []hook.Limit{l.Connections, l.Channels} {
		if n.N() > maxLimit {
			return invalid("user %q: limit %d: at most %d is allowed", user, n.N(), maxLimit)
		}
	}
	return nil
}

// checkName refuses names that do not fit into JSON, a short string, or a SASL login, where NUL separates names.
func checkName(what, name string) error {
	switch {
	case name == "":
		return invalid("%s: empty", what)
	case len(name) > maxName:
		return invalid("%s of %d bytes: at most %d are allowed", what, len(name), maxName)
	case !utf8.ValidString(name) || strings.Contains(name, "\x00"):
		return invalid("%s %q: not UTF-8 without NUL", what, name)
	}
	return nil
}

// List returns the accounts, by name.
func (s *Store) List() []Account {
	s.mu.RLock()
	defer s.mu.RUnlock()
	all := make([]Account, 0, len(s.users))
	for _, u := range s.users {
		all = append(all, u.Account)
	}
	slices.SortFunc(all, func(a, b Account) int { return cmp.Compare(a.Name, b.Name) })
	return all
}

// Lookup returns an account, and whether it exists.
func (s *Store) Lookup(name string) (Account, bool) {
	u := s.user(name)
	if u == nil {
		return Account{}, false
	}
	return u.Account, true
}

// Still returns the current state of a user that logged in before, and whether that login still holds. A login ends when its user is
// deleted or gets another password.
func (s *Store) Still(u User) (now User, ok bool) {
	found := s.user(u.Name)
	if found == nil || found.epoch != u.epoch {
		return User{}, false
	}
	return found.loggedIn(), true
}

// Known returns a user as if it had just logged in. Callers must have established the user's identity in another way.
func (s *Store) Known(name string) (u User, ok bool) {
	found := s.user(name)
	if found == nil {
		return User{}, false
	}
	return found.loggedIn(), true
}

// HasTag reports whether a user has a tag now.
func (s *Store) HasTag(name, tag string) bool {
	u := s.user(name)
	return u != nil && slices.Contains(u.Tags, tag)
}

// Set adds a user, or replaces the password, tags and limits of an existing one; permissions stay.
func (s *Store) Set(a Account) (created bool, err error) {
	if err := a.Check(); err != nil {
		return false, err
	}
	return s.set(a, false)
}

// Put is Set without limits: those of an existing user stay.
func (s *Store) Put(a Account) (created bool, err error) {
	a.Limits = Limits{}
	if err := a.Check(); err != nil {
		return false, err
	}
	return s.set(a, true)
}

func (s *Store) set(a Account, keepLimits bool) (created bool, err error) {
	a.Tags = slices.Clone(a.Tags)
	err = s.change(func(c *change) error {
		was := s.users[a.Name]
		if created = was == nil; !created && keepLimits {
			a.Limits = was.Limits
		}
		c.put(a.Name, s.with(was, a), defineAccount(&a))
		return nil
	})
	return created, err
}

// with returns the state of the user after it has been given this account. was is the user's present state; nil = there is no such user.
func (s *Store) with(was *user, a Account) *user {
	s.verifier.matchRounds(&a.Password)
	if was == nil {
		return &user{Account: a, generation: s.generation.Add(1), epoch: s.epochs.Add(1)}
	}
	changed := *was
	changed.Account = a
	if !a.Password.equal(&was.Password) {
		changed.epoch = s.epochs.Add(1)
	}
	return &changed
}

// SetLimits replaces the limits of a user. Open connections and channels stay.
func (s *Store) SetLimits(name string, l Limits) error {
	return s.ChangeLimits(name, func(now *Limits) { *now = l })
}

// ChangeLimits changes a user's limits. Changes are made one after another. fn must not use the store.
func (s *Store) ChangeLimits(name string, fn func(*Limits)) error {
	return s.change(func(c *change) error {
		u := s.users[name]
		if u == nil {
			return errNoUser(name)
		}
		changed := *u
		fn(&changed.Limits)
		if err := changed.Limits.check(name); err != nil {
			return err
		}
		c.put(name, &changed, defineAccount(&changed.Account))
		return nil
	})
}

// Delete deletes a user with all permissions, and closes the user's connections.
func (s *Store) Delete(name string) (existed bool, err error) {
	err = s.change(func(c *change) error {
		if existed = s.users[name] != nil; existed {
			c.put(name, nil, defineUserDeleted(name))
		}
		return nil
	})
	if existed && err == nil {
		s.tracker.evict(name, "user '"+name+"' is deleted")
	}
	return existed, err
}

// Add adds a user with permissions, all or nothing. created is false if a user of that name exists. The vhosts must exist.
func (s *Store) Add(a Account, grants []Grant) (created bool, err error) {
	if err := a.Check(); err != nil {
		return false, err
	}
	a.Tags = slices.Clone(a.Tags)
	err = s.change(func(c *change) error {
		if s.users[a.Name] != nil {
			return nil
		}
		u, defs := s.with(nil, a), []amqp.Table{defineAccount(&a)}
		for _, g := range grants {
			g.User = a.Name
			compiled, err := s.compileFor(&g)
			if err != nil {
				return err
			}
			u.grants = with(u.grants, g.VHost, compiled)
			defs = append(defs, definePermissions(&g))
		}
		c.put(a.Name, u, defs...)
		created = true
		return nil
	})
	return created && err == nil, err
}

// compileFor compiles a grant for a vhost that exists.
func (s *Store) compileFor(g *Grant) (compiledGrant, error) {
	if exists := s.options.VHost; exists != nil && !exists(g.VHost) {
		return compiledGrant{}, errNoVHost(g.VHost)
	}
	return g.compile(fresh)
}

// AccountOf returns the number of the account that a user has logged in to; another node passes it to LoggedIn. The number belongs to
// the account's present password, so a login outlasts a change of the password, as it does at this node. A later account of the same
// name has another number. 0 means that the account was deleted.
func (s *Store) AccountOf(u User) uint64 {
	found := s.user(u.Name)
	if found == nil || found.generation != u.generation {
		return 0
	}
	return found.Password.number()
}

// LoggedIn returns a user that another node has logged in. ok is false if there is no such user, or if the user's account is another one.
func (s *Store) LoggedIn(name string, account uint64) (u User, ok bool) {
	found := s.user(name)
	if found == nil || found.Password.number() != account {
		return User{}, false
	}
	return found.loggedIn(), true
}

// number returns a number of the hash. It is the same in every process, and never 0.
func (h *Hash) number() uint64 {
	var b []byte
	for _, part := range []string{string(h.algorithm), h.salt, h.sum} {
		b = binary.AppendUvarint(b, uint64(len(part)))
		b = append(b, part...)
	}
	sum := sha256.Sum256(binary.AppendUvarint(b, uint64(h.iterations)))
	return max(binary.BigEndian.Uint64(sum[:]), 1)
}

// WasChecked reports whether the error of a login refuses credentials that were checked. It is false for refusals because of too many
// logins, a blank password or the client's address. A verified certificate that names no user counts as checked: strangers cannot
// produce any number of such refusals either.
func WasChecked(err error) bool {
	r, ok := errors.AsType[*Refused](err)
	return ok && (!r.unchecked || r.unknown) && !r.Elsewhere
}
