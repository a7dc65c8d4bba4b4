package queue

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/curfewmq/curfew/core/journal"
	"github.com/curfewmq/curfew/core/wlog"
	"github.com/curfewmq/curfew/sdk/hook"
)

// A transaction has a turn in all of its queues at the same time. The queues carry out
// their parts and leave the commit to the transaction, one for each journal. Then they go
// on as after any other task: they deliver, enforce limits, expire, and dead-letter
// rejected messages. That may lead to commits of their own, which must come later.
//
// A transaction takes turns in the order in which the queues were created, so that
// transactions never wait for one another in a circle. Only transactions wait for a queue
// while they have the turn of another.

// Part is the batch and the settlements of a transaction for one queue.
type Part struct {
	Mailbox     *Mailbox
	Batch       *Batch // nil means no messages. Its Publisher is not called
	Settlements []Settlement
	// Lost is called, on the queue's turn, with the Seq of each mandatory message that
	// found nothing to cancel. nil means that there is no such message.
	Lost func(seq uint64)
	// Settled is set by Transact if the queue has carried out Settlements, whatever
	// became of their commit: the caller must not settle them again.
	Settled bool
}

// Settlement settles deliveries of a queue.
type Settlement struct {
	Kind  SettleKind
	Items []PendingAck
}

// ErrTooLarge is returned for a transaction that does not fit an entry of a journal, or
// its disk.
var ErrTooLarge = errors.New("transaction too large")

// Transact carries out the parts of a transaction, which are for different queues, as one
// step, and returns when they are durable. It may sort parts. The batches belong to the
// queues from then on. A part for a deleted queue counts as done. refused reports whether
// a queue refused a message, which does not undo anything else.
//
// After ErrTooLarge, and after a StoppedError of a journal, nothing was done. After any
// other error each journal has either all of its part or nothing, and it is unknown
// which; the parts of queues that stopped meanwhile may be missing.
func Transact(parts []Part) (refused bool, err error) {
	t := &transaction{parts: parts}
	slices.SortFunc(t.parts, func(a, b Part) int { return cmp.Compare(a.Mailbox.order, b.Mailbox.order) })
	if err := t.check(); err != nil {
		t.release()
		return false, err
	}
	granted := t.grant()
	t.enter(t.parts)
	for g, bytes := range granted {
		g.Return(bytes)
	}
	t.durable.Wait()
	return t.refused, t.err
}

// transaction is a transaction in progress. It belongs to the goroutine of its innermost
// turn: each turn waits for the next.
type transaction struct {
	parts   []Part
	members []*participant
	commits []*sharedCommit
	refused bool
	carried bool // carryOut has begun: nothing may run it again

	durable sync.WaitGroup // commits
	failing sync.Mutex     // guards err once there are commits
	err     error
}

var _ journal.Completer = (*transaction)(nil)

// participant is a queue in a transaction.
type participant struct {
	*Queue
	part    *Part
	leaving []leavingGroup
}

// leavingGroup is settled messages whose hooks are asked after the commit.
type leavingGroup struct {
	leaving, late []Ref
	reason        hook.Reason // of those that leave
}

// sharedCommit is a commit of several queues to one journal.
type sharedCommit struct {
	journal Journal
	ops     []byte
	live    []journal.Delta
	relies  bool // a message was dropped because its queue has an equal one, which must be durable, too
}

// check refuses a transaction that does not fit an entry of a journal, or that would
// never be granted its space.
func (t *transaction) check() error {
	sizes, brought := map[Journal]int{}, map[Journal]int{}
	for i := range t.parts {
		p := &t.parts[i]
		r := p.Mailbox.Config().Storage
		if r == nil {
			continue
		}
		most := maxCommit(r.Journal)
		if sizes[r.Journal] += p.size(); sizes[r.Journal] > most {
			return tooLarge(sizes[r.Journal], r, most)
		}
		g := r.granter()
		if g == nil || p.Batch == nil {
			continue
		}
		most = int(g.MostGrant())
		if brought[r.Journal] += int(p.Batch.journalled(true)); brought[r.Journal] > most {
			return tooLarge(brought[r.Journal], r, most)
		}
	}
	return nil
}

func tooLarge(bytes int, r *Storage, most int) error {
	return fmt.Errorf("%w: %d bytes or more in shard %d, which takes %d at a time", ErrTooLarge, bytes, r.Shard, most)
}

// grant waits until all journals have space for the messages of the parts, and takes the
// space. While it waits for one journal, it holds no space of others.
func (t *transaction) grant() map[Granter]int64 {
	var all map[Granter]int64
	for i := range t.parts {
		p := &t.parts[i]
		g := p.Mailbox.Config().Storage.granter()
		if g == nil || p.Batch == nil {
			continue
		}
		if all == nil {
			all = map[Granter]int64{}
		}
		all[g] += p.Batch.journalled(true)
	}
	for {
		lacks := t.tryGrant(all)
		if lacks == nil {
			return all
		}
		granted := make(chan struct{})
		lacks.Await(all[lacks], func() { close(granted) })
		<-granted
		if len(all) == 1 {
			return all
		}
		lacks.Return(all[lacks])
	}
}

// tryGrant takes the grants of all journals or of none, and returns a journal that lacks
// space; nil means that it took all.
func (t *transaction) tryGrant(all map[Granter]int64) (lacks Granter) {
	var got []Granter
	for g, bytes := range all {
		if !g.Grant(bytes) {
			lacks = g
			break
		}
		got = append(got, g)
	}
	if lacks != nil {
		for _, g := range got {
			g.Return(all[g])
		}
	}
	return lacks
}

