package queue

import (
	"sync"
	"sync/atomic"

	"github.com/curfewmq/curfew/core/telemetry"
	"github.com/curfewmq/curfew/sdk/hook"
)

// transfer is messages that stay in their queue, out of reach of consumers, until every
// target queue has answered: at-least-once dead letters (see discards), or a part of a
// redrive. Then their queue removes each message that all its targets took, and keeps the
// others. Dead letters that leave at once and are sent once use [DeferredRemoval]
// instead.
//
// Example: dead letter 7 goes to the queues A and B, and B is full.
//
//	source   publish            7.pending = 2
//	A        stores 7; durable  7.pending = 1, 7.have = A
//	B        refuses 7          7.pending = 0, 7.stays = FailRefused; posts taskAnswered
//	source   conclude           7 stays; in 3 minutes it is sent again, to B only
//
// If B takes it, too, the source journals the removal in its last step. A crash before
// that is durable shows 7 in the source and in A and B; the source sends it again after
// the restart. For a redriven message that goes to one queue of the same journal, the
// entry with its arrival has the removal, so a crash shows it in one queue.
//
// A transfer belongs to the turn of its queue. While its batches are under way, the
// goroutines that complete these also use stays, pending, have and gone of the messages,
// unanswered, and err.
type transfer struct {
	mailbox  *Mailbox     // of the source, the queue that has the messages
	storage  *Storage     // of the source; nil means that none of the messages is in a journal
	redrive  *Redrive     // nil for dead letters
	messages []inTransfer // by Message.Seq - 1; those of a redrive are in order, all of one level

	tracker  *pendingRemovals // of the source; nil for dead letters, for which no definition waits
	sent     bool
	released bool // tracker.end was called

	unanswered atomic.Int32          // messages
	err        atomic.Pointer[error] // why a batch failed; nil means that none failed
	mu         sync.Mutex            // guards the messages' have until all targets have answered
}

// inTransfer is a message of a transfer.
type inTransfer struct {
	ref     Ref
	verdict hook.Verdict
	target  *RedriveTarget     // nil for dead letters
	entered *telemetry.Entered // the queues that it goes to

	pending    atomic.Int32  // targets that have not answered
	stays      atomic.Uint32 // the [RedriveFailure] for which it stays in the source; 0 means none
	have       []uint64      // targets that took it, by Mailbox.order; unused with alone
	alone      bool          // it goes to one queue
	journalled bool          // it is in the source's journal
	watched    bool          // hooks watched it
	// gone says that the entry with its arrival removes it. It belongs to the turn of its
	// only target until the batch has arrived.
	gone bool
}

// publish sends the dead letters that the transfer's messages become. If it reports
// false, there was no space and none was sent.
func (t *transfer) publish(q *Queue, now hook.Instant, ds []DeadLetter) (sent bool) {
	q.host.DeadLetter(q.cfg, now, ds, Tracking{kept: t, from: q})
	return !q.departing.wasUnsent(q, now)
}

// expect records where the messages go: see [Tracking.Expect].
func (t *transfer) expect(ds []DeadLetter) {
	t.sent = true
	unanswered := 0
	for i := range ds {
		d, m := &ds[i], &t.messages[ds[i].Seq-1]
		m.alone, m.entered = d.Sent == 1, d.Entered
		m.pending.Store(int32(d.Sent))
		if d.Sent > 0 {
			unanswered++
		} else if m.target != nil && d.Outcome != telemetry.DeadLettered { // with DeadLettered, all targets have it already
			m.stays.Store(uint32(failureOf(m.target, d.Outcome)))
		}
	}
	t.unanswered.Store(int32(unanswered))
	if t.redrive != nil && unanswered == 0 {
		t.post(nil)
	}
}

// refuse records why all messages of a batch stay.
func (t *transfer) refuse(b *Batch, f RedriveFailure) {
	for i := range b.Messages {
		b.Messages[i].Flags |= Refused
		t.messages[b.Messages[i].Seq-1].stays.Store(uint32(f))
	}
}

// appendRemovals appends to n, the operations of a target, the removals of redriven
// messages that go to this target only. It does so if j, the target's journal, is also
// that of the source: then a crash shows each message in one queue. An at-least-once dead
// letter is removed later, because the source may relocate it meanwhile: a copy behind
// the removal would bring it back.
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

// appendLeft appends the removal of messages, as runs. It does not change live bytes: the
// old queue accounts for the messages when it frees them.
func appendLeft(ops []byte, queue uint64, refs []Ref) []byte {
	var runs refRuns
	for _, r := range refs {
		runs.add(r, 1)
	}
	runs.end()
	return appendRuns(ops, queue, runs.b)
}

// answer records a target's answer about its batch. With an error it is unknown whether
// the target has the messages, except for those that the entry with their arrival removes:
// the turn of the target broke off after that entry.
func (t *transfer) answer(b *Batch, err error) {
	if err != nil {
		t.err.Store(&err)
	}
	var answered []int
	for i := range b.Messages {
		n := int(b.Messages[i].Seq - 1)
		m := &t.messages[n]
		switch {
		case err != nil && m.gone && t.storage.Journal.Err() == nil:
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

// post makes the source conclude the messages with the indexes answered, for which all
// targets have answered. For a redrive answered is nil, and all messages are concluded
// together.
func (t *transfer) post(answered []int) {
	t.mailbox.postAsync(task{kind: taskAnswered, transfer: t, answered: answered})
}

// conclude removes the messages that have arrived, and keeps the others. answered has the
// indexes of dead letters; a redrive does not use it.
func (t *transfer) conclude(q *Queue, now hook.Instant, answered []int) {
	if t.redrive != nil {
		t.redrive.moved(q, now, t)
		return
	}
	q.discards.answered(q, now, t, answered)
}

// reportAll reports the messages with the indexes in list, which have arrived or were
// dropped. It must be called before their records are freed.
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

// release ends the transfer for tracker, so that the definition of a deleted source can
// be deleted; with an error it stays. Only the first call has an effect.
func (t *transfer) release(err error) {
	if t.tracker != nil && !t.released {
		t.released = true
		t.tracker.end(err)
	}
}

// abandon is release for a source that is deleted. The definition stays if it is unknown
// whether a journalled message is in its target: a restart then finds the message in the
// source.
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
