package queue

import (
	"sync"
	"sync/atomic"

	"github.com/curfewmq/curfew/core/chain"
	"github.com/curfewmq/curfew/core/clock"
	"github.com/curfewmq/curfew/core/journal"
)

// Broker has what the queues of one broker share: the file for message bodies beyond the
// memory budget, the line of queues that wait to send dead letters, and counters. Brokers
// in the same process share only free memory: see package slab. The zero value is a
// broker without queues that keeps all bodies in memory.
type Broker struct {
	spill    *spillFile // nil: bodies stay in memory
	underway traffic

	onMoves           sync.Once     // sets OnMoves of underway.space
	journals          atomic.Int64  // see JournalBytes
	waitingPublishers atomic.Int64  // see WaitingPublishers
	mailboxes         atomic.Uint64 // created so far: see Mailbox.order
}

// JournalBytes counts the bytes of operations that the queues have committed and that are
// not durable. It is for the field Waiting of [journal.Options].
func (b *Broker) JournalBytes() *atomic.Int64 { return &b.journals }

// Space is the space of the disk that the journals of these queues share. It is for
// [journal.Options], as is [MovedBytes].
func (b *Broker) Space() *journal.Space {
	b.onMoves.Do(func() { b.underway.space.OnMoves = b.underway.next })
	return &b.underway.space
}

// MovedBytes is about how many bytes of dead letters a queue sends at a time.
const MovedBytes = departBytes

// UnderwayBytes returns the memory that belongs to no queue: dead letters under way, and
// operations that are not durable yet.
func (b *Broker) UnderwayBytes() int64 { return b.underway.bytes.Load() + b.journals.Load() }

// WaitingPublishers returns how many publishers wait because a mailbox is full.
func (b *Broker) WaitingPublishers() int64 { return b.waitingPublishers.Load() }

// NewMailbox returns a queue without messages. Its lease begins now.
func (b *Broker) NewMailbox(cfg *Config, c *chain.Chain, host Host, clock clock.Clock) *Mailbox {
	m := b.NewPausedMailbox(cfg, c, host, clock)
	m.running = false
	m.queue.Touch(clock())
	m.arm()
	return m
}

// NewPausedMailbox returns a queue for a [Restorer] to fill. Its tasks wait, and its
// lease does not begin, until the Restorer starts it.
func (b *Broker) NewPausedMailbox(cfg *Config, c *chain.Chain, host Host, clock clock.Clock) *Mailbox {
	m := &Mailbox{broker: b, clock: clock, order: b.mailboxes.Add(1), running: true}
	m.config.Store(cfg)
	m.queue = Queue{essentials: essentials{cfg: cfg}, host: host, mailbox: m}
	m.queue.hooks = c.Attach((*pluginView)(&m.queue), &cfg.Hooks)
	m.settlesFirst.Store(m.queue.hooks.WantsGone())
	m.mayRefuse.Store(m.queue.hooks.Refuses())
	return m
}

// NewRestorer returns a restorer without queues.
func (b *Broker) NewRestorer() *Restorer {
	return &Restorer{broker: b, queues: map[uint64]*replayedQueue{}}
}
