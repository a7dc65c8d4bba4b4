package queue

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/curfewmq/curfew/core/campaign"
	"github.com/curfewmq/curfew/sdk/hook"
)

// taker is a consumer whose sink has room for so many messages, and the channel that it shares with others.
type taker struct {
	Consumer
	game    *game
	room    int
	refused bool // it owes a wake
	line    *line
}

// line is a channel with a limit that its consumers share.
type line struct {
	limit, charged int // limit: 0 = none
}

func (l *line) room() int {
	if l.limit == 0 {
		return plenty
	}
	return max(l.limit-l.charged, 0)
}

var _ Sink = (*taker)(nil)

func (t *taker) left() int { return min(t.room, t.line.room()) }

// wants reports whether the queue has to believe that the consumer would take a message.
func (t *taker) wants() bool {
	return !t.refused && (t.NoAck || t.Prefetch == 0 || t.game.holds(t) < int(t.Prefetch)) && t.game.mayServe(t)
}

func (t *taker) Deliver(_ hook.Instant, _ *Consumer, ds []Delivery) int {
	g := t.game
	for i := range ds {
		g.offered(t, &ds[i])
		if t.left() == 0 {
			t.refused = true
			return i
		}
		t.room--
		if !t.NoAck {
			t.line.charged++
		}
		g.handedOut(t, &ds[i])
	}
	return len(ds)
}

func (t *taker) Takes(*Consumer, *Delivery) bool { return true }

func (t *taker) Capacity(*Consumer) (messages, bytes int) {
	t.game.m.dropOverdue(t.game.now)
	t.refused = t.left() == 0
	return t.left(), 1 << 20
}

func (*taker) Cancelled(*Consumer)              {}
func (*taker) Stopped(*Consumer, *StoppedError) {}

// delivered is a message that a consumer holds.
type delivered struct {
	ref Ref
	id  uint64
	to  *taker
}

// game is a queue with consumers, and a model that knows at any time which message is next.
type game struct {
	t       *testing.T
	rng     *rand.Rand
	waker   *rand.Rand
	now     hook.Instant
	q       *Queue
	host    *host
	m       *model
	single  bool
	takers  []*taker // in the order they came
	served  *taker   // of a single active consumer's queue, the active one
	held    []delivered
	order   []uint64 // what was delivered, since the last look
	asked   map[uint64]hook.Instant
	fetches bool            // a message that a client fetches is taken already
	kept    map[uint64]bool // of those that were asked about and not delivered since
	maker   uint64
}

// curious reports whether a message wants to be asked about when it is next, and stale whether that is the end of it.
func curious(id uint64) bool { return id%4 == 1 }

func stale(now hook.Instant, m *modelMessage) bool { return m.id%8 == 1 && now >= m.entered+second }

func newGame(t *testing.T, scan hook.Scan, levels int, single bool, seed uint64) *game {
	t.Helper()
	g := &game{
		t: t, rng: rand.New(rand.NewPCG(seed, 7)), waker: rand.New(rand.NewPCG(seed, 8)), now: second, single: single,
		m: &model{scan: scan, levels: levels}, asked: map[uint64]hook.Instant{}, kept: map[uint64]bool{},
	}
	h := ttlHooks(scan, &hook.Target{})
	ttl, head := h.OnEnqueue, h.OnHead
	h.OnEnqueue = func(now hook.Instant, ms []hook.Message, vs []hook.Verdict) {
		ttl(now, ms, vs)
		for i := range ms {
			vs[i].AskHead = curious(idOf(ms[i].Part(hook.PartBody)))
		}
	}
	h.OnHead = func(now hook.Instant, ms []hook.Message, vs []hook.Verdict) {
		head(now, ms, vs)
		g.atHead(ms, vs)
	}
	g.q, g.host = passive(t, Config{Profile: &Profile{Levels: levels, SingleActive: single}}, h)
	return g
}

// atHead is told what is asked at the head: the messages that are next, in order, and no more than somebody takes at once.
func (g *game) atHead(ms []hook.Message, vs []hook.Verdict) {
	for i := range ms {
		id := idOf(ms[i].Part(hook.PartBody))
		if ms[i].Why != hook.WhyHead {
			g.overdue(id)
			continue
		}
		g.m.dropOverdue(g.now)
		next := g.m.ready()
		if k := g.stillKept(ms[:i], vs[:i]); k >= len(next) || next[k].id != id {
			g.t.Fatalf("message %d is asked about, behind %d that stay, of %v", id, k, ids(next))
		}
		g.asked[id] = g.now
		if m := g.m.find(id); stale(g.now, m) {
			vs[i] = hook.Verdict{Action: hook.Route, Reason: hook.ReasonExpired, Target: &hook.Target{}}
			g.m.expireOne(id)
			continue
		}
		g.kept[id] = true
	}
}

