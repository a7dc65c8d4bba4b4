package auth

import (
	"cmp"
	"maps"
	"regexp"
	"slices"

	"github.com/curfewmq/curfew/core/amqp"
)

// Permission is a kind of access to a queue or exchange
// [RabbitMQ: access-control.html#authorisation].
type Permission uint8

// The permissions: to declare and delete; to publish to and bind as destination;
// to consume from and bind as source.
const (
	Configure Permission = iota
	Write
	Read
)

// String returns the permission's name.
func (p Permission) String() string { return [...]string{"configure", "write", "read"}[p] }

// Kind is what a permission is for.
type Kind uint8

// The kinds.
const (
	Exchange Kind = iota
	Queue
)

// String returns the kind's name.
func (k Kind) String() string { return [...]string{"exchange", "queue"}[k] }

// Resource is a queue or an exchange.
type Resource struct {
	Kind        Kind
	VHost, Name string
}

// Permissions are regular expressions, one for each permission; it holds for the
// names that match, somewhere in the name unless the expression says otherwise.
// The empty one matches the empty name alone.
type Permissions struct {
	Configure, Write, Read string
}

// Grant is what a user may do in a vhost.
type Grant struct {
	User, VHost string
	Permissions
}

// grant is a Grant that was checked.
type grant struct {
	Permissions
	patterns [3]*regexp.Regexp // by Permission. Nil matches everything
}

// Check reports what is wrong with a grant, as an [*Invalid]. It does not look whether there is such a user or vhost.
func (g *Grant) Check() error {
	_, err := g.compile()
	return err
}

func (g *Grant) compile() (grant, error) {
	compiled := grant{Permissions: g.Permissions}
	if err := checkNames(g.User, g.VHost); err != nil {
		return compiled, err
	}
	for i, pattern := range [...]string{Configure: g.Configure, Write: g.Write, Read: g.Read} {
		re, err := compile(pattern)
		if err != nil {
			return compiled, invalid("user %q: vhost %q: %s: %v", g.User, g.VHost, Permission(i), err)
		}
		compiled.patterns[i] = re
	}
	return compiled, nil
}

func checkNames(user, vhost string) error {
	if err := checkName("user name", user); err != nil {
		return err
	}
	return checkName("vhost name", vhost)
}

// maxPattern bounds regular expressions, in bytes.
const maxPattern = 4096

// compile returns nil for what matches everything.
func compile(pattern string) (*regexp.Regexp, error) {
	if len(pattern) > maxPattern {
		return nil, invalid("regular expression of %d bytes: at most %d are allowed", len(pattern), maxPattern)
	}
	return compileExpanded(pattern)
}

// compileExpanded is compile for what may have become longer.
func compileExpanded(pattern string) (*regexp.Regexp, error) {
	switch pattern {
	case ".*":
		return nil, nil
	case "":
		pattern = "^$"
	}
	re, err := regexp.Compile(pattern)
	if err != nil {
		return nil, invalid("%v (the syntax is RE2's, which has no look-around and no back-references)", err)
	}
	return re, nil
}

// SetPermissions sets what a user may do in a vhost, from now on, on open connections too.
func (s *Store) SetPermissions(g Grant) (created bool, err error) {
	compiled, err := g.compile()
	if err != nil {
		return false, err
	}
	err = s.permit(g.User, g.VHost, func(u *user) bool {
		_, existed := u.grants[g.VHost]
		created = !existed
		u.grants = with(u.grants, g.VHost, compiled)
		s.note(definePermissions(&g))
		return true
	})
	return created, err
}

// permit changes what a user may do in a vhost, if both exist, and if change says that there is something to do.
func (s *Store) permit(name, vhost string, change func(*user) bool) error {
	return s.change(func() (replacement, error) {
		u := s.users[name]
		if u == nil {
			return nil, errNoUser(name)
		}
		if exists := s.options.VHost; exists != nil && !exists(vhost) {
			return nil, errNoVHost(vhost)
		}
		changed := *u
		if !change(&changed) {
			return nil, nil
		}
		return replacement{name: &changed}, nil
	})
}

// with returns m with one more.
func with[K comparable, V any](m map[K]V, key K, v V) map[K]V {
	m = maps.Clone(m)
	if m == nil {
		m = map[K]V{}
	}
	m[key] = v
	return m
}

// ClearPermissions takes what a user may do in a vhost away.
func (s *Store) ClearPermissions(name, vhost string) (existed bool, err error) {
	err = s.permit(name, vhost, func(u *user) bool {
		if _, existed = u.grants[vhost]; existed {
			u.dropGrant(vhost)
			s.note(defineNoPermissions(name, vhost))
		}
		return existed
	})
	return existed && err == nil, err
}

// dropGrant is for a user that nobody sees yet.
func (u *user) dropGrant(vhost string) {
	u.grants = maps.Clone(u.grants)
	delete(u.grants, vhost)
}

// ForgetVHost takes all permissions for a vhost away, which must not exist any more as far as [Options] say.
func (s *Store) ForgetVHost(vhost string) error {
	return s.change(func() (replacement, error) {
		s.note(defineNoVHost(vhost))
		return s.withoutVHost(vhost), nil
	})
}

// withoutVHost is what all users are without their permissions for a vhost.
func (s *Store) withoutVHost(vhost string) replacement {
	next := make(replacement, len(s.users))
	for name, u := range s.users {
		changed := *u
		changed.dropGrant(vhost)
		changed.dropTopics(func(p topicPlace) bool { return p.vhost == vhost })
		next[name] = &changed
	}
	return next
}

// Grants lists all permissions, by user and vhost.
func (s *Store) Grants() []Grant {
	s.mu.RLock()
	var all []Grant
	for name, u := range s.users {
		for vhost, g := range u.grants {
			all = append(all, Grant{User: name, VHost: vhost, Permissions: g.Permissions})
		}
	}
	s.mu.RUnlock()
	slices.SortFunc(all, func(a, b Grant) int {
		return cmp.Or(cmp.Compare(a.User, b.User), cmp.Compare(a.VHost, b.VHost))
	})
	return all
}

// OpenVHost checks that a user may use a vhost: that it has any permissions
// there. The error is an [*amqp.Error].
func (s *Store) OpenVHost(name, vhost string) error {
	if u := s.user(name); u != nil {
		if _, ok := u.grants[vhost]; ok {
			return nil
		}
	}
	return amqp.Errorf(amqp.ReplyNotAllowed, "access to vhost '%s' refused for user '%s'", vhost, name)
}

// Check checks that a user has a permission for a resource. The default exchange
// goes by the name amq.default here. The error is an [*amqp.Error].
func (s *Store) Check(name string, p Permission, r Resource) error {
	if r.Kind == Exchange && r.Name == "" {
		r.Name = "amq.default"
	}
	if u := s.user(name); u != nil {
		if g, ok := u.grants[r.VHost]; ok && matches(g.patterns[p], r.Name) {
			return nil
		}
	}
	return amqp.Errorf(amqp.ReplyAccessRefused, "%s access to %s '%s' in vhost '%s' refused for user '%s'", p, r.Kind, r.Name, r.VHost, name)
}

// matches takes nil for what matches everything.
func matches(re *regexp.Regexp, s string) bool { return re == nil || re.MatchString(s) }
