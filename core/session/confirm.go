package session

import (
	"errors"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/core/vhost"
	"github.com/curfewmq/curfew/core/wlog"
)

var _ queue.Publisher = (*confirms)(nil)

// confirms are a channel's publisher confirms. The reader numbers messages and tracks them; queues answer.
type confirms struct {
	out       *outlet
	vhost     *vhost.VHost
	seq       uint64   // sequence number of the last message to be confirmed
	untracked []uint32 // messages not yet in window: the number of queues of each

	// Guarded by out's lock.
	on       bool // only the reader sets it
	window   confirmWindow
	returned uint64 // mandatory messages that were returned after they had been handed to a queue
}

// isOn reports whether the channel confirms messages. The reader calls it.
func (c *confirms) isOn() bool { return c.on }

func (c *confirms) turnOn() {
	o := c.out.lock()
	defer o.mu.Unlock()
	c.on = true
}

// next returns the sequence number of a message that goes to so many queues.
func (c *confirms) next(queues int) (seq uint64) {
	c.seq++
	c.untracked = append(c.untracked, uint32(queues))
	return c.seq
}

// track adds the messages numbered since the last call to the window. The caller hands them to their queues afterwards.
func (c *confirms) track() {
	if len(c.untracked) == 0 {
		return
	}
	o := c.out.lock()
	defer o.mu.Unlock()
	if !c.out.closed {
		if routed := c.window.add(c.untracked); !routed {
			o.pending = c.window.settleAdded(o.pending, c.out.id, len(c.untracked))
			o.kick()
		}
	}
	c.untracked = c.untracked[:0]
}

// Confirmed implements [queue.Publisher].
func (c *confirms) Confirmed(b *queue.Batch) {
	o := c.out.lock()
	defer o.mu.Unlock()
	if c.out.closed {
		return
	}
	o.pending = c.window.settle(o.pending, c.out.id, b.Messages)
	o.kick()
}

// Failed implements [queue.Publisher]. The messages stay unconfirmed, and the next Tick closes the channel.
func (c *confirms) Failed(_ *queue.Batch, err error) {
	c.out.fail(errNotStored(c.vhost.Name(), err))
}

// unconfirmed returns how many messages wait for their confirm. The caller holds out's lock.
func (c *confirms) unconfirmed() int {
	_, n := c.window.count()
	return n
}

// addTo adds the counts of confirms and returned messages to t. The caller holds out's
// lock.
func (c *confirms) addTo(t *Counters) {
	confirmed, unconfirmed := c.window.count()
	t.Returned += c.returned
	t.Confirmed, t.Confirmable = confirmed, confirmed+uint64(unconfirmed)
}

// stop ends all confirms. The caller holds out's lock.
func (c *confirms) stop() { c.window = confirmWindow{} }

// cancellation is a channel in its role as publisher of a mandatory message that only
// cancels another. Whether the message is returned, which happens before its confirm,
// depends on the messages that the exchange holds. It implements [queue.Publisher].
type cancellation confirms

var _ queue.Publisher = (*cancellation)(nil)

// publishCancellation publishes a mandatory message that cancels another. Earlier messages
// of the connection reach the exchange first.
func (p *publisher) publishCancellation(m *queue.Message, to *queue.Mailbox) {
	p.round.flushBatches() // which also tracks the confirm of m
	b := queue.NewBatch()
	b.Publisher = (*cancellation)(&p.confirms)
	addTo(b, m, p.blockRefs())
	to.Publish(b)
}

func (p *cancellation) Confirmed(b *queue.Batch) {
	o := p.out.lock()
	defer o.mu.Unlock()
	if p.out.closed {
		return
	}
	for i := range b.Messages {
		m := &b.Messages[i]
		if m.Flags&queue.Mandatory != 0 {
			p.returned++
			o.pending = p.out.appendReturn(o.pending, m)
		}
		if m.Seq > 0 {
			o.pending = p.window.settle(o.pending, p.out.id, b.Messages[i:i+1])
		}
	}
	o.kick()
}

func (p *cancellation) Failed(b *queue.Batch, err error) { (*confirms)(p).Failed(b, err) }

