package queue

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/curfewmq/curfew/core/journal"
	"github.com/curfewmq/curfew/core/wlog"
	"github.com/curfewmq/curfew/sdk/hook"
)

// A transaction has a turn in all of its queues at the same time. The queues take
// their parts in and leave it to the transaction to commit what they noted, that
// of one journal in one piece; then they go on as after any other work: hand out,
// drop what is too much or late, send on what was rejected. That may lead to
// commits of their own, which must come later.
//
// Turns are waited for in the order the queues were made, so that transactions
// never wait for one another in a circle; nothing else waits for a queue while it
// has another's turn.

// Part is what a transaction brings to one queue.
type Part struct {
	Mailbox     *Mailbox
	Batch       *Batch // messages for it, nil for none. Its Source is not told
	Settlements []Settlement
}

// Settlement is what a transaction says about messages that a queue handed out.
type Settlement struct {
	Kind  SettleKind
	Items []PendingAck
}

// ErrTooLarge is why a transaction fails that does not fit an entry of a journal.
var ErrTooLarge = errors.New("transaction too large")

// Transact carries out the parts of a transaction, which are for different queues,
// as if at once, and returns when they are durable. The batches are the queues'
// from then on. What a part brings to a queue that is gone counts as done; refused
// says that a queue did not take a message, which does not undo anything else.
//
// After ErrTooLarge, and after a StoppedError of a journal, nothing was done. After any
// other error nobody knows what of it is durable: in each journal all or nothing.
func Transact(parts []Part) (refused bool, err error) {
	t := &transaction{parts: slices.Clone(parts)}
	slices.SortFunc(t.parts, func(a, b Part) int { return cmp.Compare(a.Mailbox.order, b.Mailbox.order) })
	if err := t.check(wlog.MaxEntry); err != nil {
		t.release()
		return false, err
	}
	t.enter(t.parts)
	t.durable.Wait()
	return t.refused, t.err
}

// transaction is one that is being carried out. It belongs to whoever carries it
// out: each of its turns waits for the next.
type transaction struct {
	parts   []Part
	members []*participant
	commits []*sharedCommit
	refused bool

	durable sync.WaitGroup // commits
	failing sync.Mutex     // guards err once there are commits
	err     error
}

var _ journal.Completer = (*transaction)(nil)

// participant is a queue that takes part.
type participant struct {
	*Queue
	part    *Part
	leaving []leavingGroup
}

// leavingGroup is messages that leave, or are about to be asked about.
type leavingGroup struct {
	refs   []Ref
	why    hook.Why
	reason hook.Reason
}

// sharedCommit is a commit of several queues.
type sharedCommit struct {
	journal Journal
	ops     []byte
	live    []journal.Delta
}

// check refuses what would not fit an entry of most bytes.
func (t *transaction) check(most int) error {
	sizes := map[Journal]int{}
	for i := range t.parts {
		p := &t.parts[i]
		r := p.Mailbox.Config().Storage
		if r == nil {
			continue
		}
		if sizes[r.Journal] += p.size(); sizes[r.Journal] > most {
			return fmt.Errorf("%w: %d bytes or more in shard %d, which takes %d at a time", ErrTooLarge, sizes[r.Journal], r.Shard, most)
		}
	}
	return nil
}

// size is what a part takes in a journal at most.
func (p *Part) size() (n int) {
	const most = 64 // bytes for what else is said of a message
	if p.Batch != nil {
		for i := range p.Batch.Messages {
			m := &p.Batch.Messages[i]
			n += enqueueHeader + recordSize(m, slotFlagsOf(m, &hook.Verdict{})) + most
		}
	}
	for _, s := range p.Settlements {
		n += most * len(s.Items)
	}
	return n
}

// enter gets a turn in the queues of parts, and then carries the transaction out.
func (t *transaction) enter(parts []Part) {
	if len(parts) == 0 {
		t.carryOut()
		return
	}
	gone := parts[0].Mailbox.Do(func(q *Queue, now hook.Instant) {
		m := &participant{Queue: q, part: &parts[0]}
		t.members = append(t.members, m)
		turnBufferPool.Put(q.buf) // others need it: there may be many queues
		q.buf = nil
		t.enter(parts[1:])
		q.buf = turnBufferPool.Get().(*turnBuffers)
		if err := readable(func() { m.goOn(now) }); err != nil { // it must not be begun again
			q.stop(err)
		}
	})
	if gone != nil {
		t.enter(parts[1:])
	}
}

func (t *transaction) carryOut() {
	defer t.release()
	for _, m := range t.members {
		if m.stopped != nil {
			t.err = m.stopped
			return
		}
	}
	work := turnBufferPool.Get().(*turnBuffers)
	for _, m := range t.members {
		m.buf = work
		if err := readable(func() { m.take(m.mailbox.clock(), t) }); err != nil {
			m.stop(err)
			t.err = m.stopped
		}
		t.gather(m.Queue)
		m.buf = nil
	}
	turnBufferPool.Put(work)
	t.durable.Add(len(t.commits))
	for _, c := range t.commits {
		c.journal.Commit(c.ops, c.live, t)
	}
}

// release gives the batches back.
func (t *transaction) release() {
	for i := range t.parts {
		if b := t.parts[i].Batch; b != nil {
			b.Release()
		}
	}
}

// take does all of a queue's part that is noted.
func (m *participant) take(now hook.Instant, t *transaction) {
	if b := m.part.Batch; b != nil {
		m.takeIn(now, b.Messages)
		t.refused = t.refused || slices.ContainsFunc(b.Messages, func(p Message) bool { return p.Flags&Refused != 0 })
	}
	for _, s := range m.part.Settlements {
		leaving, late := m.settle(now, s.Kind, s.Items)
		for _, r := range leaving {
			m.journalDeadLettering(m.at(r), s.Kind.reason())
		}
		m.leaving = append(m.leaving,
			leavingGroup{slices.Clone(leaving), hook.WhyLeaving, s.Kind.reason()},
			leavingGroup{slices.Clone(late), hook.WhyDue, hook.ReasonNone})
	}
}

// goOn does what follows from a queue's part.
func (m *participant) goOn(now hook.Instant) {
	if m.stopped != nil {
		return
	}
	for _, g := range m.leaving {
		m.runHeadHooks(now, g.refs, g.why, g.reason)
	}
	m.afterChange(now)
}

// gather adds what a queue noted to the commit of its journal.
func (t *transaction) gather(q *Queue) {
	n := &q.buf.ops
	n.enqueued = 0
	if q.cfg.Storage == nil {
		return
	}
	q.compose()
	if len(n.buf)+len(n.deltas) > 0 {
		c := t.commit(q.cfg.Storage.Journal)
		c.ops, c.live = append(c.ops, n.buf...), append(c.live, n.deltas...)
	}
	n.reset()
}

func (t *transaction) commit(j Journal) *sharedCommit {
	for _, c := range t.commits {
		if c.journal == j {
			return c
		}
	}
	c := &sharedCommit{journal: j}
	t.commits = append(t.commits, c)
	return c
}

// Durable is part of [journal.Completer].
func (t *transaction) Durable() { t.durable.Done() }

// Failed is part of [journal.Completer].
func (t *transaction) Failed(err error) {
	t.failing.Lock()
	t.err = err
	t.failing.Unlock()
	t.durable.Done()
}

// mailboxSeq counts queues as they are made.
var mailboxSeq atomic.Uint64
