package queue

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/curfewmq/curfew/core/campaign"
	"github.com/curfewmq/curfew/sdk/hook"
)

// The model is a queue as anyone would write it who does not care for speed: a
// sorted list that is searched from the front. Whatever a client does, the queue
// and the model hand out the same messages in the same order, expire the same
// ones at the same time and count the same.
type model struct {
	list    []modelMessage // by level, highest first, then by arrival
	scan    hook.Scan
	levels  int
	expired []uint64
	next    int
	ttl     hook.Limit // of the queue
}

type modelMessage struct {
	id       uint64
	level    int
	seq      int
	deadline hook.Instant
	entered  hook.Instant
	own      hook.Limit // expiration
	out      bool
	again    bool
	fresh    bool // it came just now: it may be delivered although its time is up
}

func (m *model) publish(now hook.Instant, p Message) {
	mm := modelMessage{id: idOf(p.Body), level: min(int(p.Priority), m.levels), seq: m.next, entered: now, own: p.Expiration}
	m.next++
	m.stamp(&mm)
	m.list = append(m.list, mm)
	slices.SortFunc(m.list, func(a, b modelMessage) int {
		if a.level != b.level {
			return b.level - a.level
		}
		return a.seq - b.seq
	})
}

func (m *model) stamp(mm *modelMessage) {
	mm.deadline = 0
	if ttl := m.ttl.Min(mm.own); ttl.Set() {
		mm.deadline = mm.entered.AddMillis(ttl.N())
	}
}

// expire removes what the strategy lets expire at this time.
func (m *model) expire(now hook.Instant) {
	for {
		i := m.expirable(now)
		if i < 0 {
			return
		}
		m.expired = append(m.expired, m.list[i].id)
		m.list = slices.Delete(m.list, i, i+1)
	}
}

func (m *model) expirable(now hook.Instant) int {
	seen := map[int]bool{}
	for i, mm := range m.list {
		if mm.out {
			continue
		}
		isHead := !seen[mm.level]
		isTop := len(seen) == 0
		seen[mm.level] = true
		if mm.deadline == 0 || now < mm.deadline {
			continue
		}
		if m.scan == hook.ScanAnywhere || m.scan == hook.ScanHeads && isHead || m.scan == hook.ScanTop && isTop {
			return i
		}
	}
	return -1
}

// get delivers the first message whose time is not up; those before it that
// are due expire on the way, in every strategy.
func (m *model) get(now hook.Instant, noAck bool) (modelMessage, bool) {
	for i := 0; i < len(m.list); {
		mm := m.list[i]
		if mm.out {
			i++
			continue
		}
		if mm.deadline != 0 && now >= mm.deadline {
			m.expired = append(m.expired, mm.id)
			m.list = slices.Delete(m.list, i, i+1)
			continue
		}
		if noAck {
			m.list = slices.Delete(m.list, i, i+1)
		} else {
			m.list[i].out = true
		}
		return mm, true
	}
	return modelMessage{}, false
}

func (m *model) settle(now hook.Instant, id uint64, requeue bool) {
	i := slices.IndexFunc(m.list, func(mm modelMessage) bool { return mm.id == id })
	if at := m.list[i].deadline; requeue && m.scan == hook.ScanLazy && at != 0 && now >= at {
		m.expired = append(m.expired, id)
		requeue = false
	}
	if requeue {
		m.list[i].out, m.list[i].again = false, true
		return
	}
	m.list = slices.Delete(m.list, i, i+1)
}

func (m *model) counts() (ready, unacked int) {
	for _, mm := range m.list {
		if mm.out {
			unacked++
		} else {
			ready++
		}
	}
	return ready, unacked
}

func TestCampaignAgreesWithTheModel(t *testing.T) {
	for _, scan := range []hook.Scan{hook.ScanAnywhere, hook.ScanHeads, hook.ScanTop, hook.ScanLazy} {
		for _, levels := range []int{0, 3} {
			for seed := range campaign.Size(t, "SIMULATION_SEEDS", 1, 3) {
				t.Run(fmt.Sprintf("scan%d/levels%d/seed%d", scan, levels, seed), func(t *testing.T) {
					newPair(t, scan, levels, seed).play(600)
				})
			}
		}
	}
}

