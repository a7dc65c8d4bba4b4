package management

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/curfewmq/curfew/core/amqp"
)

// do carries out a step and returns what it was.
func (ch *programChannel) do(s programStep) string {
	ch.client.player.t.Helper()
	p, queue := ch.client.player, ch.client.player.queue(s.n[0])
	flip := func(i, of int) bool { return s.n[i]%of == 0 }
	switch s.verb {
	case "publish":
		return ch.publish("", queue, 1+s.n[1]%3, flip(2, 2))
	case "fan":
		return ch.publish(p.exchange(), "", 1, flip(2, 2))
	case "consume":
		return ch.consume(queue, "c"+strconv.Itoa(s.n[1]%4), flip(2, 3))
	case "get":
		if p.quorum {
			return "nothing" // RabbitMQ counts a consumer for each
		}
		return ch.get(queue, flip(1, 2))
	case "ack", "nack", "reject":
		return ch.settle(s.verb, s.n[0], flip(1, 3), flip(2, 2))
	case "beat":
		ch.client.write(amqp.AppendHeartbeat(nil))
		return s.verb
	case "misbeat":
		if !flip(0, 4) {
			return "nothing"
		}
		b := amqp.AppendHeartbeat(nil)
		b[2] = byte(ch.id)
		ch.client.write(b)
		return s.verb
	case "close":
		ch.call(&amqp.ChannelClose{ReplyCode: amqp.ReplySuccess})
		ch.client.channels[ch.id] = nil
		return s.verb
	case "disconnect":
		if flip(0, 2) {
			ch.client.send(0, &amqp.ConnectionClose{ReplyCode: amqp.ReplySuccess})
			ch.client.await(0, func(m amqp.Method) bool { return m.Name() == "connection.close-ok" })
		}
		ch.client.hangUp()
		return s.verb
	}
	m := ch.method(s, queue)
	answer := ch.call(m)
	text := fmt.Sprintf("%s %+v", m.Name(), m)
	switch a := answer.(type) {
	case nil:
	case *amqp.QueueDeleteOK:
		text += fmt.Sprintf(": %d", a.MessageCount)
	case *amqp.QueuePurgeOK:
		text += fmt.Sprintf(": %d", a.MessageCount)
	case *amqp.QueueDeclareOK:
		text += fmt.Sprintf(": %d, %d", a.MessageCount, a.ConsumerCount)
	}
	if _, ok := m.(*amqp.BasicRecover); ok {
		ch.held = nil
	}
	return text
}

// method is the method that a step consists of.
func (ch *programChannel) method(s programStep, queue string) amqp.Method {
	p := ch.client.player
	flip := func(i, of int) bool { return s.n[i]%of == 0 }
	switch s.verb {
	case "cancel":
		return &amqp.BasicCancel{ConsumerTag: "c" + strconv.Itoa(s.n[1]%4) + ch.client.name + strconv.Itoa(int(ch.id))}
	case "qos":
		return &amqp.BasicQos{PrefetchCount: uint16(s.n[1] % 4), Global: flip(2, 2)}
	case "recover":
		return &amqp.BasicRecover{Requeue: true}
	case "declare":
		m := &amqp.QueueDeclare{Queue: queue}
		if p.quorum && queue == p.queue(2) {
			m.Durable, m.Arguments = true, amqp.Table{{Key: "x-queue-type", Value: "quorum"}}
		}
		return m
	case "delete":
		choosy := !p.quorum // RabbitMQ cannot tell of a quorum queue whether it is used or empty
		return &amqp.QueueDelete{Queue: queue, IfUnused: choosy && flip(1, 5), IfEmpty: choosy && flip(2, 5)}
	case "purge":
		return &amqp.QueuePurge{Queue: queue}
	case "bind":
		return &amqp.QueueBind{Queue: queue, Exchange: p.exchange()}
	case "unbind":
		return &amqp.QueueUnbind{Queue: queue, Exchange: p.exchange()}
	case "select":
		return &amqp.TxSelect{}
	case "commit":
		return &amqp.TxCommit{}
	case "rollback":
		return &amqp.TxRollback{}
	case "confirm":
		return &amqp.ConfirmSelect{}
	}
	ch.client.player.t.Fatalf("%s: no such verb", s.verb)
	return nil
}

func (ch *programChannel) publish(exchange, key string, n int, mandatory bool) string {
	var b []byte
	first := ch.client.player.last + 1
	for range n {
		ch.client.player.last++
		body := "m" + strconv.Itoa(ch.client.player.last)
		b = amqp.AppendMethod(b, ch.id, &amqp.BasicPublish{Exchange: exchange, RoutingKey: key, Mandatory: mandatory})
		b = amqp.AppendContentHeader(b, ch.id, uint64(len(body)), amqp.Properties{}.Append(nil))
		b = amqp.AppendBody(b, ch.id, []byte(body), 4096)
	}
	ch.client.write(b)
	return fmt.Sprintf("publish m%d-m%d to %q %q, mandatory %t", first, ch.client.player.last, exchange, key, mandatory)
}

func (ch *programChannel) consume(queue, tag string, noAck bool) string {
	tag += ch.client.name + strconv.Itoa(int(ch.id))
	_, used := ch.noAck[tag]
	if !used {
		ch.noAck[tag] = noAck
	}
	ch.call(&amqp.BasicConsume{Queue: queue, ConsumerTag: tag, NoAck: noAck})
	return fmt.Sprintf("consume %s as %s, no-ack %t", queue, tag, noAck)
}

func (ch *programChannel) get(queue string, noAck bool) string {
	text := fmt.Sprintf("get %s, no-ack %t", queue, noAck)
	switch m := ch.call(&amqp.BasicGet{Queue: queue, NoAck: noAck}).(type) {
	case *amqp.BasicGetOK:
		if !noAck {
			ch.held = append(ch.held, m.DeliveryTag)
		}
		return text + fmt.Sprintf(": one%s, %d more", again(m.Redelivered), m.MessageCount)
	case *amqp.BasicGetEmpty:
		return text + ": empty"
	}
	return text
}

// settle answers one of the deliveries that the channel holds, or all up to it.
func (ch *programChannel) settle(verb string, n int, multiple, requeue bool) string {
	if len(ch.held) == 0 {
		return verb + " nothing"
	}
	i := n % len(ch.held)
	tag := ch.held[i]
	ch.held = slices.Delete(ch.held, i, i+1)
	if multiple && verb != "reject" {
		ch.held = slices.Delete(ch.held, 0, i)
	}
	switch verb {
	case "ack":
		ch.client.send(ch.id, &amqp.BasicAck{DeliveryTag: tag, Multiple: multiple})
	case "nack":
		ch.client.send(ch.id, &amqp.BasicNack{DeliveryTag: tag, Multiple: multiple, Requeue: requeue})
	default:
		ch.client.send(ch.id, &amqp.BasicReject{DeliveryTag: tag, Requeue: requeue})
		multiple = false
	}
	return fmt.Sprintf("%s %d, multiple %t, requeue %t", verb, tag, multiple, requeue)
}
