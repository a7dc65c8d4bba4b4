package queue

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/curfewmq/curfew/core/chain"
	"github.com/curfewmq/curfew/core/clock"
	"github.com/curfewmq/curfew/sdk/hook"
)

// Mailbox is the mailbox of a queue. Anyone may call its methods; whoever finds
// the queue idle runs it on the spot, anyone else leaves the work for them.
type Mailbox struct {
	clock  clock.Clock
	config atomic.Pointer[Config] // what queue.cfg is, for everybody
	order  uint64                 // among all queues, by when they were made
	queue  Queue                  // belongs to whoever set running

	mu      sync.Mutex // guards inbox, running and room
	inbox   []task
	running bool
	notFull *sync.Cond // publishers wait here while inbox is full; nil until one had to

	throttled atomic.Pointer[chan struct{}]   // see Publish; nil while publishers are not ahead
	removals  atomic.Pointer[pendingRemovals] // nil until the first; its turn's

	// What follows belongs, as queue does, to whoever set running.
	spare  []task // the inbox that was worked off last
	timer  *time.Timer
	armed  hook.Instant // what timer is set to; 0 = not set
	inLine bool         // it has dead letters and is in the line of underway
}

type taskKind uint8

const (
	taskPublish taskKind = iota
	taskSettle
	taskCall
	taskWake
	taskTick
	taskConfirmed
	taskAdmitted
)

type task struct {
	kind     taskKind
	settle   SettleKind
	batch    *Batch
	settled  []PendingAck
	consumer *Consumer
	call     *call

	confirms  *deadLetterConfirms // with which: messages that have arrived elsewhere
	confirmed []int
}

// call is work somebody waits for.
type call struct {
	fn   func(q *Queue, now hook.Instant)
	err  error
	done chan struct{}
}

// NewMailbox returns a queue without messages. Its lease begins now.
func NewMailbox(cfg *Config, c *chain.Chain, host Host, clock clock.Clock) *Mailbox {
	s := NewPausedMailbox(cfg, c, host, clock)
	s.running = false
	s.queue.Touch(clock())
	s.arm()
	return s
}

// NewPausedMailbox returns a queue that a [Replayer] is to fill. What is asked of it
// waits, and its lease does not begin, until the Replayer starts it.
func NewPausedMailbox(cfg *Config, c *chain.Chain, host Host, clock clock.Clock) *Mailbox {
	s := &Mailbox{clock: clock, order: mailboxSeq.Add(1), running: true}
	s.config.Store(cfg)
	s.queue = Queue{cfg: cfg, host: host, mailbox: s}
	s.queue.hooks = c.Attach((*pluginView)(&s.queue), &cfg.Hooks)
	return s
}

// start lets a held queue hand out and expire what it was filled with, and then
// do what was asked of it meanwhile. Its lease begins now.
func (s *Mailbox) start() {
	begin := func(q *Queue, now hook.Instant) {
		q.Touch(now)
		q.afterChange(now)
	}
	s.run(task{kind: taskCall, call: &call{fn: begin, done: make(chan struct{})}})
}

// Config returns the queue's description.
func (s *Mailbox) Config() *Config { return s.config.Load() }

// Publish hands the queue a batch, which is the queue's from then on. It waits
// while the queue has more batches before it than it can see through soon, so it
// must not be called on another queue's turn.
//
// What it returns is not nil when publishers are ahead: consumers are there and
// have plenty to do. A publisher that pauses until it is closed, within reason,
// keeps the queue short and its messages in warm memory, at no cost to the rate
// at which they arrive at the far end.
func (s *Mailbox) Publish(b *Batch) (caughtUp <-chan struct{}) {
	o := task{kind: taskPublish, batch: b}
	if s.enqueueInTurn(o) {
		s.run(o)
	}
	if c := s.throttled.Load(); c != nil {
		return *c
	}
	return nil
}

// PublishAsync is Publish for a caller who is on another queue's turn, with dead
// letters: it never runs the queue on the caller's stack.
func (s *Mailbox) PublishAsync(b *Batch) {
	underway.add(b)
	s.postAsync(task{kind: taskPublish, batch: b})
}

