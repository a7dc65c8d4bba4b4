package auth

import (
	"cmp"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/curfewmq/curfew/core/amqp"
)

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
