package game

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/sdk/hook"
)

// message is a published message, and what the model knows of it.
type message struct {
	id                uint64
	entry, to         *place // what it is published to; with the agenda, the queue that it is released to
	size              int
	priority          uint8
	ttl               hook.Limit
	hold              time.Duration
	identity          string // in the agenda
	dup               string // what dedup compares
	cancels           bool   // it only cancels another, and goes nowhere
	persistent        bool
	sent              int  // step in which the broker got it, or its transaction's commit; 0 = not yet
	confirmed         bool // by basic.ack or tx.commit-ok
	refused           bool // by basic.nack
	perhaps           bool // refused: its transaction was carried out partly
	everywhere        bool // it may be in two places, or come back, since a crash or a full disk
	visited           map[*place]bool
	was, is           *sighting // before and after the step; nil = nowhere
	stay              *stay     // in the place where it is
	facts             []fact    // of this step
	placesBesidesThis int       // where it was seen, too
}

// stay is the time of a message in one queue, from its arrival until it leaves.
type stay struct {
	at        *place
	ref       queue.Ref
	seen      bool      // ref is known
	delivered int       // step of the first delivery; 0 = none
	written   bool      // the log says surely that it was delivered
	doubtful  bool      // after a crash nobody knows whether it does
	restarted bool      // others behind it may have been delivered before a restart, which is all that a log says
	holder    *delivery // the client that has it
}

// fact is something that a client did with a message, or saw of it.
type fact struct {
	at   *place
	what what
}

type what uint8

const (
	acked     what = 1 << iota
	taken          // delivered to a consumer that acknowledges nothing
	rejected       // without requeue
	returned       // requeued, or given back by a channel or a lease that ended
	delivered      // to be acknowledged
	withdrawn      // replaced or cancelled while it was held
	moved          // to another time
)

// did reports whether one of these happened to the message at a place in this step.
func (m *message) did(at *place, w what) bool {
	return slices.ContainsFunc(m.facts, func(f fact) bool { return f.at == at && f.what&w != 0 })
}

func (m *message) note(at *place, w what) { m.facts = append(m.facts, fact{at, w}) }

// sighting is what a look into a queue shows of a message.
type sighting struct {
	at             *place
	ref            queue.Ref
	index          int // in the order of delivery
	state          queue.MessageState
	deadline, hold hook.Instant
	entered        hook.Instant
}

func (m *message) String() string {
	return fmt.Sprintf("message %d (to %s, priority %d, ttl %v, hold %v, persistent %t, identity %q, dup %q, %d bytes)",
		m.id, m.entry.name, m.priority, m.ttl, m.hold, m.persistent, m.identity, m.dup, m.size)
}

func (s *sighting) String() string {
	if s == nil {
		return "nowhere"
	}
	return fmt.Sprintf("%v in %s as %v, number %d, until %d, held until %d", s.state, s.at, s.ref, s.index, s.deadline, s.hold)
}

// breach is a broken promise.
type breach string

func (g *game) fail(format string, args ...any) {
	panic(breach(fmt.Sprintf("step %d: ", g.step) + fmt.Sprintf(format, args...)))
}

// judge looks into all queues, and fails unless what has changed since the last step follows from what was done.
func (g *game) judge() {
	g.now = max(g.b.clock(), g.ended)
	for _, p := range g.places {
		g.look(p)
	}
	for _, c := range g.channels {
		g.endLeases(c)
	}
	for _, m := range g.live() {
		g.explain(m)
	}
	for _, p := range g.places {
		if p.id != nil {
			g.checkPlace(p)
		} else if p.wasID != nil && !p.deleted && !g.crashed && !(g.restarted && !p.durable) && !p.expired(g.now) {
			g.fail("queue %s is gone", p)
		}
	}
	if !g.full && !g.crashed && len(g.unconfirmed) > 0 {
		g.fail("%v was neither confirmed nor refused", g.unconfirmed[slices.Max(slices.Collect(maps.Keys(g.unconfirmed)))])
	}
	g.turnOver()
}

