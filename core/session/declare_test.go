package session

import (
	"strings"
	"testing"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/auth"
)

func TestQueueMethods(t *testing.T) {
	p := newProbe(t).open().channel(1)
	m := do[*amqp.QueueDeclareOK](p, 1, &amqp.QueueDeclare{Exclusive: true})
	if !strings.HasPrefix(m.Queue, "amq.gen-") {
		t.Errorf("got name %q", m.Queue)
	}
	// Without names, both the queue and the routing key are the queue declared last.
	do[*amqp.QueueBindOK](p, 1, &amqp.QueueBind{Exchange: "amq.direct"})
	p.publish(1, published{exchange: "amq.direct", key: m.Queue, body: "1"}, published{key: m.Queue, body: "2"})
	p.holds(1, m.Queue, 2)
	if got := do[*amqp.QueuePurgeOK](p, 1, &amqp.QueuePurge{}); got.MessageCount != 2 {
		t.Errorf("purged: got %d", got.MessageCount)
	}
	do[*amqp.QueueUnbindOK](p, 1, &amqp.QueueUnbind{Exchange: "amq.direct"})
	p.publish(1, published{exchange: "amq.direct", key: m.Queue, body: "1"}, published{key: m.Queue, body: "2"})
	if got := do[*amqp.QueueDeleteOK](p, 1, &amqp.QueueDelete{}); got.MessageCount != 1 {
		t.Errorf("deleted: got %d", got.MessageCount)
	}
	do[*amqp.QueueDeleteOK](p, 1, &amqp.QueueDelete{}) // once more is no error

	if got := do[*amqp.QueueDeclareOK](p, 1, &amqp.QueueDeclare{Queue: "a\r\nb"}); got.Queue != "ab" {
		t.Errorf("got name %q", got.Queue)
	}
	p.send(1,
		&amqp.QueueDeclare{Queue: "quiet", NoWait: true}, &amqp.QueueBind{Queue: "quiet", Exchange: "amq.direct", NoWait: true},
		&amqp.QueuePurge{Queue: "quiet", NoWait: true}, &amqp.QueueDelete{Queue: "quiet", NoWait: true})
	p.silent()
	p.send(1, &amqp.QueueBind{Exchange: "amq.direct"})
	p.closed(1, 404, "NOT_FOUND - no queue 'quiet' in vhost '/'")
}

func TestExchangeMethods(t *testing.T) {
	p := newProbe(t).open().channel(1)
	p.queue(1, "q")
	do[*amqp.ExchangeDeclareOK](p, 1, &amqp.ExchangeDeclare{Exchange: "a", Type: "topic"})
	do[*amqp.ExchangeDeclareOK](p, 1, &amqp.ExchangeDeclare{Exchange: "a", Passive: true})
	p.send(1, &amqp.ExchangeDeclare{Exchange: "b", Type: "fanout", NoWait: true, Arguments: table("alternate-exchange", "c")})
	p.silent()
	do[*amqp.ExchangeBindOK](p, 1, &amqp.ExchangeBind{Source: "a", Destination: "b", RoutingKey: "x.*"})
	do[*amqp.QueueBindOK](p, 1, &amqp.QueueBind{Queue: "q", Exchange: "b"})
	p.publish(1, published{exchange: "a", key: "x.y"}, published{exchange: "a", key: "y.x"})
	p.holds(1, "q", 1)
	do[*amqp.ExchangeUnbindOK](p, 1, &amqp.ExchangeUnbind{Source: "a", Destination: "b", RoutingKey: "x.*"})
	p.publish(1, published{exchange: "a", key: "x.y"})
	p.holds(1, "q", 1)
	p.send(1, &amqp.ExchangeDelete{Exchange: "b", IfUnused: true})
	p.closed(1, 406, "PRECONDITION_FAILED - exchange 'b' in vhost '/' in use")
	p.channel(1)
	do[*amqp.ExchangeDeleteOK](p, 1, &amqp.ExchangeDelete{Exchange: "b"})
	do[*amqp.ExchangeDeleteOK](p, 1, &amqp.ExchangeDelete{Exchange: "b"}) // once more is no error
	p.send(1, &amqp.ExchangeBind{Source: "a", Destination: "amq.direct", NoWait: true}, &amqp.ExchangeDelete{Exchange: "a", NoWait: true})
	p.silent()
}

func TestChannelMethods(t *testing.T) {
	p := newProbe(t).open().channel(1)
	if m := do[*amqp.ChannelFlowOK](p, 1, &amqp.ChannelFlow{Active: true}); !m.Active {
		t.Errorf("got %+v", m)
	}
	if m := do[*amqp.AccessRequestOK](p, 1, &amqp.AccessRequest{Realm: "/"}); m.Ticket != 1 {
		t.Errorf("got %+v", m)
	}
	do[*amqp.ChannelCloseOK](p, 1, &amqp.ChannelClose{ReplyCode: 200, ReplyText: "bye"})
	p.channel(1)
}

