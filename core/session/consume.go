package session

import (
	"crypto/rand"
	"encoding/base64"
	"errors"
	"math"
	"strconv"
	"time"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/auth"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/sdk/hook"
)

func (ch *channel) consume(m *amqp.BasicConsume) error {
	if err := ch.checkConsumers(m.ConsumerTag); err != nil {
		return err
	}
	if m.Queue == replyTo {
		return ch.consumeReplies(m)
	}
	name, err := ch.permittedQueue(auth.Read, m.Queue)
	if err != nil {
		return err
	}
	if err := ch.checkConsumerTag(m); err != nil {
		return err
	}
	mailbox, err := ch.conn.vhost.Queue(name, ch.conn.id)
	if err != nil {
		return err
	}
	cs := ch.newConsumer(m, mailbox)
	if err := cs.configure(m); err != nil {
		return err
	}
	if cs.exempt && ch.limited() {
		cfg := mailbox.Config()
		return amqp.Errorf(amqp.ReplyNotImplemented, "queue '%s' in vhost '%s' does not support global qos", cfg.Name, cfg.VHost)
	}
	return cs.join()
}

// checkConsumers refuses a consumer beyond the channel's limit. Duplicate tags are refused elsewhere.
func (ch *channel) checkConsumers(tag string) error {
	limit := ch.conn.srv.Consumers
	if limit == 0 {
		return nil
	}
	o := ch.lock()
	defer o.mu.Unlock()
	if _, used := ch.consumers[tag]; used || len(ch.consumers) < limit {
		return nil
	}
	return amqp.Errorf(amqp.ReplyNotAllowed, "reached maximum (%d) of consumers per channel", limit)
}

// checkConsumerTag refuses a tag in use, and generates a tag if none is given.
func (ch *channel) checkConsumerTag(m *amqp.BasicConsume) error {
	if m.ConsumerTag == "" {
		m.ConsumerTag = "amq.ctag-" + randomName()
		return nil
	}
	if _, used := ch.lookUp(m.ConsumerTag); used {
		return amqp.Errorf(amqp.ReplyNotAllowed, "attempt to reuse consumer tag '%s'", m.ConsumerTag)
	}
	return nil
}

// randomName returns a name that cannot be guessed.
func randomName() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return base64.RawURLEncoding.EncodeToString(b[:])
}

func (ch *channel) lookUp(tag string) (cs *consumer, ok bool) {
	o := ch.lock()
	defer o.mu.Unlock()
	cs, ok = ch.consumers[tag]
	return cs, ok
}

func (ch *channel) newConsumer(m *amqp.BasicConsume, mailbox *queue.Mailbox) *consumer {
	cs := &consumer{
		channel: ch, timeout: -1, lease: -1, consumeOKDone: m.NoWait, arguments: m.Arguments,
		Consumer: queue.Consumer{
			Tag: m.ConsumerTag, Queue: mailbox, NoAck: m.NoAck, Exclusive: m.Exclusive, Prefetch: ch.prefetch,
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

func (ch *channel) exclusiveUse(name string) error {
	return amqp.Errorf(amqp.ReplyAccessRefused, "queue '%s' in vhost '%s' in exclusive use", name, ch.conn.vhost.Name())
}

// join adds the consumer to its channel and its queue. Deliveries begin before it returns, and after consume-ok.
func (cs *consumer) join() error {
	ch := cs.channel
	o := ch.lock()
	ch.consumers[cs.Tag] = cs
	o.mu.Unlock()
	var refusal error
	deleted := cs.Queue.Do(func(q *queue.Queue, now hook.Instant) {
		if refusal = q.AddConsumer(now, &cs.Consumer); refusal == nil {
			o.mu.Lock()
			defer o.mu.Unlock()
			cs.sendConsumeOK()
		}
	})
	if deleted == nil && refusal == nil {
		return nil
	}
	o.mu.Lock()
	delete(ch.consumers, cs.Tag)
	o.mu.Unlock()
	name := cs.Queue.Config().Name
	if errors.Is(refusal, queue.ErrExclusiveUse) {
		return ch.exclusiveUse(name)
	}
	if why, ok := errors.AsType[*queue.StoppedError](refusal); ok {
		return errStopped(why)
	}
	return ch.conn.vhost.NoQueue(name)
}

// cancel ends a consumer. An unknown tag is no error.
func (ch *channel) cancel(m *amqp.BasicCancel) error {
	if cs, ok := ch.lookUp(m.ConsumerTag); ok {
		ch.remove(cs)
	}
	return ch.answer(nil, m.NoWait, &amqp.BasicCancelOK{ConsumerTag: m.ConsumerTag})
}

// remove ends a consumer. It returns after the consumer's last delivery.
func (ch *channel) remove(cs *consumer) {
	o := ch.lock()
	ch.drop(cs)
	o.mu.Unlock()
	if ch.reply != nil && ch.reply == cs.Queue {
		ch.dropReplies()
		return
	}
	// An error means that the queue was deleted, and the consumer with it.
	_ = cs.Queue.Do(func(q *queue.Queue, now hook.Instant) { q.RemoveConsumers(now, nil, &cs.Consumer) })
}
