package queue

import "github.com/curfewmq/curfew/core/block"

import "github.com/curfewmq/curfew/sdk/hook"

// Delivery is a message on its way to a consumer. The slices are valid until
// the call that carries them returns.
type Delivery struct {
	Ref           Ref
	Exchange, Key []byte
	Props, Body   []byte
	Block         *block.Block // Body lies in it, and stays there for who retains it; nil = Body is gone when the call returns
	Enqueued      hook.Instant
	Redelivered   bool
	Traced        bool

	requeued bool // its list's head had passed it when it was assigned
}

// WorthHolding is the size of a body from which on it is dearer to copy it than to
// have a block to hold.
const WorthHolding = 16 << 10

// Sink is the far end of a consumer: its channel. The queue calls it from its
// turn; an implementation takes its connection's lock and never calls the queue
// back from inside.
type Sink interface {
	// Deliver takes deliveries in order, as many as there is room for, and
	// returns how many. When it takes fewer than all, it calls c.Wake once
	// when there is room again.
	Deliver(c *Consumer, ds []Delivery) int
	// Capacity returns how much Deliver would take now: so many messages or, if they
	// are large, as many as it takes for their bytes. With none it is as if
	// Deliver had taken none.
	Capacity(c *Consumer) (messages, bytes int)
	// Cancelled tells the channel that the queue is gone and with it the
	// consumer; messages it holds unacknowledged are gone too.
	Cancelled(c *Consumer)
	// Stopped tells the channel that the queue is stopped and hands out nothing
	// any more.
	Stopped(c *Consumer, why *StoppedError)
}

// Consumer is one basic.consume. The exported fields are set before it is
// added to a queue and never change; the rest belongs to the queue's turn.
type Consumer struct {
	Tag       string
	Queue     *Mailbox
	Sink      Sink
	NoAck     bool
	Exclusive bool
	Type      Type   // of the queue
	Priority  int64  // higher is served first
	Prefetch  uint32 // unacknowledged messages it may hold; 0 = any number

	inflight uint32 // handed out and not settled
	stalled  bool   // its sink had no room and will call Wake
	active   bool   // it is among those that are served
	removed  bool
}

// Wake tells the queue that the consumer's sink has room again. It may be
// called from any goroutine that does not hold a connection's lock.
func (c *Consumer) Wake() {
	c.Queue.post(task{kind: taskWake, consumer: c})
}

// plenty is the credit of a consumer without a prefetch limit.
const plenty = 1 << 20

// credit returns how many messages the consumer would take now.
func (c *Consumer) credit() int {
	if c.stalled {
		return 0
	}
	if c.NoAck || c.Prefetch == 0 {
		return plenty
	}
	return int(c.Prefetch) - int(min(c.inflight, c.Prefetch))
}

// useCredit counts n deliveries in flight.
func (c *Consumer) useCredit(n int) {
	if !c.NoAck {
		c.inflight += uint32(n)
	}
}

// returnCredit counts a delivery that was settled, and reports whether it was in flight:
// those of basic.get are not.
func (c *Consumer) returnCredit() bool {
	if c.inflight == 0 {
		return false
	}
	c.inflight--
	return true
}
