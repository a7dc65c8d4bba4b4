package session

import (
	"encoding/binary"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/sdk/hook"
)

// channel is one channel of a connection. It belongs to the connection's reader, except for the fields that out's lock guards:
// deliveries and confirms use them.
type channel struct {
	conn *Conn
	id   uint16

	closing          bool // channel.close was sent; only close-ok is handled
	mode             mode // written under out's lock
	content          content
	props            parsedProps  // of the properties received last
	lastRoute        *cachedRoute // of the last message
	single           cachedRoute  // of the last message that was routed without the cache
	dirty            bool         // listed in Conn.dirty
	listedBelowLimit bool         // listed in Conn.belowLimit

	seq        uint64   // sequence number of the last message to be confirmed
	untracked  []uint32 // messages not yet in confirms: the number of queues of each
	tx         transaction
	ended      endedTags // tags of deliveries that came back at the end of their lease
	skipTraces int       // messages without a context to skip before the next one is sampled

	counts       publishCounts
	sharedCounts publishCounters // counts as of the last flush, for other goroutines
	declared     string          // name of the queue declared last
	prefetch     uint32          // prefetch of consumers added later; written under out's lock
	getter       *consumer
	reply        *queue.Mailbox // where direct replies to this channel arrive; nil if it consumes none
	uncached     targets        // targets of the last message that had no cached ones

	// Guarded by out's lock.
	closed         bool        // no further delivery or confirm may be sent; only the reader sets it
	pendingError   *amqp.Error // the next tick closes the channel with this error; nil if there is none
	consumers      map[string]*consumer
	unacked        unacked
	confirms       confirmWindow
	globalPrefetch uint32      // unacknowledged deliveries the channel may have; 0 means any number
	inFlight       uint32      // deliveries that count against globalPrefetch
	atLimit        []*consumer // stalled by globalPrefetch, the least recently served first
	tagTimes       []tagTime   // the approximate times of deliveries
	leases         *leases     // nil before the first delivery that has one
	holdingCancels bool        // basic.cancel is collected in heldCancels
	heldCancels    []string    // consumer tags
	counters       Counters
}

// mode says how a channel confirms the messages that it publishes.
type mode uint8

const (
	plain mode = iota
	confirming
	transactional
)

func newChannel(c *Conn, id uint16) *channel {
	ch := &channel{conn: c, id: id, consumers: map[string]*consumer{}}
	if s := c.srv.spans; s != nil {
		ch.skipTraces = s.SkipCount()
	}
	return ch
}

// lock locks the connection's out. The caller unlocks it.
func (ch *channel) lock() *writeBuffer {
	o := &ch.conn.out
	o.mu.Lock()
	return o
}

func (ch *channel) frame(f amqp.Frame) error {
	if ch.closing {
		return ch.awaitCloseOK(f)
	}
	switch {
	case f.Type == amqp.FrameMethod && ch.content.stage == awaitMethod:
		return ch.method(f.Payload)
	case f.Type == amqp.FrameHeader && ch.content.stage == awaitContentHeader:
		return in(ch.header(f.Payload), amqp.ClassBasic, amqp.MethodBasicPublish)
	case f.Type == amqp.FrameBody && ch.content.stage == awaitBody:
		return in(ch.body(f.Payload), amqp.ClassBasic, amqp.MethodBasicPublish)
	}
	return ch.content.unexpected()
}

// Frequent methods are decoded without allocating.
const (
	methodPublish = uint32(amqp.ClassBasic)<<16 | uint32(amqp.MethodBasicPublish)
	methodAck     = uint32(amqp.ClassBasic)<<16 | uint32(amqp.MethodBasicAck)
	methodNack    = uint32(amqp.ClassBasic)<<16 | uint32(amqp.MethodBasicNack)
	methodReject  = uint32(amqp.ClassBasic)<<16 | uint32(amqp.MethodBasicReject)
)

func (ch *channel) method(payload []byte) error {
	args := payload[4:]
	switch binary.BigEndian.Uint32(payload) {
	case methodPublish:
		return in(ch.publish(args), amqp.ClassBasic, amqp.MethodBasicPublish)
	case methodAck:
		return in(ch.ack(args), amqp.ClassBasic, amqp.MethodBasicAck)
	case methodNack:
		return in(ch.nack(args), amqp.ClassBasic, amqp.MethodBasicNack)
	case methodReject:
		return in(ch.reject(args), amqp.ClassBasic, amqp.MethodBasicReject)
	}
	m, err := amqp.ParseMethod(payload)
	if err != nil {
		return err
	}
	ch.conn.flush() // methods take effect in order
	class, method := m.ID()
	return in(ch.handle(m), class, method)
}

