package session

import (
	"encoding/binary"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/sdk/hook"
)

// channel is one channel of a connection. It belongs to the connection's reader, but for what deliveries and confirms
// touch, which out's lock guards.
type channel struct {
	conn *Conn
	id   uint16

	closing          bool                 // channel.close was sent and close-ok is awaited: everything else is passed over
	mode             mode                 // written under the lock of the connection's out
	content          content              // the message that is being received
	props            parsedProps          // of the last properties that were received
	route            *cachedRoute         // of the last message
	headers          func() amqp.RawTable // readHeaders, made once
	usedHeaders      bool                 // the last routing looked at the headers
	dirty            bool                 // it is among the connection's dirty channels
	listedBelowLimit bool                 // it is among the connection's freed channels

	seq        uint64   // of the last message to be confirmed
	untracked  []uint32 // messages the confirms of which are not tracked yet: the number of queues of each
	tx         transaction
	skipTraces int // messages without a context that are not to be traced before the next that is

	counts       publishCounts   // so far
	sharedCounts publishCounters // sent, for others, as of the last flush
	declared     string          // the name of the queue declared last
	prefetch     uint32          // of the consumers to come; written under the lock of the connection's out
	getter       *consumer
	reply        *replyQueue // where replies to this channel's requests arrive
	routeBuf     []*queue.Mailbox

	// What follows is guarded by the lock of the connection's out.
	closed         bool        // no delivery and no confirm may be sent any more; only the reader sets it
	pendingError   *amqp.Error // why it is to be closed: nil unless it uses what is stopped
	consumers      map[string]*consumer
	unacked        unacked
	confirms       confirmWindow
	globalPrefetch uint32      // unacknowledged deliveries the channel may have; 0 = any number
	inFlight       uint32      // how many it has
	atLimit        []*consumer // stalled by limit, in the order they were served last
	tagTimes       []tagTime   // when deliveries were made, roughly
	holdingCancels bool        // basic.cancel waits in cancels
	heldCancels    []string    // consumer tags
	counters       Counters
}

// mode is what becomes of the messages a channel publishes.
type mode uint8

const (
	plain mode = iota
	confirming
	transactional
)

func newChannel(c *Conn, id uint16) *channel {
	ch := &channel{conn: c, id: id, consumers: map[string]*consumer{}}
	ch.headers = ch.readHeaders
	if s := c.srv.spans; s != nil {
		ch.skipTraces = s.SkipCount()
	}
	return ch
}

// frame handles a frame.
func (ch *channel) frame(f amqp.Frame) error {
	if ch.closing {
		return ch.ignore(f)
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

// The methods of which there are many.
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
	ch.conn.flush() // what came before it happens before it
	class, method := m.ID()
	return in(ch.handle(m), class, method)
}

// ignore waits for the answer to channel.close [AMQP 1.5.2.5].
func (ch *channel) ignore(f amqp.Frame) error {
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
	case amqp.MethodChannelClose: // the two of them crossed
		ch.send(&amqp.ChannelCloseOK{})
	case amqp.MethodChannelCloseOK:
		ch.conn.forget(ch)
	}
	return nil
}

