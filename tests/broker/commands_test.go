package broker

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/rabbitmq/amqp091-go"

	"github.com/curfewmq/curfew/tests/process"
)

// commands are what a script may say. QUEUE, EXCHANGE, KEY, TAG and so on are words; [x] may be left out; k=v… are arguments of
// the declaration. An error of the broker is printed; the next command then gets a new channel or connection. "name: command"
// does it on the connection called name.
var commands = map[string]func(s *session, c call, out *bytes.Buffer) error{
	// declare QUEUE [durable] [auto-delete] [exclusive] [passive] [nowait] [k=v…]
	"declare": func(s *session, c call, _ *bytes.Buffer) error {
		declare := s.ch.QueueDeclare
		if c.has("passive") {
			declare = s.ch.QueueDeclarePassive
		}
		_, err := declare(c.word(0), c.has("durable"), c.has("auto-delete"), c.has("exclusive"), c.has("nowait"), c.table(""))
		return err
	},
	// exchange EXCHANGE TYPE [passive] [durable] [auto-delete] [internal] [k=v…]
	"exchange": func(s *session, c call, _ *bytes.Buffer) error {
		declare := s.ch.ExchangeDeclare
		if c.has("passive") {
			declare = s.ch.ExchangeDeclarePassive
		}
		return declare(c.word(0), c.word(1), c.has("durable"), c.has("auto-delete"), c.has("internal"), false, c.table(""))
	},
	// bind QUEUE EXCHANGE [KEY] [k=v…]
	"bind": func(s *session, c call, _ *bytes.Buffer) error {
		return s.ch.QueueBind(c.word(0), c.word(2), c.word(1), false, c.table(""))
	},
	// unbind QUEUE EXCHANGE [KEY] [k=v…]
	"unbind": func(s *session, c call, _ *bytes.Buffer) error {
		return s.ch.QueueUnbind(c.word(0), c.word(2), c.word(1), c.table(""))
	},
	// bind-exchange TO FROM [KEY] [k=v…]
	"bind-exchange": func(s *session, c call, _ *bytes.Buffer) error {
		return s.ch.ExchangeBind(c.word(0), c.word(2), c.word(1), false, c.table(""))
	},
	// delete QUEUE [if-unused] [if-empty]: prints how many messages it had
	"delete": func(s *session, c call, out *bytes.Buffer) error {
		n, err := s.ch.QueueDelete(c.word(0), c.has("if-unused"), c.has("if-empty"), false)
		return printed(out, err, "%s deleted\n", plural(n, "message"))
	},
	// delete-exchange EXCHANGE [if-unused]
	"delete-exchange": func(s *session, c call, _ *bytes.Buffer) error {
		return s.ch.ExchangeDelete(c.word(0), c.has("if-unused"), false)
	},
	// purge QUEUE: prints how many messages it had
	"purge": func(s *session, c call, out *bytes.Buffer) error {
		n, err := s.ch.QueuePurge(c.word(0), false)
		return printed(out, err, "%s purged\n", plural(n, "message"))
	},
	// count QUEUE: prints what a passive declaration tells
	"count": func(s *session, c call, out *bytes.Buffer) error {
		q, err := s.ch.QueueDeclarePassive(c.word(0), false, false, false, false, nil)
		return printed(out, err, "%s, %s\n", plural(q.Messages, "message"), plural(q.Consumers, "consumer"))
	},
	// gone QUEUE: waits until the queue does not exist. It asks in a way that does not renew the queue's lease.
	"gone": func(s *session, c call, _ *bytes.Buffer) error { return s.gone(c.word(0)) },

	"publish": publish,
	// returned: waits for a basic.return and prints it
	"returned": func(s *session, _ call, out *bytes.Buffer) error {
		r := await(s.t, s.returns, "basic.return")
		fmt.Fprintf(out, "returned %d %s: %s exchange=%s key=%s\n", r.ReplyCode, r.ReplyText, r.Body, quoted(r.Exchange), r.RoutingKey)
		return nil
	},
	// confirm: puts the channel in confirm mode
	"confirm": func(s *session, _ call, _ *bytes.Buffer) error { return s.ch.Confirm(false) },
	// confirms: waits until all that was published on the channel is settled, and prints how
	"confirms": func(s *session, _ call, out *bytes.Buffer) error {
		for range s.published {
			c := await(s.t, s.confirms, "a confirm")
			fmt.Fprintf(out, "%d %s\n", c.DeliveryTag, map[bool]string{true: "ack", false: "nack"}[c.Ack])
		}
		s.published = 0
		return nil
	},
	// tx select|commit|rollback
	"tx": func(s *session, c call, _ *bytes.Buffer) error {
		return map[string]func() error{"select": s.ch.Tx, "commit": s.ch.TxCommit, "rollback": s.ch.TxRollback}[c.word(0)]()
	},

	// get QUEUE [unacked]: basic.get; prints the message or "empty"
	"get": func(s *session, c call, out *bytes.Buffer) error {
		d, ok, err := s.ch.Get(c.word(0), !c.has("unacked"))
		if err == nil && !ok {
			return printed(out, nil, "empty\n")
		}
		return s.show(d, err, out)
	},
	// take QUEUE [unacked]: the same, but waits for a message
	"take": func(s *session, c call, out *bytes.Buffer) error {
		d, err := s.take(c.word(0), !c.has("unacked"))
		return s.show(d, err, out)
	},
	// answer QUEUE BODY: takes a request and publishes the reply
	"answer": func(s *session, c call, _ *bytes.Buffer) error {
		d, err := s.take(c.word(0), true)
		if err != nil {
			return err
		}
		m := amqp091.Publishing{CorrelationId: d.CorrelationId, Body: []byte(c.word(1))}
		return s.ch.PublishWithContext(s.t.Context(), "", d.ReplyTo, false, false, m)
	},
	// ack [BODY|#TAG] [multiple]: the message with that body, or the one shown last
	"ack": func(s *session, c call, _ *bytes.Buffer) error { return s.ch.Ack(s.tag(c), c.has("multiple")) },
	// nack [BODY|#TAG] [multiple] [requeue]
	"nack": func(s *session, c call, _ *bytes.Buffer) error {
		return s.ch.Nack(s.tag(c), c.has("multiple"), c.has("requeue"))
	},
	// reject [BODY|#TAG] [requeue]
	"reject": func(s *session, c call, _ *bytes.Buffer) error { return s.ch.Reject(s.tag(c), c.has("requeue")) },
	// recover: gives all unacknowledged messages back
	"recover": func(s *session, _ call, _ *bytes.Buffer) error { return s.ch.Recover(true) }, //nolint:staticcheck // deprecated in the client, and the broker has it
	// qos COUNT [global]
	"qos": func(s *session, c call, _ *bytes.Buffer) error {
		return s.ch.Qos(int(whole(c.word(0))), c.number("size", 0), c.has("global"))
	},
	// consume QUEUE TAG [no-ack] [exclusive] [k=v…]
	"consume": func(s *session, c call, _ *bytes.Buffer) error {
		ds, err := s.ch.Consume(c.word(0), c.word(1), c.has("no-ack"), c.has("exclusive"), false, false, c.table(""))
		s.consumers[c.word(1)] = ds
		return err
	},
	// receive TAG [COUNT]: waits for deliveries to that consumer, and prints them
	"receive": func(s *session, c call, out *bytes.Buffer) error {
		n := 1
		if c.word(1) != "" {
			n = int(whole(c.word(1)))
		}
		for range n {
			if err := s.show(await(s.t, s.consumers[c.word(0)], "a delivery"), nil, out); err != nil {
				return err
			}
		}
		return nil
	},
	// nothing TAG: prints a delivery to the consumer that has come by now and should not have
	"nothing": func(s *session, c call, out *bytes.Buffer) error {
		select {
		case d := <-s.consumers[c.word(0)]:
			return s.show(d, nil, out)
		default:
			return nil
		}
	},
	// cancel TAG
	"cancel": func(s *session, c call, _ *bytes.Buffer) error { return s.ch.Cancel(c.word(0), false) },
	// cancelled: waits for a basic.cancel from the broker and prints the consumer
	"cancelled": func(s *session, _ call, out *bytes.Buffer) error {
		return printed(out, nil, "%s was cancelled\n", await(s.t, s.cancels, "basic.cancel"))
	},
	// closed: waits for the broker to close the channel, and prints why
	"closed": func(s *session, _ call, _ *bytes.Buffer) error { return await(s.t, s.closed, "an error") },
	// close: closes the connection
	"close": func(s *session, _ call, _ *bytes.Buffer) error { return s.conn.Close() },
	// close-channel: closes the channel
	"close-channel": func(s *session, _ call, _ *bytes.Buffer) error { return s.ch.Close() },
	// pause DURATION: for what has a duration
	"pause": func(_ *session, c call, _ *bytes.Buffer) error {
		d, err := time.ParseDuration(c.word(0))
		time.Sleep(d)
		return err
	},
}