// awaitCloseOK ignores frames until the client has answered channel.close [AMQP 1.5.2.5].
func (ch *channel) awaitCloseOK(f amqp.Frame) error {
	if f.Type != amqp.FrameMethod {
		return nil
	}
	class, method, err := amqp.MethodID(f.Payload)
	if err != nil {
		return err
	}
	if class != amqp.ClassChannel {
		return nil
	}
	switch method {
	case amqp.MethodChannelOpen:
		return in(secondOpen(), class, method)
	case amqp.MethodChannelClose: // both sides close at the same time
		ch.send(&amqp.ChannelCloseOK{})
	case amqp.MethodChannelCloseOK:
		ch.conn.forget(ch)
	}
	return nil
}

// handle handles all methods except the frequent ones.
func (ch *channel) handle(m amqp.Method) error {
	switch m := m.(type) {
	case *amqp.ChannelOpen:
		return secondOpen()
	case *amqp.ChannelFlow:
		if !m.Active { // deliveries cannot be stopped this way
			return amqp.Errorf(amqp.ReplyNotImplemented, "active=false")
		}
		return ch.answer(nil, false, &amqp.ChannelFlowOK{Active: true})
	case *amqp.ChannelClose:
		return ch.closeByPeer(m)
	case *amqp.AccessRequest: // AMQP 0-9-1 does not use tickets
		return ch.answer(nil, false, &amqp.AccessRequestOK{Ticket: 1})
	case *amqp.ExchangeDeclare:
		return ch.declareExchange(m)
	case *amqp.ExchangeDelete:
		return ch.deleteExchange(m)
	case *amqp.ExchangeBind:
		return ch.bindExchange(m)
	case *amqp.ExchangeUnbind:
		return ch.unbindExchange(m)
	case *amqp.QueueDeclare:
		return ch.declareQueue(m)
	case *amqp.QueueBind:
		return ch.bindQueue(m)
	case *amqp.QueueUnbind:
		return ch.unbindQueue(m)
	case *amqp.QueuePurge:
		return ch.purgeQueue(m)
	case *amqp.QueueDelete:
		return ch.deleteQueue(m)
	case *amqp.BasicQos:
		return ch.qos(m)
	case *amqp.BasicConsume:
		return ch.consume(m)
	case *amqp.BasicCancel:
		return ch.cancel(m)
	case *amqp.BasicGet:
		return ch.get(m)
	case *amqp.BasicRecover:
		return ch.requeueAll(m.Requeue, &amqp.BasicRecoverOK{})
	case *amqp.BasicRecoverAsync:
		return ch.requeueAll(m.Requeue, nil)
	case *amqp.TxSelect:
		return ch.txSelect()
	case *amqp.TxCommit:
		return ch.txCommit()
	case *amqp.TxRollback:
		return ch.txRollback()
	case *amqp.ConfirmSelect:
		return ch.confirmSelect(m)
	}
	return amqp.Errorf(amqp.ReplyCommandInvalid, "unimplemented method")
}

func secondOpen() error { return amqp.Errorf(amqp.ReplyChannelError, "second 'channel.open' seen") }

func (ch *channel) closeByPeer(m *amqp.ChannelClose) error {
	if m.ReplyCode != amqp.ReplySuccess {
		ch.conn.log().Warn("client closed the channel", "channel", ch.id, "code", m.ReplyCode, "text", m.ReplyText)
	}
	ch.conn.closeChannels(ch)
	ch.send(&amqp.ChannelCloseOK{})
	ch.conn.forget(ch)
	return nil
}

// fail closes the channel for an error, after carrying out everything that was received before the error.
func (ch *channel) fail(e *amqp.Error) {
	ch.conn.flush()
	ch.closing = true
	ch.conn.closeChannels(ch)
	ch.send(&amqp.ChannelClose{ReplyCode: e.Code, ReplyText: e.ReplyText(), ClassID: e.Class, MethodID: e.Method})
}

// tick returns the error to close the channel with, if a queue has stopped or a consumer does not acknowledge.
func (ch *channel) tick(now hook.Instant) error {
	if ch.closing {
		return nil
	}
	o := ch.lock()
	err := ch.pendingError
	o.mu.Unlock()
	if err != nil {
		return err
	}
	return ch.checkTimeouts(now)
}

// setMode sets the mode, which other goroutines read for Channels.
func (ch *channel) setMode(m mode) {
	o := ch.lock()
	defer o.mu.Unlock()
	ch.mode = m
}

// send makes m pending for the writer.
func (ch *channel) send(m amqp.Method) { ch.conn.send(ch.id, m) }

// answer returns err. If that is nil, it sends m, unless the client does not want an answer.
func (ch *channel) answer(err error, noWait bool, m amqp.Method) error {
	if err == nil && !noWait {
		ch.send(m)
	}
	return err
}
