package session

import (
	"maps"
	"slices"
	"time"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/auth"
	"github.com/curfewmq/curfew/core/queue"
)

// cachedRoute is where messages with one exchange and routing key go. A connection keeps those it used.
type cachedRoute struct {
	origin      *queue.RoutingInfo
	permissions uint64 // version of the permissions by which the user may publish to the exchange

	shells     []*queue.Mailbox
	resolved   bool   // shells is right for every message with this exchange and key
	generation uint64 // of the vhost that shells is from

	// The places of shells' batches in the connection's outbox, as they were in a round of it.
	located bool
	source  *channel
	round   uint64
	places  []int
}

type routeKey struct{ exchange, key string }

// A connection keeps at most maxRoutes routes. While they become more, and while time goes by, those are forgotten that nobody
// took since the topology changed: what they lead to may be gone, and would stay in memory for as long as the connection.
const (
	maxRoutes     = 2048
	pruneAfter    = 64               // or a quarter more, after which they are looked through
	pruneInterval = 15 * time.Second // or after which
)

// find returns the route of a message, which the user may take.
func (ch *channel) find(exchange, key []byte) (*cachedRoute, error) {
	r := ch.route
	if r == nil || r.origin.Key != string(key) || r.origin.Exchange != string(exchange) {
		if r = ch.conn.routes[routeKey{string(exchange), string(key)}]; r == nil {
			return ch.discover(string(exchange), string(key))
		}
		ch.route = r
	}
	if v := ch.conn.srv.Users.Version(); r.permissions != v {
		if err := ch.conn.mayExchange(auth.Write, r.origin.Exchange); err != nil {
			return nil, err
		}
		r.permissions, r.resolved = v, false // topics are looked at again
	}
	return r, nil
}

// discover makes a route for an exchange and key that were not used before.
func (ch *channel) discover(exchange, key string) (*cachedRoute, error) {
	c := ch.conn
	version := c.srv.Users.Version()
	if err := c.mayExchange(auth.Write, exchange); err != nil {
		return nil, err
	}
	r := &cachedRoute{origin: &queue.RoutingInfo{Exchange: exchange, Key: key}, permissions: version}
	if len(c.routes) >= c.pruneAbove {
		c.pruneRoutes()
	}
	if c.routes == nil || len(c.routes) >= maxRoutes {
		c.routes = map[routeKey]*cachedRoute{}
	}
	c.routes[routeKey{exchange, key}] = r
	ch.route = r
	return r, nil
}

// pruneRoutes forgets the routes that were not taken since it was called before, if the topology had changed by then. Those
// that are in use stay, whatever changes.
func (c *Conn) pruneRoutes() {
	before := len(c.routes)
	maps.DeleteFunc(c.routes, func(_ routeKey, r *cachedRoute) bool { return r.generation < c.prunedGeneration })
	if len(c.routes) < before/4 {
		c.routes = maps.Clone(c.routes) // a map never gives memory back
	}
	for _, ch := range c.channels {
		if ch == nil {
			continue
		}
		if ch.route != nil && ch.route.generation < c.prunedGeneration {
			ch.route = nil
		}
		clear(ch.routeBuf[:cap(ch.routeBuf)])
		ch.getter = nil
	}
	c.prunedGeneration = c.vhost.Generation()
	c.pruneAbove = min(len(c.routes)+max(pruneAfter, len(c.routes)/4), maxRoutes)
}

// resolve finds the queues for the message at hand. They are the route's own, or for this message alone.
func (ch *channel) resolve(r *cachedRoute) (origin *queue.RoutingInfo, shells []*queue.Mailbox, own bool, err error) {
	v := ch.conn.vhost
	generation := v.Generation()
	copies := ch.props.cc != nil || ch.props.bcc != nil
	if r.resolved && r.generation == generation && !copies {
		return r.origin, r.shells, true, nil
	}
	if copies || isReply(r.origin) {
		return ch.resolveAlone(r)
	}
	r.located, r.resolved = false, false
	ch.usedHeaders = false
	shells, err = v.Route(r.origin.Exchange, r.origin.Key, ch.headers, nil, r.shells[:0])
	if err == nil {
		err = ch.conn.mayTopics(r.origin)
	}
	if err != nil {
		return nil, nil, false, err
	}
	r.shells, r.generation, r.resolved = shells, generation, !ch.usedHeaders
	return r.origin, shells, r.resolved, nil
}

// resolveAlone routes a message that is a direct reply, or has further keys in its headers [RabbitMQ: sender-selected.html].
func (ch *channel) resolveAlone(r *cachedRoute) (origin *queue.RoutingInfo, shells []*queue.Mailbox, own bool, err error) {
	c, f := ch.conn, &ch.props
	if origin = r.origin; !r.resolved {
		r.generation = c.vhost.Generation() // it is in use
	}
	if f.cc != nil || f.bcc != nil {
		origin = &queue.RoutingInfo{Exchange: r.origin.Exchange, Key: r.origin.Key, CC: f.cc, BCC: f.bcc}
	}
	shells, err = c.vhost.Route(origin.Exchange, origin.Key, ch.headers, slices.Concat(f.cc, f.bcc), ch.routeBuf[:0])
	if err == nil {
		err = c.mayTopics(origin)
	}
	if err != nil {
		return nil, nil, false, err
	}
	if isReply(origin) {
		shells = c.srv.replies.route(c.vhost.Name(), origin.Key, shells)
	}
	ch.routeBuf = shells
	return origin, shells, false, nil
}

// readHeaders returns the headers of the message at hand, for routing.
func (ch *channel) readHeaders() amqp.RawTable {
	ch.usedHeaders = true
	return ch.props.index.Headers(ch.content.props)
}
