package broker

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rabbitmq/amqp091-go"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/tests/process"
)

const mib = 1 << 20

// A consumer that asks for messages and does not read them is given what fits into a bounded buffer. The queue keeps the rest, and
// other clients do not notice.
func TestConsumerThatNeverReads(t *testing.T) {
	t.Parallel()
	b := process.Start(t, "")
	witness := newBystander(t, b.AMQP)
	p := login(t, b.AMQP).channel(1)
	p.method(1, &amqp.QueueDeclare{Queue: "q"})
	expect[*amqp.QueueDeclareOK](p, 1)
	p.method(1, &amqp.BasicConsume{Queue: "q", ConsumerTag: "c", NoAck: true})
	expect[*amqp.BasicConsumeOK](p, 1)

	publisher := login(t, b.AMQP).channel(1)
	message := publishing(1, "q", make([]byte, 64<<10))
	const count = 64 * mib / (64 << 10)
	for range count {
		publisher.send(message)
	}
	publisher.method(1, &amqp.QueueDeclare{Queue: "q", Passive: true})
	kept := expect[*amqp.QueueDeclareOK](publisher, 1).MessageCount
	buffered := (count - kept) * 64 << 10 // most of it in the sockets
	t.Logf("%d of %d messages are kept, %d MiB are on their way", kept, count, buffered/mib)
	if kept == 0 || buffered > 24*mib {
		t.Error("that is too much")
	}
	witness.check()

	p.conn.Close()
	publisher.method(1, &amqp.QueuePurge{Queue: "q"})
	expect[*amqp.QueuePurgeOK](publisher, 1)
	witness.check()
}

// A publisher that never stops is stopped at the memory watermark, told if it wants to know, and let on when there is memory again.
// Who consumes is not stopped. Afterwards the memory is given back.
func TestPublisherThatNeverStops(t *testing.T) {
	t.Parallel()
	b := process.Start(t, "limits: {memory-watermark: 256MiB}")
	witness := newBystander(t, b.AMQP)
	before := b.Resident()
	p := login(t, b.AMQP, "connection.blocked").channel(1)
	p.method(1, &amqp.QueueDeclare{Queue: "q"})
	expect[*amqp.QueueDeclareOK](p, 1)
	flood(t, p, publishing(1, "q", make([]byte, 64<<10)), func(*atomic.Int64) {
		if m := expect[*amqp.ConnectionBlocked](p, 0); m.Reason != "low on memory" {
			t.Errorf("blocked: %q", m.Reason)
		}
	})
	if status, body := b.Health(); status != 503 || body != `{"status":"alarm","alarms":["memory"]}` {
		t.Errorf("health: %d %s", status, body)
	}
	if used := b.Resident() - before; used > 256*mib+room {
		t.Errorf("%d MiB of memory are taken, the watermark is 256 MiB", used/mib)
	}
	// One that comes now is stopped with its first message, which is taken.
	late := login(t, b.AMQP, "connection.blocked").channel(1)
	late.method(1, &amqp.ConfirmSelect{})
	expect[*amqp.ConfirmSelectOK](late, 1)
	late.send(publishing(1, "q", nil))
	late.inAnyOrder("connection.blocked", "basic.ack")
	late.send(publishing(1, "q", nil))

	consumer := login(t, b.AMQP).channel(1)
	consumer.method(1, &amqp.QueuePurge{Queue: "q"})
	expect[*amqp.QueuePurgeOK](consumer, 1)
	expect[*amqp.ConnectionUnblocked](p, 0)
	late.inAnyOrder("connection.unblocked", "basic.ack")
	if status, body := b.Health(); status != 200 {
		t.Errorf("health: %d %s", status, body)
	}
	witness.check()
	p.conn.Close()
	consumer.method(1, &amqp.QueueDelete{Queue: "q"})
	expect[*amqp.QueueDeleteOK](consumer, 1)
	settle(t, b, before)
}