// live returns the messages that are or were somewhere, or are new, by number.
func (g *game) live() (all []*message) {
	for _, m := range g.messages {
		if m.was != nil || m.is != nil || m.sent == g.step && g.step > 0 {
			all = append(all, m)
		}
	}
	slices.SortFunc(all, func(a, b *message) int { return cmp.Compare(a.id, b.id) })
	return all
}

// look looks into a queue.
func (g *game) look(p *place) {
	p.id, p.active, p.line, p.ids = nil, "", nil, nil
	box := p.find(g.b.vhost)
	if box == nil {
		return
	}
	if p.id, p.config = any(box), box.Config(); p.durable {
		p.id = p.config.Storage.ID
	}
	if p.isNew = p.id != p.wasID || g.restarted; p.isNew {
		p.wasStats = queue.Stats{}
	}
	err := box.Do(func(q *queue.Queue, _ hook.Instant) {
		if stopped := q.Stopped(); stopped != nil {
			g.stopped = fmt.Errorf("queue %s: %w", p, stopped)
			return
		}
		p.stats = q.Stats()
		for _, c := range q.Consumers() {
			if c.Active && c.Consumer != nil {
				p.active += c.Tag + " "
			}
		}
		leaving := map[queue.Ref]bool{}
		q.Departing(func(r queue.Ref) { leaving[r] = true })
		ready, bytes := [queue.MessageStates]int{}, int64(0)
		for s, done := queue.NewScan(q), false; !done; {
			done = s.Next(q, func(x *queue.Stored) bool {
				if err := x.Load(); err != nil {
					g.stopped = err
				}
				if leaving[x.Ref] {
					x.State = queue.MessageLeaving
				}
				ready[x.State]++
				if x.State == queue.MessageReady {
					bytes += int64(len(x.Body))
				}
				p.line = append(p.line, &sighting{p, x.Ref, len(p.line), x.State, x.Deadline, x.Hold, x.Enqueued})
				p.ids = append(p.ids, binary.BigEndian.Uint64(x.Body))
				return true
			})
		}
		want := [...]int{p.stats.Ready, p.stats.Unacked, p.stats.Held, p.stats.Discarded}
		if ready != want || bytes != p.stats.ReadyBytes {
			g.stopped = fmt.Errorf("queue %s has %v messages and %d bytes, and counts %v and %d", p, ready, bytes, want, p.stats.ReadyBytes)
		}
	})
	if err = cmp.Or(g.stopped, err); err != nil {
		g.fail("%v", err)
	}
	for i, s := range p.line {
		m := g.messages[p.ids[i]]
		if m == nil {
			g.fail("queue %s has a message that nobody published: %d", p, p.ids[i])
		}
		if m.is != nil {
			m.placesBesidesThis++
		}
		if m.is == nil || m.is.state == queue.MessageLeaving {
			m.is = s
		}
	}
}

// explain fails unless a message may be where it is.
func (g *game) explain(m *message) {
	was, is := m.was, m.is
	if m.placesBesidesThis > 0 && !m.everywhere {
		if m.everywhere = g.full || g.restarted || m.inLeaving(g); !m.everywhere {
			g.fail("%v is in several places", m)
		}
	}
	fresh := m.sent == g.step && was == nil
	if g.full && g.crashed { // what was done since the disk was full may be undone
		m.stay = nil
		g.moveIn(m)
		return
	}
	switch {
	case m.everywhere:
		g.moveIn(m)
		return
	case fresh && g.full && is == nil: // it may wait for space before its queue
		m.everywhere = true
		return
	case fresh && m.refused && is != nil && is.at == m.entry && m.entry.overflow() != "reject-publish-dlx":
		g.fail("%v was refused, and is there", m)
	case fresh && ((m.refused || m.perhaps) && !m.did(m.entry, delivered|taken) || m.cancels) && is == nil:
		return
	case fresh && is != nil && is.at == m.entry:
		g.checkArrival(m)
	case fresh && !g.reaches(m, m.entry, nil, atOf(is), 5):
		g.fail("%v is %v just after it was published", m, is)
	case fresh:
	case was == nil:
		if m.everywhere = g.crashed && (g.full || m.did(is.at, 255)); !m.everywhere {
			g.fail("%v is back", m)
		}
	case is != nil && is.at == was.at && is.ref == was.ref && is.at.id == is.at.wasID:
		g.checkStay(m)
	case !g.reaches(m, was.at, was, atOf(is), 5):
		g.fail("%v was %v, and is %v", m, was, is)
	}
	g.moveIn(m)
}

