package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rabbitmq/amqp091-go"
)

// goClient is a publisher and a consumer that outlive the nodes of a cluster, with amqp091-go, which has no recovery.
type goClient struct {
	queue    string
	urls     []string
	out      io.Writer
	stopping atomic.Bool // the publisher ends
	ctx      context.Context
	end      func()
}

func newGoClient(queue string, urls []string, out io.Writer) *goClient {
	c := &goClient{queue: queue, urls: urls, out: out}
	var running sync.WaitGroup
	ctx, cancel := context.WithCancel(context.Background())
	c.ctx, c.end = ctx, func() {
		cancel()
		running.Wait()
	}
	running.Go(func() { c.again(c.publisher()) })
	running.Go(func() { c.again(c.consume) })
	return c
}

func (c *goClient) stop() { c.stopping.Store(true) }

func (c *goClient) say(word string, n int) { _, _ = fmt.Fprintf(c.out, "%s %d\n", word, n) }

// errStopped ends a client that has published all.
var errStopped = errors.New("stopped")

// again connects to any node and does work with a channel there, until the client ends. Whatever ends the channel ends work.
func (c *goClient) again(work func(*amqp091.Channel) error) {
	for c.ctx.Err() == nil {
		if errors.Is(c.once(work), errStopped) {
			return
		}
		c.pause(200 * time.Millisecond)
	}
}

func (c *goClient) once(work func(*amqp091.Channel) error) error {
	url := c.urls[rand.IntN(len(c.urls))]
	conn, err := amqp091.DialConfig(url, amqp091.Config{Heartbeat: 10 * time.Second, Dial: amqp091.DefaultDial(20 * time.Second)})
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }() // it may be gone
	ch, err := conn.Channel()
	if err != nil {
		return err
	}
	if _, err = ch.QueueDeclare(c.queue, true, false, false, false, nil); err != nil {
		return err
	}
	return work(ch)
}

func (c *goClient) pause(d time.Duration) {
	select {
	case <-c.ctx.Done():
	case <-time.After(d):
	}
}

// publisher publishes a message after the other, each until it is confirmed.
func (c *goClient) publisher() func(*amqp091.Channel) error {
	published := 0
	return func(ch *amqp091.Channel) error {
		if err := ch.Confirm(false); err != nil {
			return err
		}
		for !c.stopping.Load() {
			m := amqp091.Publishing{DeliveryMode: amqp091.Persistent, Body: strconv.AppendInt(nil, int64(published), 10)}
			sent, err := ch.PublishWithDeferredConfirm("", c.queue, false, false, m)
			if err != nil {
				return err
			}
			if acked, err := sent.WaitContext(c.ctx); err != nil || !acked { // not acked either: the channel has ended
				return err
			}
			c.say("confirmed", published)
			published++
			c.pause(20 * time.Millisecond)
		}
		c.say("published", published)
		return errStopped
	}
}

func (c *goClient) consume(ch *amqp091.Channel) error {
	if err := ch.Qos(100, 0, false); err != nil {
		return err
	}
	came, err := ch.Consume(c.queue, "", false, false, false, false, nil)
	if err != nil {
		return err
	}
	for {
		select {
		case d, open := <-came:
			if !open {
				return errors.New("the channel has ended")
			}
			n, _ := strconv.Atoi(string(d.Body))
			c.say("received", n)
			if err := d.Ack(false); err != nil {
				return err
			}
		case <-c.ctx.Done():
			return c.ctx.Err()
		}
	}
}
