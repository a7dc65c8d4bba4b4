package disk

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/rabbitmq/amqp091-go"

	"github.com/curfewmq/curfew/tests/process"
)

// cyclesVariable says how often each combination of disk and message is filled, in place of some of them once.
const cyclesVariable = "DISK_CYCLES"

type trial struct {
	disk int // MiB
	size int // of messages, bytes
	kill bool
}

func (tr trial) String() string {
	return fmt.Sprintf("%d MiB, messages of %d bytes, kill -9 %v", tr.disk, tr.size, tr.kill)
}

func trials(t *testing.T) (all []trial) {
	t.Helper()
	text := os.Getenv(cyclesVariable)
	if text == "" {
		return []trial{{64, 20_000, true}, {64, 2_000_000, false}}
	}
	cycles, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("%s: %v", cyclesVariable, err)
	}
	for range cycles {
		for _, disk := range []int{64, 200, 1000} {
			for _, size := range []int{1000, 20_000, 300_000, 2_000_000, 10_000_000} {
				all = append(all, trial{disk, size, false}, trial{disk, size, true})
			}
		}
	}
	return all
}

// With publishers that never stop a full disk stayed full, though everything had been delivered and acknowledged: the alarm did
// not end, nothing more was confirmed, the broker ended with status 1, and what had been acknowledged was back after a restart.
func TestAFullDiskEndsWhenItsQueuesAreEmptied(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long")
	}
	for _, tr := range trials(t) {
		t.Run(tr.String(), func(t *testing.T) {
			f := &full{T: t, trial: tr, dir: mount(t, tr.disk), confirmed: map[uint64]bool{}, received: map[uint64]bool{}}
			f.run()
		})
	}
}

