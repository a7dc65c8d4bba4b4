package session

import (
	"hash/maphash"
	"maps"
	"slices"
	"time"

	"github.com/curfewmq/curfew/core/auth"
	"github.com/curfewmq/curfew/core/parts"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/sdk/hook"
)

// cachedRoute caches how messages with one exchange and routing key are routed.
type cachedRoute struct {
	info        *queue.RoutingInfo
	permissions uint64 // version of the permissions under which the user may publish to the exchange
	targets     targets
	slots       batchSlots
}

// targets are the queues to which an exchange and a routing key lead.
type targets struct {
	queues     []*queue.Mailbox
	generation uint64 // generation of the vhost's topology in which they were found
	cacheable  bool   // they are the same for every message: routing used only the key
	// schedule is the schedule of the exchange that holds the message. The targets are the same for every message that it holds. nil means that
	// no exchange holds the message, or that more than the schedule decides.
	schedule *queue.Schedule
}

// invalidate makes the next message be routed anew.
func (t *targets) invalidate() { t.cacheable, t.schedule = false, nil }

// resolved is the destination of one message. It is small enough to be returned in registers.
type resolved struct {
	info    *queue.RoutingInfo
	targets *targets
	slots   *batchSlots // of the targets' batches; nil if targets are for this message only
}

// routeCache holds the routes that a connection used, at most maxRoutes. Routes that were not used since the topology changed are
// removed from time to time, and while the cache grows; otherwise they would keep deleted queues in memory for as long as the connection
// lasts.
//
// A full cache accepts a route only if its key was seen shortly before. The new route replaces an arbitrary one. Keys that are used only once
// therefore do not displace routes that are used repeatedly.
type routeCache struct {
	entries    map[routeKey]*cachedRoute
	pruneAbove int                // number of routes above which the cache is pruned
	replaced   int                // routes replaced in the full cache since it was last pruned
	generation uint64             // generation of the vhost's topology when the cache was last pruned
	pruneAt    hook.Instant       // when Tick prunes it next
	seen       *[maxRoutes]uint32 // hashes of keys that the full cache did not accept
	seed       maphash.Seed       // seed of these hashes
}

// permitted is an exchange that the user may publish to, under a version of the permissions.
type permitted struct {
	exchange string
	version  uint64 // 0 means none
}

type routeKey struct{ exchange, key string }

const (
	maxRoutes     = 2048
	pruneAfter    = 64 // new routes, or a quarter of the existing ones if that is more
	pruneReplaced = maxRoutes / 4
	pruneInterval = 15 * time.Second
)

// route returns the route of a message, after checking that the user may publish to the exchange.
func (ch *channel) route(exchange, key []byte) (*cachedRoute, error) {
	c, r := ch.conn, ch.lastRoute
	if r == nil || r.info.Key != string(key) || r.info.Exchange != string(exchange) {
		r = c.routes.entries[routeKey{string(exchange), string(key)}]
	}
	version := c.srv.Users.Version()
	if r != nil && r.permissions == version {
		ch.lastRoute = r
		return r, nil
	}
	if isLeaseKey(exchange, key) {
		ch.single = cachedRoute{info: leaseInfo}
		return &ch.single, nil
	}
	if err := c.mayPublish(exchange, version); err != nil {
		return nil, err
	}
	if r == nil {
		if c.routes.full() && !c.routes.seenBefore(exchange, key) {
			return ch.singleRoute(string(key)), nil
		}
		r = c.addRoute(c.permitted.exchange, string(key))
	}
	r.permissions = version
	r.targets.invalidate() // resolve checks topic permissions again
	ch.lastRoute = r
	return r, nil
}

// mayPublish checks the user's permission for an exchange, once for messages in a row.
func (c *Conn) mayPublish(exchange []byte, version uint64) error {
	p := &c.permitted
	if p.version == version && version != 0 && p.exchange == string(exchange) {
		return nil
	}
	*p = permitted{}
	if err := c.mayExchange(auth.Write, string(exchange)); err != nil {
		return err
	}
	*p = permitted{string(exchange), version}
	return nil
}

// singleRoute returns a route for the current message alone, to the exchange that was checked for permission last.
func (ch *channel) singleRoute(key string) *cachedRoute {
	ch.single = cachedRoute{info: &queue.RoutingInfo{Exchange: ch.conn.permitted.exchange, Key: key}}
	return &ch.single
}

func (p *routeCache) full() bool { return len(p.entries) >= maxRoutes }

// seenBefore reports whether the key was looked up shortly before.
func (p *routeCache) seenBefore(exchange, key []byte) bool {
	if p.seen == nil {
		p.seen, p.seed = new([maxRoutes]uint32), maphash.MakeSeed()
	}
	h := maphash.Bytes(p.seed, key) ^ uint64(len(exchange))
	last := &p.seen[h%maxRoutes]
	seen := *last == uint32(h>>32)
	*last = uint32(h >> 32)
	return seen
}

func (c *Conn) addRoute(exchange, key string) *cachedRoute {
	p := &c.routes
	if full := p.full(); !full && len(p.entries) >= p.pruneAbove || full && p.replaced >= pruneReplaced {
		c.pruneRoutes()
	}
	if p.entries == nil {
		p.entries = map[routeKey]*cachedRoute{}
	}
	if p.full() {
		p.replaced++
		for k := range p.entries { // an arbitrary one
			delete(p.entries, k)
			break
		}
	}
	r := &cachedRoute{info: &queue.RoutingInfo{Exchange: exchange, Key: key}}
	p.entries[routeKey{exchange, key}] = r
	return r
}

