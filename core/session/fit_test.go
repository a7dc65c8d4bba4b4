package session

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/curfewmq/curfew/core/amqp"
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

// A message with headers larger than the consumer's frames closes the consumer's channel, and stays in its queue.
func TestAMessageThatFitsNoFrame(t *testing.T) {
	const large = 5000
	srv := testServer(t)
	p := probeOf(t, srv, Peer{}).open().channel(1)
	p.queue(1, "q")
	props := withHeaders("k", strings.Repeat("v", large))
	p.publish(1, published{key: "q", body: "m", props: props})

	text := fmt.Sprintf("PRECONDITION_FAILED - the headers of a message in queue 'q' in vhost '/' have %d bytes: too many for frame_max = 4096", len(props.Append(nil)))
	c := probeOf(t, srv, Peer{}).narrow()
	c.send(1, &amqp.BasicGet{Queue: "q"})
	c.closed(1, amqp.ReplyPreconditionFailed, text)
	c.channel(1).send(1, &amqp.BasicGet{Queue: "q", NoAck: true}) // this lost it
	c.closed(1, amqp.ReplyPreconditionFailed, text)
	c.channel(1).consume(1, "q", "c")
	c.tick(0)
	c.closed(1, amqp.ReplyPreconditionFailed, text)
	c.channel(1).queue(1, "another") // the connection is at work

	if _, _, body := p.got(1, "q"); body != "m" {
		t.Errorf("got %q", body)
	}
}
