package queue

import (
	"github.com/curfewmq/curfew/core/chain"
	"github.com/curfewmq/curfew/core/deadline"
	"github.com/curfewmq/curfew/sdk/hook"
)

// contents is the messages of a queue, each of them ready, held or taken, with the
// indexes of their deadlines and holds. It journals their changes. It knows no consumer
// and no hook: the Queue, which embeds it, does. A queue has no contents before its first
// message, because there are reply queues by the thousand. Some methods may be called on
// nil.
type contents struct {
	*essentials // of the queue
	rules       deadlineRules
	levels      []fifo // Levels+1
	store       store
	heap        deadline.Heap // see indexDeadline
	stale       int           // items of heap that are not current: see isCurrent
	count       Counters
	relocating  relocationCursor
	compacting  compaction

	restamping  *restampCursor // nil unless the settings have changed
	overflowing bool           // more messages exceed the limits than one turn may drop
	askBackoff  askBackoff

	holding   *holding            // nil until a message is held
	undecided *undecided          // nil until the strategy fails to decide about a message
	partly    map[Ref]partial     // see noteHave
	promised  map[Ref]hook.Reason // see promiseDeath
	overstays map[Ref]struct{}    // see noteReturn; nil if there are none
}

// essentials is the part of a queue that contents uses, and that a queue without contents
// has, too. A taken message is unacknowledged, or about to leave.
type essentials struct {
	cfg            *Config
	buf            *turnBuffers // during a turn
	ready, unacked int          // messages; unacked counts all taken ones, except those that wait to leave
	readyBytes     int64
	zeroTTL        bool // messages entered in this turn that may be delivered in this turn only
}

// deadlineRules are the strategy's rules for deadlines.
type deadlineRules struct {
	scan      hook.Scan // where the strategy acts on deadlines
	wantsHead bool      // a plugin acts on deadlines
	fromReady bool      // deadlines count from when a message is ready
}

func rulesOf(h *chain.Hooks) deadlineRules {
	return deadlineRules{h.Scan, h.WantsHead, h.DeadlineFromReady}
}

// newContents returns contents without messages.
func newContents(q *Queue) *contents {
	return &contents{
		essentials: &q.essentials, rules: rulesOf(q.hooks), levels: make([]fifo, q.cfg.Levels+1),
		store: store{file: q.mailbox.broker.spill, cold: q.cfg.Schedule != nil},
	}
}

// open creates the contents when the first message enters.
func (q *Queue) open() {
	if q.contents == nil {
		q.contents = newContents(q)
	}
}

// Ref names a message in its queue for as long as it is there: a level (8 bits) and a
// sequence number in it (56 bits).
type Ref uint64

const levelShift = 56

func ref(level int, seq uint64) Ref { return Ref(uint64(level)<<levelShift | seq) }

func (r Ref) level() int  { return int(uint64(r) >> levelShift) }
func (r Ref) seq() uint64 { return uint64(r) & (1<<levelShift - 1) }

// handle is a message located in its queue. It is valid until a message enters or
// leaves, so only a Ref can be kept for longer.
type handle struct {
	ref   Ref
	list  *fifo
	chunk *chunk
	index int // in chunk
}

func (h handle) slot() *slot { return &h.chunk.slots[h.index] }

func (h handle) deadline() hook.Instant { return h.chunk.deadline(h.index) }

// hold returns the end of a held message's hold; 0 means none. A message that was held as
// it entered keeps the value after its release: see readySince.
func (h handle) hold() hook.Instant { return h.chunk.hold(h.index) }

// wasHeldAtFirst reports whether hold is about the hold that the message got as it
// entered.
func (h handle) wasHeldAtFirst() bool {
	s := h.slot()
	return h.hold() != 0 && (s.flags&unready != 0 || !s.is(stateHeld))
}

// locate finds a message; ok is false if it has no slot.
func (c *contents) locate(r Ref) (h handle, ok bool) {
	if c == nil || r.level() >= len(c.levels) {
		return handle{}, false
	}
	f := &c.levels[r.level()]
	k, i, ok := f.locate(r.seq())
	return handle{r, f, k, i}, ok
}

// at is locate for a message that has a slot.
func (c *contents) at(r Ref) handle {
	f := &c.levels[r.level()]
	k, i, _ := f.locate(r.seq())
	return handle{r, f, k, i}
}

// take makes a ready message a taken one; body is the size of its body.
func (c *contents) take(h handle, body int) {
	s := h.slot()
	h.list.take(s)
	c.ready--
	c.unacked++
	c.readyBytes -= int64(body)
	if s.flags&inHeap != 0 {
		c.stale++
	}
}

// untake makes a taken message ready again, in its old position.
func (c *contents) untake(h handle, body int) {
	s := h.slot()
	h.list.requeue(h.ref.seq(), s)
	c.ready++
	c.unacked--
	c.readyBytes += int64(body)
	if s.flags&inHeap != 0 {
		c.stale--
	}
}

// isThere reports whether the contents have a message. Garbage does not count.
func (c *contents) isThere(l int, seq uint64) bool {
	h, ok := c.locate(ref(l, seq))
	return ok && !h.slot().is(stateFree)
}

// topLevel returns the highest level with ready messages; there must be one.
func (c *contents) topLevel() int {
	l := len(c.levels) - 1
	for c.levels[l].ready == 0 {
		l--
	}
	return l
}

// nextRef returns the next message; one must be ready.
func (c *contents) nextRef() Ref {
	l := c.topLevel()
	return ref(l, c.levels[l].peek())
}

// nextInMemory reports whether the next message can be read without the spill file; one
// must be ready.
func (c *contents) nextInMemory() bool {
	return c.store.at(c.at(c.nextRef()).slot().segment).inMemory()
}
