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
	"github.com/curfewmq/curfew/core/rabbit"
	"github.com/curfewmq/curfew/sdk/hook"
)

func (ch *channel) consume(m *amqp.BasicConsume) error {
	if err := ch.checkConsumers(m.ConsumerTag); err != nil {
		return err
	}
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
	if s.exempt && ch.limited() {
		cfg := shell.Config()
		return amqp.Errorf(amqp.ReplyNotImplemented, "queue '%s' in vhost '%s' does not support global qos", cfg.Name, cfg.VHost)
	}
	return s.join()
}

// checkConsumers refuses one more consumer than a channel may have. For a tag in use there is another refusal.
func (ch *channel) checkConsumers(tag string) error {
	most := ch.conn.srv.Consumers
	if most == 0 {
		return nil
	}
	o := &ch.conn.out
	o.mu.Lock()
	defer o.mu.Unlock()
	if _, used := ch.consumers[tag]; used || len(ch.consumers) < most {
		return nil
	}
	return amqp.Errorf(amqp.ReplyNotAllowed, "reached maximum (%d) of consumers per channel", most)
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

// limited reports whether the channel has a limit of its own.
func (ch *channel) limited() bool {
	o := &ch.conn.out
	o.mu.Lock()
	defer o.mu.Unlock()
	return ch.globalPrefetch > 0
}

func (ch *channel) newConsumer(m *amqp.BasicConsume, shell *queue.Mailbox) *consumer {
	s := &consumer{
		channel: ch, timeout: -1, consumeOKDone: m.NoWait, arguments: m.Arguments,
		Consumer: queue.Consumer{
			Tag: m.ConsumerTag, Queue: shell, NoAck: m.NoAck, Exclusive: m.Exclusive, Prefetch: ch.prefetch,
			Type: queue.TypeOf(shell.Config().Kind),
		},
	}
	s.Sink = s
	s.exempt = s.Type == queue.QuorumType
	return s
}

// configure reads the arguments of basic.consume that mean something.
func (s *consumer) configure(m *amqp.BasicConsume) error {
	cfg := s.Queue.Config()
	if s.Exclusive && cfg.SingleActive {
		return s.channel.exclusiveUse(cfg.Name)
	}
	for _, arg := range m.Arguments {
		if wrong := s.argument(arg); wrong != "" {
			return precondition("invalid arg '%s' for queue '%s' in vhost '%s': %s", arg.Key, cfg.Name, cfg.VHost, wrong)
		}
	}
	if v, ok := cfg.Settings("consumer-timeout"); ok && s.timeout < 0 {
		n, _ := hook.Int(v) // the queue's arguments were checked
		s.timeout = timeoutOf(n)
	}
	return nil
}

// timeoutOf is a timeout of ms milliseconds. More than can be expressed is as good as the longest that can.
func timeoutOf(ms int64) time.Duration {
	return time.Duration(min(ms, int64(math.MaxInt64/time.Millisecond))) * time.Millisecond
}

// argument reads one argument of basic.consume, and says what is wrong with it in RabbitMQ's words.
func (s *consumer) argument(arg amqp.Field) (wrong string) {
	n, isInteger := amqp.Integer(arg.Value)
	expectedInteger := `"expected integer, got ` + amqp.TypeName(arg.Value) + `"`
	switch arg.Key {
	case "x-priority":
		if !isInteger {
			return expectedInteger
		}
		s.Priority = n
	case "x-consumer-timeout":
		if !isInteger {
			return expectedInteger
		}
		if n < 0 {
			return "{value_negative," + strconv.FormatInt(n, 10) + "}"
		}
		s.timeout = timeoutOf(n)
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
			s.sendConsumeOK()
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
	if why, ok := errors.AsType[*queue.StoppedError](refused); ok {
		return errStopped(why)
	}
	return ch.conn.vhost.NoQueue(name)
}

// leave takes the consumer out of its queue: when it returns, there are no deliveries any more.
func (s *consumer) leave() {
	// An error means that the queue is gone, and the consumer with it.
	_ = s.Queue.Do(func(q *queue.Queue, now hook.Instant) { q.RemoveConsumers(now, nil, &s.Consumer) })
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
	ch.drop(s)
	o.mu.Unlock()
	if ch.reply != nil && ch.reply.mailbox == s.Queue {
		ch.dropReplies()
		return
	}
	s.leave()
}

// queueName resolves the empty name to the queue the channel declared last.
func (ch *channel) queueName(name string) (string, error) {
	if name != "" {
		return rabbit.Sanitise(name), nil
	}
	if ch.declared == "" {
		return "", amqp.Errorf(amqp.ReplyNotFound, "no previously declared queue")
	}
	return ch.declared, nil
}