// Every method needs the permissions of RabbitMQ's table. A user with all the others is refused.
func TestPermissions(t *testing.T) {
	const all = ".*"
	write := auth.Permissions{Configure: all, Write: "^$", Read: all}
	read := auth.Permissions{Configure: all, Write: all, Read: "^$"}
	configure := auth.Permissions{Configure: "^$", Write: all, Read: all}
	none := auth.Permissions{Configure: "^other$", Write: "^other$", Read: "^other$"}
	refused := func(access, kind, name string) string {
		return "ACCESS_REFUSED - " + access + " access to " + kind + " '" + name + "' in vhost '/' refused for user 'guest'"
	}
	tests := []struct {
		name string
		with auth.Permissions
		do   amqp.Method
		text string // empty: it is permitted
	}{
		{"queue.declare", configure, &amqp.QueueDeclare{Queue: "q"}, refused("configure", "queue", "q")},
		{"queue.declare passive", configure, &amqp.QueueDeclare{Queue: "q", Passive: true}, ""},
		{"queue.declare passive, configuring alone", auth.Permissions{Configure: "^q$"}, &amqp.QueueDeclare{Queue: "q", Passive: true}, ""},
		{"queue.declare passive, writing alone", auth.Permissions{Write: "^q$"}, &amqp.QueueDeclare{Queue: "q", Passive: true}, ""},
		{"queue.declare passive, reading alone", auth.Permissions{Read: "^q$"}, &amqp.QueueDeclare{Queue: "q", Passive: true}, ""},
		{"queue.declare passive, nothing", none, &amqp.QueueDeclare{Queue: "q", Passive: true}, refused("configure", "queue", "q")},
		{"queue.declare passive, nothing and nothing there", none, &amqp.QueueDeclare{Queue: "r", Passive: true}, refused("configure", "queue", "r")},
		{"queue.declare server-named", auth.Permissions{Configure: `^amq\.gen-`}, &amqp.QueueDeclare{}, ""},
		{"queue.declare prefix", auth.Permissions{Configure: `^my-.`}, &amqp.QueueDeclare{Arguments: table("x-name-prefix", "my")}, ""},
		{"queue.declare with dead letters", write, &amqp.QueueDeclare{Queue: "new", Arguments: table("x-dead-letter-exchange", "dlx")}, refused("write", "exchange", "dlx")},
		{"queue.declare with dead letters, reading", read, &amqp.QueueDeclare{Queue: "new", Arguments: table("x-dead-letter-exchange", "dlx")}, refused("read", "queue", "new")},
		{"queue.bind", write, &amqp.QueueBind{Queue: "q", Exchange: "amq.direct"}, refused("write", "queue", "q")},
		{"queue.bind, reading", read, &amqp.QueueBind{Queue: "q", Exchange: "amq.direct"}, refused("read", "exchange", "amq.direct")},
		{"queue.unbind", write, &amqp.QueueUnbind{Queue: "q", Exchange: "amq.direct"}, refused("write", "queue", "q")},
		{"queue.unbind, reading", read, &amqp.QueueUnbind{Queue: "q", Exchange: "amq.direct"}, refused("read", "exchange", "amq.direct")},
		{"queue.purge", read, &amqp.QueuePurge{Queue: "q"}, refused("read", "queue", "q")},
		{"queue.delete", configure, &amqp.QueueDelete{Queue: "q"}, refused("configure", "queue", "q")},
		{"exchange.declare", configure, &amqp.ExchangeDeclare{Exchange: "x", Type: "direct"}, refused("configure", "exchange", "x")},
		{"exchange.declare passive", configure, &amqp.ExchangeDeclare{Exchange: "amq.direct", Passive: true}, ""},
		{"exchange.declare passive, nothing", none, &amqp.ExchangeDeclare{Exchange: "amq.direct", Passive: true}, refused("configure", "exchange", "amq.direct")},
		{"exchange.declare with alternate", write, &amqp.ExchangeDeclare{Exchange: "x", Type: "direct", Arguments: table("alternate-exchange", "ae")}, refused("write", "exchange", "ae")},
		{"exchange.declare with alternate, reading", read, &amqp.ExchangeDeclare{Exchange: "x", Type: "direct", Arguments: table("alternate-exchange", "ae")}, refused("read", "exchange", "x")},
		{"exchange.delete", configure, &amqp.ExchangeDelete{Exchange: "x"}, refused("configure", "exchange", "x")},
		{"exchange.bind", write, &amqp.ExchangeBind{Source: "amq.direct", Destination: "amq.fanout"}, refused("write", "exchange", "amq.fanout")},
		{"exchange.bind, reading", read, &amqp.ExchangeBind{Source: "amq.direct", Destination: "amq.fanout"}, refused("read", "exchange", "amq.direct")},
		{"exchange.unbind", write, &amqp.ExchangeUnbind{Source: "amq.direct", Destination: "amq.fanout"}, refused("write", "exchange", "amq.fanout")},
		{"basic.get", read, &amqp.BasicGet{Queue: "q"}, refused("read", "queue", "q")},
		{"basic.consume", read, &amqp.BasicConsume{Queue: "q"}, refused("read", "queue", "q")},
		{"basic.publish", write, &amqp.BasicPublish{RoutingKey: "q"}, refused("write", "exchange", "amq.default")},
	}
	p := newProbe(t, ownUsers(t)).open().channel(1)
	p.queue(1, "q")
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p.t = t
			p.grant(tt.with)
			p.send(1, tt.do)
			if tt.text == "" {
				p.out = nil
				p.grant(auth.Permissions{Configure: all, Write: all, Read: all})
				p.holds(1, "q", 0)
				return
			}
			p.closed(1, 403, tt.text)
			p.channel(1)
		})
	}
}
