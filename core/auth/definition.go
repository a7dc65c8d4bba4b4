package auth

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/definition"
	"github.com/curfewmq/curfew/sdk/hook"
)

// Users are stored as definitions, see core/definition. The fields of a definition depend on op:
//
//	user.none          no fields; there are no users
//	user.set           name, tags, algorithm, password, max-connections, max-channels
//	user.delete        name; also deletes the user's permissions
//	permission.set     user, vhost, configure, write, read
//	permission.clear   user, vhost
//	topic.set          user, vhost, exchange, write, read
//	topic.clear        user, vhost, exchange
//	permission.forget  vhost; deletes all permissions for it, including those for topics
//
// Tags are an array of strings. The password is a byte array that hashOf reads, empty if the user has no password. Limits that are
// not set are -1.
const (
	opNoUsers          = "user.none"
	opSetUser          = "user.set"
	opDeleteUser       = "user.delete"
	opSetPermissions   = "permission.set"
	opClearPermissions = "permission.clear"
	opForgetVHost      = "permission.forget"
	opSetTopics        = "topic.set"
	opClearTopics      = "topic.clear"
)

// The fields of definitions.
const (
	fieldName           = "name"
	fieldTags           = "tags"
	fieldAlgorithm      = "algorithm"
	fieldPassword       = "password"
	fieldMaxConnections = "max-connections"
	fieldMaxChannels    = "max-channels"
	fieldUser           = "user"
	fieldVHost          = "vhost"
	fieldExchange       = "exchange"
	fieldConfigure      = "configure"
	fieldWrite          = "write"
	fieldRead           = "read"
)

// IsUserOp reports whether op belongs to a definition of users.
func IsUserOp(op string) bool {
	return strings.HasPrefix(op, "user.") || strings.HasPrefix(op, "permission.") || strings.HasPrefix(op, "topic.")
}

// IsSecretField reports whether a field of a definition of users must not be shown.
func IsSecretField(field string) bool { return field == fieldPassword }

// Resets reports whether a definition with this op voids all earlier definitions of users.
func Resets(op string) bool { return op == opNoUsers }

func text(key, value string) amqp.Field { return amqp.Field{Key: key, Value: value} }

func limit(key string, l hook.Limit) amqp.Field { return amqp.Field{Key: key, Value: l.N()} }

func defineAccount(a *Account) amqp.Table {
	tags := make(amqp.Array, len(a.Tags))
	for i, tag := range a.Tags {
		tags[i] = tag
	}
	return definition.New(opSetUser, text(fieldName, a.Name), amqp.Field{Key: fieldTags, Value: tags},
		text(fieldAlgorithm, string(a.Password.algorithm)), amqp.Field{Key: fieldPassword, Value: a.Password.bytes()},
		limit(fieldMaxConnections, a.Limits.Connections), limit(fieldMaxChannels, a.Limits.Channels))
}

func defineUserDeleted(name string) amqp.Table {
	return definition.New(opDeleteUser, text(fieldName, name))
}

func definePermissions(g *Grant) amqp.Table {
	return definition.New(opSetPermissions, text(fieldUser, g.User), text(fieldVHost, g.VHost),
		text(fieldConfigure, g.Configure), text(fieldWrite, g.Write), text(fieldRead, g.Read))
}

func defineNoPermissions(user, vhost string) amqp.Table {
	return definition.New(opClearPermissions, text(fieldUser, user), text(fieldVHost, vhost))
}

func defineNoVHost(vhost string) amqp.Table {
	return definition.New(opForgetVHost, text(fieldVHost, vhost))
}

func defineTopics(g *TopicGrant) amqp.Table {
	return definition.New(opSetTopics, text(fieldUser, g.User), text(fieldVHost, g.VHost),
		text(fieldExchange, g.Exchange), text(fieldWrite, g.Write), text(fieldRead, g.Read))
}

