package queue

import (
	"time"

	"github.com/curfewmq/curfew/sdk/hook"
)

// Scan looks at the messages of a queue in parts, so that the queue's turns go on. It
// changes nothing: it loads no spilled segment, renews no lease, and counts nothing.
// Messages that come or go meanwhile may be seen or not; none is seen twice.
type Scan struct {
	cursor cursor
	page   pageCopy
	seen   Stored
}

// NewScan returns a scan of the messages that are in a queue.
func NewScan(q *Queue) *Scan { return &Scan{cursor: newCursor(q, Horizon{})} }

// After makes the scan begin behind a message, which may have left.
func (s *Scan) After(r Ref) { s.cursor.seek(r) }

// Horizon returns the end of the messages that the scan looks at.
func (s *Scan) Horizon() Horizon { return s.cursor.until }

// The bounds of one part of a scan, which takes some 0.1 ms if no message is loaded, and
// less than a millisecond if all are.
const (
	scanSlots = 16 * chunkSlots
	scanLoads = 1024
	scanBytes = 256 << 10
)

// Next calls fn with the messages of the next part, in the order in which consumers would
// get them, until fn returns false. It reports whether there are no more messages.
func (s *Scan) Next(q *Queue, fn func(m *Stored) bool) (done bool) {
	m := &s.seen
	m.begin(q, &s.page)
	s.cursor.each(q, scanSlots, func(h handle) bool {
		m.at(h)
		return fn(m) && !m.enough()
	})
	m.end()
	return !s.cursor.inFront(q)
}

// Parts calls part on the turn of the queue m until part returns true, or until the
// queue's clock has reached end. It reports which. Between two calls other queues have
// the processor. It returns ErrGone when the queue was deleted.
func (m *Mailbox) Parts(end hook.Instant, part func(q *Queue) (done bool)) (done bool, err error) {
	for {
		if err := m.Do(func(q *Queue, _ hook.Instant) { done = part(q) }); err != nil || done {
			return done, err
		}
		if m.clock() >= end {
			return false, nil
		}
		time.Sleep(yield)
	}
}

// LookAt calls fn with the messages of refs that are in the queue, in the order of refs,
// until one part is used up. It returns the refs that it has not looked at.
func (s *Scan) LookAt(q *Queue, refs []Ref, fn func(m *Stored)) (left []Ref) {
	m := &s.seen
	m.begin(q, &s.page)
	defer m.end()
	for i, r := range refs {
		h, ok := q.locate(r)
		if !ok || h.slot().is(stateFree) {
			continue
		}
		m.at(h)
		if fn(m); m.enough() {
			return refs[i+1:]
		}
	}
	return nil
}

// MessageState is the state of a message in a queue.
type MessageState uint8

// The states of messages.
const (
	MessageReady MessageState = iota
	MessageUnacked
	MessageHeld
	MessageLeaving // on its way to other queues, out of reach of consumers
	MessageStates
)

// String returns the name in the management API.
func (s MessageState) String() string {
	return [MessageStates]string{"ready", "unacked", "held", "leaving"}[s]
}

// Stored is a message in a queue, as a function that looks at it sees it. It is valid
// during the call.
type Stored struct {
	Ref      Ref
	State    MessageState
	Deadline hook.Instant // 0 means none
	Hold     hook.Instant // end of the hold; 0 means that it is not held
	Returns  uint16       // how often a delivery failed
	Flags    Flags

	// Load sets these.
	Exchange, Key []byte
	Props, Body   []byte
	Enqueued      hook.Instant // when it entered the queue
	Digest        uint64       // of the policy that set the deadline; 0 means none

	queue *Queue
	slot  *slot
	page  *pageCopy
	loads int
	bytes int
	reads int // of page, before the part
}

func (m *Stored) begin(q *Queue, c *pageCopy) { *m = Stored{queue: q, page: c, reads: c.reads} }

// end drops references that do not stay valid between two parts.
func (m *Stored) end() {
	m.page.store = nil // its segment may change between two parts
	*m = Stored{}
}

// enough reports whether the part has used its budget.
func (m *Stored) enough() bool {
	return m.loads >= scanLoads || m.bytes >= scanBytes || m.page.reads > m.reads+1
}

// at makes m the message of a handle.
func (m *Stored) at(h handle) {
	s := h.slot()
	m.Ref, m.slot, m.Deadline, m.Returns, m.Flags = h.ref, s, h.deadline(), s.returns(), s.flags.public()
	switch m.State, m.Hold = MessageReady, 0; {
	case s.is(stateHeld):
		m.State, m.Hold = MessageHeld, h.hold()
	case s.is(stateUnacked):
		m.State = m.queue.takenState(h.ref)
	}
}

// Load reads the message's bytes. The error says that they cannot be read back from the
// spill file.
func (m *Stored) Load() error {
	r, err := m.queue.store.glance(*m.slot, m.page)
	if err != nil {
		return err
	}
	m.set(&r)
	m.loads++
	m.bytes += int(m.slot.length)
	return nil
}

func (m *Stored) set(r *record) {
	m.Exchange, m.Key, m.Props, m.Body, m.Enqueued, m.Digest = r.exchange, r.key, r.props, r.body, r.enqueued, r.setBy()
}

// show makes m a loaded message.
func (m *Stored) show(h handle, r *record) {
	m.Ref, m.Deadline, m.Returns, m.Flags = h.ref, h.deadline(), h.slot().returns(), h.slot().flags.public()
	m.set(r)
}

// Deaths returns how often the loaded message was dead-lettered.
func (m *Stored) Deaths() int {
	if m.Flags&HasDeathHistory == 0 {
		return 0
	}
	return deaths(m.Props)
}

// takenState returns the state of a taken message.
func (q *Queue) takenState(r Ref) MessageState {
	if q.discards.reason(r) != hook.ReasonNone || q.redrive.has(r) {
		return MessageLeaving
	}
	return MessageUnacked
}

// Departing calls fn with the messages that wait to leave, whose state is MessageUnacked
// in a scan.
func (q *Queue) Departing(fn func(Ref)) {
	for i := range q.departing.list {
		fn(q.departing.list[i].ref)
	}
}