// handle carries out a method that is not handled by its bytes.
func (ch *channel) handle(m amqp.Method) error {
	switch m := m.(type) {
	case *amqp.ChannelOpen:
		return secondOpen()
	case *amqp.ChannelFlow:
		return ch.flow(m)
	case *amqp.ChannelClose:
		return ch.closeByPeer(m)
	case *amqp.AccessRequest:
		return ch.access()
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
		return ch.recover(m)
	case *amqp.BasicRecoverAsync:
		return ch.recoverAsync(m)
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

// flow starts deliveries, which are never stopped this way.
func (ch *channel) flow(m *amqp.ChannelFlow) error {
	if !m.Active {
		return amqp.Errorf(amqp.ReplyNotImplemented, "active=false")
	}
	ch.send(&amqp.ChannelFlowOK{Active: true})
	return nil
}

// access hands out the ticket that nobody looks at since AMQP 0-9-1.
func (ch *channel) access() error {
	ch.send(&amqp.AccessRequestOK{Ticket: 1})
	return nil
}

func (ch *channel) closeByPeer(m *amqp.ChannelClose) error {
	if m.ReplyCode != amqp.ReplySuccess {
		ch.conn.log().Warn("client closed the channel", "channel", ch.id, "code", m.ReplyCode, "text", m.ReplyText)
	}
	ch.close()
	ch.send(&amqp.ChannelCloseOK{})
	ch.conn.forget(ch)
	return nil
}

// fail closes the channel for an error. What was received before it counts.
func (ch *channel) fail(e *amqp.Error) {
	ch.conn.flush()
	ch.closing = true
	ch.close()
	ch.send(&amqp.ChannelClose{ReplyCode: e.Code, ReplyText: e.ReplyText(), ClassID: e.Class, MethodID: e.Method})
}

// close ends the channel's part in the broker, if that was not done, and gives back what it holds. The peer is not told.
func (ch *channel) close() { ch.conn.closeChannels(ch) }

// closeChannels closes channels. None gets what another gives back: a message would go from one to the next, and each
// delivery counts.
//
// A queue parts with consumers and gets back what they hold at once: whoever it serves then gets the messages in order.
func (c *Conn) closeChannels(channels ...*channel) {
	var shells keyIndex[*queue.Mailbox]
	var parts []endOfConsumers
	part := func(s *queue.Mailbox) *endOfConsumers {
		i, added := shells.find(s)
		if added {
			parts = append(parts, endOfConsumers{queue: s})
		}
		return &parts[i]
	}
	for _, ch := range channels {
		if ch == nil || ch.closed {
			continue
		}
		consumers, held := ch.stopDeliveries()
		ch.dropContent()
		ch.dropReplies()
		for _, s := range consumers {
			p := part(s.Queue)
			p.consumers = append(p.consumers, &s.Consumer)
		}
		for _, t := range append(held, ch.abandon()...) {
			p := part(t.Consumer.Queue)
			p.unacked = append(p.unacked, t.PendingAck)
		}
	}
	c.flush() // what was settled before
	for i := range parts {
		parts[i].leave()
	}
}

// endOfConsumers is what channels that end have of a queue.
type endOfConsumers struct {
	queue     *queue.Mailbox
	consumers []*queue.Consumer
	unacked   []queue.PendingAck
}

// leave gives it back: when it returns, there are no deliveries any more.
func (l *endOfConsumers) leave() {
	if len(l.consumers) == 0 {
		l.queue.Settle(queue.Return, l.unacked)
		return
	}
	// An error means that the queue is gone, and all of it with it.
	_ = l.queue.Do(func(q *queue.Queue, now hook.Instant) { q.RemoveConsumers(now, l.unacked, l.consumers...) })
}

// stopDeliveries lets neither deliveries nor confirms through any more, and returns what the channel has.
func (ch *channel) stopDeliveries() (consumers map[string]*consumer, held []tagged) {
	o := &ch.conn.out
	o.mu.Lock()
	defer o.mu.Unlock()
	consumers, held = ch.consumers, ch.unacked.takeAll(nil)
	ch.conn.srv.channelClosed(ch)
	ch.closed, ch.consumers, ch.atLimit, ch.tagTimes = true, nil, nil, nil
	ch.unacked, ch.confirms = unacked{}, confirmWindow{}
	return consumers, held
}

// tick looks for queues that are stopped, and for consumers that do not acknowledge.
func (ch *channel) tick(now hook.Instant) error {
	if ch.closing {
		return nil
	}
	if why := ch.whySpoilt(); why != nil {
		return why
	}
	return ch.checkTimeouts(now)
}

func (ch *channel) whySpoilt() *amqp.Error {
	o := &ch.conn.out
	o.mu.Lock()
	defer o.mu.Unlock()
	return ch.pendingError
}

// send makes m wait for the writer.
func (ch *channel) send(m amqp.Method) { ch.conn.send(ch.id, m) }

// answer is send, unless the client does not want an answer.
func (ch *channel) answer(noWait bool, m amqp.Method) error {
	if !noWait {
		ch.send(m)
	}
	return nil
}