// Settle tells the queue what became of messages it handed out. items are the
// caller's again when it returns.
func (s *Mailbox) Settle(kind SettleKind, items []PendingAck) {
	s.post(task{kind: taskSettle, settle: kind, settled: items})
}

// Do runs fn on the queue's turn and waits for it. It returns ErrGone, without
// having run fn, when the queue was deleted.
func (s *Mailbox) Do(fn func(q *Queue, now hook.Instant)) error {
	c := &call{fn: fn, done: make(chan struct{})}
	s.post(task{kind: taskCall, call: c})
	<-c.done
	return c.err
}

// postAsync is post for a caller who may be on a queue's turn.
func (s *Mailbox) postAsync(o task) {
	if s.enqueue(o) {
		go s.run(o)
	}
}

func (s *Mailbox) post(o task) {
	if s.enqueue(o) {
		s.run(o)
	}
}

// enqueue leaves work for whoever runs the queue. It reports whether that is
// the caller, who then has the work still in hand.
func (s *Mailbox) enqueue(o task) (run bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.add(o)
}

// maxInbox is how much work may wait before publishers wait too. Work of other
// kinds is taken at once: it makes room.
const maxInbox = 16

// enqueueInTurn is enqueue for publishers, which wait while the inbox is full.
func (s *Mailbox) enqueueInTurn(o task) (run bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.running && len(s.inbox) >= maxInbox {
		if s.notFull == nil {
			s.notFull = sync.NewCond(&s.mu)
		}
		waitingPublishers.Add(1)
		s.notFull.Wait()
		waitingPublishers.Add(-1)
	}
	return s.add(o)
}

var waitingPublishers atomic.Int64

// WaitingPublishers is how many wait, at this moment, in the whole process until a queue has seen through the work it has.
func WaitingPublishers() int64 { return waitingPublishers.Load() }

// add takes work into the inbox, or reports that the caller is to do it. The
// caller holds mu.
func (s *Mailbox) add(o task) (run bool) {
	if !s.running {
		s.running = true
		return true
	}
	if o.kind == taskSettle {
		o.settled = slices.Clone(o.settled)
	}
	s.inbox = append(s.inbox, o)
	return false
}

// maxTurns is how many mailboxes one caller works off before a goroutine of
// its own takes over: a connection must not run a busy queue for ever.
const maxTurns = 16

// maxRetainedInbox is the largest inbox that is kept for reuse.
const maxRetainedInbox = 64

// run works off o and whatever arrives meanwhile.
func (s *Mailbox) run(o task) {
	s.queue.buf = turnBufferPool.Get().(*turnBuffers)
	s.handle(s.clock(), &o)
	s.drain(maxTurns)
}

// drain works off the mailbox until it is empty, or hands over after turns.
func (s *Mailbox) drain(turns int) {
	for {
		ops, ok := s.nextInbox()
		if !ok {
			return
		}
		now := s.clock()
		for i := range ops {
			s.handle(now, &ops[i])
		}
		clear(ops)
		if cap(ops) <= maxRetainedInbox {
			s.spare = ops[:0]
		}
		if turns--; turns == 0 {
			go s.drain(-1)
			return
		}
	}
}

// nextInbox returns the work that arrived. With none it arms the timer, gives
// the turn up and returns false.
func (s *Mailbox) nextInbox() (ops []task, ok bool) {
	if ops = s.takeInbox(false); ops != nil {
		return ops, true
	}
	s.arm()
	work := s.queue.buf
	s.queue.buf = nil
	if ops = s.takeInbox(true); ops != nil {
		s.queue.buf = work
		return ops, true
	}
	turnBufferPool.Put(work)
	return nil, false
}

// takeInbox takes the inbox; when it is empty and rest is set the queue is idle.
func (s *Mailbox) takeInbox(rest bool) []task {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.inbox) == 0 {
		s.running = !rest
		return nil
	}
	ops := s.inbox
	s.inbox, s.spare = s.spare, nil
	if s.notFull != nil {
		s.notFull.Broadcast()
	}
	return ops
}