// room is what a broker may take beyond the messages: buffers, and garbage not yet collected. Memory is compared with it where it can
// be told how much there is; see [process.Process.Resident].
const room = 64 * mib

// flood writes messages until the other goes on, which it tells how many they are. By then the broker must have stopped reading.
func flood(t *testing.T, p *peer, message []byte, until func(written *atomic.Int64)) {
	t.Helper()
	var written atomic.Int64
	ended := make(chan error, 1)
	go func() {
		var err error
		for ; err == nil && written.Load() < 16<<10; written.Add(1) {
			_, err = p.conn.Write(message)
		}
		ended <- err
	}()
	until(&written)
	_ = p.conn.SetWriteDeadline(time.Now()) // fails when the socket is closed: so does the write
	if err := <-ended; !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("the broker takes whatever comes: %d messages, %v", written.Load(), err)
	}
}

// stall waits until nothing was written for a while.
func stall(written *atomic.Int64) {
	last := int64(-1)
	process.Poll(func() bool {
		time.Sleep(500 * time.Millisecond)
		before := last
		last = written.Load()
		return last == before
	})
}

// settle waits until the memory of the broker is about what it was.
func settle(t *testing.T, b *process.Process, before int64) {
	t.Helper()
	var now int64
	settled := process.Poll(func() bool {
		now = b.Resident()
		return now < before+room
	})
	t.Logf("memory: %d MiB before, %d MiB after", before/mib, now/mib)
	if !settled {
		t.Error("that is too much")
	}
}

// A client with all the channels it may have, each with a consumer, is served like any other.
func TestThousandsOfChannels(t *testing.T) {
	t.Parallel()
	b := process.Start(t, "")
	witness := newBystander(t, b.AMQP)
	before := b.Resident()
	p := login(t, b.AMQP)
	const channels = 2047
	for id := range uint16(channels) {
		p.channel(id + 1)
		p.method(id+1, &amqp.QueueDeclare{Queue: "q"})
		expect[*amqp.QueueDeclareOK](p, id+1)
		p.method(id+1, &amqp.BasicConsume{Queue: "q", ConsumerTag: "c"})
		expect[*amqp.BasicConsumeOK](p, id+1)
	}
	for range channels {
		p.send(publishing(1, "q", []byte("hello")))
	}
	served := map[uint16]int{}
	for range channels {
		f, _ := p.frame() // basic.deliver, header, body
		p.frame()
		p.frame()
		served[f.Channel]++
	}
	if len(served) != channels {
		t.Errorf("%d of %d consumers were served", len(served), channels)
	}
	t.Logf("%d channels with a consumer each: %d KiB", channels, (b.Resident()-before)>>10)
	p.method(2048, &amqp.ChannelOpen{})
	p.refused(530, "NOT_ALLOWED - number of channels opened (2047) has reached the negotiated channel_max (2047)")
	witness.check()
	witness.p.method(1, &amqp.QueueDeclare{Queue: "q", Passive: true})
	if got := expect[*amqp.QueueDeclareOK](witness.p, 1); got.MessageCount != channels || got.ConsumerCount != 0 {
		t.Errorf("%d messages came back and %d consumers are left, want %d and 0", got.MessageCount, got.ConsumerCount, channels)
	}
	settle(t, b, before)
}

// Sizes that a client claims are not believed: memory is taken for what has come.
func TestClaimedSizes(t *testing.T) {
	t.Parallel()
	b := process.Start(t, "limits: {message-size: 512MiB}")
	witness := newBystander(t, b.AMQP)
	before := b.Resident()
	for range 64 {
		p := login(t, b.AMQP).channel(1)
		p.send(amqp.AppendMethod(nil, 1, &amqp.BasicPublish{RoutingKey: "bystander"}))
		p.send(amqp.AppendContentHeader(nil, 1, 512*mib, []byte{0, 0}))
		p.send(raw(amqp.FrameBody, 1, "a little"))
		p.method(1, &amqp.ChannelClose{}) // is answered: all of this was read
		p.refused(505, "UNEXPECTED_FRAME - expected content body, got non content body frame instead")
	}
	for range 64 {
		p := login(t, b.AMQP).channel(1)
		p.send([]byte{amqp.FrameMethod, 0, 1, 0, 1, 0xff, 0xf8}) // a whole frame, says the head
	}
	witness.check()
	if used := b.Resident() - before; used > room {
		t.Errorf("%d MiB of memory are taken for nothing", used/mib)
	}
}