func defineNoTopics(user string, p topicKey) amqp.Table {
	return definition.New(opClearTopics, text(fieldUser, user), text(fieldVHost, p.vhost), text(fieldExchange, p.exchange))
}

// Definitions returns the definitions of all users.
func (s *Store) Definitions() []byte {
	var all []byte
	for def := range s.definitions {
		all = amqp.AppendTable(all, def)
	}
	return all
}

// definitions yields the definitions of all users, as of the moment it starts.
func (s *Store) definitions(yield func(amqp.Table) bool) {
	more := yield(definition.New(opNoUsers))
	s.mu.RLock()
	all := slices.Collect(maps.Values(s.users)) // a user in it is replaced, never modified
	s.mu.RUnlock()
	for _, u := range all {
		for def := range u.definitions {
			if more = more && yield(def); !more {
				return
			}
		}
	}
}

func (u *user) definitions(yield func(amqp.Table) bool) {
	more := yield(defineAccount(&u.Account))
	for vhost, g := range u.grants {
		more = more && yield(definePermissions(&Grant{User: u.Name, VHost: vhost, Permissions: g.Permissions}))
	}
	for key, g := range u.topics {
		more = more && yield(defineTopics(&TopicGrant{User: u.Name, VHost: key.vhost, TopicPermissions: g.TopicPermissions}))
	}
}

// change is a change of users, and the definitions that record it.
type change struct {
	users       map[string]*user // the new state of each; nil = deleted
	definitions []byte
}

// put sets the new state of the user called name; nil = the user is deleted.
func (c *change) put(name string, u *user, defs ...amqp.Table) {
	if c.users == nil {
		c.users = map[string]*user{}
	}
	c.users[name] = u
	for _, def := range defs {
		c.definitions = amqp.AppendTable(c.definitions, def)
	}
}

// change makes a change after it has become durable, so that no client relies on a change that may be lost. plan runs with changing
// and mu held. If plan adds no definitions, nothing is written. Changes are made one at a time.
func (s *Store) change(plan func(*change) error) error {
	s.plan()
	defer s.changing.Unlock()
	var c change
	err := s.reading(func() error { return plan(&c) })
	if err != nil || len(c.definitions) == 0 {
		return s.confirm(err)
	}
	if log := s.options.Definitions; log != nil {
		log.Write(c.definitions)
	}
	if err := s.waitDurable(); err != nil {
		return err
	}
	if s.options.Follows == nil {
		s.apply(&c)
	}
	s.compact()
	return nil
}

// confirm returns the result of a plan that changes nothing, or an error if the plan may
// have read outdated users. The caller holds changing.
func (s *Store) confirm(result error) error {
	if s.options.Follows != nil {
		if err := s.waitDurable(); err != nil {
			return err
		}
	}
	return result
}

// apply puts a change in force. The caller holds changing.
func (s *Store) apply(c *change) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, u := range c.users {
		if u == nil {
			delete(s.users, name)
			continue
		}
		s.users[name] = u
	}
	s.version.Add(1)
}

func (s *Store) waitDurable() error {
	if s.options.Definitions == nil {
		return nil
	}
	if err := s.options.Definitions.WaitDurable(); err != nil {
		return fmt.Errorf("users: definitions: %w", err)
	}
	return nil
}

// CompactDefinitions rewrites the definitions of all users if the log asks for it.
func (s *Store) CompactDefinitions() {
	s.plan()
	defer s.changing.Unlock()
	s.compact()
}

// reading calls fn with mu held, and releases mu even if fn panics: a panic in a request does not end the broker.
func (s *Store) reading(fn func() error) error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return fn()
}

// plan takes the lock under which changes are planned.
func (s *Store) plan() {
	s.changing.Lock()
	if s.options.Follows != nil {
		s.options.Follows()
	}
}

// compact is CompactDefinitions for a caller that holds changing.
func (s *Store) compact() {
	if log := s.options.Definitions; log != nil && log.NeedsCompaction() {
		log.Rewrite(definition.Parts(s.definitions))
	}
}
