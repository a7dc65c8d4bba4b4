package queue

import (
	"cmp"
	"encoding/binary"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"github.com/curfewmq/curfew/core/campaign"
	"github.com/curfewmq/curfew/sdk/hook"
)

// planner is a plugin whose exchanges hold messages as their bodies say: see plannedBody.
type planner struct {
	hook.NoHooks
	limit hook.Limit
}

const (
	plannedCancels = 1 << iota
	plannedRecurs  // four releases, each as many seconds after the one before as the last byte says
	plannedSkips   // every second release is left out
)

const plannedReleases = 4

// plannedBody is a message's number, until when it is held, its identity (0 means none), flags, and an interval.
func plannedBody(x *plannedMessage) []byte {
	b := make([]byte, 19)
	binary.BigEndian.PutUint64(b, x.id)
	binary.BigEndian.PutUint64(b[8:], uint64(x.until))
	b[16], b[17], b[18] = x.identity, x.flags, x.interval
	return b
}

func (p planner) ExchangeTypes() []hook.ExchangeType {
	plan := func(m *hook.Publishing, p *hook.Plan) error {
		b := m.Part(hook.PartBody)
		p.Hold, p.Cancel = hook.Instant(binary.BigEndian.Uint64(b[8:])), b[17]&plannedCancels != 0
		if b[16] != 0 {
			p.ID = b[16:17]
		}
		return nil
	}
	released := func(m *hook.Publishing, r *hook.Release) {
		b := m.Part(hook.PartBody)
		if r.Skip = b[17]&plannedSkips != 0 && r.State%2 == 1; b[17]&plannedRecurs != 0 && r.State < plannedReleases-1 {
			r.Hold, r.State = r.Due+hook.Instant(b[18])*second, r.State+1
		}
	}
	return []hook.ExchangeType{{Name: "x-diary", Schedule: func(*hook.Exchange) hook.Schedule {
		return hook.Schedule{Inner: "fanout", Plan: plan, Released: released, MaxHeld: p.limit}
	}}}
}

// plannedMessage is a message of the model.
type plannedMessage struct {
	id              uint64
	until           hook.Instant
	identity, flags uint8
	interval        uint8
	releases        int
	entered         uint64
	ref             Ref

	arriving bool         // its last release is under way, and is followed by others
	moved    bool         // since that release
	passes   bool         // the exchange has routed it
	released hook.Instant // when that was due
}

// schedulePair is what an exchange holds, a queue that it is released to, and a model of both.
type schedulePair struct {
	t        *testing.T
	rng      *rand.Rand
	q, to    *Queue
	post     *postman
	log      *memoryJournal
	limit    hook.Limit
	now      hook.Instant
	ids      uint64
	inside   []*plannedMessage // held
	underway []*plannedMessage // released, and lost in a crash: messages without identity
	want     map[uint64]int    // how often each message is to arrive
}

// TestCampaignSchedulesAgreeWithTheModel plays publishers, operators and restarts with what an exchange holds. After each step every message
// is where the model has it, none has left early, in another order or under another's identity, and in the end each has arrived as
// often as it should have, whatever was under way when the broker crashed.
func TestCampaignSchedulesAgreeWithTheModel(t *testing.T) {
	for seed := range campaign.Size(t, "SIMULATION_SEEDS", 0, 6) {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			ownTraffic(t)
			p := newSchedulePair(t, seed)
			for range 6 {
				for range 60 {
					p.step()
				}
				p.restart()
			}
			p.now += 1000 * second
			for len(p.inside) > 0 {
				p.arrive()
				p.tick()
			}
			p.arrive()
			p.compareArrived()
			p.q.close()
			p.to.close()
		})
	}
}

