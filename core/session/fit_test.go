package session

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/auth"
)

// narrow is a client with a small frame-max.
func (p *probe) narrow() *probe {
	p.t.Helper()
	p.login().send(0, &amqp.ConnectionTuneOK{ChannelMax: 10, FrameMax: amqp.FrameMinSize}, &amqp.ConnectionOpen{VirtualHost: "/"})
	expect[*amqp.ConnectionOpenOK](p, 0)
	return p.channel(1)
}

// A message that has died often had more headers than go into a frame: its consumer's connection broke.
func TestHeadersFitAFrame(t *testing.T) {
	deaths := make(amqp.Array, 100)
	for i := range deaths {
		deaths[i] = amqp.Table{{Key: "queue", Value: strings.Repeat("q", 255)}, {Key: "reason", Value: strconv.Itoa(i)}}
	}
	died := amqp.Properties{Headers: amqp.Table{{Key: "mine", Value: "stays"}, {Key: "x-death", Value: deaths}}}
	died.Set(amqp.PropHeaders)
	srv := testServer(t)
	p := probeOf(t, srv, Peer{}).open().channel(1)
	p.queue(1, "q")
	p.publish(1, published{key: "q", body: "one", props: died}, published{key: "q", body: "two", props: died})

	c := probeOf(t, srv, Peer{}).narrow()
	_, props, body := c.got(1, "q")
	wantLatestDeaths(t, props, body, "one")
	c.consume(1, "q", "c")
	expect[*amqp.BasicDeliver](c, 1)
	props, body = c.content(1)
	wantLatestDeaths(t, props, body, "two")
}

func wantLatestDeaths(t *testing.T, props amqp.Properties, body, want string) {
	t.Helper()
	mine, _ := props.Headers.Lookup("mine")
	left, _ := props.Headers.Lookup("x-death")
	entries, _ := left.(amqp.Array)
	if body != want || mine != "stays" || len(entries) < 10 || len(entries) > 15 {
		t.Fatalf("got %q, mine %v, %d deaths", body, mine, len(entries))
	}
	newest, _ := entries[0].(amqp.Table)
	if reason, _ := newest.Lookup("reason"); reason != "0" {
		t.Errorf("the first death there is %v", reason)
	}
}

// narrowServer has a client with large frames and one with small ones, and a message that fits only the former's frames.
func narrowServer(t *testing.T) (wide, narrow *probe, text string) {
	t.Helper()
	const large = 5000
	srv := testServer(t)
	wide = probeOf(t, srv, Peer{}).open().channel(1)
	wide.queue(1, "q")
	props := withHeaders("k", strings.Repeat("v", large))
	wide.publish(1, published{key: "q", body: "large", props: props}, published{key: "q", body: "small"})
	return wide, probeOf(t, srv, Peer{}).narrow(), fmt.Sprintf("PRECONDITION_FAILED - the headers of a message in queue 'q' in vhost '/' have %d bytes: too many for frame_max = 4096", len(props.Append(nil)))
}

// A message whose headers are larger than a client's frames cannot be fetched by it, and stays in its queue.
func TestGettingAMessageThatDoesNotFit(t *testing.T) {
	p, c, text := narrowServer(t)
	c.send(1, &amqp.BasicGet{Queue: "q"})
	c.closed(1, amqp.ReplyPreconditionFailed, text)
	c.channel(1).send(1, &amqp.BasicGet{Queue: "q", NoAck: true}) // this lost it
	c.closed(1, amqp.ReplyPreconditionFailed, text)
	c.channel(1).queue(1, "another") // the connection is at work
	if _, _, body := p.got(1, "q"); body != "large" {
		t.Errorf("got %q", body)
	}
}

// A consumer's channel was closed by each message with headers larger than its frames, again and again whenever it consumed. Now the
// message leaves the queue, and those behind it are delivered.
func TestConsumingPastAMessageThatDoesNotFit(t *testing.T) {
	p, c, _ := narrowServer(t)
	c.consume(1, "q", "c")
	expect[*amqp.BasicDeliver](c, 1)
	if _, body := c.content(1); body != "small" {
		t.Errorf("got %q", body)
	}
	p.send(1, &amqp.BasicGet{Queue: "q"})
	expect[*amqp.BasicGetEmpty](p, 1)
}

// A consumer with large frames gets the messages that do not fit into the frames of others.
func TestConsumersWithDifferentFrames(t *testing.T) {
	p, c, _ := narrowServer(t)
	p.consume(1, "q", "w")
	expect[*amqp.BasicDeliver](p, 1)
	if _, body := p.content(1); body != "large" {
		t.Errorf("got %q", body)
	}
	expect[*amqp.BasicDeliver](p, 1)
	p.content(1)
	c.consume(1, "q", "c")
	props := withHeaders("k", strings.Repeat("v", 5000))
	for i := range 3 {
		p.publish(1, published{key: "q", body: "large", props: props})
		expect[*amqp.BasicDeliver](p, 1)
		if _, body := p.content(1); body != "large" {
			t.Errorf("message %d: got %q", i, body)
		}
	}
}

// Messages published over HTTP are limited to the frame size of consumers. A larger one could not be delivered to any consumer, and closed the
// channel of each.
func TestDirectPublishesWhatFitsAFrame(t *testing.T) {
	d := testDirect(t, auth.User{Name: auth.Guest})
	call[*amqp.QueueDeclareOK](t, d, &amqp.QueueDeclare{Queue: "q", Durable: true})
	call[*amqp.ConfirmSelectOK](t, d, &amqp.ConfirmSelect{})
	most := d.conn.srv.FrameMax - contentOverhead + amqp.FrameSlack
	sized := func(size int) []byte {
		empty := withHeaders("k", "")
		return withHeaders("k", strings.Repeat("v", size-len(empty.Append(nil)))).Append(nil)
	}
	d.Publish(&amqp.BasicPublish{RoutingKey: "q"}, sized(most), nil)
	if r, err := d.Next(t.Context()); err != nil || r.Method.Name() != "basic.ack" {
		t.Fatalf("the largest: %v, %v", r.Method, err)
	}
	d.Publish(&amqp.BasicPublish{RoutingKey: "q"}, sized(most+1), nil)
	want := fmt.Sprintf("PRECONDITION_FAILED - properties of %d bytes fit no frame, the limit is %d with frame_max = 131072", most+1, most)
	if _, err := d.Next(t.Context()); err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}