// A client that asks and asks and does not read the answers is not asked to, and not listened to any further.
func TestClientThatNeverReads(t *testing.T) {
	t.Parallel()
	b := process.Start(t, "")
	witness := newBystander(t, b.AMQP)
	before := b.Resident()
	p := login(t, b.AMQP).channel(1)
	question := amqp.AppendMethod(nil, 1, &amqp.ExchangeDeclare{Exchange: strings.Repeat("no", 100), Type: "direct", Passive: true})
	question = append(question, amqp.AppendMethod(nil, 1, &amqp.ChannelCloseOK{})...)
	question = append(question, amqp.AppendMethod(nil, 1, &amqp.ChannelOpen{})...)
	flood(t, p, bytes.Repeat(question, 1000), stall)
	witness.check()
	if used := b.Resident() - before; used > room {
		t.Errorf("%d MiB of memory are taken", used/mib)
	}
	p.conn.Close()
	witness.check()
}

// A client that is blocked in the middle of publishing gets its connection closed when it has waited long enough.
func TestCloseWhileBlocked(t *testing.T) {
	t.Parallel()
	b := process.Start(t, "")
	limitMemory(t, b, "0") // for good: a limit that a dozen messages reach is not reached any more after the next collection of garbage
	conn, err := process.Dial(b.URL())
	if err != nil {
		t.Fatal(err)
	}
	blocked := conn.NotifyBlocked(make(chan amqp091.Blocking, 10))
	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	declare(t, ch, "q", nil)
	published := make(chan error, 1)
	go func() {
		var err error
		for err == nil {
			err = ch.PublishWithContext(t.Context(), "", "q", false, false, amqp091.Publishing{Body: make([]byte, mib)})
		}
		published <- err
	}()
	if got := await(t, blocked, "connection.blocked"); !got.Active || got.Reason != "low on memory" {
		t.Errorf("got %+v", got)
	}
	if err := conn.CloseDeadline(time.Now().Add(time.Second)); err == nil {
		t.Error("a broker that does not read has answered")
	}
	await(t, published, "the end of publishing")
	if !conn.IsClosed() {
		t.Error("the connection is still open")
	}
}

// An operator tries out what applications do when they are blocked: with a tiny limit an empty broker is above it, and with the usual
// one the alarm ends. Only messages used to count, of which an empty broker has none.
func TestATinyMemoryLimitBlocks(t *testing.T) {
	t.Parallel()
	b := process.Start(t, "")
	p := login(t, b.AMQP, "connection.blocked").channel(1)
	p.method(1, &amqp.QueueDeclare{Queue: "q"})
	expect[*amqp.QueueDeclareOK](p, 1)
	for range 2 {
		limitMemory(t, b, "0.000000001")
		if status, body := b.Health(); status != 503 {
			t.Errorf("health: %d %s", status, body)
		}
		p.send(publishing(1, "q", nil))
		expect[*amqp.ConnectionBlocked](p, 0)
		limitMemory(t, b, "0.4")
		expect[*amqp.ConnectionUnblocked](p, 0)
	}
}

// limitMemory has the broker use no more than a fraction of the machine's memory before it blocks publishers.
func limitMemory(t *testing.T, b *process.Process, fraction string) {
	t.Helper()
	out, err := exec.Command(process.Binary(t), "ctl", "--url", "http://"+b.Management, "set_vm_memory_high_watermark", fraction).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}