// overdue is told of a message the time of which is up.
func (g *game) overdue(id uint64) {
	i := slices.IndexFunc(g.m.list, func(mm modelMessage) bool { return mm.id == id })
	if i < 0 {
		return // the model knew
	}
	mm := g.m.list[i]
	first := !slices.ContainsFunc(g.m.list[:i], func(o modelMessage) bool { return o.level == mm.level && !o.out })
	elsewhere := g.m.scan != hook.ScanAnywhere && !first && !g.fetches
	if mm.out || mm.deadline == 0 || g.now < mm.deadline || elsewhere {
		g.t.Fatalf("message %d expires at %d: %+v, next is %v", id, g.now, mm, ids(g.m.ready()))
	}
	g.m.expireOne(id)
}

func (g *game) stillKept(ms []hook.Message, vs []hook.Verdict) (n int) {
	for i := range ms {
		if ms[i].Why == hook.WhyHead && vs[i].Action == hook.Keep {
			n++
		}
	}
	return n
}

func ids(ms []*modelMessage) (ids []uint64) {
	for _, m := range ms {
		ids = append(ids, m.id)
	}
	return ids
}

// ready lists the messages that are ready, the next first.
func (m *model) ready() (ms []*modelMessage) {
	for i := range m.list {
		if !m.list[i].out {
			ms = append(ms, &m.list[i])
		}
	}
	return ms
}

func (m *model) find(id uint64) *modelMessage {
	return &m.list[slices.IndexFunc(m.list, func(mm modelMessage) bool { return mm.id == id })]
}

func (m *model) expireOne(id uint64) {
	m.expired = append(m.expired, id)
	m.list = slices.DeleteFunc(m.list, func(mm modelMessage) bool { return mm.id == id })
}

// dropOverdue lets what is next expire for as long as its time is up.
func (m *model) dropOverdue(now hook.Instant) {
	for next := m.ready(); len(next) > 0; next = m.ready() {
		if mm := next[0]; mm.deadline == 0 || now < mm.deadline || mm.fresh {
			return
		}
		m.expireOne(next[0].id)
	}
}

// holds counts what a consumer holds.
func (g *game) holds(t *taker) (n int) {
	for _, d := range g.held {
		if d.to == t {
			n++
		}
	}
	return n
}

// mayServe reports whether the consumer is one that gets messages at all.
func (g *game) mayServe(t *taker) bool { return !g.single || g.served == t }

// offered checks a message that a consumer is to get, or would if it had room: it is the next, and the consumer's.
func (g *game) offered(t *taker, d *Delivery) {
	g.m.dropOverdue(g.now)
	id, next := idOf(d.Body), g.m.ready()
	if len(next) == 0 || next[0].id != id {
		g.t.Fatalf("%s is offered message %d, next is %v", t.Tag, id, ids(next))
	}
	if d.Redelivered != next[0].again {
		g.t.Fatalf("message %d is redelivered: %t", id, d.Redelivered)
	}
	if curious(id) && g.asked[id] != g.now {
		g.t.Fatalf("message %d was asked about at %d, and is offered at %d", id, g.asked[id], g.now)
	}
	if !t.wants() {
		g.t.Fatalf("%s is offered message %d, and has no credit", t.Tag, id)
	}
	for _, o := range g.takers {
		if o.Priority > t.Priority && o.wants() {
			g.t.Fatalf("%s is offered message %d before %s", t.Tag, id, o.Tag)
		}
	}
}

func (g *game) handedOut(t *taker, d *Delivery) {
	id := idOf(d.Body)
	g.order = append(g.order, id)
	delete(g.kept, id)
	if t.NoAck {
		g.m.list = slices.DeleteFunc(g.m.list, func(mm modelMessage) bool { return mm.id == id })
		return
	}
	g.m.find(id).out = true
	g.held = append(g.held, delivered{d.Ref, id, t})
}