// handle carries out one piece of work.
func (s *Mailbox) handle(now hook.Instant, o *task) {
	q := &s.queue
	q.checkJournal()
	switch o.kind {
	case taskTick:
		s.armed = 0
		q.freeGarbage()
	case taskAdmitted:
		s.inLine = false
		defer underway.next()
	}
	switch {
	case q.closed:
		q.rejectDeleted(o)
	case q.stopped != nil:
		q.declineStopped(now, o)
	default:
		s.runTaskOrStop(now, o)
	}
	q.commit(nil)
	s.updateThrottle(o.kind == taskPublish)
}

// runTaskOrStop is applyVerdicts, or stops the queue if it lacks what it needs for that.
func (s *Mailbox) runTaskOrStop(now hook.Instant, o *task) {
	defer func() {
		if p := recover(); p != nil {
			s.queue.stop(lackOf(p))
			s.queue.declineStopped(now, o)
		}
	}()
	s.runTask(now, o)
}

// applyVerdicts is handle for a queue that is at work.
func (s *Mailbox) runTask(now hook.Instant, o *task) {
	q := &s.queue
	switch o.kind {
	case taskPublish:
		q.enqueue(now, o.batch)
	case taskSettle:
		q.settleAll(now, o.settle, o.settled)
	case taskCall:
		o.call.fn(q, now)
		q.commit(nil) // before whoever waits goes on
		close(o.call.done)
	case taskWake:
		q.wake(now, o.consumer)
	case taskConfirmed:
		q.discardsAnswered(now, o.confirms, o.confirmed)
		if q.advanceEnding(now); !q.closed {
			q.endTurn(now)
		}
	case taskTick, taskAdmitted:
		q.tick(now)
	}
}

// pendingRemovals returns the queue's departures. It is called on its turn.
func (s *Mailbox) pendingRemovals() *pendingRemovals {
	d := s.removals.Load()
	if d == nil {
		d = &pendingRemovals{}
		s.removals.Store(d)
	}
	return d
}

// throttleBytes is how much the consumers of a queue have before them, in bytes of
// ready messages, when its publishers are ahead.
const throttleBytes = 64 << 10

// updateThrottle notes whether publishers are ahead of the consumers. Only messages
// that come in can make them so, and whatever goes out end it.
func (s *Mailbox) updateThrottle(published bool) {
	plenty := s.queue.readyBytes > throttleBytes && s.queue.consumers.count() > 0
	c := s.throttled.Load()
	switch {
	case plenty && c == nil && published:
		fresh := make(chan struct{})
		s.throttled.Store(&fresh)
	case !plenty && c != nil:
		s.throttled.Store(nil)
		close(*c)
	}
}

// rejectDeleted answers work for a queue that is gone. Messages count as taken, as a
// deleted queue takes its messages with it: as soon as that is durable.
func (q *Queue) rejectDeleted(o *task) {
	switch o.kind {
	case taskPublish:
		if b := o.batch; q.cfg.Storage != nil && (b.Publisher != nil || b.Removal != nil) {
			q.commit(b)
			return
		}
		o.batch.complete(nil)
	case taskCall:
		o.call.err = ErrGone
		close(o.call.done)
	}
}

// yield is how long a queue with more due messages than a turn handles lets
// others have the processor: long enough for the scheduler to look at sockets.
const yield = 30 * time.Microsecond

// arm sets the timer for the queue's next deadline. One that is set to an
// earlier time is left alone: it fires, finds nothing due, and is set again,
// which is cheaper than setting it for every message.
func (s *Mailbox) arm() {
	next := s.queue.next()
	if s.queue.closed && s.timer != nil {
		s.timer.Stop() // it would keep the queue's memory until it fires
		s.armed = 0
	}
	if next == 0 || s.armed != 0 && s.armed <= next {
		return
	}
	s.armed = next
	wait := max(next.Sub(s.clock()), yield)
	if s.timer == nil {
		s.timer = time.AfterFunc(wait, s.tick)
		return
	}
	s.timer.Reset(wait)
}

func (s *Mailbox) tick() { s.post(task{kind: taskTick}) }