// A crash between a release and its arrival loses neither: the next release, which is journalled at once because nothing is sent,
// does not overtake the one before.
func TestAReleaseIsNotOvertakenByTheNext(t *testing.T) {
	ownTraffic(t)
	p := newSchedulePair(t, 0)
	p.ids++
	x := &plannedMessage{id: p.ids, entered: p.ids, until: 2 * second, flags: plannedRecurs | plannedSkips, interval: 2}
	m, b := message(x.id, 0), NewBatch()
	m.Body, m.Flags = plannedBody(x), Persistent
	b.Messages = append(b.Messages, m)
	p.enter(x)
	p.q.enqueue(p.now, b)
	for _, p.now = range []hook.Instant{2 * second, 4 * second} {
		p.tick()
		p.compare()
	}
	p.restart()
	p.arrive()
	if p.now += 1000 * second; len(p.want) != 1 {
		t.Fatalf("%v is to arrive, want the first release", p.want)
	}
	for len(p.inside) > 0 {
		p.tick()
		p.arrive()
	}
	p.compareArrived()
	p.q.close()
	p.to.close()
}

func newSchedulePair(t *testing.T, seed uint64) *schedulePair {
	t.Helper()
	p := &schedulePair{t: t, rng: rand.New(rand.NewPCG(seed, 31)), now: second, log: &memoryJournal{}, post: &postman{}, want: map[uint64]int{}}
	if seed%2 == 1 {
		p.limit = hook.LimitOf(300)
	}
	cfg := schedulingBy(t, planner{limit: p.limit})
	cfg.Storage = &Storage{Journal: p.log, ID: 7, Shard: 1}
	p.q, _ = passive(t, cfg, hook.Hooks{})
	p.q.host = p.post
	p.to, _ = passive(t, Config{Name: "to", Storage: &Storage{Journal: p.log, ID: 8, Shard: 1}}, hook.Hooks{})
	return p
}

func (p *schedulePair) step() {
	p.t.Helper()
	p.now = p.now.AddMillis(p.rng.Int64N(1500))
	p.tick()
	switch p.rng.IntN(12) {
	case 0, 1, 2, 3, 4:
		p.publish(1 + p.rng.IntN(6))
	case 5:
		p.publish(100 + p.rng.IntN(400))
	case 6, 7:
		p.move()
	case 8:
		p.cancel(1 + p.rng.IntN(1+len(p.inside)/2))
	case 9:
		p.relocate()
	default:
		p.arrive()
	}
	p.tick()
	p.compare()
}

// tick releases what is due, in the queue and in the model.
func (p *schedulePair) tick() {
	p.t.Helper()
	for range 10_000 {
		next := p.q.next()
		if next == 0 || next > p.now {
			p.release()
			return
		}
		p.q.tick(p.now)
	}
	p.t.Fatal("what is due is not released")
}

// release has the model release what is due, turn by turn, and compares with what left.
func (p *schedulePair) release() {
	p.t.Helper()
	var want []uint64
	arrives := false
	for {
		slices.SortFunc(p.inside, func(a, b *plannedMessage) int {
			return cmp.Or(cmp.Compare(a.until, b.until), cmp.Compare(a.entered, b.entered))
		})
		var turn, rest []*plannedMessage
		for _, x := range p.inside {
			if len(turn) < maxBatch && x.until <= p.now && !x.arriving {
				turn = append(turn, x)
			} else {
				rest = append(rest, x)
			}
		}
		if len(turn) == 0 {
			break
		}
		p.inside = rest
		for _, x := range turn {
			skipped := x.flags&plannedSkips != 0 && x.releases%2 == 1
			if !skipped {
				want = append(want, x.id)
				p.want[x.id]++
				p.underway = append(p.underway, x)
			}
			arrives = arrives || x.identity != 0
			x.released, x.moved = x.until, false
			if x.releases++; x.flags&plannedRecurs != 0 && x.releases < plannedReleases {
				x.until += hook.Instant(x.interval) * second
				x.arriving = !skipped
				p.inside = append(p.inside, x)
			}
		}
	}
	if !slices.Equal(p.post.sent, want) {
		p.t.Fatalf("released were %v, want %v", p.post.sent, want)
	}
	p.post.sent = nil
	if arrives {
		p.arrive()
	}
}

// postman is a courier that notes the numbers of what it takes.
type postman struct {
	courier
	sent []uint64
}

