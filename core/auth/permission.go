package auth

import (
	"cmp"
	"iter"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/policies"
)

// Permission is a kind of access to a queue or exchange
// [RabbitMQ: access-control.html#authorisation].
type Permission uint8

// Configure is for declaring and deleting, Write for publishing and binding as destination,
// Read for consuming and binding as source.
const (
	Configure Permission = iota
	Write
	Read
)

// String returns the permission's name.
func (p Permission) String() string { return [...]string{"configure", "write", "read"}[p] }

// Kind is the kind of a [Resource].
type Kind uint8

// The kinds of resources.
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

// Permissions are regular expressions, one per permission. A permission covers the names in
// which its expression matches anywhere. The empty expression matches only the empty name.
type Permissions struct {
	Configure, Write, Read string
}

// Grant gives a user permissions in a vhost.
type Grant struct {
	User, VHost string
	Permissions
}

// compiledGrant is a Grant that was checked.
type compiledGrant struct {
	Permissions
	patterns [3]*regexp.Regexp // by Permission; nil matches everything
}

// Check returns an [*Invalid] if a grant is malformed. It does not check that the user and the vhost exist.
func (g *Grant) Check() error {
	_, err := g.compile(fresh)
	return err
}

func (g *Grant) compile(from origin) (compiledGrant, error) {
	compiled := compiledGrant{Permissions: g.Permissions}
	if err := checkNames(g.User, g.VHost); err != nil {
		return compiled, err
	}
	for i, pattern := range [...]string{Configure: g.Configure, Write: g.Write, Read: g.Read} {
		re, err := compile(pattern, from)
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

// CheckVHostName returns an [*Invalid] if a vhost cannot have this name.
func CheckVHostName(name string) error { return checkName("vhost name", name) }

// CheckPattern returns an [*Invalid] if pattern cannot be used in [Permissions].
func CheckPattern(pattern string) error {
	_, err := compile(pattern, fresh)
	return err
}

// maxPattern bounds regular expressions, in bytes.
const maxPattern = 4096

// origin says where an expression comes from. The cost of a fresh one is bounded. A stored
// one is accepted, because an earlier version accepted it.
type origin bool

const (
	fresh  origin = false
	stored origin = true
)

// compile returns nil for a pattern that matches everything.
func compile(pattern string, from origin) (*regexp.Regexp, error) {
	if len(pattern) > maxPattern {
		return nil, invalid("regular expression of %d bytes: at most %d are allowed", len(pattern), maxPattern)
	}
	return compileExpanded(pattern, from)
}

// compileExpanded is compile without the limit on length, for patterns into which names were substituted.
func compileExpanded(pattern string, from origin) (*regexp.Regexp, error) {
	switch pattern {
	case ".*":
		return nil, nil
	case "":
		pattern = "^$"
	}
	if from == fresh {
		if err := policies.CheckCost(pattern); err != nil {
			return nil, invalid("regular expression %.100q: %v", pattern, err)
		}
	}
	re, err := regexp.Compile(pattern)
	if err != nil {
		return nil, invalid("%v (the syntax is RE2's, which has no look-around and no back-references)", err)
	}
	return re, nil
}

// SetPermissions sets the permissions of a user in a vhost. It applies to open connections,
// too.
func (s *Store) SetPermissions(g Grant) (created bool, err error) {
	compiled, err := g.compile(fresh)
	if err != nil {
		return false, err
	}
	err = s.permit(g.User, g.VHost, func(u *user) []amqp.Table {
		_, existed := u.grants[g.VHost]
		created = !existed
		u.grants = with(u.grants, g.VHost, compiled)
		return []amqp.Table{definePermissions(&g)}
	})
	return created, err
}

// permit changes a user's permissions in a vhost, if both exist. set changes its argument,
// and returns the definitions of the change; no definitions = nothing changes.
func (s *Store) permit(name, vhost string, set func(*user) []amqp.Table) error {
	return s.change(func(c *change) error {
		u := s.users[name]
		if u == nil {
			return errNoUser(name)
		}
		if exists := s.options.VHost; exists != nil && !exists(vhost) {
			return errNoVHost(vhost)
		}
		changed := *u
		if defs := set(&changed); len(defs) > 0 {
			c.put(name, &changed, defs...)
		}
		return nil
	})
}

// with returns a copy of m in which key has the value v.
func with[K comparable, V any](m map[K]V, key K, v V) map[K]V {
	m = maps.Clone(m)
	if m == nil {
		m = map[K]V{}
	}
	m[key] = v
	return m
}

// ClearPermissions removes the permissions of a user in a vhost.
func (s *Store) ClearPermissions(name, vhost string) (existed bool, err error) {
	err = s.permit(name, vhost, func(u *user) []amqp.Table {
		if _, existed = u.grants[vhost]; !existed {
			return nil
		}
		u.revoke(vhost)
		return []amqp.Table{defineNoPermissions(name, vhost)}
	})
	return existed && err == nil, err
}

// revoke removes the user's permissions for a vhost. The user must not be in the table yet.
func (u *user) revoke(vhost string) {
	u.grants = maps.Clone(u.grants)
	delete(u.grants, vhost)
}

// ForgetVHost removes all permissions for a vhost, and writes the definitions in with
// together with the removal. The vhost must be gone already as reported by [Options.VHost],
// or once these definitions have taken effect. planned, unless nil, is called when no other
// change can be planned any more; if it returns an error, nothing is written.
func (s *Store) ForgetVHost(vhost string, planned func() error, with ...amqp.Table) error {
	return s.change(func(c *change) error {
		if planned != nil {
			if err := planned(); err != nil {
				return err
			}
		}
		c.users = withoutVHost(maps.All(s.users), vhost)
		for _, def := range append(with, defineNoVHost(vhost)) {
			c.definitions = amqp.AppendTable(c.definitions, def)
		}
		return nil
	})
}

// withoutVHost returns users without their permissions for a vhost.
func withoutVHost(all iter.Seq2[string, *user], vhost string) map[string]*user {
	next := map[string]*user{}
	for name, u := range all {
		changed := *u
		changed.revoke(vhost)
		changed.revokeTopics(func(k topicKey) bool { return k.vhost == vhost })
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

// OpenVHost checks that a user has any permissions in a vhost. The error is an [*amqp.Error].
func (s *Store) OpenVHost(name, vhost string) error {
	if u := s.user(name); u != nil {
		if _, ok := u.grants[vhost]; ok {
			return nil
		}
	}
	return amqp.Errorf(amqp.ReplyNotAllowed, "access to vhost '%s' refused for user '%s'", vhost, name)
}

// Check checks that a user has a permission for a resource. Patterns match the default
// exchange by the name amq.default. The error is an [*amqp.Error].
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

// matches reports whether re matches in s; nil matches everything.
func matches(re *regexp.Regexp, s string) bool { return re == nil || re.MatchString(s) }

// TopicPermissions restrict the routing keys that a user may publish and bind with on one topic exchange. Keys must match the regular
// expressions. {username} and {vhost} stand for the names, {client_id} for the empty string, because AMQP 0-9-1 has no client id
// [RabbitMQ: access-control.html#topic-authorisation].
type TopicPermissions struct {
	Exchange    string
	Write, Read string
}

// TopicGrant gives a user topic permissions in a vhost.
type TopicGrant struct {
	User, VHost string
	TopicPermissions
}

// Topic is a routing key on a topic exchange.
type Topic struct {
	VHost, Exchange, Key string
}

type topicKey struct{ vhost, exchange string }

// compiledTopicGrant is a TopicGrant that was checked. A nil expression matches everything.
type compiledTopicGrant struct {
	TopicPermissions
	write, read *regexp.Regexp
}

// Check returns an [*Invalid] if a grant is malformed. It does not check that the user and the vhost exist.
func (g *TopicGrant) Check() error {
	_, err := g.compile(fresh)
	return err
}

func (g *TopicGrant) compile(from origin) (compiledTopicGrant, error) {
	compiled := compiledTopicGrant{TopicPermissions: g.TopicPermissions}
	if err := checkNames(g.User, g.VHost); err != nil {
		return compiled, err
	}
	if err := checkName("exchange name", g.Exchange); err != nil {
		return compiled, err
	}
	var err error
	if compiled.write, err = g.expand(g.Write, from); err != nil {
		return compiled, g.invalid(Write, err)
	}
	if compiled.read, err = g.expand(g.Read, from); err != nil {
		return compiled, g.invalid(Read, err)
	}
	return compiled, nil
}

// expand compiles a pattern. It quotes the names, so that a user cannot choose a name that matches more.
func (g *TopicGrant) expand(pattern string, from origin) (*regexp.Regexp, error) {
	if _, err := compile(pattern, from); err != nil {
		return nil, err
	}
	names := strings.NewReplacer("{username}", regexp.QuoteMeta(g.User), "{vhost}", regexp.QuoteMeta(g.VHost))
	return compileExpanded(names.Replace(pattern), from)
}

func (g *TopicGrant) invalid(p Permission, err error) error {
	return invalid("user %q: vhost %q: topics of exchange %q: %s: %v", g.User, g.VHost, g.Exchange, p, err)
}

func (g *TopicGrant) key() topicKey { return topicKey{g.VHost, g.Exchange} }

// SetTopicPermissions sets which topics of an exchange a user may use. Open connections are affected, too.
func (s *Store) SetTopicPermissions(g TopicGrant) (created bool, err error) {
	compiled, err := g.compile(fresh)
	if err != nil {
		return false, err
	}
	err = s.permit(g.User, g.VHost, func(u *user) []amqp.Table {
		_, existed := u.topics[g.key()]
		created = !existed
		u.topics = with(u.topics, g.key(), compiled)
		return []amqp.Table{defineTopics(&g)}
	})
	return created, err
}

// ClearTopicPermissions lets a user use every topic of an exchange, or of all exchanges of a vhost if exchange is "".
func (s *Store) ClearTopicPermissions(name, vhost, exchange string) (existed bool, err error) {
	err = s.permit(name, vhost, func(u *user) (defs []amqp.Table) {
		for _, k := range u.revokeTopics(func(k topicKey) bool { return k.vhost == vhost && (exchange == "" || k.exchange == exchange) }) {
			defs = append(defs, defineNoTopics(name, k))
		}
		existed = len(defs) > 0
		return defs
	})
	return existed && err == nil, err
}

// revokeTopics removes topic permissions from a user. The user must not be in the table yet.
func (u *user) revokeTopics(match func(topicKey) bool) (revoked []topicKey) {
	remaining := maps.Clone(u.topics)
	for k := range u.topics {
		if match(k) {
			revoked = append(revoked, k)
			delete(remaining, k)
		}
	}
	u.topics = remaining
	return revoked
}

// TopicGrants lists all topic permissions, by user, vhost and exchange.
func (s *Store) TopicGrants() []TopicGrant {
	s.mu.RLock()
	var all []TopicGrant
	for name, u := range s.users {
		for k, g := range u.topics {
			all = append(all, TopicGrant{User: name, VHost: k.vhost, TopicPermissions: g.TopicPermissions})
		}
	}
	s.mu.RUnlock()
	slices.SortFunc(all, func(a, b TopicGrant) int {
		return cmp.Or(cmp.Compare(a.User, b.User), cmp.Compare(a.VHost, b.VHost), cmp.Compare(a.Exchange, b.Exchange))
	})
	return all
}

// CheckTopic checks that a user may write or read a topic. A user without topic permissions for the exchange may use every topic. The
// error is an [*amqp.Error].
func (s *Store) CheckTopic(name string, p Permission, t Topic) error {
	u := s.user(name)
	if u == nil {
		return nil // Check refuses
	}
	g, restricted := u.topics[topicKey{t.VHost, t.Exchange}]
	if !restricted {
		return nil
	}
	re := g.write
	if p == Read {
		re = g.read
	}
	if matches(re, t.Key) {
		return nil
	}
	return amqp.Errorf(amqp.ReplyAccessRefused, "%s access to topic '%s' in exchange '%s' in vhost '%s' refused for user '%s'",
		p, t.Key, t.Exchange, t.VHost, name)
}
