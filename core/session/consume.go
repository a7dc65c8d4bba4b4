package session

import (
	"crypto/rand"
	"encoding/base64"
	"errors"
	"math"
	"time"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/auth"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/core/vhost"
	"github.com/curfewmq/curfew/sdk/hook"
)

func (ch *channel) consume(m *amqp.BasicConsume) error {
	if m.Queue == replyTo {
		return ch.consumeReplies(m)
	}
	name, err := ch.queueName(m.Queue)
	if err != nil {
		return err
	}
	if err := ch.conn.mayQueue(auth.Read, name); err != nil {
		return err
	}
	if err := ch.checkConsumerTag(m); err != nil {
		return err
	}
	shell, err := ch.conn.vhost.Queue(name, ch.conn.id)
	if err != nil {
		return err
	}
	s := ch.newConsumer(m, shell)
	if err := s.configure(m); err != nil {
		return err
	}
	return s.join()
}

// checkConsumerTag refuses a tag in use, and makes one up if none is given.
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

// randomName is a name that nobody can guess.
func randomName() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return base64.RawURLEncoding.EncodeToString(b[:])
}

func (ch *channel) lookUp(tag string) (s *consumer, ok bool) {
	o := &ch.conn.out
	o.mu.Lock()
	defer o.mu.Unlock()
	s, ok = ch.consumers[tag]
	return s, ok
}

func (ch *channel) newConsumer(m *amqp.BasicConsume, shell *queue.Shell) *consumer {
	s := &consumer{
		channel: ch, timeout: -1, announced: m.NoWait,
		Consumer: queue.Consumer{
			Tag: m.ConsumerTag, Queue: shell, NoAck: m.NoAck, Exclusive: m.Exclusive, Prefetch: ch.prefetch,
		},
	}
	s.Sink = s
	return s
}

// maxTimeoutMillis is the longest a timeout can be expressed: more is as good as none.
const maxTimeoutMillis = int64(math.MaxInt64 / time.Millisecond)

// configure reads the arguments of basic.consume that mean something.
func (s *consumer) configure(m *amqp.BasicConsume) error {
	cfg := s.Queue.Config()
	if s.Exclusive && cfg.SingleActive {
		return s.channel.exclusiveUse(cfg.Name)
	}
	wrong := func(arg string, v any, expected string) error {
		return precondition(`invalid arg '%s' for queue '%s' in vhost '%s': "expected %s, got %s"`,
			arg, cfg.Name, cfg.VHost, expected, amqp.TypeName(v))
	}
	var ok bool
	if v, given := m.Arguments.Lookup("x-priority"); given {
		if s.Priority, ok = amqp.Integer(v); !ok {
			return wrong("x-priority", v, "integer")
		}
	}
	if v, given := m.Arguments.Lookup("x-consumer-timeout"); given {
		ms, ok := amqp.Integer(v)
		if !ok || ms < 0 {
			return wrong("x-consumer-timeout", v, "non-negative integer")
		}
		s.timeout = time.Duration(min(ms, maxTimeoutMillis)) * time.Millisecond
	}
	return nil
}

func (ch *channel) exclusiveUse(name string) error {
	return amqp.Errorf(amqp.ReplyAccessRefused, "queue '%s' in vhost '%s' in exclusive use", name, ch.conn.vhost.Name())
}

// join adds the consumer to its channel and queue. Deliveries begin before it returns, and consume-ok is before them.
func (s *consumer) join() error {
	ch := s.channel
	o := &ch.conn.out
	o.mu.Lock()
	ch.consumers[s.Tag] = s
	o.mu.Unlock()
	var refused error
	gone := s.Queue.Do(func(q *queue.Queue, now hook.Instant) {
		if refused = q.AddConsumer(now, &s.Consumer); refused == nil {
			o.mu.Lock()
			defer o.mu.Unlock()
			s.announce()
		}
	})
	if gone == nil && refused == nil {
		return nil
	}
	o.mu.Lock()
	delete(ch.consumers, s.Tag)
	o.mu.Unlock()
	name := s.Queue.Config().Name
	if errors.Is(refused, queue.ErrExclusiveUse) {
		return ch.exclusiveUse(name)
	}
	return ch.conn.vhost.NoQueue(name)
}

// leave takes the consumer out of its queue: when it returns, there are no deliveries any more.
func (s *consumer) leave() {
	// An error means that the queue is gone, and the consumer with it.
	_ = s.Queue.Do(func(q *queue.Queue, now hook.Instant) { q.RemoveConsumer(now, &s.Consumer) })
}

// cancel ends a consumer. One that there is not is as good as ended.
func (ch *channel) cancel(m *amqp.BasicCancel) error {
	if s, ok := ch.lookUp(m.ConsumerTag); ok {
		ch.remove(s)
	}
	return ch.answer(m.NoWait, &amqp.BasicCancelOK{ConsumerTag: m.ConsumerTag})
}

func (ch *channel) remove(s *consumer) {
	o := &ch.conn.out
	o.mu.Lock()
	delete(ch.consumers, s.Tag)
	o.mu.Unlock()
	if ch.reply != nil && ch.reply.shell == s.Queue {
		ch.dropReplies()
		return
	}
	s.leave()
}

// queueName resolves the empty name to the queue the channel declared last.
func (ch *channel) queueName(name string) (string, error) {
	if name != "" {
		return vhost.Sanitise(name), nil
	}
	if ch.declared == "" {
		return "", amqp.Errorf(amqp.ReplyNotFound, "no previously declared queue")
	}
	return ch.declared, nil
}
