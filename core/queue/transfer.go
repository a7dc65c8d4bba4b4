package queue

import (
	"sync"
	"sync/atomic"

	"github.com/curfewmq/curfew/core/telemetry"
	"github.com/curfewmq/curfew/sdk/hook"
)

// transfer is messages that stay in their queue, out of reach of consumers, until every
// queue that they are sent to has answered: at-least-once dead letters (see discards), or
// a part of a redrive. Then their queue removes each message that all its targets took,
// and keeps the others. Dead letters that leave at once and are sent once need none of
// this: see [DeferredRemoval].
//
// A transfer belongs to the turn of its queue. While its batches are on their way it
// also belongs to those: they use stays, pending, have and gone of the messages,
// unanswered, and err.
type transfer struct {
	mailbox  *Mailbox     // of the queue
	storage  *Storage     // of the queue; nil means that none of the messages is in a journal
	redrive  *Redrive     // nil for dead letters
	messages []inTransfer // by Message.Seq - 1; those of a redrive are in order, all of one level

	tracker  *pendingRemovals // of the queue; nil for dead letters, which keep the queue's definition themselves
	sent     bool
	released bool // from tracker

	unanswered atomic.Int32          // messages
	err        atomic.Pointer[error] // why a batch failed; nil means that none has
	mu         sync.Mutex            // guards the messages' have until all targets have answered
}

// inTransfer is a message of a transfer.
type inTransfer struct {
	ref     Ref
	verdict hook.Verdict
	target  *RedriveTarget     // nil for dead letters
	entered *telemetry.Entered // the queues that it was routed to

	pending    atomic.Int32  // targets that have not answered
	stays      atomic.Uint32 // the [RedriveFailure] for which it stays; 0 means none
	have       []uint64      // targets that took it, by Mailbox.order, unless it goes to one only
	alone      bool          // it goes to one queue
	journalled bool          // it is in the queue's journal
	watched    bool          // hooks watched it
	// gone says that the entry with its arrival removes it. It belongs to the turn of its
	// only target until the batch has arrived.
	gone bool
}

// publish publishes dead letters that are made of the transfer's messages. If it reports
// false, there was no space for them: none was sent.
func (t *transfer) publish(q *Queue, now hook.Instant, ds []DeadLetter) (sent bool) {
	q.host.DeadLetter(q.cfg, now, ds, Tracking{kept: t, from: q})
	return !q.departing.wasUnsent(q, now)
}

// expect is [Tracking.Expect].
func (t *transfer) expect(ds []DeadLetter) {
	t.sent = true
	unanswered := 0
	for i := range ds {
		d, m := &ds[i], &t.messages[ds[i].Seq-1]
		m.alone, m.entered = d.Sent == 1, d.Entered
		m.pending.Store(int32(d.Sent))
		if d.Sent > 0 {
			unanswered++
		} else if m.target != nil && d.Outcome != telemetry.DeadLettered { // else all targets have it
			m.stays.Store(uint32(failureOf(m.target, d.Outcome)))
		}
	}
	t.unanswered.Store(int32(unanswered))
	if t.redrive != nil && unanswered == 0 {
		t.post(nil)
	}
}

// refuse notes why the messages of a batch stay.
func (t *transfer) refuse(b *Batch, f RedriveFailure) {
	for i := range b.Messages {
		b.Messages[i].Flags |= Refused
		t.messages[b.Messages[i].Seq-1].stays.Store(uint32(f))
	}
}

