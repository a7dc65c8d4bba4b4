package app

import (
	"bufio"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// patience is how long a test waits for something that must happen.
const patience = 2 * time.Minute

// asBroker makes the test binary the broker: a separate process can be killed.
const asBroker = "TEST_AS_BROKER"

// instance is a broker in a process of its own. Its data directory outlives it.
type instance struct {
	t       *testing.T
	cmd     *exec.Cmd
	address string
	log     []record
	ended   chan struct{} // closed when log is complete
}

// spawn starts a broker on a data directory and waits until it is ready.
func spawn(t *testing.T, dir string, args ...string) *instance {
	t.Helper()
	i := &instance{t: t, ended: make(chan struct{})}
	args = append([]string{"serve", "--amqp", "127.0.0.1:0", "--management", "off", "--data", dir}, args...)
	i.cmd = exec.Command(os.Args[0], args...)
	i.cmd.Env = append(os.Environ(), asBroker+"=1")
	out, err := i.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := i.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ready := make(chan string, 1)
	go i.read(bufio.NewScanner(out), ready)
	t.Cleanup(func() { i.end(syscall.SIGKILL) })
	select {
	case i.address = <-ready:
	case <-i.ended:
		t.Fatalf("the broker ended: %v", i.log)
	case <-time.After(patience):
		t.Fatal("the broker is not ready")
	}
	return i
}

func (i *instance) read(lines *bufio.Scanner, ready chan<- string) {
	defer close(i.ended)
	address := ""
	for lines.Scan() {
		r := record{}
		if json.Unmarshal(lines.Bytes(), &r) != nil {
			r["text"] = lines.Text()
		}
		i.log = append(i.log, r)
		switch r["msg"] {
		case "listening":
			address, _ = r["address"].(string)
		case "ready":
			ready <- address
		}
	}
}

// end ends the process with a signal and waits for it.
func (i *instance) end(with syscall.Signal) {
	_ = i.cmd.Process.Signal(with) // fails when it ended already
	<-i.ended
	_ = i.cmd.Wait()
}

// visitor is a connection with one channel, on which publishes are confirmed.
type visitor struct {
	*amqp.Channel
	t    *testing.T
	conn *amqp.Connection
}

func (i *instance) dial() *visitor {
	i.t.Helper()
	conn, err := amqp.Dial("amqp://guest:guest@" + i.address + "/")
	if err != nil {
		i.t.Fatal(err)
	}
	i.t.Cleanup(func() { conn.Close() })
	c := &visitor{t: i.t, conn: conn}
	if c.Channel, err = conn.Channel(); err != nil {
		i.t.Fatal(err)
	}
	c.must(c.Confirm(false))
	return c
}

func (c *visitor) must(err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatal(err)
	}
}

func (c *visitor) declare(queue string, durable bool, args amqp.Table) {
	c.t.Helper()
	_, err := c.QueueDeclare(queue, durable, false, false, false, args)
	c.must(err)
}

// publish publishes a message and waits for its confirm.
func (c *visitor) publish(exchange, key string, m amqp.Publishing) {
	c.t.Helper()
	d, err := c.PublishWithDeferredConfirm(exchange, key, true, false, m)
	c.must(err)
	ctx, cancel := context.WithTimeout(c.t.Context(), patience)
	defer cancel()
	if ok, err := d.WaitContext(ctx); !ok || err != nil {
		c.t.Fatalf("not confirmed: %v, %v", ok, err)
	}
}

func persistent(body string) amqp.Publishing {
	return amqp.Publishing{DeliveryMode: amqp.Persistent, Body: []byte(body)}
}

// fetch gets a message and leaves it unacknowledged; the body is empty if there is none.
func (c *visitor) fetch(queue string) amqp.Delivery {
	c.t.Helper()
	d, _, err := c.Get(queue, false)
	c.must(err)
	return d
}

// Durable objects and messages are there after a restart, in order; the rest is gone.
func TestRestart(t *testing.T) {
	for _, tt := range []struct {
		name string
		with syscall.Signal
	}{{"stopped", syscall.SIGTERM}, {"killed", syscall.SIGKILL}} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			first := spawn(t, dir)
			fill(first.dial())
			first.end(tt.with)
			second := spawn(t, dir)
			check(second.dial())
		})
	}
}

func fill(c *visitor) {
	c.t.Helper()
	c.must(c.ExchangeDeclare("events", "topic", true, false, false, false, nil))
	c.must(c.ExchangeDeclare("passing", "fanout", false, false, false, false, nil))
	c.declare("kept", true, amqp.Table{"x-max-length": int32(1000)})
	c.declare("passing", false, nil)
	c.must(c.QueueBind("kept", "a.#", "events", false, nil))
	for n := range 100 {
		c.publish("events", "a.b", persistent(strconv.Itoa(n)))
	}
	c.publish("", "kept", amqp.Publishing{Body: []byte("transient")})
	c.publish("", "passing", persistent("in a queue that goes"))
	c.must(c.fetch("kept").Ack(false))
	c.fetch("kept")                               // comes back
	c.publish("events", "a.b", persistent("100")) // its confirm comes after the operations before it are durable
}

func check(c *visitor) {
	c.t.Helper()
	for n := 1; n <= 100; n++ {
		d := c.fetch("kept")
		if string(d.Body) != strconv.Itoa(n) || d.Exchange != "events" || d.RoutingKey != "a.b" {
			c.t.Fatalf("message %d: got %q (%s, %s)", n, d.Body, d.Exchange, d.RoutingKey)
		}
	}
	if d := c.fetch("kept"); len(d.Body) != 0 {
		c.t.Errorf("got %q", d.Body)
	}
	c.publish("events", "a.c", persistent("after"))
	if d := c.fetch("kept"); string(d.Body) != "after" {
		c.t.Errorf("got %q: the binding is gone", d.Body)
	}
	if _, err := c.QueueDeclarePassive("passing", false, false, false, false, nil); err == nil {
		c.t.Error("a queue that is not durable is there")
	}
}