// inLeaving reports whether one of a message's places is on the way to the other.
func (m *message) inLeaving(g *game) bool {
	for _, p := range g.places {
		for i, s := range p.line {
			if p.ids[i] == m.id && s.state == queue.MessageLeaving {
				return true
			}
		}
	}
	return false
}

func atOf(s *sighting) *place {
	if s == nil {
		return nil
	}
	return s.at
}

// moveIn begins the message's stay where it is. It may have passed through other queues.
func (g *game) moveIn(m *message) {
	from := m.to
	if m.was != nil {
		from = m.was.at
	}
	for p, hops := from, 0; p != nil && hops < 5; p, hops = p.dead, hops+1 {
		m.visited[p] = true
		if m.is == nil || p == m.is.at && (m.was == nil || m.was.ref == m.is.ref) {
			break
		}
	}
	switch is := m.is; {
	case is == nil:
		m.stay = nil
	case m.stay == nil || m.stay.at != is.at || m.stay.seen && m.stay.ref != is.ref:
		m.stay = &stay{at: is.at, ref: is.ref, seen: true, restarted: g.restarted}
	default:
		m.stay.ref, m.stay.seen = is.ref, true
	}
}

// exits returns how a message may have left a place in this step: for good, as a dead letter, or to one of some places. s is nil if the
// message arrived in this step.
func (g *game) exits(m *message, p *place, s *sighting) (ends, dies bool, to []*place) {
	if p.id == nil || p.wasID != p.id || g.crashed && !m.confirmed || g.restarted && !(m.persistent && p.durable) && p != g.agenda {
		return true, true, g.places
	}
	ends = m.did(p, acked|taken|withdrawn)
	free := s == nil || s.state == queue.MessageReady || s.state == queue.MessageHeld || m.did(p, returned) || g.restarted
	if s != nil && s.state == queue.MessageLeaving {
		return true, true, g.places
	}
	if p == g.agenda {
		if s == nil || s.hold <= g.now || m.did(p, moved) {
			to = []*place{m.to}
		}
		return ends, false, to
	}
	if free && p.movedTo != nil {
		to = p.movedTo
	}
	ends = ends || free && p.purged || s == nil && p.grew(func(c *queue.Counters) uint64 { return c.Refused + c.Dropped[hook.ReasonDuplicate] })
	dies = m.did(p, rejected) && p.lost(hook.ReasonRejected) ||
		free && p.lost(hook.ReasonExpired) && (p.changed || g.isDue(m, p, s)) ||
		free && p.lost(hook.ReasonMaxLen) && (p.limited() || p.changed) ||
		m.did(p, returned) && p.lost(hook.ReasonDeliveryLimit)
	return ends, dies, to
}

// isDue reports whether a message may have expired. The deadline of one that is held moves with the end of its hold.
func (g *game) isDue(m *message, p *place, s *sighting) bool {
	if s != nil {
		return s.deadline != 0 && s.deadline <= g.now
	}
	at := p.deadline(m, g.before)
	return at != 0 && at <= g.now
}

// reaches reports whether a message can have got from a place to another, or nowhere, in this step.
func (g *game) reaches(m *message, p *place, s *sighting, to *place, hops int) bool {
	if hops == 0 {
		return true
	}
	ends, dies, targets := g.exits(m, p, s)
	if ends && to == nil {
		return true
	}
	if dies && p.dead != nil {
		targets = append(slices.Clip(targets), p.dead)
	} else if dies && to == nil {
		return true
	}
	return slices.ContainsFunc(targets, func(d *place) bool {
		if d == to || to == nil && (d.id == nil || d.wasID != d.id || m.visited[d]) { // it leads nowhere, or in a circle
			return true
		}
		return g.reaches(m, d, nil, to, hops-1)
	})
}

