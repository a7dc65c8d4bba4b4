package disk

import (
	"context"
	"encoding/binary"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rabbitmq/amqp091-go"

	"github.com/curfewmq/curfew/core/campaign"
	"github.com/curfewmq/curfew/tests/cluster"
	"github.com/curfewmq/curfew/tests/process"
)

// cyclesVariable says how often each combination of disk and message is filled, in place of some of them once.
const cyclesVariable = "DISK_CYCLES"

type trial struct {
	nodes int
	disk  int // MiB, of each
	size  int // of messages, bytes
	kill  bool
	large int // nodes with a disk of twice that, among them the queue's owner
}

func (tr trial) String() string {
	return fmt.Sprintf("%d nodes, %d MiB, twice that for %d, messages of %d bytes, kill -9 %v", tr.nodes, tr.disk, tr.large, tr.size, tr.kill)
}

func trials(t *testing.T) (all []trial) {
	t.Helper()
	cycles := campaign.Size(t, cyclesVariable, 0, 1)
	if os.Getenv(cyclesVariable) == "" {
		return []trial{{nodes: 1, disk: 64, size: 20_000, kill: true}, {nodes: 1, disk: 64, size: 2_000_000}}
	}
	for range cycles {
		for _, disk := range []int{64, 200, 1000} {
			for _, size := range []int{1000, 20_000, 300_000, 2_000_000, 10_000_000} {
				all = append(all, trial{nodes: 1, disk: disk, size: size}, trial{nodes: 1, disk: disk, size: size, kill: true})
			}
		}
		for _, size := range []int{20_000, 2_000_000, 16 << 20} {
			all = append(all, trial{nodes: 3, disk: 200, size: size}, trial{nodes: 3, disk: 200, size: size, kill: true})
		}
		for large := 1; large < 3; large++ {
			all = append(all, trial{nodes: 3, disk: 200, size: 20_000, large: large}, trial{nodes: 3, disk: 200, size: 2_000_000, large: large})
		}
	}
	return all
}

// With publishers that never stop a full disk stayed full, though everything had been delivered and acknowledged: the alarm did
// not end, nothing more was confirmed, the broker ended with status 1, and what had been acknowledged was back after a restart.
func TestCampaignFullDisk(t *testing.T) {
	for _, tr := range trials(t) {
		t.Run(tr.String(), func(t *testing.T) {
			f := &full{T: t, trial: tr, unpaid: map[uint64]bool{}, received: map[uint64]bool{}}
			f.mount()
			f.run()
		})
	}
}

// mount makes the disks.
func (f *full) mount() {
	f.Helper()
	if f.nodes > 1 {
		f.cluster = cluster.New(f.T, configuration, f.TempDir())
		for i, n := range f.cluster.Nodes {
			size := f.trial.disk
			if i < f.large {
				size *= 2
			}
			n.Data = f.disk(size) + "/data"
		}
		return
	}
	f.dir = f.disk(f.trial.disk)
}

// disk returns a directory that is a file system of its own, of so many MiB.
func (f *full) disk(mib int) string {
	f.Helper()
	dir, err := process.SmallDisk(f.T, mib)
	if err != nil {
		f.Skip(err)
	}
	return dir
}

const configuration = "limits: {heartbeat: 0s}"

// full is a broker whose disk is filled, or the three nodes of a cluster.
type full struct {
	*testing.T
	trial

	arguments amqp091.Table // of the queue; nil = none

	dir     string
	cluster *cluster.Cluster // nil = it is a single broker
	broker  *process.Process // which clients connect to: the owner of the queue
	next    atomic.Uint64    // number of the message that was published last

	mu        sync.Mutex // guards what follows
	confirmed int
	unpaid    map[uint64]bool // confirmed, and nobody has got them yet
	owed      map[uint64]bool // of those, the ones that had been confirmed when somebody began to consume
	received  map[uint64]bool
}

func (f *full) run() {
	f.start()
	stop := f.publish()
	f.awaitStandstill()
	if f.kill {
		f.killAll()
		stop()
		f.start()
		stop = f.publish()
		f.awaitStandstill()
	}
	f.owe()
	end := f.consume("q")
	before := f.standing().confirmed
	if !f.progress(func(now standing) bool { return now.owed == 0 && now.confirmed >= before+20 }) {
		now := f.standing()
		f.Errorf("of the messages that were confirmed before somebody consumed %d were not delivered; %d more are confirmed since",
			now.owed, now.confirmed-before)
	}
	stop()
	if !f.progress(func(standing) bool { return f.drained() }) {
		f.Errorf("%d messages are left", f.ready())
	}
	if now := f.standing(); now.unpaid > 0 {
		f.Errorf("%d of %d confirmed messages are lost", now.unpaid, now.confirmed)
	}
	for _, b := range f.all() {
		if !process.Poll(func() bool { status, _ := b.Health(); return status == http.StatusOK }) {
			status, body := b.Health()
			f.Errorf("after all was taken: %d %s", status, body)
		}
	}
	end()
	now := f.standing()
	f.Logf("%d messages confirmed, %d delivered", now.confirmed, now.received)
	f.end()
	f.start()
	if n := f.ready(); n > 0 {
		f.Errorf("%d messages that were acknowledged are back after a restart", n)
	}
}