// mount returns a directory that is a file system of so many MiB.
func mount(t *testing.T, size int) string {
	t.Helper()
	dir := t.TempDir()
	if err := syscall.Mount("curfew", dir, "tmpfs", 0, fmt.Sprintf("size=%dm", size)); err != nil {
		t.Skipf("a small file system cannot be mounted here, which needs root: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// full is a broker whose disk is filled.
type full struct {
	*testing.T
	trial

	dir    string
	broker *process.Process
	next   atomic.Uint64 // number of the message that was published last

	mu        sync.Mutex // guards what follows
	confirmed map[uint64]bool
	received  map[uint64]bool
}

func (f *full) run() {
	f.start()
	stop := f.publish()
	f.awaitStandstill()
	if f.kill {
		f.broker.Kill()
		stop()
		f.start()
		stop = f.publish()
		f.awaitStandstill()
	}
	owed := f.unpaid()
	end := f.consume()
	before := f.count(f.confirmed)
	if !process.Poll(func() bool { return f.missing(owed) == 0 && f.count(f.confirmed) >= before+20 }) {
		f.Errorf("of %d messages that were confirmed before somebody consumed %d were delivered; %d more are confirmed since",
			len(owed), len(owed)-f.missing(owed), f.count(f.confirmed)-before)
	}
	stop()
	if !process.Poll(f.drained) {
		f.Errorf("%d messages are left", f.ready())
	}
	if n := f.missing(f.unpaid()); n > 0 {
		f.Errorf("%d of %d confirmed messages are lost", n, f.count(f.confirmed))
	}
	if status, body := f.broker.Health(); status != 200 {
		f.Errorf("after all was taken: %d %s", status, body)
	}
	end()
	f.Logf("%d messages confirmed, %d delivered", f.count(f.confirmed), f.count(f.received))
	f.broker.Stop()
	f.start()
	if n := f.ready(); n > 0 {
		f.Errorf("%d messages that were acknowledged are back after a restart", n)
	}
}

func (f *full) start() {
	f.broker = process.Start(f.T, "", "--data", f.dir+"/data")
}

func (f *full) must(err error) {
	f.Helper()
	if err != nil {
		f.Fatal(err)
	}
}

func (f *full) channel() (*amqp091.Connection, *amqp091.Channel) {
	f.Helper()
	c, err := process.Dial(f.broker.URL())
	f.must(err)
	return c, f.open(c)
}

func (f *full) open(c *amqp091.Connection) *amqp091.Channel {
	f.Helper()
	ch, err := c.Channel()
	f.must(err)
	_, err = ch.QueueDeclare("q", true, false, false, false, nil)
	f.must(err)
	return ch
}

// publish has publishers at work until stop.
func (f *full) publish() (stop func()) {
	var running sync.WaitGroup
	var all []net.Conn // closed as they are: the client waits for a broker that reads
	for range 4 {
		c, err := amqp091.DialConfig(f.broker.URL(), amqp091.Config{Locale: "en_US", Dial: func(network, address string) (net.Conn, error) {
			socket, err := amqp091.DefaultDial(process.Patience)(network, address)
			all = append(all, socket)
			return socket, err
		}})
		f.must(err)
		ch := f.open(c)
		f.must(ch.Confirm(false))
		var numbers sync.Map // of messages, by delivery tag
		confirms := ch.NotifyPublish(make(chan amqp091.Confirmation, 1000))
		running.Go(func() {
			for n := range confirms {
				if number, ok := numbers.Load(n.DeliveryTag); ok && n.Ack {
					f.note(f.confirmed, number.(uint64))
				}
			}
		})
		running.Go(func() {
			for tag := uint64(1); ; tag++ {
				number := f.next.Add(1)
				numbers.Store(tag, number)
				m := amqp091.Publishing{DeliveryMode: amqp091.Persistent, Body: binary.BigEndian.AppendUint64(make([]byte, 0, f.size), number)[:f.size]}
				if ch.PublishWithContext(context.Background(), "", "q", false, false, m) != nil {
					return
				}
			}
		})
	}
	return func() {
		for _, socket := range all {
			_ = socket.Close() // it may be closed already
		}
		running.Wait()
	}
}

// consume takes and acknowledges messages until end.
func (f *full) consume() (end func()) {
	c, ch := f.channel()
	f.must(ch.Qos(50, 0, false))
	messages, err := ch.Consume("q", "", false, false, false, false, nil)
	f.must(err)
	var running sync.WaitGroup
	running.Go(func() {
		for m := range messages {
			f.note(f.received, binary.BigEndian.Uint64(m.Body))
			_ = m.Ack(false)
		}
	})
	return func() {
		f.must(c.Close())
		running.Wait()
	}
}

func (f *full) note(in map[uint64]bool, number uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	in[number] = true
}

func (f *full) count(of map[uint64]bool) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(of)
}

// unpaid lists the confirmed messages that nobody has got yet.
func (f *full) unpaid() (numbers []uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for n := range f.confirmed {
		if !f.received[n] {
			numbers = append(numbers, n)
		}
	}
	return numbers
}

func (f *full) missing(of []uint64) (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, number := range of {
		if !f.received[number] {
			n++
		}
	}
	return n
}

// awaitStandstill waits until the broker takes no more.
func (f *full) awaitStandstill() {
	f.Helper()
	f.broker.Await("disk alarm: publishers wait")
	for n := -1; n != f.count(f.confirmed); time.Sleep(time.Second) {
		n = f.count(f.confirmed)
	}
}

// drained reports whether the queue is empty and nothing is on its way to the consumer any more.
func (f *full) drained() bool {
	f.Helper()
	before := f.count(f.received)
	time.Sleep(time.Second)
	return f.ready() == 0 && f.count(f.received) == before
}

// ready is how many messages are in the queue.
func (f *full) ready() int {
	f.Helper()
	c, ch := f.channel()
	q, err := ch.QueueDeclarePassive("q", true, false, false, false, nil)
	f.must(err)
	f.must(c.Close())
	return q.Messages
}
