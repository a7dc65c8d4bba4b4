package auth

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/curfewmq/curfew/sdk/hook"
)

// Account is what a broker knows of a user, besides permissions. Nobody changes the tags of one that was handed over.
type Account struct {
	Name     string
	Tags     []string
	Password Hash // the zero one lets nobody in
	Limits   Limits
}

// Limits are how many connections and channels a user may have; absent ones are none.
type Limits struct {
	Connections, Channels hook.Limit
}

const (
	maxName  = 255 // bytes; what AMQP's short strings hold
	maxTags  = 64
	maxLimit = math.MaxInt32
)

// Check reports what is wrong with an account, as an [*Invalid].
func (a *Account) Check() error {
	if err := checkName("user name", a.Name); err != nil {
		return err
	}
	if len(a.Tags) > maxTags {
		return invalid("user %q: %d tags: at most %d are allowed", a.Name, len(a.Tags), maxTags)
	}
	for _, tag := range a.Tags {
		if err := checkName("tag", tag); err != nil {
			return invalid("user %q: %v", a.Name, err)
		}
	}
	return a.Limits.check(a.Name)
}

func (l Limits) check(user string) error {
	for _, n := range []hook.Limit{l.Connections, l.Channels} {
		if n.N() > maxLimit {
			return invalid("user %q: limit %d: at most %d is allowed", user, n.N(), maxLimit)
		}
	}
	return nil
}

// checkName refuses names that could not be used: in a login, which has NUL around them, in JSON, in a short string.
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

// HasTag reports whether a user has a tag by now.
func (s *Store) HasTag(name, tag string) bool {
	u := s.user(name)
	return u != nil && slices.Contains(u.Tags, tag)
}

// Set adds a user, or gives an existing one this password, these tags and limits instead; permissions stay.
func (s *Store) Set(a Account) (created bool, err error) {
	if err := a.Check(); err != nil {
		return false, err
	}
	a.Tags = slices.Clone(a.Tags)
	err = s.change(func() (replacement, error) {
		created = s.users[a.Name] == nil
		s.note(defineAccount(&a))
		return replacement{a.Name: s.with(a)}, nil
	})
	return created, err
}

// with returns the user that has this account from now on. The caller holds changing.
func (s *Store) with(a Account) *user {
	s.verifier.expect(&a.Password)
	u := s.users[a.Name]
	if u == nil {
		s.births++
		return &user{Account: a, born: s.births}
	}
	changed := *u
	changed.Account = a
	return &changed
}

// SetPassword gives a user another password.
func (s *Store) SetPassword(name string, h Hash) error {
	return s.changeAccount(name, func(a *Account) { a.Password = h })
}

// SetTags gives a user these tags instead of others.
func (s *Store) SetTags(name string, tags []string) error {
	return s.changeAccount(name, func(a *Account) { a.Tags = slices.Clone(tags) })
}

// SetLimits gives a user these limits instead of others. Whoever is connected stays.
func (s *Store) SetLimits(name string, l Limits) error {
	return s.changeAccount(name, func(a *Account) { a.Limits = l })
}

func (s *Store) changeAccount(name string, set func(*Account)) error {
	return s.change(func() (replacement, error) {
		u := s.users[name]
		if u == nil {
			return nil, errNoUser(name)
		}
		a := u.Account
		set(&a)
		if err := a.Check(); err != nil {
			return nil, err
		}
		s.note(defineAccount(&a))
		return replacement{name: s.with(a)}, nil
	})
}

// Delete deletes a user with all permissions, and has its connections closed.
func (s *Store) Delete(name string) (existed bool, err error) {
	err = s.change(func() (replacement, error) {
		if s.users[name] == nil {
			return nil, nil
		}
		existed = true
		s.note(defineUserDeleted(name))
		return replacement{name: nil}, nil
	})
	if existed && err == nil {
		s.seats.evict(name, "user '"+name+"' is deleted")
	}
	return existed, err
}
