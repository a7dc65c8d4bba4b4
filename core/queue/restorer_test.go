package queue

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/curfewmq/curfew/core/slab"
	"github.com/curfewmq/curfew/sdk/hook"
)

// someDefinition begins as definitions do: with the length of a table. It is all that a Restorer may look at.
var someDefinition = []byte{0, 0, 0, 5, 1, 'x', 't', 1, 0xff}

// restoring is a restorer that reads a log with definitions.
type restoring struct {
	*Restorer
	tb       testing.TB
	declares map[int][]func() // what is declared after so many entries
}

// apply applies an entry that has definitions between its operations, or is only these.
func (r *restoring) apply(i int, e entry, definitions ...bool) {
	r.tb.Helper()
	var rest []byte
	for _, defined := range definitions {
		if defined {
			rest = append(rest, someDefinition...)
		} else {
			rest = append(rest, e.ops...)
		}
	}
	if i%3 == 0 {
		if err := r.Pack(); err != nil {
			r.tb.Fatal(err)
		}
	}
	for len(rest) > 0 {
		if rest[0] == 0 {
			if !bytes.HasPrefix(rest, someDefinition) {
				r.tb.Fatalf("a definition was read: %x is left", rest)
			}
			rest = rest[len(someDefinition):]
			continue
		}
		var err error
		if rest, err = r.Apply(e.extent, rest); err != nil {
			r.tb.Fatal(err)
		}
	}
	for _, declare := range r.declares[i] {
		declare()
	}
}

// fill fills queues with what is left of the journal's messages. It is read as part of a log that has definitions, too: each queue is
// declared at some time, or several times, or never.
func (j *memoryJournal) fill(tb testing.TB, queues ...*Mailbox) {
	tb.Helper()
	rng := rand.New(rand.NewPCG(uint64(len(j.entries)), 5))
	r := &restoring{testBroker.NewRestorer(), tb, map[int][]func(){}}
	for _, m := range queues {
		kind := Ordinary
		if m.Config().Schedule != nil {
			kind = Holding
		}
		for range rng.IntN(3) {
			at := rng.IntN(len(j.entries)+2) - 1
			r.declares[at] = append(r.declares[at], func() { r.Declare(m.Config().Storage.ID, kind) })
		}
	}
	r.apply(-1, entry{}, true)
	for i, e := range j.entries {
		r.apply(i, e, [][]bool{{false}, {true, false}, {false, true}, {true, false, true, true}}[rng.IntN(4)]...)
	}
	r.apply(len(j.entries), entry{})
	r.Fill(queues)
}

// A queue's messages take memory only until the queue is deleted, or turns out not to exist; and what its operations say afterwards
// is nothing to the others.
func TestRestoredMessagesOfDeletedQueues(t *testing.T) {
	const n, size = 100, 10 << 10
	j := &memoryJournal{}
	var ids []uint64
	var queues []*Queue
	for id := range uint64(3) {
		q, _ := passive(t, Config{Name: string(rune('a' + id)), Storage: &Storage{Journal: j, ID: id + 1}}, ttlHooks(hook.ScanAnywhere, nil))
		ids, queues = append(ids, id+1), append(queues, q)
	}
	for i := range uint64(n) {
		for k, q := range queues {
			m := message(1000*uint64(k)+i, size)
			m.Flags = Persistent
			q.enqueue(second, batchOf(m))
		}
	}
	before := slab.Used()
	apply := func(r *Restorer) {
		for _, e := range j.entries {
			if _, err := r.Apply(e.extent, e.ops); err != nil {
				t.Fatal(err)
			}
		}
	}
	r := testBroker.NewRestorer()
	r.Declare(ids[0], Ordinary)
	apply(r)
	all := slab.Used() - before
	if all < 3*n*size {
		t.Fatalf("%d bytes are restored, want %d", all, 3*n*size)
	}
	r.Delete(ids[1])
	if left := slab.Used() - before; left > all*3/4 {
		t.Errorf("without one of three queues, %d bytes of %d are left", left, all)
	}
	settled := appendSettled(nil, ids[1], []Ref{1, 2})
	if rest, err := r.Apply(9, settled); err != nil || len(rest) > 0 {
		t.Errorf("an operation of a deleted queue: %v, %d bytes are left", err, len(rest))
	}
	j.used = map[uint32]int64{}
	m := reborn(queues[0])
	if got := r.Fill([]*Mailbox{m}); got != n || m.queue.ready != n {
		t.Errorf("%d messages were restored, %d are ready; want %d", got, m.queue.ready, n)
	}
	if left := slab.Used() - before; left > all/2 {
		t.Errorf("with one of three queues, %d bytes of %d are left", left, all)
	}
	j.check(t, &m.queue)
	m.queue.Abandon()
	if left := slab.Used() - before; left != 0 {
		t.Errorf("%d bytes are left", left)
	}

	for _, q := range queues {
		q.close()
		for q.garbage != nil {
			q.freeGarbage()
		}
	}
}

