package vhost

import (
	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/queue"
)

// TraceExchange is where a copy of everything goes that is published and delivered in a vhost while it is traced
// [RabbitMQ: firehose.html]. Nobody else can publish to it.
const TraceExchange = "amq.rabbitmq.trace"

// Tracing says whether the vhost is traced. It costs next to nothing to ask, and is asked for many messages at a time.
func (v *VHost) Tracing() bool { return v.tracing.Load() }

// RouteCopy appends to dst the queues that the copy of a message goes to, by the copy's key and headers.
func (v *VHost) RouteCopy(key string, headers func() amqp.RawTable, dst []*queue.Mailbox) []*queue.Mailbox {
	dst, _ = v.routeInternal(TraceExchange, message{key: key, headers: headers}, dst)
	return dst
}