// pair is a queue and its model, driven by the same random operations.
type pair struct {
	t     *testing.T
	rng   *rand.Rand
	now   hook.Instant
	q     *Queue
	host  *host
	m     *model
	log   *memoryJournal // of a durable queue, nil of another
	held  map[uint64]Ref // delivered: id to reference
	ids   []uint64       // keys of held, in order
	maker uint64
}

func newPair(t *testing.T, scan hook.Scan, levels int, seed uint64) *pair {
	t.Helper()
	q, h := passive(t, Config{Profile: &Profile{Levels: levels}}, ttlHooks(scan, &hook.Target{}))
	return &pair{
		t: t, rng: rand.New(rand.NewPCG(seed, 1)), now: second, q: q, host: h,
		m: &model{scan: scan, levels: levels}, held: map[uint64]Ref{},
	}
}

func (p *pair) play(steps int) {
	for range steps {
		switch n := p.rng.IntN(100); {
		case n < 30:
			p.publish()
		case n < 60:
			p.get()
		case n < 75:
			p.settle(false)
		case n < 85:
			p.settle(true)
		case n < 87:
			p.purge()
		case n == 87 && p.rng.IntN(3) == 0:
			p.flood()
		case n == 88 && p.rng.IntN(2) == 0:
			p.reconfigure()
		default:
			p.pass()
		}
		p.compare()
	}
}

// TestCampaignADurableQueueIsTheSameAfterARestart plays the same game with a queue that
// is thrown away now and then and made anew from its journal.
func TestCampaignADurableQueueIsTheSameAfterARestart(t *testing.T) {
	for _, scan := range []hook.Scan{hook.ScanAnywhere, hook.ScanHeads, hook.ScanLazy} {
		for _, levels := range []int{0, 3} {
			for seed := range campaign.Size(t, "SIMULATION_SEEDS", 0, 2) {
				t.Run(fmt.Sprintf("scan%d/levels%d/seed%d", scan, levels, seed), func(t *testing.T) {
					p := newPair(t, scan, levels, seed)
					p.log = &memoryJournal{}
					p.q.cfg.Storage = &Storage{Journal: p.log, ID: seed}
					for range 12 {
						p.play(40)
						p.restart()
					}
				})
			}
		}
	}
}

// restart makes the queue anew from its journal. What was delivered is ready
// again, and known to have been delivered.
func (p *pair) restart() {
	p.t.Helper()
	p.q.journalDelivered()
	p.q.commit(nil)
	if p.rng.IntN(2) == 0 {
		upTo := p.log.extent - 1
		for p.q.Relocate(upTo) {
			continue
		}
		p.log.trim()
	}
	now := p.now
	s := &Mailbox{broker: testBroker, clock: func() hook.Instant { return now }}
	s.config.Store(p.q.cfg)
	s.queue = Queue{essentials: essentials{cfg: p.q.cfg, buf: new(turnBuffers)}, host: p.host, mailbox: s}
	s.queue.hooks = p.q.hooks
	p.log.used = map[uint32]int64{}
	p.log.fill(p.t, s)
	p.q = &s.queue
	p.held, p.ids = map[uint64]Ref{}, nil
	for i := range p.m.list {
		if m := &p.m.list[i]; m.out {
			m.out, m.again = false, true
		}
	}
	p.q.afterChange(p.now)
	p.q.commit(nil)
	p.m.expire(p.now)
	p.compare()
}

// make returns the next message. Every third is traced.
func (p *pair) make(size int) Message {
	p.maker++
	m := message(p.maker, size)
	m.Flags = Persistent
	if p.maker%3 == 0 {
		m.Flags |= Traced
	}
	return m
}

func (p *pair) publish() {
	var ms []Message
	for range 1 + p.rng.IntN(6) {
		m := p.make(p.rng.IntN(300))
		m.Priority = uint8(p.rng.IntN(5))
		if p.rng.IntN(3) > 0 {
			setExpiration(&m, 1+p.rng.Int64N(5000))
		}
		ms = append(ms, m)
		p.m.publish(p.now, m)
	}
	p.q.enqueue(p.now, batchOf(ms...))
	p.m.expire(p.now)
}

