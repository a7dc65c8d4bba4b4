package session

import (
	"crypto/rand"
	"encoding/base64"
	"errors"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/auth"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/sdk/hook"
)

// deliveries is a channel's part that consumes: its consumers, basic.get, the channel's credit, and deliveries that are not settled.
type deliveries struct {
	*shared
	out      *outlet
	topology *topology
	reply    *replyQueue
	conn     *ConnInfo // nil for a [Direct]

	consumers consumers
	credit    credit
	unsettled unsettled
}

func (d *deliveries) init(c *Conn, ch *channel) {
	d.shared, d.out, d.topology = &c.shared, &ch.outlet, &ch.topology
	d.reply, d.conn = &ch.reply, c.Info()
	d.consumers.out, d.consumers.byTag, d.consumers.notified = d.out, map[string]*consumer{}, c.caps.cancelNotify
	d.credit.out, d.credit.round = d.out, &c.round
	u := &d.unsettled
	u.shared, u.out, u.tx, u.credit, u.consumers = &c.shared, d.out, &ch.tx, &d.credit, &d.consumers
}

// consumers are a channel's consumers by tag, and the consumer that stands for basic.get.
type consumers struct {
	out      *outlet
	getter   *consumer // nil: there is none; belongs to the reader
	notified bool      // the client understands basic.cancel

	// Guarded by out's lock.
	holding bool // basic.cancel is collected in held
	byTag   map[string]*consumer
	held    []string // consumer tags
}

// understandCancel reports whether the client understands basic.cancel.
func (s *consumers) understandCancel() bool { return s.notified }

func (s *consumers) lookUp(tag string) (cs *consumer, ok bool) {
	o := s.out.lock()
	defer o.mu.Unlock()
	cs, ok = s.byTag[tag]
	return cs, ok
}

// has reports whether the channel has the consumer. The caller holds out's lock.
func (s *consumers) has(cs *consumer) bool { return s.byTag[cs.Tag] == cs }

func (s *consumers) add(cs *consumer) {
	o := s.out.lock()
	defer o.mu.Unlock()
	s.byTag[cs.Tag] = cs
}

// remove removes a consumer. The caller holds out's lock.
func (s *consumers) remove(cs *consumer) { delete(s.byTag, cs.Tag) }

// takeAll removes all consumers and returns them. The caller holds out's lock.
func (s *consumers) takeAll() map[string]*consumer {
	all := s.byTag
	s.byTag = nil
	return all
}

// count returns the number of consumers. The caller holds out's lock.
func (s *consumers) count() int { return len(s.byTag) }

// of returns the channel's consumer that a queue knows as c; nil means an earlier one that stood for basic.get.
func (s *consumers) of(c *queue.Consumer) *consumer {
	if cs, ok := c.Sink.(*consumer); ok {
		return cs
	}
	if cs := s.getter; cs != nil && &cs.Consumer == c {
		return cs
	}
	return nil
}

// infos describes the consumers, by tag. The caller holds out's lock.
func (s *consumers) infos() (all []ConsumerInfo) {
	for _, cs := range s.byTag {
		all = append(all, cs.info())
	}
	slices.SortFunc(all, func(a, b ConsumerInfo) int { return strings.Compare(a.Tag, b.Tag) })
	return all
}

// shortestTimeout returns the shortest time to acknowledge a delivery on the channel; 0 means none. The caller holds out's lock.
func (s *consumers) shortestTimeout(brokers time.Duration) time.Duration {
	shortest := brokers
	for _, cs := range s.byTag {
		if t := ackTimeout(&cs.Consumer, brokers); t > 0 && (t < shortest || shortest == 0) {
			shortest = t
		}
	}
	return shortest
}

// checkLimit refuses a consumer beyond the limit; 0 means none. Duplicate tags are refused elsewhere.
func (s *consumers) checkLimit(tag string, limit int) error {
	if limit == 0 {
		return nil
	}
	o := s.out.lock()
	defer o.mu.Unlock()
	if _, used := s.byTag[tag]; used || len(s.byTag) < limit {
		return nil
	}
	return amqp.Errorf(amqp.ReplyNotAllowed, "reached maximum (%d) of consumers per channel", limit)
}

// checkTag refuses a tag in use, and generates a tag if none is given.
func (s *consumers) checkTag(m *amqp.BasicConsume) error {
	if m.ConsumerTag == "" {
		m.ConsumerTag = "amq.ctag-" + randomName()
		return nil
	}
	if _, used := s.lookUp(m.ConsumerTag); used {
		return amqp.Errorf(amqp.ReplyNotAllowed, "attempt to reuse consumer tag '%s'", m.ConsumerTag)
	}
	return nil
}