// appendRemovals appends the removals of redriven messages that go to no queue but the one
// which has taken them, if the journal j is that of their old queue, too: then a crash finds
// each in one place. A dead letter may be written again meanwhile by its old queue, behind
// its removal, which would bring it back: it is removed later.
func (t *transfer) appendRemovals(n *opBuffer, ms []Message, j Journal) {
	if t.redrive == nil || t.storage == nil || t.storage.Journal != j {
		return
	}
	var refs []Ref
	for i := range ms {
		m := &t.messages[ms[i].Seq-1]
		if ms[i].Flags&Refused == 0 && m.alone && m.journalled && !m.gone && m.stays.Load() == 0 {
			refs = append(refs, m.ref)
			m.gone = true
		}
	}
	if len(refs) > 0 {
		n.buf = appendLeft(n.buf, t.storage.ID, refs)
	}
}

// appendLeft appends that messages leave as runs: their old queue accounts for them later, see Without.
func appendLeft(ops []byte, queue uint64, refs []Ref) []byte {
	var runs refRuns
	for _, r := range refs {
		runs.add(r, 1)
	}
	runs.end()
	return appendRuns(ops, queue, runs.b)
}

// answer notes what a target did with its batch. With an error it is unknown whether the
// messages are there.
func (t *transfer) answer(b *Batch, err error) {
	if err != nil {
		t.err.Store(&err)
	}
	var answered []int
	for i := range b.Messages {
		n := int(b.Messages[i].Seq - 1)
		m := &t.messages[n]
		switch {
		case err != nil:
			m.stays.Store(uint32(FailTargetStopped))
		case b.Messages[i].Flags&Refused != 0:
			m.stays.CompareAndSwap(0, uint32(FailRefused))
		case !m.alone:
			t.mu.Lock()
			m.have = append(m.have, b.to.order)
			t.mu.Unlock()
		}
		if m.pending.Add(-1) == 0 {
			answered = append(answered, n)
		}
	}
	left := t.unanswered.Add(-int32(len(answered)))
	switch {
	case t.redrive != nil && left == 0 && len(answered) > 0:
		t.post(nil)
	case t.redrive == nil && len(answered) > 0:
		t.post(answered)
	}
}

// post has the queue look at messages which all targets have answered: of a redrive at all
// of them together.
func (t *transfer) post(answered []int) {
	t.mailbox.postAsync(task{kind: taskAnswered, transfer: t, answered: answered})
}

// conclude removes the messages that have arrived, and keeps the others. answered is the
// indexes of dead letters.
func (t *transfer) conclude(q *Queue, now hook.Instant, answered []int) {
	if t.redrive != nil {
		t.redrive.moved(q, now, t)
		return
	}
	q.discards.answered(q, now, t, answered)
}

// reportAll reports messages that have arrived, or were dropped, while their records are
// there still.
func (t *transfer) reportAll(q *Queue, now hook.Instant, list []int, outcome telemetry.Outcome) {
	all := &q.buf.removals.all
	for _, i := range list {
		m := &t.messages[i]
		rec := q.store.read(*q.at(m.ref).slot())
		removal := q.removalOf(now, m.ref, &rec, &m.verdict)
		removal.Outcome, removal.Entered = outcome, m.entered
		*all = append(*all, removal)
	}
	q.buf.removals.publish(q, now)
}

// endUnsent ends a transfer if the turn broke off before it was sent. A restart finds its
// messages in their queue.
func (t *transfer) endUnsent() {
	if !t.sent {
		t.release(nil)
	}
}

// release lets the queue's definition be deleted, if that waits for a part of a redrive;
// with an error the definition stays. It may be called again.
func (t *transfer) release(err error) {
	if t.tracker != nil && !t.released {
		t.released = true
		t.tracker.end(err)
	}
}

// abandon is release for a queue that is deleted: the definition stays if a restart finds
// messages of which it is unknown whether they are in their target.
func (t *transfer) abandon() {
	for i := range t.messages {
		if m := &t.messages[i]; m.journalled && m.failure() == FailTargetStopped {
			t.release(*t.err.Load())
			return
		}
	}
	t.release(nil)
}

// failure returns why the message stays, [NotChosen] if it has arrived.
func (m *inTransfer) failure() RedriveFailure { return RedriveFailure(m.stays.Load()) }