// reconfigure changes where deadlines are acted on, or the queue's TTL, for the
// messages that are there or only for those to come.
func (p *pair) reconfigure() {
	var restamp bool
	if p.rng.IntN(2) == 0 {
		p.m.scan = hook.Scan(p.rng.IntN(4))
	} else {
		p.m.ttl, restamp = hook.LimitOf(p.rng.Int64N(6000)-1000), p.rng.IntN(2) == 0
	}
	p.q.reconfigure(p.now, p.q.cfg, chainOf(p.t, ttlAndExpiration(p.m.scan, p.m.ttl, restamp)), false)
	for i := range p.m.list {
		if restamp {
			p.m.stamp(&p.m.list[i])
		}
	}
	p.tick()
}

// flood makes chunks and segments roll over.
func (p *pair) flood() {
	var ms []Message
	for i := range 2100 {
		m := p.make(200)
		if i%700 == 0 { // has a segment to itself
			m.Body = append(m.Body, make([]byte, segmentSize+p.rng.IntN(2*segmentSize))...)
		}
		if p.rng.IntN(50) > 0 {
			setExpiration(&m, 1+p.rng.Int64N(2000))
		}
		ms = append(ms, m)
		p.m.publish(p.now, m)
	}
	p.q.enqueue(p.now, batchOf(ms...))
	p.m.expire(p.now)
}

func (p *pair) get() {
	noAck := p.rng.IntN(2) == 0
	var got Delivery
	ok := p.q.Get(p.now, &Consumer{NoAck: noAck}, func(d Delivery, _ int) {
		got = d
		got.Body = slices.Clone(d.Body)
	})
	want, wantOK := p.m.get(p.now, noAck)
	if ok != wantOK {
		p.t.Fatalf("get: got a message: %v, want %v", ok, wantOK)
	}
	if !ok {
		return
	}
	if idOf(got.Body) != want.id || got.Redelivered != want.again {
		p.t.Fatalf("get: message %d (redelivered %v), want %d (%v)", idOf(got.Body), got.Redelivered, want.id, want.again)
	}
	if got.Traced != (want.id%3 == 0) {
		p.t.Fatalf("get: message %d is traced: %v", want.id, got.Traced)
	}
	if !noAck {
		p.held[want.id] = got.Ref
		p.ids = append(p.ids, want.id)
	}
	p.tick()
}

func (p *pair) settle(requeue bool) {
	n := min(p.rng.IntN(4), len(p.ids))
	var items []PendingAck
	for range n {
		i := p.rng.IntN(len(p.ids))
		id := p.ids[i]
		p.ids = slices.Delete(p.ids, i, i+1)
		items = append(items, PendingAck{Ref: p.held[id]})
		delete(p.held, id)
		p.m.settle(p.now, id, requeue)
	}
	kind := Ack
	if requeue {
		kind = Requeue
	}
	p.q.settleAll(p.now, kind, items)
	p.m.expire(p.now)
}

func (p *pair) purge() {
	p.q.Purge(p.now)
	p.m.list = slices.DeleteFunc(p.m.list, func(mm modelMessage) bool { return !mm.out })
}

func (p *pair) pass() {
	p.now = p.now.AddMillis(p.rng.Int64N(800)) // whole ones, as messages know when they entered
	p.tick()
}

// tick does what the mailbox's timer does.
func (p *pair) tick() {
	for next := p.q.next(); next != 0 && next <= p.now; next = p.q.next() {
		p.q.tick(p.now)
	}
	p.m.expire(p.now)
}

func (p *pair) compare() {
	p.tick()
	p.t.Helper()
	if p.log != nil {
		p.q.commit(nil)
		p.log.check(p.t, p.q)
	}
	ready, unacked := p.m.counts()
	if s := p.q.Stats(); s.Ready != ready || s.Unacked != unacked {
		p.t.Fatalf("%d ready and %d unacked, want %d and %d", s.Ready, s.Unacked, ready, unacked)
	}
	if p.q.ready == 0 && p.q.readyBytes != 0 {
		p.t.Fatalf("%d bytes ready in an empty queue", p.q.readyBytes)
	}
	var got []uint64
	for _, d := range p.host.dead {
		got = append(got, d.id)
	}
	slices.Sort(got)
	slices.Sort(p.m.expired)
	if !slices.Equal(got, p.m.expired) {
		p.t.Fatalf("expired %v, want %v", got, p.m.expired)
	}
	p.host.dead, p.m.expired = nil, nil
	checkSums(p.t, p.q)
}
