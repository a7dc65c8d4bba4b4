package session

import (
	"cmp"
	"encoding/binary"
	"errors"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/death"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/core/vhost"
	"github.com/curfewmq/curfew/core/wlog"
	"github.com/curfewmq/curfew/sdk/hook"
)

// channel is one channel of a connection. It passes frames to its parts, and does the work
// that concerns several parts. It belongs to the connection's reader; its parts say which
// of their fields out's lock guards, because deliveries and confirms use them.
type channel struct {
	conn       *Conn
	outlet     outlet
	topology   topology
	publisher  publisher
	deliveries deliveries
	tx         transaction
	reply      replyQueue
}

func newChannel(c *Conn, id uint16) *channel {
	ch := &channel{conn: c, outlet: outlet{buf: &c.out, id: id, frameMax: c.frameMax}}
	ch.tx.init(&ch.outlet, c.vhost)
	ch.topology = topology{shared: &c.shared, out: &ch.outlet, owner: c.id}
	ch.reply.all = c.srv.replies
	ch.deliveries.init(c, ch)
	ch.publisher.init(c, ch)
	return ch
}

// outlet is a channel's way to its client: it puts the channel's frames into the
// connection's write buffer.
type outlet struct {
	buf      *writeBuffer
	frameMax int    // of the connection
	id       uint16 // the channel's number
	closing  bool   // channel.close was sent; only close-ok is handled; belongs to the reader

	// Guarded by buf's lock.
	closed  bool        // no further delivery or confirm may be sent; only the reader sets it
	failure *amqp.Error // the next tick closes the channel with this error; nil if there is none
}

// lock locks the write buffer. The caller unlocks it.
func (o *outlet) lock() *writeBuffer {
	o.buf.mu.Lock()
	return o.buf
}

// send makes m pending for the writer.
func (o *outlet) send(m amqp.Method) { o.buf.post(o.id, m) }

// answer returns err. If that is nil, it sends m, unless the client does not want an answer.
func (o *outlet) answer(err error, noWait bool, m amqp.Method) error {
	if err == nil && !noWait {
		o.send(m)
	}
	return err
}

// fail makes the next Tick close the channel, unless an error is already pending. Any goroutine may call it.
func (o *outlet) fail(why *amqp.Error) {
	buf := o.lock()
	first := !o.closed && o.failure == nil
	if first {
		o.failure = why
	}
	buf.mu.Unlock()
	if first {
		o.buf.tick()
	}
}

// failed returns the error that fail was called with; nil = none.
func (o *outlet) failed() *amqp.Error {
	buf := o.lock()
	defer buf.mu.Unlock()
	return o.failure
}

// fit shortens the headers that the broker added to a message, if they do not fit into a
// frame. It reports whether the message then fits: a client treats a frame that is too
// large as an error of the connection.
func (o *outlet) fit(d *queue.Delivery) bool {
	limit := o.frameMax - contentOverhead
	if len(d.Props) <= limit {
		return true
	}
	d.Props = death.Fit(d.Props, limit)
	return len(d.Props) <= limit+amqp.FrameSlack // the publisher was granted this slack, too
}

// appendReturn appends basic.return with a message.
func (o *outlet) appendReturn(b []byte, m *queue.Message) []byte {
	b = amqp.AppendMethod(b, o.id, &amqp.BasicReturn{
		ReplyCode: amqp.ReplyNoRoute, ReplyText: "NO_ROUTE", Exchange: m.Routing.Exchange, RoutingKey: m.Routing.Key,
	})
	b = amqp.AppendContentHeader(b, o.id, uint64(len(m.Body)), m.Props)
	return amqp.AppendBody(b, o.id, m.Body, o.frameMax)
}

func (ch *channel) frame(f amqp.Frame) error {
	if ch.outlet.closing {
		return ch.awaitCloseOK(f)
	}
	if f.Type == amqp.FrameMethod && ch.publisher.awaitsMethod() {
		return ch.method(f.Payload)
	}
	return ch.publisher.frame(f)
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
		return in(ch.publisher.publish(args), amqp.ClassBasic, amqp.MethodBasicPublish)
	case methodAck:
		return in(ch.deliveries.ack(args), amqp.ClassBasic, amqp.MethodBasicAck)
	case methodNack:
		return in(ch.deliveries.nack(args), amqp.ClassBasic, amqp.MethodBasicNack)
	case methodReject:
		return in(ch.deliveries.reject(args), amqp.ClassBasic, amqp.MethodBasicReject)
	}
	m, err := amqp.ParseMethod(payload)
	if err != nil {
		return err
	}
	ch.conn.round.flush() // methods take effect in order
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
		ch.outlet.send(&amqp.ChannelCloseOK{})
	case amqp.MethodChannelCloseOK:
		ch.conn.forget(ch.outlet.id)
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
		return ch.outlet.answer(nil, false, &amqp.ChannelFlowOK{Active: true})
	case *amqp.ChannelClose:
		return ch.closeByPeer(m)
	case *amqp.AccessRequest: // AMQP 0-9-1 does not use tickets
		return ch.outlet.answer(nil, false, &amqp.AccessRequestOK{Ticket: 1})
	case *amqp.ExchangeDeclare:
		return ch.topology.declareExchange(m)
	case *amqp.ExchangeDelete:
		return ch.topology.deleteExchange(m)
	case *amqp.ExchangeBind:
		return ch.topology.bindExchange(m)
	case *amqp.ExchangeUnbind:
		return ch.topology.unbindExchange(m)
	case *amqp.QueueDeclare:
		return ch.topology.declareQueue(m)
	case *amqp.QueueBind:
		return ch.topology.bindQueue(m)
	case *amqp.QueueUnbind:
		return ch.topology.unbindQueue(m)
	case *amqp.QueuePurge:
		return ch.topology.purgeQueue(m)
	case *amqp.QueueDelete:
		return ch.deleteQueue(m)
	case *amqp.BasicQos:
		return ch.deliveries.qos(m)
	case *amqp.BasicConsume:
		return ch.deliveries.consume(m)
	case *amqp.BasicCancel:
		return ch.deliveries.cancel(m)
	case *amqp.BasicGet:
		return ch.deliveries.get(m)
	case *amqp.BasicRecover:
		return ch.deliveries.requeueAll(m.Requeue, &amqp.BasicRecoverOK{})
	case *amqp.BasicRecoverAsync:
		return ch.deliveries.requeueAll(m.Requeue, nil)
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
		ch.conn.log().Warn("client closed the channel", "channel", ch.outlet.id, "code", m.ReplyCode, "text", m.ReplyText)
	}
	closeChannels(&ch.conn.round, ch)
	ch.outlet.send(&amqp.ChannelCloseOK{})
	ch.conn.forget(ch.outlet.id)
	return nil
}

