package queue

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/curfewmq/curfew/core/clock"
	"github.com/curfewmq/curfew/sdk/hook"
)

// Mailbox is the concurrency-safe front of a queue. If the queue is idle, the caller of a
// method runs the queue's turn; otherwise it leaves a task to the goroutine that runs the
// turn.
type Mailbox struct {
	broker *Broker
	clock  clock.Clock
	config atomic.Pointer[Config] // queue.cfg, for any goroutine
	order  uint64                 // of creation, among the mailboxes of the broker
	queue  Queue                  // belongs to the goroutine that set running

	mu      sync.Mutex // guards inbox, running and notFull
	inbox   []task
	running bool
	notFull *sync.Cond // publishers wait on it while inbox is full; nil until the first one had to

	// throttled is closed when consumers have caught up: see Publish. It is nil while
	// publishers need not wait.
	throttled atomic.Pointer[chan struct{}]
	removals  atomic.Pointer[pendingRemovals] // nil until the first; set on the queue's turn

	settlesFirst atomic.Bool   // see SettlesFirst
	mayRefuse    atomic.Bool   // see MayRefuse
	users        atomic.Int32  // see Use
	changes      atomic.Uint32 // see Changes
	pins         pins          // see LetGo

	// These fields belong, as queue does, to the goroutine that set running.
	spare  []task // the previous inbox, for reuse
	timer  *time.Timer
	armed  hook.Instant // when timer fires; 0 means that it is not set
	inLine bool         // the queue waits in the line of traffic
}

type taskKind uint8

const (
	taskPublish taskKind = iota
	taskSettle
	taskCall
	taskWake
	taskTick
	taskAnswered
	taskAdmitted
	taskArrived
)

// task is one unit of work in a mailbox. Which fields are set depends on its kind.
type task struct {
	kind     taskKind
	settle   SettleKind
	batch    *Batch
	granted  int64 // bytes of the journal's space, for batch
	settled  []PendingAck
	consumer *Consumer
	call     *call

	transfer *transfer
	answered []int // indexes in transfer: see transfer.post

	arrived []departed
}

// call is a function whose caller waits until it has run.
type call struct {
	fn    func(q *Queue, now hook.Instant)
	err   error
	done  chan struct{}
	ended bool
}

// end lets the caller continue. Only the first call has an effect.
func (c *call) end(err error) {
	if !c.ended {
		c.ended, c.err = true, err
		close(c.done)
	}
}

// start lets a paused queue deliver and expire the messages it was filled with, and then
// run the tasks that wait. Its lease begins now.
func (m *Mailbox) start() {
	begin := func(q *Queue, now hook.Instant) {
		q.Touch(now)
		q.afterChange(now)
	}
	m.run(task{kind: taskCall, call: &call{fn: begin, done: make(chan struct{})}})
}

// SettlesFirst reports whether a plugin watches messages of the queue. Then the plugin's
// decision about a message that enters depends on earlier settlements, which must come
// first.
func (m *Mailbox) SettlesFirst() bool { return m.settlesFirst.Load() }

// MayRefuse reports whether the queue may refuse messages: a plugin announces that, or
// has done it, or the queue is that of an exchange with a limit.
func (m *Mailbox) MayRefuse() bool {
	s := m.Config().Schedule
	return m.mayRefuse.Load() || s != nil && s.MaxHeld().Set()
}

// Now returns the time of the queue's clock. It differs from the node's clock if the
// queue's shard had another owner before.
func (m *Mailbox) Now() hook.Instant { return m.clock() }

// Config returns the queue's configuration.
func (m *Mailbox) Config() *Config { return m.config.Load() }

// Publish hands the queue a batch, which belongs to the queue from then on. It blocks
// while the mailbox is full, so it must not be called on another queue's turn. If the
// journal has no space for the batch, Publish returns, and the batch enters the mailbox
// when there is space, behind batches that wait already.
//
// caughtUp is not nil while publishers are ahead of consumers; it is closed when the
// consumers have caught up. A publisher that waits for that, for a limited time, keeps
// the queue short and its messages in warm memory, and consumers get them at the same
// rate.
func (m *Mailbox) Publish(b *Batch) (caughtUp <-chan struct{}) {
	t := task{kind: taskPublish, batch: b}
	if !m.grant(&t) {
		return nil
	}
	if m.enqueue(t, true) {
		m.run(t)
	}
	if c := m.throttled.Load(); c != nil {
		return *c
	}
	return nil
}

// grant takes space in the journal for a batch. If there is none, it reports false, and
// posts the task when there is.
func (m *Mailbox) grant(t *task) bool {
	s := m.Config().Storage
	g := s.granter()
	if g == nil {
		return true
	}
	// A batch may be a little larger than the largest message.
	t.granted = min(t.batch.journalled(m.Config().Schedule != nil), g.MostGrant())
	if g.Grant(t.granted) {
		return true
	}
	later := *t
	g.Await(t.granted, func() { m.postAsync(later) })
	return false
}

