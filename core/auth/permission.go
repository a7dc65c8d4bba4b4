package auth

import (
	"fmt"
	"maps"
	"regexp"

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

// grant is compiled Permissions, indexed by Permission. Nil matches everything.
type grant [3]*regexp.Regexp

// Grant sets what a user may do in a vhost.
func (s *Store) Grant(name, vhost string, p Permissions) error {
	var g grant
	for i, pattern := range [...]string{Configure: p.Configure, Write: p.Write, Read: p.Read} {
		re, err := compile(pattern)
		if err != nil {
			return fmt.Errorf("user %q: vhost %q: %s: %w", name, vhost, Permission(i), err)
		}
		g[i] = re
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.users[name]
	if old == nil {
		return fmt.Errorf("user %q: not found", name)
	}
	u := *old
	u.grants = maps.Clone(old.grants)
	if u.grants == nil {
		u.grants = map[string]grant{}
	}
	u.grants[vhost] = g
	s.users[name] = &u
	s.version.Add(1)
	return nil
}

func compile(pattern string) (*regexp.Regexp, error) {
	switch pattern {
	case ".*":
		return nil, nil
	case "":
		pattern = "^$"
	}
	return regexp.Compile(pattern)
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
		g, ok := u.grants[r.VHost]
		if ok && (g[p] == nil || g[p].MatchString(r.Name)) {
			return nil
		}
	}
	return amqp.Errorf(amqp.ReplyAccessRefused, "%s access to %s '%s' in vhost '%s' refused for user '%s'", p, r.Kind, r.Name, r.VHost, name)
}
