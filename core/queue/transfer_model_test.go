package queue

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/curfewmq/curfew/core/campaign"
	"github.com/curfewmq/curfew/core/telemetry"
	"github.com/curfewmq/curfew/sdk/hook"
)

// transferMessages is how many messages a game has. Those with even numbers are persistent.
const transferMessages = 32

// transferGame has a queue whose messages go to several others: to the one with the number n if bit n of the message's number is set.
// Targets refuse messages, fail, push them out, or are deleted. The last one is not durable; the one before it has a journal of its own.
type transferGame struct {
	told
	t      *testing.T
	rng    *rand.Rand
	now    hook.Instant
	steady bool // nothing fails or is refused any more

	journals [2]*memoryJournal
	from     *Queue
	to       []*Queue
	batches  [][]*Batch // by target
	target   *RedriveTarget
	lost     map[uint64]byte // the targets, as bits, that need not have a message: it was purged, pushed out or in a deleted queue
	log      []string
}

const (
	pushing  = 1 << 1 // the target that pushes messages out, and whose hooks watch them
	anywhere = 1<<4 - 1
)

func (g *transferGame) Deleted(*Mailbox, Deletion) {}

// routes returns the targets of a message.
func (g *transferGame) routes(id uint64) (to []*Queue) {
	for k, q := range g.to {
		if id>>k&1 == 1 && !q.closed && (!g.steady || q.stopped == nil) {
			to = append(to, q)
		}
	}
	return to
}

func (g *transferGame) DeadLetter(from *Config, _ hook.Instant, ds []DeadLetter, t Tracking) {
	bs := make([]*Batch, len(g.to))
	for i := range ds {
		d := &ds[i]
		d.Outcome = telemetry.Unroutable
		if from != g.from.cfg {
			g.lost[idOf(d.Body)] |= pushing
			continue
		}
		for _, q := range g.routes(idOf(d.Body)) {
			d.Outcome = telemetry.DeadLettered
			k := slices.Index(g.to, q)
			if d.Has(q.mailbox) {
				continue
			}
			if bs[k] == nil {
				bs[k] = NewBatch()
			}
			bs[k].to = q.mailbox
			bs[k].Messages = append(bs[k].Messages, Message{Routing: origin, Props: bytes.Clone(d.Props), Body: bytes.Clone(d.Body), Seq: d.Seq, Flags: d.Flags})
			d.Sent++
		}
	}
	n := 0
	for _, b := range bs {
		if b != nil {
			n++
		}
	}
	if from != g.from.cfg && !g.steady && g.rng.IntN(8) == 0 {
		g.log = append(g.log, "break off")
		t.Expect(0, ds)
		panic(unreadable{errors.New("input/output error")})
	}
	if !t.Expect(n, ds) {
		for _, b := range bs {
			if b != nil {
				b.Discard()
			}
		}
		return
	}
	for k, b := range bs {
		if b != nil {
			b.Tracking = t
			g.batches[k] = append(g.batches[k], b)
		}
	}
}

func newTransferGame(t *testing.T, seed uint64, discards bool) *transferGame {
	t.Helper()
	g := &transferGame{
		t: t, rng: rand.New(rand.NewPCG(seed, 7)), now: second, journals: [2]*memoryJournal{{}, {}}, batches: make([][]*Batch, 4),
		target: &RedriveTarget{Target: hook.Target{Exchange: "x"}}, lost: map[uint64]byte{},
	}
	var h hook.Hooks
	if discards {
		h = ttlHooks(hook.ScanAnywhere, &hook.Target{Exchange: "x", AtLeastOnce: true})
	}
	g.from, _ = passive(t, Config{Name: "from", Durable: true, Storage: &Storage{Journal: g.journals[0], ID: 7, Shard: 1}}, h)
	g.from.host = g
	for k := range 4 {
		c := Config{Name: fmt.Sprint("to", k), Durable: true}
		if k < 3 {
			c.Storage = &Storage{Journal: g.journals[k/2], ID: uint64(8 + k), Shard: uint32(1 + k/2)}
		}
		h := hook.Hooks{OnEnqueue: func(_ hook.Instant, ms []hook.Message, vs []hook.Verdict) {
			for i := range ms {
				if !g.steady && g.rng.IntN(4) == 0 {
					vs[i].Action = hook.Refuse
				}
			}
		}}
		if k == 1 {
			h.OnGone, h.Length, h.OnHead = func([]hook.Message) {}, hook.LimitOf(5), ttlHooks(hook.ScanAnywhere, &hook.Target{Exchange: "y"}).OnHead
		}
		q, _ := passive(t, c, h)
		q.host, q.mailbox.order = g, uint64(k+1)
		g.to = append(g.to, q)
	}
	g.from.mailbox.order = 10
	return g
}

