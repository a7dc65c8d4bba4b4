package session

import (
	"slices"

	"github.com/curfewmq/curfew/core/auth"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/core/vhost"
)

// access checks the permissions of a connection's user in its vhost. It belongs to the
// connection's reader.
type access struct {
	users     *auth.Store
	user      string
	vhost     *vhost.VHost
	permitted permitted
}

// permitted is an exchange that the user may publish to, under a version of the permissions.
type permitted struct {
	exchange string
	version  uint64 // 0 means none
}

// mayQueue checks the user's permission for a queue.
func (a *access) mayQueue(p auth.Permission, name string) error {
	return a.users.Check(a.user, p, auth.Resource{Kind: auth.Queue, VHost: a.vhost.Name(), Name: name})
}

// mayExchange checks the user's permission for an exchange.
func (a *access) mayExchange(p auth.Permission, name string) error {
	return a.users.Check(a.user, p, auth.Resource{Kind: auth.Exchange, VHost: a.vhost.Name(), Name: name})
}

// mayAny checks that the user has any permission for a queue or exchange. Users without one
// must not learn whether it exists, how full it is or who uses it, nor keep it from
// expiring [RabbitMQ 4.3: passive declarations].
func mayAny(may func(auth.Permission, string) error, name string) error {
	refused := may(auth.Configure, name)
	if refused == nil || may(auth.Write, name) == nil || may(auth.Read, name) == nil {
		return nil
	}
	return refused
}

// mayTopic checks the user's permission for a routing key, which applies to topic exchanges only
// [RabbitMQ: access-control.html#topic-authorisation].
func (a *access) mayTopic(p auth.Permission, exchange, key string) error {
	err := a.users.CheckTopic(a.user, p, auth.Topic{VHost: a.vhost.Name(), Exchange: exchange, Key: key})
	if err == nil {
		return nil
	}
	if x, ok := a.vhost.Exchange(exchange); !ok || x.Type != "topic" {
		return nil
	}
	return err
}

// mayTopics checks the permission to publish with every key of a message.
func (a *access) mayTopics(o *queue.RoutingInfo) error {
	err := a.mayTopic(auth.Write, o.Exchange, o.Key)
	for _, key := range slices.Concat(o.CC, o.BCC) {
		if err == nil {
			err = a.mayTopic(auth.Write, o.Exchange, key)
		}
	}
	return err
}

// mayPublish checks the user's permission for an exchange, once for messages in a row, and
// returns the exchange's name. The version is that of the permissions.
func (a *access) mayPublish(exchange []byte, version uint64) (string, error) {
	p := &a.permitted
	if p.version == version && version != 0 && p.exchange == string(exchange) {
		return p.exchange, nil
	}
	*p = permitted{}
	if err := a.mayExchange(auth.Write, string(exchange)); err != nil {
		return "", err
	}
	*p = permitted{string(exchange), version}
	return p.exchange, nil
}

// version returns the version of all users' permissions.
func (a *access) version() uint64 { return a.users.Version() }

// impersonates reports whether the user may now publish with another user's user-id: the
// required tag can be removed at any time.
func (a *access) impersonates() bool { return a.users.HasTag(a.user, "impersonator") }

func (a *access) name() string { return a.user }