func (f *full) start() {
	f.Helper()
	if f.cluster == nil {
		f.broker = process.Start(f.T, configuration, "--data", f.dir+"/data")
		return
	}
	f.cluster.StartAll()
	if to := f.cluster.Nodes[0]; f.large > 0 && f.cluster.Owner("/") != to {
		f.must(f.cluster.Ctl(to, "cluster", "transfer", "-p", "/", to.Address))
	}
	f.broker = f.cluster.Owner("/").Process
}

// all returns the broker, or all nodes.
func (f *full) all() (all []*process.Process) {
	if f.cluster == nil {
		return append(all, f.broker)
	}
	for _, n := range f.cluster.Nodes {
		all = append(all, n.Process)
	}
	return all
}

// end ends the broker as an operator does, of nodes the one that owns the queue.
func (f *full) end() {
	f.Helper()
	if f.cluster == nil {
		f.broker.Stop()
		return
	}
	f.cluster.AwaitSpare()
	f.cluster.Owner("/").Stop()
}

func (f *full) killAll() {
	if f.cluster == nil {
		f.broker.Kill()
		return
	}
	for _, n := range f.cluster.Nodes {
		n.Kill()
	}
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
	_, err = ch.QueueDeclare("q", true, false, false, false, f.arguments)
	f.must(err)
	return ch
}

// publish has publishers at work until stop. They have no heartbeats: this client would hang up on a broker that does not read
// from it for long, since the heartbeat waits behind what it publishes, and what it reads then does not count as a sign of life.
func (f *full) publish() (stop func()) {
	var running sync.WaitGroup
	var all []net.Conn // closed as they are: the client waits for a broker that reads
	for range 4 {
		c, err := amqp091.DialConfig(f.broker.URL(), amqp091.Config{Locale: "en_US", Heartbeat: time.Nanosecond, Dial: func(network, address string) (net.Conn, error) {
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
					f.confirm(number.(uint64))
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

// consume takes and acknowledges messages of a queue until end.
func (f *full) consume(queue string) (end func()) {
	c, ch := f.channel()
	f.must(ch.Qos(50, 0, false))
	messages, err := ch.Consume(queue, "", false, false, false, false, nil)
	f.must(err)
	var running sync.WaitGroup
	running.Go(func() {
		for m := range messages {
			f.receive(binary.BigEndian.Uint64(m.Body))
			_ = m.Ack(false)
		}
	})
	return func() {
		f.must(c.Close())
		running.Wait()
	}
}

func (f *full) confirm(number uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.confirmed++
	if !f.received[number] {
		f.unpaid[number] = true
	}
}

func (f *full) receive(number uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.received[number] = true
	delete(f.unpaid, number)
	delete(f.owed, number)
}

// owe notes what is owed from now on.
func (f *full) owe() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.owed = maps.Clone(f.unpaid)
}

// standing is how many messages have come how far.
type standing struct{ confirmed, unpaid, owed, received int }

func (f *full) standing() standing {
	f.mu.Lock()
	defer f.mu.Unlock()
	return standing{f.confirmed, len(f.unpaid), len(f.owed), len(f.received)}
}

// progress waits until all have come so far, for as long as there is any change, however slow the machine is, and reports
// whether they have.
func (f *full) progress(done func(standing) bool) bool {
	for was, more := f.standing(), true; more; {
		if done(was) {
			return true
		}
		more = process.Poll(func() bool { return f.standing() != was })
		was = f.standing()
	}
	return done(f.standing())
}

// awaitStandstill waits until the broker takes no more.
func (f *full) awaitStandstill() {
	f.Helper()
	f.broker.Await("disk alarm: publishers wait")
	for n := -1; n != f.standing().confirmed; time.Sleep(time.Second) {
		n = f.standing().confirmed
	}
}

// drained reports whether the queue is empty and nothing is on its way to the consumer any more.
func (f *full) drained() bool {
	f.Helper()
	before := f.standing().received
	time.Sleep(time.Second)
	return f.ready() == 0 && f.standing().received == before
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
