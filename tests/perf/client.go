package main

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"
)

// client is a load of one publisher and one consumer with amqp091-go, on a connection each.
type client struct {
	size     int // bytes of a body
	prefetch int // 0: automatic acknowledgement
}

const (
	clientQueue = "perf-client"
	patience    = 10 * time.Second // without a message
)

// load publishes as fast as possible for a time, waits for the last deliveries, and returns how many messages were consumed,
// in total and per second.
func (c *client) load(ctx context.Context, uri string, duration time.Duration) (n int64, rate float64, err error) {
	publisher, err := connect(uri)
	if err != nil {
		return 0, 0, err
	}
	defer publisher.close()
	consumer, err := connect(uri)
	if err != nil {
		return 0, 0, err
	}
	defer consumer.close()
	deliveries, err := c.subscribe(consumer.channel)
	if err != nil {
		return 0, 0, err
	}
	var got, last atomic.Int64
	began := time.Now()
	go c.consume(deliveries, func() { last.Store(int64(time.Since(began))); got.Add(1) })
	sent, err := c.publish(ctx, publisher.channel, duration)
	if err != nil {
		return 0, 0, err
	}
	for got.Load() < sent && time.Since(began)-time.Duration(last.Load()) < patience+duration {
		time.Sleep(10 * time.Millisecond)
	}
	if _, err := publisher.channel.QueueDelete(clientQueue, false, false, false); err != nil {
		return 0, 0, err
	}
	if n = got.Load(); n < sent {
		return n, 0, fmt.Errorf("%d of %d messages came", n, sent)
	}
	return n, float64(n) / time.Duration(last.Load()).Seconds(), nil
}

func (c *client) subscribe(ch *amqp091.Channel) (<-chan amqp091.Delivery, error) {
	if _, err := ch.QueueDeclare(clientQueue, false, false, false, false, nil); err != nil {
		return nil, err
	}
	if err := ch.Qos(c.prefetch, 0, false); err != nil {
		return nil, err
	}
	return ch.Consume(clientQueue, "", c.prefetch == 0, false, false, false, nil)
}

func (c *client) consume(deliveries <-chan amqp091.Delivery, count func()) {
	for d := range deliveries {
		if c.prefetch > 0 {
			_ = d.Ack(false) // after an error no delivery follows, which is noticed
		}
		count()
	}
}

func (c *client) publish(ctx context.Context, ch *amqp091.Channel, duration time.Duration) (sent int64, err error) {
	m := amqp091.Publishing{Body: make([]byte, c.size)}
	for end := time.Now().Add(duration); time.Now().Before(end) && ctx.Err() == nil; sent++ {
		if err := ch.PublishWithContext(ctx, "", clientQueue, false, false, m); err != nil {
			return sent, err
		}
	}
	return sent, nil
}

type connection struct {
	conn    *amqp091.Connection
	channel *amqp091.Channel
}

func connect(uri string) (*connection, error) {
	conn, err := amqp091.Dial(uri)
	if err != nil {
		return nil, err
	}
	ch, err := conn.Channel()
	if err != nil {
		_ = conn.Close() // the error that counts is the first
		return nil, err
	}
	return &connection{conn, ch}, nil
}

func (c *connection) close() { _ = c.conn.Close() } // the measurement is complete