// journalled returns how many bytes the messages of the batch take in the journal, at
// most. Transient messages count only with all.
func (b *Batch) journalled(all bool) (n int64) {
	for i := range b.Messages {
		if m := &b.Messages[i]; all || m.Flags&Persistent != 0 {
			n += int64(m.journalled())
		}
	}
	return n
}

// journalled returns how many bytes a message takes in the journal, at most.
func (m *Message) journalled() int {
	const most = 128 // bytes of other operations
	return enqueueHeader + recordSize(m, slotFlagsOf(m, &hook.Verdict{}, strategyData{})) + most
}

// PublishGranted is PublishAsync for messages that are no dead letters: like Publish, it
// waits for space in the journal.
func (m *Mailbox) PublishGranted(b *Batch) {
	if t := (task{kind: taskPublish, batch: b}); m.grant(&t) {
		m.postAsync(t)
	}
}

// PublishAsync is Publish for dead letters, on another queue's turn. It does not block,
// and never runs the queue on the caller's stack. It needs no grant, because traffic has
// taken the space.
func (m *Mailbox) PublishAsync(b *Batch) {
	b.to = m
	m.broker.underway.add(b)
	m.postAsync(task{kind: taskPublish, batch: b})
}

// Settle settles deliveries of the queue. It does not retain items.
func (m *Mailbox) Settle(kind SettleKind, items []PendingAck) {
	m.post(task{kind: taskSettle, settle: kind, settled: items})
}

// Do runs fn on the queue's turn and waits for it. It returns ErrGone, without having run
// fn, when the queue was deleted. If the queue stops while fn runs, Do runs fn once more,
// on the stopped queue. It returns a StoppedError if fn panics there, too.
func (m *Mailbox) Do(fn func(q *Queue, now hook.Instant)) error {
	c := &call{fn: fn, done: make(chan struct{})}
	m.post(task{kind: taskCall, call: c})
	<-c.done
	return c.err
}

// postAsync is post for a caller that may be on a queue's turn.
func (m *Mailbox) postAsync(t task) {
	if m.enqueue(t, false) {
		go m.run(t)
	}
}

func (m *Mailbox) post(t task) {
	if m.enqueue(t, false) {
		m.run(t)
	}
}

// maxInbox is how many tasks may wait before publishers have to. Other tasks never wait,
// because they free memory.
const maxInbox = 16

// enqueue puts a task in the inbox or, if the queue is idle, reports that the caller
// must run it. With wait it blocks while the inbox is full.
func (m *Mailbox) enqueue(t task, wait bool) (run bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for wait && m.running && len(m.inbox) >= maxInbox {
		if m.notFull == nil {
			m.notFull = sync.NewCond(&m.mu)
		}
		m.broker.waitingPublishers.Add(1)
		m.notFull.Wait()
		m.broker.waitingPublishers.Add(-1)
	}
	if !m.running {
		m.running = true
		return true
	}
	if t.kind == taskSettle {
		t.settled = slices.Clone(t.settled)
	}
	m.inbox = append(m.inbox, t)
	return false
}

// maxTurns is how many inboxes a caller handles before another goroutine takes over, so
// that no connection runs a busy queue for ever.
const maxTurns = 16

// maxRetainedInbox is the largest inbox that is kept for reuse.
const maxRetainedInbox = 64

// run runs t and the tasks that arrive meanwhile.
func (m *Mailbox) run(t task) {
	m.queue.buf = turnBufferPool.Get().(*turnBuffers)
	m.handle(m.clock(), &t)
	m.drain(maxTurns)
}

// drain runs tasks until the inbox is empty, or after so many inboxes leaves them to
// another goroutine; a negative number has no limit.
func (m *Mailbox) drain(turns int) {
	for {
		tasks, ok := m.nextInbox()
		if !ok {
			return
		}
		now := m.clock()
		for i := range tasks {
			m.handle(now, &tasks[i])
		}
		clear(tasks)
		if cap(tasks) <= maxRetainedInbox {
			m.spare = tasks[:0]
		}
		if turns--; turns == 0 {
			go m.drain(-1)
			return
		}
	}
}

// nextInbox returns the tasks that arrived. If there are none it arms the timer, ends
// the turn and returns false.
func (m *Mailbox) nextInbox() (tasks []task, ok bool) {
	m.noteChange()
	if tasks = m.takeInbox(false); tasks != nil {
		return tasks, true
	}
	if !m.contain(m.arm) {
		m.arm() // the queue is stopped now, so arm does not look at its data
	}
	buf := m.queue.buf
	m.queue.buf = nil
	if tasks = m.takeInbox(true); tasks != nil {
		m.queue.buf = buf
		return tasks, true
	}
	turnBufferPool.Put(buf)
	return nil, false
}

// takeInbox takes the inbox. With endTurn, an empty inbox makes the queue idle.
func (m *Mailbox) takeInbox(endTurn bool) []task {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.inbox) == 0 {
		m.running = !endTurn
		return nil
	}
	tasks := m.inbox
	m.inbox, m.spare = m.spare, nil
	if m.notFull != nil {
		m.notFull.Broadcast()
	}
	return tasks
}

