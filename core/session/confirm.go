package session

import (
	"errors"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/queue"
)

var _ queue.Publisher = (*channel)(nil)

// confirmSelect makes the broker say what became of each message [RabbitMQ: confirms.html].
func (ch *channel) confirmSelect(m *amqp.ConfirmSelect) error {
	if ch.mode == transactional {
		return precondition("cannot switch from tx to confirm mode")
	}
	ch.setMode(confirming)
	return ch.answer(m.NoWait, &amqp.ConfirmSelectOK{})
}

// track begins to wait for what becomes of the messages published since the last time. It must be called before their
// queues get them.
func (ch *channel) track() {
	if len(ch.untracked) == 0 {
		return
	}
	o := &ch.conn.out
	o.mu.Lock()
	defer o.mu.Unlock()
	if !ch.closed {
		routed := ch.confirms.add(ch.untracked)
		if !routed {
			o.pending = ch.confirms.settleAdded(o.pending, ch.id, len(ch.untracked))
			o.kick()
		}
	}
	ch.untracked = ch.untracked[:0]
}

// Confirmed implements [queue.Source].
func (ch *channel) Confirmed(b *queue.Batch) {
	o := &ch.conn.out
	o.mu.Lock()
	defer o.mu.Unlock()
	if ch.closed {
		return
	}
	o.pending = ch.confirms.settle(o.pending, ch.id, b.Messages)
	o.kick()
}

// Failed implements [queue.Source]. The messages stay unconfirmed, and the channel ends at the next tick.
func (ch *channel) Failed(_ *queue.Batch, err error) { ch.failLater(errNotStored(err)) }

// failLater has the channel closed at the next tick, unless there is a reason for that already.
func (ch *channel) failLater(why *amqp.Error) {
	o := &ch.conn.out
	o.mu.Lock()
	first := !ch.closed && ch.pendingError == nil
	if first {
		ch.pendingError = why
	}
	o.mu.Unlock()
	if first {
		ch.conn.wake()
	}
}

// errNotStored is what a channel is closed with that published what could not be stored. It is not the connection's end: to
// other queues it may still publish.
func errNotStored(err error) *amqp.Error {
	e := amqp.Errorf(amqp.ReplyInternalError, "messages could not be stored, see the broker logfile")
	e.Soft = true
	if why, ok := errors.AsType[*queue.StoppedError](err); ok {
		e = errStopped(why)
	}
	return e.In(amqp.ClassBasic, amqp.MethodBasicPublish)
}

// confirmWindow is the messages of a channel that are not confirmed, and those behind the first of them.
type confirmWindow struct {
	states []confirmState // by sequence number, from states[head] on
	head   int
	base   uint64 // sequence number of states[head], less 1
}

// confirmState is how many queues have not answered for a message, and what is known by then.
type confirmState uint32

const (
	refused     confirmState = 1 << 31 // a queue did not take it: basic.nack
	answered    confirmState = 1 << 30 // the publisher knows
	outstanding              = answered - 1
)

func (s confirmState) done() bool { return s&outstanding == 0 }

// add appends messages by the number of their queues. It returns false if some have none.
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

// settle takes the answers of a queue and appends what the publisher is to be told.
func (w *confirmWindow) settle(dst []byte, channel uint16, ms []queue.Message) []byte {
	beyond := false
	for i := range ms {
		s := w.at(ms[i].Seq)
		*s--
		if ms[i].Flags&queue.Refused != 0 {
			*s |= refused
		}
		beyond = beyond || s.done()
	}
	dst = w.advance(dst, channel)
	if !beyond || w.head == len(w.states) {
		return dst
	}
	for i := range ms {
		if ms[i].Seq > w.base {
			dst = w.answer(dst, channel, ms[i].Seq)
		}
	}
	return dst
}

// settleAdded confirms those of the last n messages that no queue has to answer for.
func (w *confirmWindow) settleAdded(dst []byte, channel uint16, n int) []byte {
	dst = w.advance(dst, channel)
	last := w.base + uint64(len(w.states)-w.head)
	for seq := max(last-uint64(n), w.base) + 1; seq <= last; seq++ {
		dst = w.answer(dst, channel, seq)
	}
	return dst
}

func (w *confirmWindow) at(seq uint64) *confirmState { return &w.states[w.head+int(seq-w.base-1)] }

// answer confirms a message that others before it still wait for.
func (w *confirmWindow) answer(dst []byte, channel uint16, seq uint64) []byte {
	s := w.at(seq)
	if !s.done() || *s&answered != 0 {
		return dst
	}
	*s |= answered
	if *s&refused != 0 {
		return amqp.AppendNack(dst, channel, seq, false, false)
	}
	return amqp.AppendAck(dst, channel, seq, false)
}

// advance moves past the messages at the start that are done. Runs of accepted ones are confirmed together; a run ends at
// a refused one, because it must not be among those that "multiple" means.
func (w *confirmWindow) advance(dst []byte, channel uint16) []byte {
	run, last := 0, uint64(0)
	for w.head < len(w.states) && w.states[w.head].done() {
		s := w.states[w.head]
		w.head++
		w.base++
		switch {
		case s&refused != 0:
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