func (g *transferGame) handle(q *Queue, k *task) {
	q.mailbox.clock = func() hook.Instant { return g.now }
	q.mailbox.handle(g.now, k)
}

func (g *transferGame) answer() (some bool) {
	for _, k := range g.from.mailbox.takeInbox(false) {
		g.handle(g.from, &k)
		some = true
	}
	return some
}

func idsOf(q *Queue) map[uint64]int {
	ids := map[uint64]int{}
	if q.contents == nil {
		return ids
	}
	for l := range q.levels {
		for seq, s := q.levels[l].messageFrom(0); s != nil; seq, s = q.levels[l].messageFrom(seq + 1) {
			ids[idOf(q.store.read(*s).body)]++
		}
	}
	return ids
}

func (g *transferGame) deliver(k int) {
	b := g.batches[k][0]
	g.batches[k] = g.batches[k][1:]
	if !g.steady && g.rng.IntN(6) == 0 {
		g.log = append(g.log, fmt.Sprintf("fail %d", k))
		b.complete(errors.New("input/output error"))
		return
	}
	g.log = append(g.log, fmt.Sprintf("take %d", k))
	g.handle(g.to[k], &task{kind: taskPublish, batch: b})
}

func (g *transferGame) step() {
	switch n := g.rng.IntN(20); {
	case n < 11:
		if k := g.rng.IntN(4); len(g.batches[k]) > 0 {
			g.deliver(k)
		}
	case n < 14:
		g.answer()
	case n < 17:
		g.start()
	case n < 18:
		g.log = append(g.log, "relocate")
		g.call(func(q *Queue) {
			for q.Relocate(g.journals[0].extent) {
			}
		})
	case n < 19 && g.rng.IntN(3) == 0:
		g.log = append(g.log, "purge")
		g.call(func(q *Queue) {
			if q.contents != nil {
				for l := range q.levels {
					for seq, s := q.levels[l].messageFrom(0); s != nil; seq, s = q.levels[l].messageFrom(seq + 1) {
						if s.is(stateReady) || slices.ContainsFunc(agains(q), func(a retry) bool { return a.ref == ref(l, seq) }) {
							g.lost[idOf(q.store.read(*s).body)] = anywhere
						}
					}
				}
			}
			q.Purge(g.now)
		})
	case g.rng.IntN(8) == 0:
		k := g.rng.IntN(4)
		g.log = append(g.log, fmt.Sprintf("delete %d", k))
		for id := range idsOf(g.to[k]) {
			g.lost[id] |= 1 << k
		}
		for _, b := range g.batches[k] {
			for i := range b.Messages {
				g.lost[idOf(b.Messages[i].Body)] |= 1 << k
			}
		}
		g.handle(g.to[k], &task{kind: taskCall, call: &call{fn: func(q *Queue, _ hook.Instant) { _, _ = q.Delete(false, false) }, done: make(chan struct{})}})
	}
}

func agains(q *Queue) []retry {
	if q.discards == nil {
		return nil
	}
	return q.discards.again
}

func (g *transferGame) call(fn func(q *Queue)) {
	g.handle(g.from, &task{kind: taskCall, call: &call{fn: func(q *Queue, _ hook.Instant) { fn(q) }, done: make(chan struct{})}})
}

// start has messages leave.
func (g *transferGame) start() {
	g.log = append(g.log, "start")
	g.now = g.now.Add(200 * second.Sub(0))
	g.call(func(q *Queue) {
		if !q.hooks.WantsHead && q.redrive == nil {
			_, err := q.StartRedrive(g.now, RedriveOptions{Choose: func(*Stored) (*RedriveTarget, RedriveFailure) { return g.target, NotChosen }, Total: -1})
			if err != nil {
				g.t.Fatal(err)
			}
		}
		q.tick(g.now)
	})
}

// check simulates a crash behind each entry of the last step.
func (g *transferGame) check(before [2]int) {
	for w, j := range g.journals {
		for cut := before[w] + 1; cut <= len(j.entries); cut++ {
			g.crash(w, cut)
		}
	}
}

