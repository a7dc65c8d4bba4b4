package broker

import (
	"net"
	"syscall"
	"testing"

	"github.com/rabbitmq/amqp091-go"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/tests/process"
)

// Who is connected is told why it ends, and the process ends in good order.
func TestShutdown(t *testing.T) {
	t.Parallel()
	for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		t.Run(s.String(), func(t *testing.T) {
			b := process.Start(t, "")
			idle, starting := login(t, b.AMQP), connect(t, b.AMQP)
			starting.send([]byte(amqp.ProtocolHeader))
			expect[*amqp.ConnectionStart](starting, 0)
			conn, err := process.Dial(b.URL())
			if err != nil {
				t.Fatal(err)
			}
			closed := conn.NotifyClose(make(chan *amqp091.Error, 1))
			b.Signal(s)
			idle.refused(320, "CONNECTION_FORCED - broker forced connection closure with reason 'shutdown'")
			starting.end()
			if e := await(t, closed, "connection.close"); e.Code != amqp091.ConnectionForced {
				t.Errorf("got %v, want 320", e)
			}
			if got := b.Exit(); got != 0 {
				t.Errorf("exit status %d", got)
			}
			if _, err := net.Dial("tcp", b.AMQP); err == nil {
				t.Error("somebody still listens")
			}
		})
	}
}

// A client that does not answer, or does not even read, does not keep the process from ending in good order.
func TestShutdownOfTheDeaf(t *testing.T) {
	t.Parallel()
	b := process.Start(t, "")
	login(t, b.AMQP)
	flooded := login(t, b.AMQP).channel(1)
	flooded.method(1, &amqp.QueueDeclare{Queue: "q"})
	expect[*amqp.QueueDeclareOK](flooded, 1)
	flooded.method(1, &amqp.BasicConsume{Queue: "q", NoAck: true})
	expect[*amqp.BasicConsumeOK](flooded, 1)
	publisher := login(t, b.AMQP).channel(1)
	for range 256 {
		publisher.send(publishing(1, "q", make([]byte, 128<<10)))
	}
	publisher.method(1, &amqp.QueueDeclare{Queue: "q", Passive: true})
	expect[*amqp.QueueDeclareOK](publisher, 1)
	b.Signal(syscall.SIGTERM)
	if got := b.Exit(); got != 0 {
		t.Errorf("exit status %d", got)
	}
}