// publish KEY BODY [exchange=E] [mandatory] [immediate] [persistent] [expiration=MS] [priority=N] [reply-to=Q] [user-id=U]
// [header.K=V…] [times=N] [size=N]: publishes to the default exchange unless told otherwise.
func publish(s *session, c call, _ *bytes.Buffer) error {
	m := amqp091.Publishing{
		Headers: c.table("header."), Expiration: c.option("expiration", ""), Priority: byte(c.number("priority", 0)),
		ReplyTo: c.option("reply-to", ""), UserId: c.option("user-id", ""), MessageId: c.option("message-id", ""),
		CorrelationId: c.option("correlation-id", ""),
		Body:          []byte(c.word(1) + strings.Repeat("x", c.number("size", 0))),
	}
	if c.has("persistent") {
		m.DeliveryMode = amqp091.Persistent
	}
	for range c.number("times", 1) {
		s.published++
		err := s.ch.PublishWithContext(s.t.Context(), c.option("exchange", ""), c.word(0), c.has("mandatory"), c.has("immediate"), m)
		if err != nil {
			return err
		}
	}
	return nil
}

// take waits for a message in a queue.
func (s *session) take(queue string, noAck bool) (d amqp091.Delivery, err error) {
	s.t.Helper()
	came := process.Poll(func() (ok bool) {
		d, ok, err = s.ch.Get(queue, noAck)
		return ok || err != nil
	})
	if !came {
		s.t.Fatalf("nothing came to queue %s", queue)
	}
	return d, err
}