// checkArrival checks the deadline and the hold of a message that was published directly to a queue.
func (g *game) checkArrival(m *message) {
	is, p := m.is, m.is.at
	until := g.before.Add(max(m.hold, p.millis("delivery-delay")))
	if m.did(p, 255) || p.changed || p == g.agenda || g.restarted {
		return
	}
	if is.state == queue.MessageHeld && is.hold < until || is.state == queue.MessageReady && until > g.now {
		g.fail("%v is %v, and is to be held until %d", m, is, until)
	}
	if at := p.deadline(m, g.before); is.state == queue.MessageReady && at.Sub(is.deadline).Abs() > time.Millisecond && !p.patient(m) {
		g.fail("%v is %v, and expires at %d", m, is, at)
	}
}

// checkStay checks a message that is where it was.
func (g *game) checkStay(m *message) {
	was, is, p := m.was, m.is, m.is.at
	still := !g.crashed && !g.full
	switch has := m.stay != nil && m.stay.holder != nil; {
	case still && m.did(p, acked|taken|rejected|withdrawn) && is.state != queue.MessageLeaving && p != g.agenda:
		g.fail("%v was settled, and is %v", m, is)
	case still && p.purged && was.state == queue.MessageReady && is.state == queue.MessageReady && len(m.facts) == 0:
		g.fail("%v was purged, and is %v", m, is)
	case is.state == queue.MessageUnacked && !has:
		g.fail("%v is %v, and nobody has it", m, is)
	case is.state != queue.MessageUnacked && is.state != queue.MessageLeaving && has:
		g.fail("%v is %v, and a client has it", m, is)
	case was.state == queue.MessageHeld && is.state == queue.MessageReady && was.hold > g.now && !m.did(p, moved|delivered):
		g.fail("%v is ready before its time: %v", m, was)
	case was.state == queue.MessageReady && is.state == queue.MessageHeld && !m.did(p, returned) && !g.restarted:
		g.fail("%v is held, and nobody gave it back: %v", m, is)
	case was.state == queue.MessageUnacked && is.state == queue.MessageHeld && is.hold < g.before.Add(p.millis("delayed-retry-min")) && !g.restarted:
		g.fail("%v is %v, and is to be tried again after %v", m, is, p.millis("delayed-retry-min"))
	}
}

// checkPlace checks the order of a queue, its limits, what is to have left it, its counters, and that no message waits for nobody.
func (g *game) checkPlace(p *place) {
	if !g.full || !g.crashed {
		g.checkOrder(p)
	}
	if !g.restarted && p.id == p.wasID {
		g.checkCounters(p)
	}
	if g.full || g.restarted { // what is due then is acted on a little later
		return
	}
	if p.limited() && p.stats.Ready > 0 {
		p.fullAt = g.now
	}
	heads := map[int]bool{}
	for i, s := range p.line {
		m := g.messages[p.ids[i]]
		level := min(int(m.priority), p.config.Levels)
		due := s.deadline != 0 && s.deadline <= g.now && g.now >= g.before.AddMillis(2) // a change is acted on a little later
		switch {
		case s.state == queue.MessageHeld && max(s.hold, p.fullAt.AddMillis(1000)) < g.now-hook.Instant(2*time.Millisecond) && g.now > g.before.AddMillis(2) && p != g.agenda:
			g.fail("%v is held beyond its time: %v", m, s)
		case s.state == queue.MessageReady && due && (p.config.Strategy == "deadline" || p.config.Strategy == "rabbitmq" && !heads[level]):
			g.fail("%v has not expired: %v", m, s)
		}
		heads[level] = heads[level] || s.state == queue.MessageReady
	}
	length, bytes := p.limit("max-length"), p.limit("max-length-bytes")
	over := length.Set() && int64(p.stats.Ready) > length.N() || bytes.Set() && p.stats.ReadyBytes > bytes.N()
	if over && (p.overflow() == "drop-head" || p.stats.Ready > 1 && p.stats.Ready > p.wasStats.Ready && !p.changed && !g.restarted && !p.wasGivenBack(g)) {
		g.fail("queue %s has %d messages and %d bytes, and its limits are %v and %v", p, p.stats.Ready, p.stats.ReadyBytes, length, bytes)
	}
	for _, c := range g.channels {
		if k := c.waiting(p); k != nil && p.stats.Ready > 0 {
			g.fail("%s waits, and %v is ready", k.tag, g.messages[p.ids[slices.IndexFunc(p.line, func(s *sighting) bool { return s.state == queue.MessageReady })]])
		}
	}
}