// forGet returns the consumer that stands for basic.get at a queue. It is never added to the queue.
func (s *consumers) forGet(d *deliveries, mailbox *queue.Mailbox, noAck bool) *consumer {
	if cs := s.getter; cs != nil && cs.Queue == mailbox && cs.NoAck == noAck {
		return cs
	}
	cs := &consumer{channel: d, timeout: -1, lease: -1, Consumer: queue.Consumer{Queue: mailbox, NoAck: noAck, Type: queue.TypeOf(mailbox.Config().Kind)}}
	cs.Fit = cs.fitsGet
	s.getter = cs
	return cs
}

// forgetGetter drops the reference to the queue of the last basic.get.
func (s *consumers) forgetGetter() { s.getter = nil }

// cancelled tells the client that a consumer has ended, if the client understands that. The caller holds out's lock.
func (s *consumers) cancelled(cs *consumer) {
	switch {
	case !s.notified:
		return
	case s.holding:
		cs.sendConsumeOK()
		s.held = append(s.held, cs.Tag)
	default:
		cs.sendConsumeOK()
		s.sendCancel(cs.Tag)
	}
}

func (s *consumers) sendCancel(tag string) {
	s.out.buf.send(s.out.id, &amqp.BasicCancel{ConsumerTag: tag, NoWait: true})
}

// holdCancels delays basic.cancel until releaseCancels, so that the client gets the answer to its own method first.
func (s *consumers) holdCancels() {
	o := s.out.lock()
	defer o.mu.Unlock()
	s.holding = true
}

func (s *consumers) releaseCancels() {
	o := s.out.lock()
	defer o.mu.Unlock()
	for _, tag := range s.held {
		s.sendCancel(tag)
	}
	s.holding, s.held = false, nil
}

func (d *deliveries) consume(m *amqp.BasicConsume) error {
	if err := d.consumers.checkLimit(m.ConsumerTag, d.srv.Consumers); err != nil {
		return err
	}
	if m.Queue == replyTo {
		return d.consumeReplies(m)
	}
	name, err := d.topology.permittedQueue(auth.Read, m.Queue)
	if err != nil {
		return err
	}
	if err := d.consumers.checkTag(m); err != nil {
		return err
	}
	mailbox, err := d.vhost.Queue(name, d.topology.connection())
	if err != nil {
		return err
	}
	cs := d.newConsumer(m, mailbox)
	if err := cs.configure(m); err != nil {
		return err
	}
	if cs.exempt && d.credit.limited() {
		cfg := mailbox.Config()
		return amqp.Errorf(amqp.ReplyNotImplemented, "queue '%s' in vhost '%s' does not support global qos", cfg.Name, cfg.VHost)
	}
	return cs.join()
}

// consumeReplies begins to consume direct replies.
func (d *deliveries) consumeReplies(m *amqp.BasicConsume) error {
	if d.reply.queue() != nil {
		return precondition("reply consumer already set")
	}
	if err := d.consumers.checkTag(m); err != nil {
		return err
	}
	if !m.NoAck {
		return precondition("reply consumer cannot acknowledge")
	}
	d.reply.open(d.vhost.Name(), d.topology.connection(), d.out.id)
	cs := d.newConsumer(m, d.reply.queue())
	cs.exempt = true
	return cs.join()
}

// randomName returns a name that cannot be guessed.
func randomName() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return base64.RawURLEncoding.EncodeToString(b[:])
}

func (d *deliveries) newConsumer(m *amqp.BasicConsume, mailbox *queue.Mailbox) *consumer {
	cs := &consumer{
		channel: d, timeout: -1, lease: -1, consumeOKDone: m.NoWait, arguments: m.Arguments,
		Consumer: queue.Consumer{
			Tag: m.ConsumerTag, Queue: mailbox, NoAck: m.NoAck, Exclusive: m.Exclusive, Prefetch: d.credit.forConsumers(),
			Type: queue.TypeOf(mailbox.Config().Kind),
		},
	}
	cs.Sink = cs
	cs.exempt = cs.Type == queue.QuorumType
	return cs
}

// configure reads the arguments of basic.consume.
func (cs *consumer) configure(m *amqp.BasicConsume) error {
	cfg := cs.Queue.Config()
	if cs.Exclusive && cfg.SingleActive {
		return cs.channel.exclusiveUse(cfg.Name)
	}
	if n := m.Arguments.Fields(); n > amqp.MaxArguments {
		return precondition("the arguments of a consumer of queue '%s' in vhost '%s' have %d fields and elements: at most %d are allowed", cfg.Name, cfg.VHost, n, amqp.MaxArguments)
	}
	for _, arg := range m.Arguments {
		if !cs.supports(arg.Key) {
			return precondition("invalid arg '%s' for queue '%s' in vhost '%s' of queue type rabbit_%s_queue", arg.Key, cfg.Name, cfg.VHost, cfg.Kind)
		}
		if problem := cs.argument(arg); problem != "" {
			return precondition("invalid arg '%s' for queue '%s' in vhost '%s': %s", arg.Key, cfg.Name, cfg.VHost, problem)
		}
	}
	if v, ok := cfg.Settings("consumer-timeout"); ok && cs.timeout < 0 {
		n, _ := hook.Int(v) // the queue's arguments were checked
		cs.timeout = timeoutOf(n)
	}
	return nil
}