// step ends a step: time passes what is due, and nobody goes without who could have something.
func (g *game) step() {
	g.t.Helper()
	for next := g.q.next(); next != 0 && next <= g.now; next = g.q.next() {
		g.q.tick(g.now)
	}
	for i := range g.m.list {
		g.m.list[i].fresh = false
	}
	g.m.expire(g.now)
	for _, t := range g.takers {
		if t.wants() {
			g.m.dropOverdue(g.now)
		}
	}
	next := g.m.ready()
	for _, t := range g.takers {
		if t.refused && t.left() > 0 {
			g.t.Fatalf("%s was not woken: a fault of the test", t.Tag)
		}
		if len(next) > 0 && t.wants() {
			g.t.Fatalf("%s waits, and message %d is not delivered", t.Tag, next[0].id)
		}
	}
	if len(g.kept) > 0 {
		g.t.Fatalf("asked about, but not delivered: %v", g.kept)
	}
	ready, unacked := g.m.counts()
	if s := g.q.Stats(); s.Ready != ready || s.Unacked != unacked {
		g.t.Fatalf("%d ready and %d unacked, want %d and %d", s.Ready, s.Unacked, ready, unacked)
	}
	var dead []uint64
	for _, d := range g.host.dead {
		dead = append(dead, d.id)
	}
	slices.Sort(dead)
	slices.Sort(g.m.expired)
	if !slices.Equal(dead, g.m.expired) {
		g.t.Fatalf("expired %v, want %v", dead, g.m.expired)
	}
	g.host.dead, g.m.expired = nil, nil
	checkSums(g.t, g.q)
}

func (g *game) publish() {
	var ms []Message
	for range 1 + g.rng.IntN(12) {
		g.maker++
		m := message(g.maker, g.rng.IntN(50))
		m.Priority = uint8(g.rng.IntN(5))
		if g.rng.IntN(3) == 0 {
			setExpiration(&m, g.rng.Int64N(4000))
		}
		ms = append(ms, m)
		g.m.publish(g.now, m)
		if g.m.scan != hook.ScanLazy {
			g.m.find(g.maker).fresh = true
		}
	}
	g.q.enqueue(g.now, batchOf(ms...))
}

func (g *game) join(prefetch uint32, room int) *taker {
	t := &taker{game: g, room: room, line: &line{}}
	t.Consumer = Consumer{
		Tag: fmt.Sprintf("consumer %d", g.maker), Sink: t, Prefetch: prefetch, NoAck: g.rng.IntN(4) == 0, Priority: g.rng.Int64N(3),
	}
	if n := len(g.takers); n > 0 && g.rng.IntN(3) == 0 {
		t.line = g.takers[g.rng.IntN(n)].line
	} else if g.rng.IntN(2) == 0 {
		t.line.limit = 1 + g.rng.IntN(4)
	}
	g.takers = append(g.takers, t)
	if g.served == nil {
		g.served = t
	}
	if err := g.q.AddConsumer(g.now, &t.Consumer); err != nil {
		g.t.Fatal(err)
	}
	return t
}

// leave takes a consumer away, with what it holds or without.
func (g *game) leave(t *taker, with bool) {
	g.takers = slices.DeleteFunc(g.takers, func(o *taker) bool { return o == t })
	if g.served == t {
		g.served = nil
		for _, o := range g.takers {
			if g.served == nil || o.Priority > g.served.Priority {
				g.served = o
			}
		}
	}
	var items []PendingAck
	if with {
		items = g.give(func(d *delivered) bool { return d.to == t }, true)
	}
	g.q.RemoveConsumers(g.now, items, &t.Consumer)
	g.wake()
}

// give ends the holding of messages.
func (g *game) give(which func(d *delivered) bool, back bool) (items []PendingAck) {
	g.held = slices.DeleteFunc(g.held, func(d delivered) bool {
		if !which(&d) {
			return false
		}
		items = append(items, PendingAck{Ref: d.ref, Consumer: &d.to.Consumer})
		d.to.line.charged--
		g.m.settle(g.now, d.id, back)
		return true
	})
	return items
}

func (g *game) settle(kind SettleKind) {
	some := g.rng.IntN(4)
	g.q.settleAll(g.now, kind, g.give(func(*delivered) bool { return g.rng.IntN(4) <= some }, kind != Ack))
	g.wake()
}

// wake wakes who was refused and has room now, in whatever order.
func (g *game) wake() {
	for _, i := range g.waker.Perm(len(g.takers)) {
		if t := g.takers[i]; t.refused && t.left() > 0 {
			t.refused = false
			g.q.consumers.wake(g.q, g.now, &t.Consumer)
		}
	}
}

func (g *game) get() {
	c := &taker{game: g, line: &line{}}
	g.fetches = true
	defer func() { g.fetches = false }()
	got := g.q.Get(g.now, &c.Consumer, func(d Delivery, _ int) {
		g.m.dropOverdue(g.now)
		id, next := idOf(d.Body), g.m.ready()
		if len(next) == 0 || next[0].id != id || curious(id) && g.asked[id] != g.now {
			g.t.Fatalf("fetched message %d, asked about at %d; next is %v", id, g.asked[id], ids(next))
		}
		g.handedOut(c, &d)
	})
	if !got {
		g.m.dropOverdue(g.now)
	}
}

