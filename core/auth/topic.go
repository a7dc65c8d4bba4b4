package auth

import (
	"cmp"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/curfewmq/curfew/core/amqp"
)

// TopicPermissions narrow down, for one topic exchange, which routing keys a user may publish and bind with: those that the
// regular expressions match. {username} and {vhost} in them stand for the names, {client_id} for nothing: AMQP 0-9-1 has none
// [RabbitMQ: access-control.html#topic-authorisation].
type TopicPermissions struct {
	Exchange    string
	Write, Read string
}

// TopicGrant is what a user may do with a topic exchange in a vhost.
type TopicGrant struct {
	User, VHost string
	TopicPermissions
}

// Topic is a routing key of a topic exchange.
type Topic struct {
	VHost, Exchange, Key string
}

type topicPlace struct{ vhost, exchange string }

// topicGrant is a TopicGrant that was checked. Nil matches everything.
type topicGrant struct {
	TopicPermissions
	write, read *regexp.Regexp
}

// Check reports what is wrong with a grant, as an [*Invalid]. It does not look whether there is such a user or vhost.
func (g *TopicGrant) Check() error {
	_, err := g.compile()
	return err
}

func (g *TopicGrant) compile() (topicGrant, error) {
	compiled := topicGrant{TopicPermissions: g.TopicPermissions}
	if err := checkNames(g.User, g.VHost); err != nil {
		return compiled, err
	}
	if err := checkName("exchange name", g.Exchange); err != nil {
		return compiled, err
	}
	var err error
	if compiled.write, err = g.expand(g.Write); err != nil {
		return compiled, g.wrong(Write, err)
	}
	if compiled.read, err = g.expand(g.Read); err != nil {
		return compiled, g.wrong(Read, err)
	}
	return compiled, nil
}

// expand compiles a pattern. Names stand for themselves in it: a user cannot have one that matches more.
func (g *TopicGrant) expand(pattern string) (*regexp.Regexp, error) {
	if _, err := compile(pattern); err != nil {
		return nil, err
	}
	names := strings.NewReplacer("{username}", regexp.QuoteMeta(g.User), "{vhost}", regexp.QuoteMeta(g.VHost))
	return compileExpanded(names.Replace(pattern))
}

func (g *TopicGrant) wrong(p Permission, err error) error {
	return invalid("user %q: vhost %q: topics of exchange %q: %s: %v", g.User, g.VHost, g.Exchange, p, err)
}

func (g *TopicGrant) place() topicPlace { return topicPlace{g.VHost, g.Exchange} }

// SetTopicPermissions sets which topics of an exchange a user may use, from now on, on open connections too.
func (s *Store) SetTopicPermissions(g TopicGrant) (created bool, err error) {
	compiled, err := g.compile()
	if err != nil {
		return false, err
	}
	err = s.permit(g.User, g.VHost, func(u *user) bool {
		_, existed := u.topics[g.place()]
		created = !existed
		u.topics = with(u.topics, g.place(), compiled)
		s.note(defineTopics(&g))
		return true
	})
	return created, err
}

// ClearTopicPermissions lets a user use every topic of an exchange, or, if that is "", of all exchanges of a vhost.
func (s *Store) ClearTopicPermissions(name, vhost, exchange string) (existed bool, err error) {
	err = s.permit(name, vhost, func(u *user) bool {
		gone := u.dropTopics(func(p topicPlace) bool { return p.vhost == vhost && (exchange == "" || p.exchange == exchange) })
		for _, p := range gone {
			s.note(defineNoTopics(name, p))
		}
		existed = len(gone) > 0
		return existed
	})
	return existed && err == nil, err
}

// dropTopics is for a user that nobody sees yet.
func (u *user) dropTopics(doomed func(topicPlace) bool) (gone []topicPlace) {
	left := maps.Clone(u.topics)
	for p := range u.topics {
		if doomed(p) {
			gone = append(gone, p)
			delete(left, p)
		}
	}
	u.topics = left
	return gone
}

// TopicGrants lists all topic permissions, by user, vhost and exchange.
func (s *Store) TopicGrants() []TopicGrant {
	s.mu.RLock()
	var all []TopicGrant
	for name, u := range s.users {
		for p, g := range u.topics {
			all = append(all, TopicGrant{User: name, VHost: p.vhost, TopicPermissions: g.TopicPermissions})
		}
	}
	s.mu.RUnlock()
	slices.SortFunc(all, func(a, b TopicGrant) int {
		return cmp.Or(cmp.Compare(a.User, b.User), cmp.Compare(a.VHost, b.VHost), cmp.Compare(a.Exchange, b.Exchange))
	})
	return all
}

// CheckTopic checks that a user may write or read a topic; without topic permissions for its exchange it may. The error is an
// [*amqp.Error].
func (s *Store) CheckTopic(name string, p Permission, t Topic) error {
	u := s.user(name)
	if u == nil {
		return nil // Check says so
	}
	g, restricted := u.topics[topicPlace{t.VHost, t.Exchange}]
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