// supports reports whether the queue's type supports the argument for its consumers. RabbitMQ ignores an argument that only other types
// support, like an unknown one.
func (cs *consumer) supports(arg string) bool {
	switch arg {
	case "x-stream-offset":
		return false
	case "x-cancel-on-ha-failover":
		return cs.Type != queue.QuorumType
	}
	return true
}

// timeoutOf converts milliseconds to a duration, limited to the longest possible one.
func timeoutOf(ms int64) time.Duration {
	return time.Duration(min(ms, int64(math.MaxInt64/time.Millisecond))) * time.Millisecond
}

// argument reads one argument of basic.consume, and returns its fault in RabbitMQ's words.
func (cs *consumer) argument(arg amqp.Field) (problem string) {
	n, isInteger := amqp.Integer(arg.Value)
	expectedInteger := `"expected integer, got ` + amqp.TypeName(arg.Value) + `"`
	switch arg.Key {
	case "x-priority":
		if !isInteger {
			return expectedInteger
		}
		cs.Priority = n
	case "x-consumer-timeout":
		if !isInteger {
			return expectedInteger
		}
		if n < 0 {
			return "{value_negative," + strconv.FormatInt(n, 10) + "}"
		}
		cs.timeout = timeoutOf(n)
	case "x-delivery-lease":
		if !isInteger {
			return expectedInteger
		}
		if err := hook.CheckInt(n, 0, hook.MaxMillis); err != nil {
			return err.Error()
		}
		cs.lease = timeoutOf(n)
	case "x-cancel-on-ha-failover": // queues are never mirrored
		if _, ok := arg.Value.(bool); !ok {
			return "{unacceptable_type," + amqp.TypeName(arg.Value) + "}"
		}
	}
	return ""
}

func (d *deliveries) exclusiveUse(name string) error {
	return amqp.Errorf(amqp.ReplyAccessRefused, "queue '%s' in vhost '%s' in exclusive use", name, d.vhost.Name())
}

// join adds the consumer to its channel and its queue. Deliveries begin before it returns, and after consume-ok.
func (cs *consumer) join() error {
	d := cs.channel
	d.consumers.add(cs)
	var refusal error
	deleted := cs.Queue.Do(func(q *queue.Queue, now hook.Instant) {
		if refusal = q.AddConsumer(now, &cs.Consumer); refusal == nil {
			o := d.out.lock()
			defer o.mu.Unlock()
			cs.sendConsumeOK()
		}
	})
	if deleted == nil && refusal == nil {
		return nil
	}
	o := d.out.lock()
	d.consumers.remove(cs)
	o.mu.Unlock()
	name := cs.Queue.Config().Name
	if errors.Is(refusal, queue.ErrExclusiveUse) {
		return d.exclusiveUse(name)
	}
	if why, ok := errors.AsType[*queue.StoppedError](refusal); ok {
		return errStopped(why)
	}
	return d.vhost.NoQueue(name)
}

// cancel ends a consumer. An unknown tag is no error.
func (d *deliveries) cancel(m *amqp.BasicCancel) error {
	if cs, ok := d.consumers.lookUp(m.ConsumerTag); ok {
		d.remove(cs)
	}
	return d.out.answer(nil, m.NoWait, &amqp.BasicCancelOK{ConsumerTag: m.ConsumerTag})
}

// remove ends a consumer. It returns after the consumer's last delivery.
func (d *deliveries) remove(cs *consumer) {
	o := d.out.lock()
	d.drop(cs)
	o.mu.Unlock()
	if d.reply.queue() == cs.Queue {
		d.reply.close()
		return
	}
	// An error means that the queue was deleted, and the consumer with it.
	_ = cs.Queue.Do(func(q *queue.Queue, now hook.Instant) { q.RemoveConsumers(now, nil, &cs.Consumer) })
}

// drop removes a consumer from the channel. The caller holds out's lock.
func (d *deliveries) drop(cs *consumer) {
	d.consumers.remove(cs)
	d.credit.forget(cs)
}

// qos limits unacknowledged deliveries: of each consumer added later or, if global, of the whole channel
// [RabbitMQ: consumer-prefetch.html].
func (d *deliveries) qos(m *amqp.BasicQos) error {
	if m.PrefetchSize != 0 {
		return amqp.Errorf(amqp.ReplyNotImplemented, "prefetch_size!=0 (%d)", m.PrefetchSize)
	}
	d.credit.set(m.Global, uint32(m.PrefetchCount))
	d.out.send(&amqp.BasicQosOK{})
	d.round.wakeBelowLimit()
	return nil
}

// stop ends all deliveries, and returns the consumers and the unsettled deliveries. The caller holds out's lock.
func (d *deliveries) stop() (consumers map[string]*consumer, unsettled []taggedAck) {
	d.credit.stop()
	return d.consumers.takeAll(), d.unsettled.stop()
}