// reborn returns the mailbox of a queue after a restart, paused and without messages.
func reborn(of *Queue) *Mailbox {
	m := &Mailbox{broker: testBroker, clock: func() hook.Instant { return second }, running: true}
	m.config.Store(of.cfg)
	m.queue = Queue{essentials: essentials{cfg: of.cfg, buf: new(turnBuffers)}, host: of.host, mailbox: m, hooks: of.hooks}
	return m
}

// A log that has more messages than memory has room for is restored in the file, before there is a queue for them.
func TestRestoredBodiesBeyondTheBudget(t *testing.T) {
	const n, budget = 20_000, 4 << 20
	q, _, j := durable(t, Config{}, ttlHooks(hook.ScanAnywhere, nil))
	for i := range uint64(n) {
		m := patterned(i, 1024)
		m.Flags = Persistent
		q.enqueue(second, batchOf(m))
	}
	q.stopped = &StoppedError{} // the broker is killed
	q.dropContents()
	q.Abandon()
	spilling(t, budget)
	before := slab.Used()
	m := reborn(q)
	j.used = map[uint32]int64{}
	r := &restoring{testBroker.NewRestorer(), t, nil}
	for i, e := range j.entries {
		r.apply(i, e, false, true)
		if held := slab.Used() - before; held > budget+4<<20 {
			t.Fatalf("%d KiB of memory are held", held>>10)
		}
	}
	if got := r.Fill([]*Mailbox{m}); got != n {
		t.Errorf("%d messages were restored, want %d", got, n)
	}
	for i := range uint64(n) {
		m.queue.Get(second, &Consumer{NoAck: true}, func(d Delivery, _ int) {
			if !bytes.Equal(d.Body, patterned(i, 1024).Body) {
				t.Fatalf("message %d came back as message %d, or changed", i, idOf(d.Body))
			}
		})
	}
	if m.queue.ready != 0 {
		t.Errorf("%d messages are left", m.queue.ready)
	}
	m.queue.Abandon()
	if left := slab.Used() - before; left != 0 {
		t.Errorf("%d bytes of memory are held", left)
	}
}