// handle runs a task, or answers it if the queue is deleted or stopped.
func (m *Mailbox) handle(now hook.Instant, t *task) {
	q := &m.queue
	if t.kind == taskAdmitted {
		m.inLine = false
		defer m.broker.underway.next()
	}
	q.buf.ops.confirmed = false
	if err := contain(func() { m.take(now, t) }); err != nil {
		m.breakOff(now, t, err)
	}
	m.contain(func() {
		q.commit(nil)
		q.countScheduled()
	})
	if t.granted > 0 {
		q.cfg.Storage.granter().Return(t.granted)
	}
	m.updateThrottle(t.kind == taskPublish)
}

// breakOff stops the queue because a task panicked, and answers the task.
func (m *Mailbox) breakOff(now hook.Instant, t *task, err error) {
	q := &m.queue
	if q.buf == nil { // a transaction had taken it
		q.buf = new(turnBuffers)
	}
	answered := q.stopped != nil || q.closed || t.kind == taskPublish && q.buf.ops.confirmed
	q.buf.ops.arriving = nil
	q.breakDown(err)
	if !answered {
		m.contain(func() { t.decline(q, now) })
	}
	if t.call == nil {
		return
	}
	if q.closed {
		t.call.end(ErrGone)
	} else {
		t.call.end(q.stopped)
	}
}

// take is handle without the work that follows every task.
func (m *Mailbox) take(now hook.Instant, t *task) {
	q := &m.queue
	q.checkJournal()
	if t.kind == taskTick {
		m.armed = 0
		q.freeGarbage()
	}
	switch {
	case q.closed:
		t.reject(q)
	case q.stopped != nil:
		t.decline(q, now)
	default:
		t.run(q, now)
	}
}

// run does the task on the queue's turn.
func (t *task) run(q *Queue, now hook.Instant) {
	switch t.kind {
	case taskPublish:
		q.enqueue(now, t.batch)
	case taskSettle:
		q.settleAll(now, t.settle, t.settled)
	case taskCall:
		t.call.fn(q, now)
		q.commit(nil) // before its caller continues
		t.call.end(nil)
	case taskWake:
		q.consumers.wake(q, now, t.consumer)
	case taskAnswered:
		t.transfer.conclude(q, now, t.answered)
		if q.ending.advance(q, now); !q.closed {
			q.endTurn(now)
		}
	case taskArrived:
		q.arrived(t.arrived)
		q.tick(now)
	case taskTick, taskAdmitted:
		q.tick(now)
	}
}

// throttleBytes is the size of the ready messages at which publishers count as ahead of
// consumers.
const throttleBytes = 64 << 10

// updateThrottle updates whether publishers are ahead of the consumers. Only a publish
// can make them so; any task can end it.
func (m *Mailbox) updateThrottle(published bool) {
	ahead := m.queue.readyBytes > throttleBytes && m.queue.consumers.count() > 0
	c := m.throttled.Load()
	switch {
	case ahead && c == nil && published:
		caughtUp := make(chan struct{})
		m.throttled.Store(&caughtUp)
	case !ahead && c != nil:
		m.throttled.Store(nil)
		close(*c)
	}
}

// reject answers a task for a deleted queue. Published messages count as deleted with the
// queue, so they are confirmed once the journal has written all earlier commits.
func (t *task) reject(q *Queue) {
	switch t.kind {
	case taskAnswered:
		q.parted.forgetMoved(q, t.transfer)
		t.transfer.abandon()
	case taskArrived:
		q.parted.forgetArrived(q, t.arrived)
	case taskPublish:
		b := t.batch
		redriven := b.kept != nil && b.kept.redrive != nil
		if redriven { // redriven messages stay in their old queue instead
			b.kept.refuse(b, FailNoQueue)
		}
		if !redriven && q.cfg.Storage != nil && b.awaited() {
			q.commit((*batchCommit)(b))
			return
		}
		b.complete(nil)
	case taskCall:
		t.call.end(ErrGone)
	}
}

// yield is the pause of a queue with more due messages than one turn handles. It leaves
// the processor to others for long enough that the scheduler polls sockets.
const yield = 30 * time.Microsecond

// arm sets the timer for the queue's next deadline. It leaves a timer alone that fires
// earlier: the tick then finds nothing due and sets the timer again, which costs less
// than setting it for every message.
func (m *Mailbox) arm() {
	next := m.queue.next()
	if (m.queue.closed || m.queue.stopped != nil) && m.timer != nil {
		m.timer.Stop() // it would keep the queue's memory until it fires
		m.armed = 0
	}
	if next == 0 || m.armed != 0 && m.armed <= next {
		return
	}
	m.armed = next
	wait := max(next.Sub(m.clock()), yield)
	if m.timer == nil {
		m.timer = time.AfterFunc(wait, func() { m.post(task{kind: taskTick}) })
		return
	}
	m.timer.Reset(wait)
}