// crash checks what a restart finds with the first entries of one journal, and all of the other. It returns what is left in the old queue.
func (g *transferGame) crash(which, cut int) (left map[uint64]int) {
	t := g.t
	have := map[int]map[uint64]int{}
	for w, j := range g.journals {
		r := &memoryJournal{entries: slices.Clone(j.entries), extent: j.extent, used: map[uint32]int64{}}
		if w == which {
			r.entries = slices.Clone(j.entries[:cut])
		}
		var ms []*Mailbox
		var who []int
		for k, q := range append([]*Queue{g.from}, g.to...) {
			if q.cfg.Storage == nil || q.cfg.Storage.Journal != j || q.closed {
				continue
			}
			c := *q.cfg
			c.Storage = &Storage{Journal: r, ID: q.cfg.Storage.ID, Shard: 1}
			s := &Mailbox{broker: testBroker, clock: func() hook.Instant { return g.now }}
			s.config.Store(&c)
			s.queue = Queue{essentials: essentials{cfg: &c, buf: new(turnBuffers)}, host: &host{}, mailbox: s, hooks: q.hooks}
			ms, who = append(ms, s), append(who, k)
		}
		r.fill(t, ms...)
		for i, m := range ms {
			have[who[i]] = idsOf(&m.queue)
			m.queue.close()
			for m.queue.garbage != nil {
				m.queue.freeGarbage()
			}
		}
	}
	here := map[uint64]int{}
	if g.from.moving == 0 && which == 0 && cut == len(g.journals[0].entries) {
		here = idsOf(g.from)
	}
	for id := uint64(0); id < transferMessages; id += 2 {
		if have[0][id] > 0 {
			continue
		}
		if here[id] > 0 {
			t.Fatalf("a crash loses message %d, which is in the old queue: %v", id, g.log)
		}
		for k, q := range g.to[:3] {
			if (id&^uint64(g.lost[id]))>>k&1 == 1 && slices.Contains(g.routes(id), q) && have[k+1][id] == 0 {
				t.Fatalf("a crash loses message %d for %s: %v", id, q.cfg.Name, g.log)
			}
		}
	}
	return have[0]
}

func (g *transferGame) play() {
	t := g.t
	for id := range uint64(transferMessages) {
		m := persist(id)
		if id%2 == 1 {
			m = message(id, 8)
		}
		if g.from.hooks.WantsHead {
			m.Expiration = hook.LimitOf(1000 * int64(id%3+1))
		}
		g.handle(g.from, &task{kind: taskPublish, batch: batchOf(m)})
	}
	for range 60 {
		before := [2]int{len(g.journals[0].entries), len(g.journals[1].entries)}
		g.step()
		g.check(before)
	}
	g.steady = true
	for range 40 {
		for k := range g.batches {
			for len(g.batches[k]) > 0 {
				g.deliver(k)
			}
		}
		for g.answer() {
		}
		g.start()
	}
	for k := range g.batches {
		for len(g.batches[k]) > 0 {
			g.deliver(k)
		}
	}
	for g.answer() {
	}
	open, failed := g.from.mailbox.underway()
	if open != 0 || failed != nil {
		t.Errorf("%d parts are open, failed: %v: %v", open, failed, g.log)
	}
	left := idsOf(g.from)
	for id := range left {
		if len(g.routes(id)) > 0 {
			t.Errorf("message %d has not left", id)
		}
	}
	if q := g.from; q.moving != 0 || q.unacked != 0 || q.discards != nil && (q.discards.count != len(q.discards.again) || len(q.discards.messages) != len(q.discards.again)) || q.messages() != len(left) {
		t.Errorf("%d moving, %d unacked, %d messages of %d, %+v: %v", q.moving, q.unacked, q.messages(), len(left), q.discards, g.log)
	}
	for id := range uint64(transferMessages) {
		for k, q := range g.to {
			if q.closed || q.stopped != nil || id>>k&1 == 0 {
				continue
			}
			if got := idsOf(q)[id]; got > 1 || got == 0 && g.lost[id]>>k&1 == 0 {
				t.Errorf("%s has message %d %d times: %v", q.cfg.Name, id, got, g.log)
			}
		}
	}
	for id := range g.crash(0, len(g.journals[0].entries)) {
		if left[id] == 0 {
			t.Errorf("message %d is back after a restart: %v", id, g.log)
		}
	}
	checkSums(t, g.from)
}

// Messages that stay until all their targets have answered are in their queue or in all targets, whenever the broker crashes, and in the
// end once in each target.
func TestCampaignTransfers(t *testing.T) {
	for seed := range campaign.Size(t, "SIMULATION_SEEDS", 4, 30) {
		for name, discards := range map[string]bool{"redrive": false, "at least once": true} {
			t.Run(fmt.Sprintf("%s/%d", name, seed), func(t *testing.T) {
				ownTraffic(t)
				newTransferGame(t, seed, discards).play()
			})
		}
	}
}