// What a restorer keeps of a message is dropped when most of them have left, wherever they were.
func TestARestorerForgetsWhatLeft(t *testing.T) {
	q, _, j := durable(t, Config{}, ttlHooks(hook.ScanAnywhere, nil))
	const rounds, batch = 500, 64
	c := &Consumer{}
	for i := range uint64(rounds) {
		var ms []Message
		for k := range uint64(batch) {
			ms = append(ms, persist(i*batch+k))
		}
		q.enqueue(second, batchOf(ms...))
		for k := range batch - 1 {
			var r Ref
			q.Get(second, c, func(d Delivery, _ int) { r = d.Ref })
			if i > 0 || k > 0 { // the first stays
				q.settleAll(second, Ack, []PendingAck{{Ref: r, Consumer: c}})
			}
		}
		q.commit(nil)
	}
	r := testBroker.NewRestorer()
	defer r.Discard()
	for _, e := range j.entries {
		if _, err := r.Apply(e.extent, e.ops); err != nil {
			t.Fatal(err)
		}
	}
	kept := r.queues[7]
	room := 0
	for _, c := range kept.levels[0].chunks {
		room += len(c.slots)
	}
	if n := kept.messages(); room > rounds*batch/4 || n != rounds+1 {
		t.Errorf("there is room for %d messages of %d that came; %d are there, want %d", room, rounds*batch, n, rounds+1)
	}
	m := reborn(q)
	j.used = map[uint32]int64{}
	if got := r.Fill([]*Mailbox{m}); got != rounds+1 {
		t.Errorf("%d messages were restored, want %d", got, rounds+1)
	}
	var got, want []uint64
	for seq, s := m.queue.levels[0].messageFrom(0); s != nil; seq, s = m.queue.levels[0].messageFrom(seq + 1) {
		got = append(got, idOf(m.queue.store.read(*s).body))
	}
	for seq, s := q.levels[0].messageFrom(0); s != nil; seq, s = q.levels[0].messageFrom(seq + 1) {
		want = append(want, idOf(q.store.read(*s).body))
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	j.check(t, &m.queue)
	m.queue.Abandon()
	q.stopped = &StoppedError{}
	q.dropContents()
	q.Abandon()
}

// What an exchange holds may be moved while a release that journals a hold is under way: that hold is in the journal last, and does not
// count. A queue's last hold counts. Which of them it is may be said after both.
func TestRestoredHoldIsThatOfItsKind(t *testing.T) {
	const id, moved, released, last = 7, 50 * second, 40 * second, 60 * second
	q, _, j := durable(t, Config{}, hook.Hooks{})
	q.enqueue(second, batchOf(persist(1)))
	enqueued := j.entries[0].ops
	for _, tt := range []struct {
		name            string
		holds           []byte
		queue, exchange hook.Instant
		unready         bool // in the exchange
	}{
		{"overtaken", appendHeld(appendHeld(nil, id, 0, moved, heldUnready, 2), id, 0, released, 0, 1), released, moved, true},
		{"overtaken twice", appendHeld(appendHeld(appendHeld(nil, id, 0, moved, heldUnready, 3), id, 0, released, 0, 1), id, 0, last, 0, 2), last, moved, true},
		{"and held again", appendHeld(appendHeld(appendHeld(nil, id, 0, moved, heldUnready, 2), id, 0, released, 0, 1), id, 0, last, 0, 3), last, last, false},
		{"in order", appendHeld(appendHeld(nil, id, 0, moved, heldUnready, 1), id, 0, last, 0, 2), last, last, false},
	} {
		for _, kind := range []Kind{Ordinary, Holding} {
			for after := range 3 {
				r := testBroker.NewRestorer()
				for i, ops := range [][]byte{enqueued, tt.holds, nil} {
					if after == i {
						r.Declare(id, kind)
					}
					if _, err := r.Apply(1, ops); err != nil {
						t.Fatal(err)
					}
				}
				want, unready := tt.queue, false
				if kind == Holding {
					want, unready = tt.exchange, tt.unready
				}
				h, _ := r.queues[id].locate(0)
				if got := r.queues[id].currentHold(h); got.until != want || !got.held || got.unready != unready || len(r.queues[id].holds) > 0 {
					t.Errorf("%s, kind %d, declared after %d parts: got %+v, want %d, unready %v", tt.name, kind, after, got, want, unready)
				}
				r.Discard()
			}
		}
	}
	q.stopped = &StoppedError{}
	q.dropContents()
	q.Abandon()
}

// A restorer that follows a log takes about the memory of what is left, wherever in the log that lies.
func TestAPackedRestorer(t *testing.T) {
	const n, every, size = 20_000, 200, 1 << 10 // more than one message is in each segment, and few stay
	q, _, j := durable(t, Config{}, ttlHooks(hook.ScanAnywhere, nil))
	r := testBroker.NewRestorer()
	before := slab.Used()
	var settled []Ref
	for i := range uint64(n) {
		m := patterned(i, size)
		m.Flags = Persistent
		q.enqueue(second, batchOf(m))
		if i%every > 0 {
			settled = append(settled, Ref(i))
		}
	}
	own := slab.Used() - before
	for _, e := range j.entries {
		if _, err := r.Apply(e.extent, e.ops); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := r.Apply(1, appendSettled(nil, 7, settled)); err != nil {
		t.Fatal(err)
	}
	sparse := slab.Used() - before - own
	if err := r.Pack(); err != nil {
		t.Fatal(err)
	}
	if packed := slab.Used() - before - own; packed > sparse/4 || packed > n/every*size*8 {
		t.Errorf("%d messages of %d bytes take %d bytes, and %d before they were packed", n/every, size, packed, sparse)
	}
	if got := r.queues[7].messages(); got != n/every {
		t.Errorf("%d messages are left, want %d", got, n/every)
	}
	for h := range r.queues[7].all {
		if id := h.ref.seq(); !bytes.Equal(r.queues[7].store.read(*h.slot()).body, patterned(id, size).Body) {
			t.Errorf("message %d has changed", id)
		}
	}
	r.Discard()
	q.stopped = &StoppedError{} // the broker is killed
	q.dropContents()
	q.Abandon()
	if left := slab.Used() - before; left != 0 {
		t.Errorf("%d bytes are left", left)
	}
}