// pruneRoutes removes the routes that were not used since the topology that the previous call saw, and other references to queues
// that may have been deleted.
func (c *Conn) pruneRoutes() {
	p := &c.routes
	before := len(p.entries)
	maps.DeleteFunc(p.entries, func(_ routeKey, r *cachedRoute) bool { return r.targets.generation < p.generation })
	if len(p.entries) < before/4 {
		p.entries = maps.Clone(p.entries) // a map never shrinks
	}
	for _, ch := range c.channels {
		if ch == nil {
			continue
		}
		if ch.lastRoute != nil && ch.lastRoute.targets.generation < p.generation {
			ch.lastRoute = nil
		}
		clear(ch.uncached.queues[:cap(ch.uncached.queues)])
		ch.getter = nil
	}
	p.generation, p.replaced = c.vhost.Generation(), 0
	p.pruneAbove = min(len(p.entries)+max(pruneAfter, len(p.entries)/4), maxRoutes)
}

// resolve finds the queues for the current message.
func (ch *channel) resolve(r *cachedRoute) (resolved, error) {
	t := &r.targets
	generation := ch.conn.vhost.Generation()
	senderSelected := ch.props.cc != nil || ch.props.bcc != nil
	if t.generation == generation && !senderSelected && (t.cacheable || t.schedule != nil && ch.isHeld(r)) {
		return resolved{r.info, t, &r.slots}, nil
	}
	if senderSelected || r == &ch.single || isReply(r.info) {
		return ch.resolveUncached(r)
	}
	t.invalidate()
	r.slots.flush = 0
	queues, fit, err := ch.routePermitted(r.info, t.queues[:0])
	if err != nil {
		return resolved{}, err
	}
	*t = targets{queues: queues, generation: generation, cacheable: fit.cacheable}
	if fit.heldFirst {
		t.schedule = queues[0].Config().Schedule
	}
	if !t.cacheable && t.schedule == nil {
		return resolved{r.info, t, nil}, nil
	}
	return resolved{r.info, t, &r.slots}, nil
}

// isHeld reports whether the exchange holds the current message, as it held the previous one on this route.
func (ch *channel) isHeld(r *cachedRoute) bool {
	if ch.content.mandatory { // a mandatory message without a destination is not held
		return false
	}
	m := ch.current(r.info)
	held := ch.conn.planner.Holds(r.targets.schedule, m)
	ch.content.cancels, ch.content.hold = m.Cancels, m.Hold
	m.Reset()
	return held
}

// resolveUncached routes a message whose key is not in the cache, that is a direct reply, or that has more routing keys in its headers
// [RabbitMQ: sender-selected.html].
func (ch *channel) resolveUncached(r *cachedRoute) (resolved, error) {
	c, info := ch.conn, r.info
	if !r.targets.cacheable {
		r.targets.generation = c.vhost.Generation() // otherwise pruneRoutes would consider it unused
	}
	if p := &ch.props; p.cc != nil || p.bcc != nil {
		info = &queue.RoutingInfo{Exchange: info.Exchange, Key: info.Key, CC: p.cc, BCC: p.bcc}
	}
	queues, _, err := ch.routePermitted(info, ch.uncached.queues[:0])
	if err != nil {
		return resolved{}, err
	}
	if isReply(info) {
		if q := c.srv.replies.find(c.vhost.Name(), info.Key); q != nil {
			queues = append(queues, q)
		}
	}
	ch.uncached.queues = queues
	return resolved{info, &ch.uncached, nil}, nil
}

// routePermitted appends to dst the queues that the vhost routes the current message to, if topic permissions allow its keys.
func (ch *channel) routePermitted(info *queue.RoutingInfo, dst []*queue.Mailbox) (_ []*queue.Mailbox, fit routeFit, err error) {
	if err := ch.conn.mayTopics(info); err != nil {
		return dst, routeFit{}, ch.routeErrorOr(err) // before plugins are asked, because they may remember the message
	}
	m := ch.current(info)
	queues, reusable, err := ch.conn.vhost.Route(info.Exchange, m, dst)
	ch.content.passes, ch.content.planned = m.Passes, m.Passes && !m.Held
	if len(queues)-len(dst) == 1 { // otherwise the message goes to other queues, too
		ch.content.cancels, ch.content.hold = m.Cancels, m.Hold
		fit.heldFirst = m.HeldFirst
	}
	fit.cacheable = reusable
	m.Reset() // so that it retains nothing
	return queues, fit, err
}

// routeFit says which other messages with the same keys may use a route: all of them, or only messages that the exchange holds.
type routeFit struct{ cacheable, heldFirst bool }

// current describes the current message to plugins. The caller must reset the result.
func (ch *channel) current(info *queue.RoutingInfo) *parts.Message {
	m := &ch.conn.message
	m.Exchange, m.Key, m.Now = info.Exchange, info.Key, ch.conn.now
	if len(info.CC)+len(info.BCC) > 0 {
		m.More = slices.Concat(info.CC, info.BCC)
	}
	m.Props, m.Index, m.Body = ch.content.props, &ch.props.index, ch.content.body
	m.Mandatory, m.Waits = ch.content.mandatory, ch.props.wait.Holds(m.Now)
	return m
}
