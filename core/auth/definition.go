package auth

import (
	"fmt"
	"strings"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/sdk/hook"
)

// Users are recorded as definitions, one after another, like what is durable in a vhost. A definition is a field table as AMQP
// has them [AMQP 4.2.5.5], with its length in front. The first field is
//
//	op     what happened
//
// and the others depend on op:
//
//	user.none          nothing more: there are no users
//	user.set           name, tags, algorithm, password, max-connections, max-channels
//	user.delete        name; the permissions go with it
//	permission.set     user, vhost, configure, write, read
//	permission.clear   user, vhost
//	topic.set          user, vhost, exchange, write, read
//	topic.clear        user, vhost, exchange
//	permission.forget  vhost; all permissions for it end, those for topics too
//
// Tags are an array of strings. The password is a byte array, empty if there is none: see [ParseHash] for what is in it. Limits
// that are not set are -1.
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
	fieldOp             = "op"
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

// IsUserOp reports whether an op is that of a definition of users.
func IsUserOp(op string) bool {
	return strings.HasPrefix(op, "user.") || strings.HasPrefix(op, "permission.") || strings.HasPrefix(op, "topic.")
}

// IsSecretField reports whether a field of a definition of users is for nobody's eyes.
func IsSecretField(field string) bool { return field == fieldPassword }

// Resets reports whether no user that was defined before a definition with this op counts any more.
func Resets(op string) bool { return op == opNoUsers }

func define(op string, more ...amqp.Field) amqp.Table {
	return append(amqp.Table{{Key: fieldOp, Value: op}}, more...)
}

func text(key, value string) amqp.Field { return amqp.Field{Key: key, Value: value} }

func limit(key string, l hook.Limit) amqp.Field { return amqp.Field{Key: key, Value: l.N()} }

func defineAccount(a *Account) amqp.Table {
	tags := make(amqp.Array, len(a.Tags))
	for i, tag := range a.Tags {
		tags[i] = tag
	}
	return define(opSetUser, text(fieldName, a.Name), amqp.Field{Key: fieldTags, Value: tags},
		text(fieldAlgorithm, string(a.Password.algorithm)), amqp.Field{Key: fieldPassword, Value: a.Password.bytes()},
		limit(fieldMaxConnections, a.Limits.Connections), limit(fieldMaxChannels, a.Limits.Channels))
}

func defineUserDeleted(name string) amqp.Table { return define(opDeleteUser, text(fieldName, name)) }

func definePermissions(g *Grant) amqp.Table {
	return define(opSetPermissions, text(fieldUser, g.User), text(fieldVHost, g.VHost),
		text(fieldConfigure, g.Configure), text(fieldWrite, g.Write), text(fieldRead, g.Read))
}

func defineNoPermissions(user, vhost string) amqp.Table {
	return define(opClearPermissions, text(fieldUser, user), text(fieldVHost, vhost))
}

func defineNoVHost(vhost string) amqp.Table { return define(opForgetVHost, text(fieldVHost, vhost)) }

func defineTopics(g *TopicGrant) amqp.Table {
	return define(opSetTopics, text(fieldUser, g.User), text(fieldVHost, g.VHost),
		text(fieldExchange, g.Exchange), text(fieldWrite, g.Write), text(fieldRead, g.Read))
}

func defineNoTopics(user string, p topicPlace) amqp.Table {
	return define(opClearTopics, text(fieldUser, user), text(fieldVHost, p.vhost), text(fieldExchange, p.exchange))
}

// Definitions returns the definitions of everything there is.
func (s *Store) Definitions() []byte {
	s.changing.Lock()
	defer s.changing.Unlock()
	var all []byte
	for b := range s.parts {
		all = append(all, b...)
	}
	return all
}

// partSize is about how many bytes of definitions are written at once.
const partSize = 32 << 10

// parts yields the definitions of everything there is in parts. The caller holds changing.
func (s *Store) parts(yield func([]byte) bool) {
	b := amqp.AppendTable(nil, define(opNoUsers))
	for _, u := range s.users {
		if b = u.appendTo(b); len(b) < partSize {
			continue
		}
		if !yield(b) {
			return
		}
		b = b[:0]
	}
	yield(b)
}

// appendTo adds the definitions of a user.
func (u *user) appendTo(b []byte) []byte {
	b = amqp.AppendTable(b, defineAccount(&u.Account))
	for vhost, g := range u.grants {
		b = amqp.AppendTable(b, definePermissions(&Grant{User: u.Name, VHost: vhost, Permissions: g.Permissions}))
	}
	for p, g := range u.topics {
		b = amqp.AppendTable(b, defineTopics(&TopicGrant{User: u.Name, VHost: p.vhost, TopicPermissions: g.TopicPermissions}))
	}
	return b
}

// reader reads the fields of a definition. Its err is that of the first that could not be read.
type reader struct {
	op     string
	fields amqp.Table
	err    error
}

func read[T any](r *reader, key string) (v T) {
	raw, ok := r.fields.Lookup(key)
	if ok {
		v, ok = raw.(T)
	}
	if !ok && r.err == nil {
		r.err = fmt.Errorf("definition %q: %s is missing or of a wrong type", r.op, key)
	}
	return v
}

func (r *reader) limit(key string) hook.Limit { return hook.LimitOf(read[int64](r, key)) }

func (r *reader) account() Account {
	a := Account{Name: read[string](r, fieldName)}
	for _, raw := range read[amqp.Array](r, fieldTags) {
		tag, _ := raw.(string)
		a.Tags = append(a.Tags, tag)
	}
	a.Limits = Limits{Connections: r.limit(fieldMaxConnections), Channels: r.limit(fieldMaxChannels)}
	algorithm, password := read[string](r, fieldAlgorithm), read[[]byte](r, fieldPassword)
	if r.err == nil && algorithm != "" {
		a.Password, r.err = hashOf(Algorithm(algorithm), password)
	}
	return a
}

func (r *reader) grant() Grant {
	return Grant{User: read[string](r, fieldUser), VHost: read[string](r, fieldVHost), Permissions: Permissions{
		Configure: read[string](r, fieldConfigure), Write: read[string](r, fieldWrite), Read: read[string](r, fieldRead),
	}}
}

func (r *reader) topicGrant() TopicGrant {
	return TopicGrant{User: read[string](r, fieldUser), VHost: read[string](r, fieldVHost), TopicPermissions: TopicPermissions{
		Exchange: read[string](r, fieldExchange), Write: read[string](r, fieldWrite), Read: read[string](r, fieldRead),
	}}
}
