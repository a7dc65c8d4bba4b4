package queue

import (
	"github.com/curfewmq/curfew/core/block"
	"github.com/curfewmq/curfew/sdk/hook"
)

// Delivery is one hand-over of a message to a consumer. The slices are valid until the
// call that passes them returns.
type Delivery struct {
	Ref           Ref
	Exchange, Key []byte
	Props, Body   []byte
	Block         *block.Block // of Body, which stays valid while the block is retained; nil means none
	Enqueued      hook.Instant
	Redelivered   bool
	Traced        bool

	requeued bool // it lies below the head of its fifo
}

// WorthHolding is the size from which on copying a body costs more than retaining its
// block.
const WorthHolding = 16 << 10

// Sink is a consumer's channel, which takes its deliveries. The queue calls it on its
// turn. An implementation locks its connection and must not call the queue.
type Sink interface {
	// Deliver takes deliveries in order, as many as there is capacity for, and
	// returns how many. If it takes fewer than all, it calls c.Wake once
	// there is capacity again. now is the time of the queue's turn.
	Deliver(now hook.Instant, c *Consumer, ds []Delivery) int
	// Takes reports whether a delivery fits the consumer's frames. Deliver takes neither
	// a delivery that does not fit nor those behind it, and does not call c.Wake for it.
	Takes(c *Consumer, d *Delivery) bool
	// Capacity returns how much Deliver would take now: so many messages or, if they
	// are large, as many as fit so many bytes. With none, c.Wake is called as if
	// Deliver had taken none.
	Capacity(c *Consumer) (messages, bytes int)
	// Cancelled reports that the queue is deleted, with the consumer and its
	// unacknowledged messages.
	Cancelled(c *Consumer)
	// Stopped reports that the queue is stopped and delivers nothing any more.
	Stopped(c *Consumer, why *StoppedError)
}

// Consumer is one basic.consume. The exported fields are set before it is added to a
// queue and never change; the others belong to the queue's turn.
type Consumer struct {
	Tag       string
	Queue     *Mailbox
	Sink      Sink
	NoAck     bool
	Exclusive bool
	Type      Type   // of the queue
	Priority  int64  // higher is served first
	Prefetch  uint32 // most messages in flight; 0 means any number
	// Fit is for basic.get. It reports whether a message fits the client's frames and, if
	// not, whether it may fit those of other clients. nil means that all messages fit.
	Fit func(d *Delivery) (fits, others bool)

	inflight uint32 // delivered and not settled
	stalled  bool   // its sink had no capacity and will call Wake
	active   bool   // it is in its group
	removed  bool
}

// Wake reports that the consumer's sink has capacity again. It may be called from any
// goroutine that does not hold a connection's lock.
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

// returnCredit counts a settled delivery, and reports whether it was in flight;
// deliveries of basic.get are not.
func (c *Consumer) returnCredit() bool {
	if c.inflight == 0 {
		return false
	}
	c.inflight--
	return true
}
