package broker

import (
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/tests/process"
)

// Sessions with a few wrong octets end, or go on, by the rules: the broker never breaks, and never says that it did.
func TestMutatedSessions(t *testing.T) {
	t.Parallel()
	b := process.Start(t, "")
	witness := newBystander(t, b.AMQP)
	before := b.Resident()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	var running sync.WaitGroup
	for range 400 {
		first, second := recorded()
		for range 1 + random.IntN(4) {
			part := first
			if random.IntN(3) == 0 {
				part = second
			}
			part[random.IntN(len(part))] = byte(random.IntN(256))
		}
		running.Go(func() { playSession(t, b.AMQP, first, second) })
	}
	running.Wait()
	witness.check()
	settle(t, b, before)
}

// Without mistakes nothing is closed by the broker.
func TestRecordedSession(t *testing.T) {
	first, second := recorded()
	for _, m := range playSession(t, target(t), first, second) {
		switch m := m.(type) {
		case *amqp.ConnectionClose, *amqp.ChannelClose:
			t.Errorf("got %s %+v", m.Name(), m)
		}
	}
}

// recorded is a session that makes no mistake: first it publishes and consumes, then it acknowledges and tidies up.
func recorded() (first, second []byte) {
	first = []byte(amqp.ProtocolHeader)
	for _, m := range []amqp.Method{
		startOK("PLAIN", "\x00guest\x00guest", "consumer_cancel_notify", "authentication_failure_close"),
		&amqp.ConnectionTuneOK{ChannelMax: 2047, FrameMax: 131072},
		&amqp.ConnectionOpen{VirtualHost: "/"},
	} {
		first = amqp.AppendMethod(first, 0, m)
	}
	args := amqp.Table{
		{Key: "x-message-ttl", Value: int32(50)},
		{Key: "x-dead-letter-exchange", Value: ""},
		{Key: "x-max-length", Value: int64(5)},
		{Key: "x-max-priority", Value: uint8(3)},
		{Key: "x-expires", Value: int32(10000)},
	}
	for _, m := range []amqp.Method{
		&amqp.ChannelOpen{},
		&amqp.QueueDeclare{Queue: "q", Arguments: args},
		&amqp.ExchangeDeclare{Exchange: "x", Type: "headers", Arguments: amqp.Table{{Key: "alternate-exchange", Value: "y"}}},
		&amqp.QueueBind{Queue: "q", Exchange: "x", Arguments: amqp.Table{{Key: "x-match", Value: "any"}, {Key: "a", Value: amqp.Array{int8(1), "b"}}}},
		&amqp.ConfirmSelect{},
		&amqp.BasicQos{PrefetchCount: 3},
		&amqp.BasicConsume{Queue: "q", ConsumerTag: "c", Arguments: amqp.Table{{Key: "x-priority", Value: int32(1)}}},
	} {
		first = amqp.AppendMethod(first, 1, m)
	}
	for range 5 {
		first = append(first, fancyMessage()...)
	}
	for _, m := range []amqp.Method{
		&amqp.BasicAck{DeliveryTag: 1}, &amqp.BasicNack{DeliveryTag: 2, Requeue: true}, &amqp.BasicReject{DeliveryTag: 3},
		&amqp.BasicRecover{Requeue: true}, &amqp.BasicGet{Queue: "q"}, &amqp.BasicCancel{ConsumerTag: "c"},
		&amqp.QueueUnbind{Queue: "q", Exchange: "x"}, &amqp.QueuePurge{Queue: "q"}, &amqp.ExchangeDelete{Exchange: "x"}, &amqp.ChannelClose{},
	} {
		second = amqp.AppendMethod(second, 1, m)
	}
	return first, second
}

// fancyMessage has all the properties that mean something.
func fancyMessage() []byte {
	properties := amqp.Properties{
		Headers: amqp.Table{
			{Key: "a", Value: amqp.Array{int8(1), "b"}},
			{Key: "CC", Value: amqp.Array{"q"}},
			{Key: "BCC", Value: amqp.Array{"r"}},
			{Key: "x-death", Value: amqp.Array{amqp.Table{{Key: "count", Value: int64(1)}}}},
		},
		DeliveryMode: 2, Priority: 2, ReplyTo: "amq.rabbitmq.reply-to.x", Expiration: "20", UserID: "guest",
	}
	properties.Set(amqp.PropHeaders, amqp.PropDeliveryMode, amqp.PropPriority, amqp.PropReplyTo, amqp.PropExpiration, amqp.PropUserID)
	body := []byte("three parts")
	b := amqp.AppendMethod(nil, 1, &amqp.BasicPublish{Exchange: "x", RoutingKey: "q", Mandatory: true})
	b = amqp.AppendContentHeader(b, 1, uint64(len(body)), properties.Append(nil))
	for part := range slices.Chunk(body, 4) {
		b = append(b, raw(amqp.FrameBody, 1, string(part))...)
	}
	return b
}

// playSession writes a session in two parts, and returns what the broker answers until it closes the connection.
func playSession(t *testing.T, address string, first, second []byte) []amqp.Method {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Error(err)
		return nil
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(process.Patience)) // fails when the socket is closed: so does the read
	go func() {
		_, _ = conn.Write(first) // the broker may have enough of it
		time.Sleep(50 * time.Millisecond)
		_, _ = conn.Write(second)
		_ = conn.(*net.TCPConn).CloseWrite()
	}()
	answers, err := io.ReadAll(conn)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the session does not end: %q, %q", first, second)
	}
	said := methods(answers)
	for _, m := range said {
		if c, ok := m.(*amqp.ConnectionClose); ok && c.ReplyCode == amqp.ReplyInternalError {
			t.Errorf("the broker broke: %s, after %q, %q", c.ReplyText, first, second)
		}
	}
	return said
}

// methods are those among the frames in b, as far as it has frames: the answer to a wrong protocol header is none.
func methods(b []byte) []amqp.Method {
	var all []amqp.Method
	for {
		f, n, err := amqp.NextFrame(b, 1<<20)
		if err != nil || n == 0 {
			return all
		}
		b = b[n:]
		if m, err := amqp.ParseMethod(f.Payload); f.Type == amqp.FrameMethod && err == nil {
			all = append(all, m)
		}
	}
}