func (c *postman) DeadLetter(from *Config, now hook.Instant, ds []DeadLetter, t Tracking) {
	for i := range ds {
		c.sent = append(c.sent, idOf(ds[i].Body))
	}
	c.courier.DeadLetter(from, now, ds, t)
}

func (p *schedulePair) publish(n int) {
	b := NewBatch()
	for range n {
		p.ids++
		x := &plannedMessage{id: p.ids, entered: p.ids, until: p.now.AddMillis(p.rng.Int64N(20_000) - 1000)}
		if p.rng.IntN(3) == 0 {
			x.until = p.now.AddMillis(3000) // one delay for all
		}
		if p.rng.IntN(4) == 0 {
			x.identity = uint8(1 + p.rng.IntN(9))
		}
		switch p.rng.IntN(8) {
		case 0:
			x.flags, x.interval = plannedRecurs, uint8(1+p.rng.IntN(9))
		case 1:
			x.flags, x.interval = plannedRecurs|plannedSkips, uint8(1+p.rng.IntN(9))
		case 2:
			if x.identity != 0 {
				x.flags = plannedCancels
			}
		}
		if x.identity != 0 && x.until <= p.now {
			x.flags &^= plannedRecurs | plannedSkips // it is routed at once, and nothing follows
		}
		m := message(x.id, 0)
		m.Body, m.Flags = plannedBody(x), Persistent
		if x.identity == 0 && p.rng.IntN(2) == 0 {
			m.Wait, m.Planned = WaitUntil(x.until), true
		}
		if x.identity != 0 && x.flags&plannedCancels == 0 && p.rng.IntN(4) == 0 {
			m.Passes, m.Planned = true, p.rng.IntN(2) == 0 // else another exchange holds it, and this one may
			x.passes = m.Planned || x.until <= p.now
		}
		b.Messages = append(b.Messages, m)
		p.enter(x)
	}
	p.q.enqueue(p.now, b)
	p.tick()
}

// enter has a message enter the model.
func (p *schedulePair) enter(x *plannedMessage) {
	waits := slices.IndexFunc(p.inside, func(y *plannedMessage) bool { return x.identity != 0 && x.identity == y.identity })
	holds := x.flags&plannedCancels == 0 && !x.passes
	if holds && x.until > p.now && waits < 0 && p.limit.Set() && int64(len(p.inside)) >= p.limit.N() {
		return // refused
	}
	if waits >= 0 {
		p.inside = slices.Delete(p.inside, waits, waits+1)
	}
	if holds {
		if x.until <= p.now { // nothing replaces or cancels it any more
			x.until, x.identity = p.now, 0
		}
		p.inside = append(p.inside, x)
	}
}

// move has operators move some messages, whose last release may be under way.
func (p *schedulePair) move() {
	p.t.Helper()
	if p.rng.IntN(2) == 0 {
		p.arrive()
	}
	for range min(len(p.inside), 1+p.rng.IntN(20)) {
		if len(p.inside) == 0 {
			return
		}
		x := p.inside[p.rng.IntN(len(p.inside))]
		x.until, x.moved = max(p.now.AddMillis(p.rng.Int64N(10_000)-2000), p.now), true
		if !p.q.MoveHeld(p.now, x.ref, x.until) {
			p.t.Fatalf("message %d is not held", x.id)
		}
		p.tick()
	}
}

func (p *schedulePair) cancel(n int) {
	p.t.Helper()
	p.arrive()
	var refs []Ref
	for range min(n, len(p.inside)) {
		i := p.rng.IntN(len(p.inside))
		refs = append(refs, p.inside[i].ref)
		p.inside = slices.Delete(p.inside, i, i+1)
	}
	if got := p.q.CancelHeld(p.now, refs...); got != len(refs) {
		p.t.Fatalf("%d were cancelled, want %d", got, len(refs))
	}
}