func (g *game) play(steps int) {
	for range steps {
		switch n := g.rng.IntN(100); {
		case n < 30:
			g.publish()
		case n < 40 && len(g.takers) < 5:
			g.join(uint32(g.rng.IntN(4)), g.rng.IntN(6))
		case n < 45 && len(g.takers) > 0:
			g.leave(g.takers[g.rng.IntN(len(g.takers))], g.rng.IntN(3) > 0)
		case n < 60:
			g.settle(Ack)
		case n < 70:
			g.settle(Requeue)
		case n < 85:
			for _, t := range g.takers {
				t.room += g.rng.IntN(8)
			}
			g.wake()
		case n < 88:
			g.get()
		case n < 90:
			g.q.Purge(g.now)
			g.m.list = slices.DeleteFunc(g.m.list, func(mm modelMessage) bool { return !mm.out })
		default:
			g.now = g.now.AddMillis(g.rng.Int64N(800))
		}
		g.step()
	}
}

// Whoever consumes, and however little the sinks take, whatever is delivered is the message that is next, to a consumer
// whose turn it is, and no message waits while somebody would take it. Those that want to be asked about at the head are,
// when they are next, each time.
func TestDeliveryAgreesWithTheModel(t *testing.T) {
	for _, scan := range []hook.Scan{hook.ScanAnywhere, hook.ScanHeads, hook.ScanTop, hook.ScanLazy} {
		for _, levels := range []int{0, 3} {
			for _, single := range []bool{false, true} {
				for seed := range uint64(5) {
					t.Run(fmt.Sprintf("scan%d/levels%d/single=%t/seed%d", scan, levels, single, seed), func(t *testing.T) {
						newGame(t, scan, levels, single, seed).play(400)
					})
				}
			}
		}
	}
}

// drain is a consumer whose sink is refilled, n messages at a time, for as long as that brings anything.
func (g *game) drain(n func() int) []uint64 {
	g.order = nil
	for before := -1; before < len(g.order); {
		before = len(g.order)
		for range 16 {
			for _, t := range g.takers {
				t.room += n()
			}
			g.wake()
		}
	}
	return g.order
}

// A consumer whose sink takes a few messages at a time, never as many as before, gets the same messages in the same order
// as one that takes all, whatever came back, has a limit or priority, or expires.
func TestCampaignRoomChangesNothing(t *testing.T) {
	for _, scan := range []hook.Scan{hook.ScanAnywhere, hook.ScanHeads, hook.ScanTop, hook.ScanLazy} {
		for _, levels := range []int{0, 3} {
			for _, single := range []bool{false, true} {
				for seed := range campaign.Size(t, "SIMULATION_SEEDS", 0, 1) {
					t.Run(fmt.Sprintf("scan%d/levels%d/single=%t/seed%d", scan, levels, single, seed), func(t *testing.T) {
						some, all := newGame(t, scan, levels, single, seed), newGame(t, scan, levels, single, seed)
						rng := rand.New(rand.NewPCG(seed, 9))
						for step := range 60 / fewer {
							some.round()
							all.round()
							got, want := some.drain(func() int { return rng.IntN(4) }), all.drain(func() int { return 1 << 20 })
							if !slices.Equal(got, want) {
								t.Fatalf("step %d: got %v, want %v", step, got, want)
							}
							some.step()
							all.step()
						}
					})
				}
			}
		}
	}
}

// round does what does not depend on who holds a message.
func (g *game) round() {
	for _, t := range g.takers {
		t.room = 0
	}
	for range 1 + g.rng.IntN(4) {
		g.publish()
	}
	if len(g.takers) < 3 {
		t := g.join(uint32(g.rng.IntN(8)), 0)
		t.NoAck = false
	}
	back, gone := g.rng.Uint64N(4), g.rng.Uint64N(4)
	g.q.settleAll(g.now, Requeue, g.give(func(d *delivered) bool { return d.id%4 == back }, true))
	g.q.settleAll(g.now, Ack, g.give(func(d *delivered) bool { return d.id%4 == gone }, false))
	g.now = g.now.AddMillis(g.rng.Int64N(1200))
	g.step()
	if t := g.takers[0]; len(g.takers) > 1 && g.rng.IntN(3) == 0 {
		g.q.settleAll(g.now, Requeue, g.give(func(d *delivered) bool { return d.to != t }, true))
		g.leave(t, true)
	}
}