// wasGivenBack reports whether messages came back to a queue: limits that refuse let them.
func (p *place) wasGivenBack(g *game) bool {
	return slices.ContainsFunc(p.ids, func(id uint64) bool {
		m := g.messages[id]
		return m.did(p, returned) || m.was != nil && m.was.at == p && m.was.state != queue.MessageReady
	})
}

// checkOrder checks that messages keep their order, that new ones are behind the others of their priority, and that none was overtaken.
func (g *game) checkOrder(p *place) {
	last, newest := -1, map[int]*message{}
	for i, s := range p.line {
		m := g.messages[p.ids[i]]
		level := min(int(m.priority), p.config.Levels)
		stayed := m.was != nil && m.was.at == p && m.was.ref == s.ref && p.wasID == p.id
		switch {
		case stayed && m.was.index < last:
			g.fail("%v has changed its place: %v, %v", m, m.was, s)
		case stayed && newest[level] != nil:
			g.fail("%v is behind %v, which is new", m, newest[level])
		case stayed:
			last = m.was.index
		case m.sent == g.step && newest[level] != nil && newest[level].sent == g.step && newest[level].entry == p && m.entry == p && m.id < newest[level].id:
			g.fail("%v is behind %v, which was published later", m, newest[level])
		}
		if !stayed && !m.everywhere {
			newest[level] = m
		}
		overtaken := stayed && s.state == queue.MessageReady && m.was.state == queue.MessageReady && len(m.facts) == 0 && !p.changed
		if overtaken && m.was.index < p.lastOut {
			g.fail("%v was overtaken by the message that was number %d: %v", m, p.lastOut, m.was)
		}
	}
}

// checkCounters compares what a queue has counted with what there is, and what clients did.
func (g *game) checkCounters(p *place) {
	s, old := &p.stats, &p.wasStats
	left := s.Refused + s.DeliveredNoAck + s.Acked + s.Purged + s.Deleted + s.Lost
	for r := range hook.Reasons {
		left += s.Dropped[r] + s.DeadLettered[r]
	}
	if s.Published != left+uint64(len(p.line)) {
		g.fail("queue %s: %d published, %d there, %d left: %+v", p, s.Published, len(p.line), left, s.Counters)
	}
	if s.Acked-old.Acked != p.acked || s.DeliveredNoAck-old.DeliveredNoAck != p.taken || s.Delivered-old.Delivered != p.delivered {
		g.fail("queue %s counts %d acked, %d delivered and %d without acks, want %d, %d and %d", p, s.Acked-old.Acked, s.Delivered-old.Delivered,
			s.DeliveredNoAck-old.DeliveredNoAck, p.acked, p.delivered, p.taken)
	}
}

// turnOver ends a step.
func (g *game) turnOver() {
	for _, m := range g.messages {
		if s := m.stay; s != nil && s.delivered > 0 && s.delivered < g.step && s.at.wrote && !g.crashed {
			s.written = true
		}
		if g.restarted && m.stay != nil {
			m.stay.restarted = true
		}
		m.everywhere = m.everywhere || g.full && m.is == nil && m.was != nil // a crash may undo that it left
		if m.is == nil && m.sent > 0 && (!m.everywhere || !g.full) {
			delete(g.messages, m.id)
		}
		m.was, m.is, m.facts, m.placesBesidesThis = m.is, nil, nil, 0
	}
	for _, p := range g.places {
		p.wasID, p.wasStats = p.id, p.stats
		p.purged, p.deleted, p.changed, p.wrote, p.lastOut = false, false, false, false, -1
		if !p.redriven() {
			p.redrive, p.movedTo = nil, nil
		}
		p.acked, p.taken, p.delivered = 0, 0, 0
	}
	g.restarted, g.crashed, g.before, g.ended = false, false, g.b.clock(), 0
}