// errNotStored returns the error that closes a channel whose messages could not be stored.
// It is a soft error: the connection may still publish to other queues.
func errNotStored(vhost string, err error) *amqp.Error {
	const publishing = amqp.MethodBasicPublish
	if why, ok := errors.AsType[*queue.StoppedError](err); ok {
		return errStopped(why).In(amqp.ClassBasic, publishing)
	}
	if errors.Is(err, wlog.ErrNotOwner) {
		return errMoved("vhost '"+vhost+"' is not served by this node any more").In(amqp.ClassBasic, publishing)
	}
	e := amqp.Errorf(amqp.ReplyInternalError, "messages could not be stored, see the broker logfile")
	e.Soft = true
	return e.In(amqp.ClassBasic, publishing)
}

// confirmWindow holds the state of a channel's messages from the first unconfirmed one on.
type confirmWindow struct {
	states []confirmState // by sequence number; states[head] is the first in use
	head   int
	base   uint64 // sequence number before that of states[head]
}

// confirmState counts the queues that have not answered for a message. Its two highest bits are flags.
type confirmState uint32

const (
	refusedByQueue confirmState = 1 << 31 // a queue refused the message: the publisher gets basic.nack
	answered       confirmState = 1 << 30 // the publisher got its ack or nack
	outstanding                 = answered - 1
)

func (s confirmState) done() bool { return s&outstanding == 0 }

// add appends messages, given by the number of queues of each. routed is false if one of them has no queue.
func (w *confirmWindow) add(counts []uint32) (routed bool) {
	if w.head > len(w.states)/2 {
		w.states = w.states[:copy(w.states, w.states[w.head:])]
		w.head = 0
	}
	routed = true
	for _, n := range counts {
		routed = routed && n > 0
		w.states = append(w.states, confirmState(n))
	}
	return routed
}

// settle processes a queue's answers and appends the confirms that they complete.
func (w *confirmWindow) settle(dst []byte, channel uint16, ms []queue.Message) []byte {
	done := false
	for i := range ms {
		s := w.at(ms[i].Seq)
		*s--
		if ms[i].Flags&queue.Refused != 0 {
			*s |= refusedByQueue
		}
		done = done || s.done()
	}
	dst = w.advance(dst, channel)
	if !done || w.head == len(w.states) {
		return dst
	}
	for i := range ms {
		if ms[i].Seq > w.base {
			dst = w.answer(dst, channel, ms[i].Seq)
		}
	}
	return dst
}

// settleAdded confirms the messages among the last n that have no queue.
func (w *confirmWindow) settleAdded(dst []byte, channel uint16, n int) []byte {
	dst = w.advance(dst, channel)
	last := w.base + uint64(len(w.states)-w.head)
	for seq := max(last-uint64(n), w.base) + 1; seq <= last; seq++ {
		dst = w.answer(dst, channel, seq)
	}
	return dst
}

func (w *confirmWindow) at(seq uint64) *confirmState { return &w.states[w.head+int(seq-w.base-1)] }

// answer confirms a completed message out of order, while earlier ones are incomplete.
func (w *confirmWindow) answer(dst []byte, channel uint16, seq uint64) []byte {
	s := w.at(seq)
	if !s.done() || *s&answered != 0 {
		return dst
	}
	*s |= answered
	if *s&refusedByQueue != 0 {
		return amqp.AppendNack(dst, channel, seq, false, false)
	}
	return amqp.AppendAck(dst, channel, seq, false)
}

// advance removes the completed messages at the start and confirms runs of accepted ones
// together. A run ends before a refused message, because "multiple" must not cover it.
func (w *confirmWindow) advance(dst []byte, channel uint16) []byte {
	run, last := 0, uint64(0)
	for w.head < len(w.states) && w.states[w.head].done() {
		s := w.states[w.head]
		w.head++
		w.base++
		switch {
		case s&refusedByQueue != 0:
			dst = appendRun(dst, channel, run, last)
			run = 0
			if s&answered == 0 {
				dst = amqp.AppendNack(dst, channel, w.base, false, false)
			}
		case s&answered == 0:
			run, last = run+1, w.base
		}
	}
	if w.head == len(w.states) {
		w.states, w.head = w.states[:0], 0
	}
	return appendRun(dst, channel, run, last)
}

func appendRun(dst []byte, channel uint16, n int, last uint64) []byte {
	if n == 0 {
		return dst
	}
	return amqp.AppendAck(dst, channel, last, n > 1)
}

// count counts the messages that were numbered: those with an answer, and the others.
func (w *confirmWindow) count() (confirmed uint64, unconfirmed int) {
	confirmed = w.base
	for _, s := range w.states[w.head:] {
		if s&answered != 0 {
			confirmed++
			continue
		}
		unconfirmed++
	}
	return confirmed, unconfirmed
}
