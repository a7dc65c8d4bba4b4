package session

import (
	"hash/maphash"
	"maps"
	"slices"
	"time"

	"github.com/curfewmq/curfew/core/parts"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/core/vhost"
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
	// schedule is the schedule of the exchange that holds the message. The targets are the
	// same for every message that it holds. nil means that no exchange holds the message,
	// or that more than the schedule decides.
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
// A full cache accepts a route only if its key was seen shortly before. The new route
// replaces an arbitrary one. Keys that are used only once therefore do not displace routes
// that are used repeatedly.
type routeCache struct {
	channels *channels // whose last routes are pruned, too
	vhost    *vhost.VHost

	entries    map[routeKey]*cachedRoute
	pruneAbove int                // number of routes above which the cache is pruned
	replaced   int                // routes replaced in the full cache since it was last pruned
	generation uint64             // generation of the vhost's topology when the cache was last pruned
	pruneAt    hook.Instant       // when Tick prunes it next
	seen       *[maxRoutes]uint32 // hashes of keys that the full cache did not accept
	seed       maphash.Seed       // seed of these hashes
}

type routeKey struct{ exchange, key string }

const (
	maxRoutes     = 2048
	pruneAfter    = 64 // new routes, or a quarter of the existing ones if that is more
	pruneReplaced = maxRoutes / 4
	pruneInterval = 15 * time.Second
)

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

// find returns the route for an exchange and a key; nil = the cache has none.
func (p *routeCache) find(exchange, key []byte) *cachedRoute {
	return p.entries[routeKey{string(exchange), string(key)}]
}

func (p *routeCache) add(exchange, key string) *cachedRoute {
	if full := p.full(); !full && len(p.entries) >= p.pruneAbove || full && p.replaced >= pruneReplaced {
		p.prune()
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

// tick prunes the cache if that has not happened for a while.
func (p *routeCache) tick(now hook.Instant) {
	if now >= p.pruneAt {
		p.prune()
		p.pruneAt = now.Add(pruneInterval)
	}
}

// prune removes the routes that were not used since the topology that the previous call saw, and the channels' references to queues that
// may have been deleted.
func (p *routeCache) prune() {
	before := len(p.entries)
	maps.DeleteFunc(p.entries, func(_ routeKey, r *cachedRoute) bool { return r.targets.generation < p.generation })
	if len(p.entries) < before/4 {
		p.entries = maps.Clone(p.entries) // a map never shrinks
	}
	p.channels.forgetQueues(p.generation)
	p.generation, p.replaced = p.vhost.Generation(), 0
	p.pruneAbove = min(len(p.entries)+max(pruneAfter, len(p.entries)/4), maxRoutes)
}

// route returns the route of a message, after checking that the user may publish to the exchange.
func (p *publisher) route(exchange, key []byte) (*cachedRoute, error) {
	r := p.lastRoute
	if r == nil || r.info.Key != string(key) || r.info.Exchange != string(exchange) {
		r = p.routes.find(exchange, key)
	}
	version := p.access.version()
	if r != nil && r.permissions == version {
		p.lastRoute = r
		return r, nil
	}
	if isLeaseKey(exchange, key) {
		p.single = cachedRoute{info: leaseInfo}
		return &p.single, nil
	}
	name, err := p.access.mayPublish(exchange, version)
	if err != nil {
		return nil, err
	}
	if r == nil {
		if p.routes.full() && !p.routes.seenBefore(exchange, key) {
			p.single = cachedRoute{info: &queue.RoutingInfo{Exchange: name, Key: string(key)}}
			return &p.single, nil
		}
		r = p.routes.add(name, string(key))
	}
	r.permissions = version
	r.targets.invalidate() // resolve checks topic permissions again
	p.lastRoute = r
	return r, nil
}

// forgetRoutes drops references to queues of topologies before a generation.
func (p *publisher) forgetRoutes(generation uint64) {
	if p.lastRoute != nil && p.lastRoute.targets.generation < generation {
		p.lastRoute = nil
	}
	clear(p.uncached.queues[:cap(p.uncached.queues)])
}

// plans asks plugins about messages. Its memory is reused: there is a plans for all channels of a connection.
type plans struct {
	planner vhost.Planner
	message *parts.Message // empty unless plugins are being asked; nil before the first time
}

// subject returns the message to ask about, for the caller to fill and to reset.
func (a *plans) subject() *parts.Message {
	if a.message == nil {
		a.message = new(parts.Message)
	}
	return a.message
}

func (a *plans) holds(s *queue.Schedule, m *parts.Message) bool { return a.planner.Holds(s, m) }

// resolve finds the queues for the current message.
func (p *publisher) resolve(r *cachedRoute) (resolved, error) {
	t := &r.targets
	generation := p.vhost.Generation()
	senderSelected := p.props.cc != nil || p.props.bcc != nil
	if t.generation == generation && !senderSelected && (t.cacheable || t.schedule != nil && p.isHeld(r)) {
		return resolved{r.info, t, &r.slots}, nil
	}
	if senderSelected || r == &p.single || isReply(r.info) {
		return p.resolveUncached(r)
	}
	t.invalidate()
	r.slots.flush = 0
	queues, fit, err := p.routePermitted(r.info, t.queues[:0])
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
func (p *publisher) isHeld(r *cachedRoute) bool {
	if p.content.mandatory { // a mandatory message without a destination is not held
		return false
	}
	m := p.current(r.info)
	held := p.plans.holds(r.targets.schedule, m)
	p.content.cancels, p.content.hold = m.Cancels, m.Hold
	m.Reset()
	return held
}

// resolveUncached routes a message whose key is not in the cache, that is a direct reply, or that has more routing keys in its headers
// [RabbitMQ: sender-selected.html].
func (p *publisher) resolveUncached(r *cachedRoute) (resolved, error) {
	info := r.info
	if !r.targets.cacheable {
		r.targets.generation = p.vhost.Generation() // otherwise prune would consider it unused
	}
	if p.props.cc != nil || p.props.bcc != nil {
		info = &queue.RoutingInfo{Exchange: info.Exchange, Key: info.Key, CC: p.props.cc, BCC: p.props.bcc}
	}
	queues, _, err := p.routePermitted(info, p.uncached.queues[:0])
	if err != nil {
		return resolved{}, err
	}
	if isReply(info) {
		if q := p.srv.replies.find(p.vhost.Name(), info.Key); q != nil {
			queues = append(queues, q)
		}
	}
	p.uncached.queues = queues
	return resolved{info, &p.uncached, nil}, nil
}

// routePermitted appends to dst the queues that the vhost routes the current message to, if topic permissions allow its keys.
func (p *publisher) routePermitted(info *queue.RoutingInfo, dst []*queue.Mailbox) (_ []*queue.Mailbox, fit routeFit, err error) {
	if err := p.access.mayTopics(info); err != nil {
		return dst, routeFit{}, p.routeErrorOr(err) // before plugins are asked, because they may remember the message
	}
	m := p.current(info)
	queues, reusable, err := p.vhost.Route(info.Exchange, m, dst)
	p.content.passes, p.content.planned = m.Passes, m.Passes && !m.Held
	if len(queues)-len(dst) == 1 { // otherwise the message goes to other queues, too
		p.content.cancels, p.content.hold = m.Cancels, m.Hold
		fit.heldFirst = m.HeldFirst
	}
	fit.cacheable = reusable
	m.Reset() // so that it retains nothing
	return queues, fit, err
}

// routeFit says which other messages with the same keys may use a route: all of them, or only messages that the exchange holds.
type routeFit struct{ cacheable, heldFirst bool }

// current describes the current message to plugins. The caller must reset the result.
func (p *publisher) current(info *queue.RoutingInfo) *parts.Message {
	m := p.plans.subject()
	m.Exchange, m.Key, m.Now = info.Exchange, info.Key, p.round.instant()
	if len(info.CC)+len(info.BCC) > 0 {
		m.More = slices.Concat(info.CC, info.BCC)
	}
	m.Props, m.Index, m.Body = p.content.props, &p.props.index, p.content.body
	m.Mandatory, m.Waits = p.content.mandatory, p.props.wait.Holds(m.Now)
	return m
}