// gone waits until a queue cannot be bound.
func (s *session) gone(queue string) error {
	var err error
	over := process.Poll(func() (gone bool) {
		gone, err = s.unknown(queue)
		return gone || err != nil
	})
	if !over {
		s.t.Errorf("queue %s is still there", queue)
	}
	return err
}

// unknown reports whether a queue cannot be bound.
func (s *session) unknown(queue string) (bool, error) {
	ch, err := s.conn.Channel()
	if err != nil {
		return false, err
	}
	var e *amqp091.Error
	if err := ch.QueueBind(queue, "gone", "amq.direct", false, nil); errors.As(err, &e) && e.Code == amqp091.NotFound {
		return true, nil
	}
	return false, ch.Close()
}

func printed(out *bytes.Buffer, err error, format string, a ...any) error {
	if err == nil {
		fmt.Fprintf(out, format, a...)
	}
	return err
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return strconv.Itoa(n) + " " + what + "s"
}

// tag is the delivery tag that a command means.
func (s *session) tag(c call) uint64 {
	s.t.Helper()
	name := c.word(0)
	if name == "" {
		return s.latest
	}
	if number, raw := strings.CutPrefix(name, "#"); raw {
		return uint64(whole(number))
	}
	tag, ok := s.shown[name]
	if !ok {
		s.t.Fatalf("%s %s: no such message was shown", c.verb, name)
	}
	return tag
}
