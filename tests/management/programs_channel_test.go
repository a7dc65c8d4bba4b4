package management

import (
	"fmt"
	"strings"

	"github.com/curfewmq/curfew/core/amqp"
)

// programChannel is an open channel, and what was heard on it since it was last reported.
type programChannel struct {
	client    *programClient
	id        uint16
	noAck     map[string]bool // by consumer tag
	held      []uint64        // delivery tags
	answers   []string
	delivered []string
	confirmed string // last: brokers differ in how many they confirm at once
}

// call sends a method and waits for its answer; nil = it was refused.
func (ch *programChannel) call(m amqp.Method) amqp.Method {
	ch.client.player.t.Helper()
	ch.client.send(ch.id, m)
	return ch.answer(m)
}

// answer waits for the answer to a method.
func (ch *programChannel) answer(to amqp.Method) amqp.Method {
	ch.client.player.t.Helper()
	class, _ := to.ID()
	_, isGet := to.(*amqp.BasicGet)
	return ch.client.await(ch.id, func(m amqp.Method) bool {
		if _, ok := m.(*amqp.BasicGetEmpty); ok {
			return isGet
		}
		is, _ := m.ID()
		return is == class && strings.HasSuffix(m.Name(), "-ok") && (!isGet || m.Name() == "basic.get-ok")
	})
}

// hear takes note of a method.
func (ch *programChannel) hear(e programEvent) {
	switch m := e.method.(type) {
	case *amqp.BasicDeliver:
		ch.delivered = append(ch.delivered, fmt.Sprintf("%s: %s%s from %q", m.ConsumerTag, e.body, again(m.Redelivered), m.Exchange))
		if !ch.noAck[m.ConsumerTag] {
			ch.held = append(ch.held, m.DeliveryTag)
		}
	case *amqp.BasicReturn:
		ch.answers = append(ch.answers, fmt.Sprintf("returned %s: %d %s", e.body, m.ReplyCode, m.ReplyText))
	case *amqp.BasicCancel:
		ch.answers = append(ch.answers, "cancelled "+m.ConsumerTag)
	case *amqp.BasicAck:
		ch.confirmed = fmt.Sprintf("+%d", m.DeliveryTag)
	case *amqp.BasicNack:
		ch.confirmed = fmt.Sprintf("-%d", m.DeliveryTag)
	case *amqp.ChannelClose:
		ch.client.said = append(ch.client.said, fmt.Sprintf("channel %d closed: %d %s", ch.id, m.ReplyCode, m.ReplyText))
		ch.client.send(ch.id, &amqp.ChannelCloseOK{})
		ch.client.channels[ch.id] = nil
	default:
		ch.answers = append(ch.answers, m.Name())
	}
}

func again(redelivered bool) string {
	if redelivered {
		return "*"
	}
	return ""
}

// report writes what was heard. Whether a delivery is heard before an answer is chance.
func (ch *programChannel) report(b *strings.Builder) {
	write := func(what string, list []string) {
		if len(list) > 0 {
			fmt.Fprintf(b, "    %s%d %s: %s\n", ch.client.name, ch.id, what, strings.Join(list, ", "))
		}
	}
	write("heard", ch.answers)
	write("got", ch.delivered)
	if ch.confirmed != "" {
		write("was last confirmed", []string{ch.confirmed})
	}
	ch.answers, ch.delivered, ch.confirmed = nil, nil, ""
}