// fail closes the channel for an error, after carrying out everything that was received before the error.
func (ch *channel) fail(e *amqp.Error) {
	ch.conn.round.flush()
	ch.outlet.closing = true
	closeChannels(&ch.conn.round, ch)
	ch.outlet.send(&amqp.ChannelClose{ReplyCode: e.Code, ReplyText: e.ReplyText(), ClassID: e.Class, MethodID: e.Method})
}

// deleteQueue sends cancellations of the queue's consumers after delete-ok.
func (ch *channel) deleteQueue(m *amqp.QueueDelete) error {
	ch.deliveries.consumers.holdCancels()
	defer ch.deliveries.consumers.releaseCancels()
	return ch.topology.deleteQueue(m)
}

// tick returns the error to close the channel with, if a queue has stopped or a consumer does not acknowledge.
func (ch *channel) tick(now hook.Instant) error {
	if ch.outlet.closing {
		return nil
	}
	if err := ch.outlet.failed(); err != nil {
		return err
	}
	return ch.deliveries.checkTimeouts(now)
}

// confirmSelect turns on publisher confirms [RabbitMQ: confirms.html].
func (ch *channel) confirmSelect(m *amqp.ConfirmSelect) error {
	if ch.tx.isOn() {
		return precondition("cannot switch from tx to confirm mode")
	}
	ch.publisher.confirms.turnOn()
	return ch.outlet.answer(nil, m.NoWait, &amqp.ConfirmSelectOK{})
}

// replyCodes maps the errors of a vhost to reply codes; any other error is an internal error.
var replyCodes = map[vhost.Kind]uint16{
	vhost.NotFound:       amqp.ReplyNotFound,
	vhost.AccessRefused:  amqp.ReplyAccessRefused,
	vhost.Locked:         amqp.ReplyResourceLocked,
	vhost.Precondition:   amqp.ReplyPreconditionFailed,
	vhost.NotAllowed:     amqp.ReplyNotAllowed,
	vhost.NotImplemented: amqp.ReplyNotImplemented,
}

// in adds to err the method that caused it, and gives errors of a vhost their reply codes. It returns nil for nil.
func in(err error, class, method uint16) error {
	if err == nil {
		return nil
	}
	if refused, ok := errors.AsType[*vhost.Error](err); ok {
		if errors.Is(err, wlog.ErrNotOwner) {
			e := errMoved(refused.Text).In(class, method)
			if e.Undone = !refused.MayBeDone(); !e.Undone {
				e.Text += ", and whether the change was made is not known"
			}
			return e
		}
		e := amqp.Errorf(cmp.Or(replyCodes[refused.Kind], amqp.ReplyInternalError), "%s", refused.Text).In(class, method)
		e.Soft = refused.Kind == vhost.Stopped
		return e
	}
	if e, ok := errors.AsType[*amqp.Error](err); ok && e.Class == 0 {
		return e.In(class, method)
	}
	return err
}

// errStopped returns the error for a queue that has stopped. It is soft, because other
// queues may work, unless the whole vhost has moved.
func errStopped(why *queue.StoppedError) *amqp.Error {
	if why.Moved() {
		return errMoved(why.Error())
	}
	e := amqp.Errorf(amqp.ReplyInternalError, "%s, see the broker logfile", why.Error())
	e.Soft = true
	return e
}

// errMoved returns the error that ends a connection whose vhost is now served by another
// node; the connection's eviction, which may follow, has the same effect. Clients reconnect
// after such an error, whereas the end of a channel is left to the application.
func errMoved(text string) *amqp.Error { return amqp.Errorf(amqp.ReplyConnectionForced, "%s", text) }

func precondition(layout string, args ...any) error {
	return amqp.Errorf(amqp.ReplyPreconditionFailed, layout, args...)
}