// maxCommit returns how many bytes of operations a journal takes at once.
func maxCommit(j Journal) int {
	if b, ok := j.(interface{ MaxCommit() int }); ok {
		return b.MaxCommit()
	}
	return wlog.MaxEntry
}

// size returns how many bytes a part takes in a journal, at most.
func (p *Part) size() (n int) {
	if p.Batch != nil {
		n += int(p.Batch.journalled(true))
	}
	const most = 128 // bytes of a settlement
	for _, s := range p.Settlements {
		n += most * len(s.Items)
	}
	return n
}

// enter takes a turn in the queues of parts, then carries the transaction out.
func (t *transaction) enter(parts []Part) {
	if len(parts) == 0 {
		if err := contain(t.carryOut); err != nil {
			t.err = err
		}
		return
	}
	err := parts[0].Mailbox.Do(func(q *Queue, now hook.Instant) {
		if t.carried { // the queue has stopped since, and runs the task again
			return
		}
		m := &participant{Queue: q, part: &parts[0]}
		t.members = append(t.members, m)
		turnBufferPool.Put(q.buf) // for other queues: there may be many in a transaction
		q.buf = nil
		t.enter(parts[1:])
		q.buf = turnBufferPool.Get().(*turnBuffers)
		if err := contain(func() { m.goOn(now) }); err != nil {
			q.stop(err)
		}
	})
	switch {
	case err == nil || t.carried:
	case errors.Is(err, ErrGone):
		t.enter(parts[1:])
	default:
		t.err = err
		t.release()
	}
}

func (t *transaction) carryOut() {
	defer t.release()
	t.carried = true
	for _, m := range t.members {
		if m.stopped != nil {
			t.err = m.stopped
			return
		}
	}
	buf := turnBufferPool.Get().(*turnBuffers)
	for _, m := range t.members {
		m.buf = buf
		if err := contain(func() { m.take(m.mailbox.clock(), t) }); err != nil {
			m.stop(err)
			t.err = m.stopped
			buf = m.buf // another one after a panic, whose operations are dropped
		}
		t.gather(m.Queue)
		m.buf = nil
	}
	turnBufferPool.Put(buf)
	for _, c := range t.commits {
		t.durable.Add(1)
		c.journal.Commit(c.ops, c.live, t)
	}
}

// release releases the batches.
func (t *transaction) release() {
	for i := range t.parts {
		if b := t.parts[i].Batch; b != nil {
			b.release()
		}
	}
}

// take carries out the operations of a queue's part that the transaction commits. Hooks
// that watch messages decide about a message by those that are in the queue. So with such
// hooks, messages leave before others enter, in the same commit.
func (m *participant) take(now hook.Instant, t *transaction) {
	m.buf.committing = m.hooks.WantsGone()
	defer func() { m.buf.committing = false }()
	if m.buf.committing {
		m.settleNow(now)
	}
	if b := m.part.Batch; b != nil {
		m.takeInTurn(now, b.Messages)
		t.refused = t.refused || slices.ContainsFunc(b.Messages, func(p Message) bool { return p.Flags&Refused != 0 })
		m.reportLost()
	}
	if !m.buf.committing {
		m.settleLater(now)
	}
}

// reportLost reports cancellations that found no message.
func (m *participant) reportLost() {
	if m.part.Lost == nil {
		return
	}
	for i := range m.part.Batch.Messages {
		if p := &m.part.Batch.Messages[i]; p.Flags&Mandatory != 0 {
			m.part.Lost(p.Seq)
		}
	}
}

// settleNow settles deliveries and asks the hooks about messages that leave. Dead letters
// wait for goOn.
func (m *participant) settleNow(now hook.Instant) {
	for _, s := range m.part.Settlements {
		leaving, late := m.settle(now, s.Kind, s.Items)
		m.runHeadHooks(now, leaving, hook.WhyLeaving, s.Kind.reason())
		m.runLateHooks(now, late)
		m.letLeave(now)
	}
	m.part.Settled = len(m.part.Settlements) > 0
}

// settleLater settles deliveries. goOn asks the hooks about those that leave.
func (m *participant) settleLater(now hook.Instant) {
	for _, s := range m.part.Settlements {
		leaving, late := m.settle(now, s.Kind, s.Items)
		for _, r := range leaving {
			m.promiseDeath(m.at(r), s.Kind.reason())
		}
		m.leaving = append(m.leaving, leavingGroup{slices.Clone(leaving), slices.Clone(late), s.Kind.reason()})
	}
	m.part.Settled = len(m.part.Settlements) > 0
}

// goOn does the work that follows a queue's part, after the commit.
func (m *participant) goOn(now hook.Instant) {
	if m.stopped != nil {
		return
	}
	for _, g := range m.leaving {
		m.runHeadHooks(now, g.leaving, hook.WhyLeaving, g.reason)
		m.runLateHooks(now, g.late)
	}
	if m.hooks.WantsGone() {
		m.departing.send(m.Queue, now)
	}
	m.afterChange(now)
}

// gather adds a queue's operations to the commit of its journal.
func (t *transaction) gather(q *Queue) {
	n := &q.buf.ops
	relies := n.relies
	n.enqueued, n.relies = 0, false
	if q.cfg.Storage == nil {
		return
	}
	q.buf.ops.compose(q)
	if relies || len(n.buf)+len(n.deltas) > 0 {
		c := t.commit(q.cfg.Storage.Journal)
		c.ops, c.live = append(c.ops, n.buf...), append(c.live, n.deltas...)
		c.relies = c.relies || relies
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

// Durable implements [journal.Completer].
func (t *transaction) Durable() { t.durable.Done() }

// Failed implements [journal.Completer].
func (t *transaction) Failed(err error) {
	t.failing.Lock()
	t.err = err
	t.failing.Unlock()
	t.durable.Done()
}