func (p *schedulePair) relocate() {
	p.q.commit(nil)
	p.to.commit(nil)
	for _, q := range []*Queue{p.q, p.to} {
		for upTo := p.log.extent - 1; q.Relocate(upTo); {
			continue
		}
	}
	p.log.trim()
}

// arrive has what is under way arrive.
func (p *schedulePair) arrive() {
	for len(p.post.batches) > 0 {
		sent := p.post.batches
		for _, x := range p.underway {
			x.arriving = false
		}
		p.post.batches, p.underway = nil, nil
		for _, b := range sent {
			p.to.enqueue(p.now, b)
		}
		p.to.commit(nil) // the journal is durable at once, and says so
		tellArrived(p.q)
		p.tick()
	}
}

// restart makes both queues anew from the journal. What is under way is lost, and is released again.
func (p *schedulePair) restart() {
	p.t.Helper()
	p.q.commit(nil)
	p.to.commit(nil)
	p.post.batches = nil
	for _, x := range p.underway {
		p.want[x.id]--
		x.releases--
		if !x.moved {
			x.until = x.released
		}
		if !x.arriving {
			p.inside = append(p.inside, x)
		}
		x.arriving = false
	}
	p.underway = nil
	p.log.used = map[uint32]int64{}
	boxes := make([]*Mailbox, 0, 2)
	for _, old := range []*Queue{p.q, p.to} {
		m := &Mailbox{broker: testBroker, clock: func() hook.Instant { return p.now }, running: true}
		m.config.Store(old.cfg)
		m.queue = Queue{essentials: essentials{cfg: old.cfg, buf: new(turnBuffers)}, host: old.host, mailbox: m, hooks: old.hooks}
		boxes = append(boxes, m)
	}
	p.log.fill(p.t, boxes...)
	p.q, p.to = &boxes[0].queue, &boxes[1].queue
	p.tick()
	maps.DeleteFunc(p.want, func(_ uint64, n int) bool { return n == 0 })
	p.compare()
}

// compare compares what is held, until when, and under which identities.
func (p *schedulePair) compare() {
	p.t.Helper()
	if got := p.q.Stats().Held; got != len(p.inside) {
		p.t.Fatalf("%d messages are held, want %d", got, len(p.inside))
	}
	i := 0
	p.q.HeldFrom(0, 0, func(h *Held) bool {
		x := p.inside[i]
		if i++; idOf(h.Body) != x.id || h.Until != x.until {
			p.t.Fatalf("message %d is held until %d, want %d until %d", idOf(h.Body), h.Until, x.id, x.until)
		}
		x.ref = h.Ref
		return true
	})
	known := map[uint8]uint64{}
	for _, x := range p.inside {
		if x.identity != 0 {
			known[x.identity] = x.id
		}
	}
	p.compareKnown(len(known))
	for identity := uint8(1); identity < 10; identity++ {
		got := uint64(0)
		if h := p.q.HeldByID([]byte{identity}); h != nil {
			got = idOf(h.Body)
		}
		if got != known[identity] {
			p.t.Fatalf("message %d has the identity %d, want %d", got, identity, known[identity])
		}
	}
}

// compareKnown fails if something is known of messages that are gone.
func (p *schedulePair) compareKnown(identities int) {
	p.t.Helper()
	if p.q.contents == nil || p.q.holding == nil || p.q.holding.scheduled == nil {
		return
	}
	if n := p.q.holding; len(n.ids) != identities || len(n.nacks) > len(p.inside) {
		p.t.Fatalf("%d identities and %d counts are known of %d messages, %d of which have an identity", len(n.ids), len(n.nacks), len(p.inside), identities)
	}
}

func (p *schedulePair) compareArrived() {
	p.t.Helper()
	got := map[uint64]int{}
	for l := range p.to.levels {
		f := &p.to.levels[l]
		for seq, s := f.messageFrom(0); s != nil; seq, s = f.messageFrom(seq + 1) {
			got[idOf(p.to.store.read(*s).body)]++
		}
	}
	if !maps.Equal(got, p.want) {
		p.t.Fatalf("%d messages arrived, want %d, or others", len(got), len(p.want))
	}
}
