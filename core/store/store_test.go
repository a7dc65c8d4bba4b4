package store

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/chain"
	"github.com/curfewmq/curfew/core/definition"
	"github.com/curfewmq/curfew/core/logtest"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/core/vhost"
	"github.com/curfewmq/curfew/core/wlog/crashfs"
	"github.com/curfewmq/curfew/core/wlog/vfs"
	"github.com/curfewmq/curfew/sdk/hook"
)

func TestReopen(t *testing.T) {
	dir := vfs.Dir(t.TempDir())
	k := open(t, dir)
	if line := k.log.Find("recovered"); line != "" {
		t.Errorf("an empty directory was recovered: %s", line)
	}
	q := k.declare("q")
	k.put(q, "1", "2", "3")
	if got := k.take(q); got != "1" {
		t.Errorf("got %q", got)
	}
	must(t, k.v.Bind(vhost.Binding{Source: "amq.topic", Destination: "q", Key: "a.*"}, 0))
	d, err := k.v.DeclareQueue(vhost.QueueDeclare{Name: "passing"})
	must(t, err)
	k.put(d.Mailbox, "x", "y")
	k.memory(q, "in a durable queue, and not durable")
	k.close()
	if got := k.log.Find("dropped"); got != `"dropped messages and queues that do not survive a restart" messages=3 from_queues=2 queues=1` {
		t.Errorf("logged %q", got)
	}

	k = open(t, dir)
	if got := k.log.Find("recovered"); !strings.HasPrefix(got, "recovered queues=1 messages=2 ") {
		t.Errorf("logged %q", got)
	}
	if got := k.v.Bindings(); len(got) != 1 || got[0].Key != "a.*" {
		t.Errorf("bindings: got %v", got)
	}
	if _, err := k.v.Queue("passing", 0); err == nil {
		t.Error("a queue in memory alone is there")
	}
	k.wantMessages("q", "2", "3")
	if got := k.log.Find("dropped"); got != "" {
		t.Errorf("logged %q", got)
	}
	if first, second := q.Config().Storage.ID, k.declare("r").Config().Storage.ID; second <= first {
		t.Errorf("queues have the numbers %d and %d", first, second)
	}
	k.close()
}

// The power goes, any time: what was confirmed is there, and what was declared.
func TestPowerLoss(t *testing.T) {
	for seed := range uint64(20 / fewer) {
		disk := crashfs.New(seed)
		k := open(t, disk)
		k.put(k.declare("q"), "a")
		k.put(k.queue("q"), "b", "c")
		disk = disk.LosePower()
		k.end()

		k = open(t, disk)
		k.wantMessages("q", "a", "b", "c")
		k.close()
	}
}

// New vhosts are spread over the shards there are to be; those of a shard that is no longer asked for stay where they are.
func TestShards(t *testing.T) {
	disk := crashfs.New(1)
	k := open(t, disk, func(o *Options) { o.Shards = 3 })
	in := map[queue.Journal]int{}
	for n := range 6 {
		name := strconv.Itoa(n)
		_, err := k.AddVHost(name, vhost.Metadata{})
		must(t, err)
		v := k.in(name)
		q, r := v.declare("q"), v.declare("r")
		if q.Config().Storage.Journal != r.Config().Storage.Journal {
			t.Errorf("vhost %s is in two shards", name)
		}
		in[q.Config().Storage.Journal]++
		v.put(q, name)
	}
	if len(in) != 3 {
		t.Errorf("six vhosts are in %d shards, want 3", len(in))
	}
	k.close()

	k = open(t, disk)
	for n := range 6 {
		k.in(strconv.Itoa(n)).wantMessages("q", strconv.Itoa(n))
	}
	for n := range 3 {
		name := "new" + strconv.Itoa(n)
		_, err := k.AddVHost(name, vhost.Metadata{})
		must(t, err)
		if got := k.in(name).declare("q").Config().Storage.Shard; got != 1 {
			t.Errorf("a new vhost is in shard %d, want 1", got)
		}
	}
	k.close()
}

// Definitions come and go; their log stays small, and a queue's number is never given away again.
func TestDefinitionsAreRewritten(t *testing.T) { synctest.Test(t, definitionsAreRewritten) }

func definitionsAreRewritten(t *testing.T) {
	t.Helper()
	disk := crashfs.New(1)
	k := open(t, disk)
	k.declare("stays")
	arg := strings.Repeat("x", 10_000)
	var last uint64
	for n := range 500 {
		must(t, k.v.DeclareExchange(vhost.Exchange{Name: "x" + arg[:200], Type: "fanout", Durable: true}, nil))
		must(t, k.v.DeleteExchange("x"+arg[:200], false))
		d, err := k.v.DeclareQueue(vhost.QueueDeclare{Name: fmt.Sprint("q", n), Durable: true, Args: table("x", arg)})
		must(t, err)
		last = d.Mailbox.Config().Storage.ID
		_, err = k.v.DeleteQueue(d.Mailbox.Config().Name, 0, false, false)
		must(t, err)
	}
	time.Sleep(10 * time.Second) // it is done aside
	if st := k.shard(1).Stats(); st.Bytes < 4<<20 || st.LogBytes > minCompactBytes+2*definitionsExtent {
		t.Errorf("of %d bytes of definitions, %d are left", st.Bytes, st.LogBytes)
	}
	k.close()
	k = open(t, disk)
	if q := k.declare("new"); q.Config().Storage.ID <= last {
		t.Errorf("a queue has the number %d; %d was given before", q.Config().Storage.ID, last)
	}
	k.queue("stays")
	if n := k.v.Stats().Queues; n != 2 {
		t.Errorf("there are %d queues, want 2", n)
	}
	k.close()
}

// Of a log in which little is left of use, the rest is given back.
func TestReclaim(t *testing.T) {
	disk := crashfs.New(1)
	k := open(t, disk)
	q, old := k.declare("q"), k.declare("old")
	body := strings.Repeat("x", 1<<20)
	k.put(old, "old")
	const rounds = 90
	for range rounds {
		k.put(q, body)
		k.take(q)
	}
	must(t, k.shard(1).Sync())
	if st := k.shard(1).Stats(); st.Bytes < rounds<<20 || st.LogBytes > 70<<20 || st.Reclaims == 0 {
		t.Errorf("of %d bytes, %d are left after %d reclaims", st.Bytes, st.LogBytes, st.Reclaims)
	}
	k.close()
	k = open(t, disk)
	k.wantMessages("old", "old")
	k.wantMessages("q")
	k.close()
}

// A broker that ends gives back what it holds in memory, not what is in its log.
func TestCloseKeepsTheLog(t *testing.T) {
	disk := crashfs.New(1)
	k := open(t, disk)
	old, q := k.declare("old"), k.declare("q")
	k.put(old, "old")
	body := strings.Repeat("x", 1<<20)
	for range 4 { // several extents behind the message's
		k.put(q, body)
	}
	before := k.shard(1).Stats().Live
	k.close()
	k = open(t, disk)
	if got := k.shard(1).Stats().Live; got != before {
		t.Errorf("%d bytes are live, want %d", got, before)
	}
	k.wantMessages("old", "old")
	k.close()
}

// grave is a plugin that sends what leaves a queue to another one.
type grave struct{ queue string }

func (grave) Arguments() []hook.Argument { return nil }

func (g grave) Attach(hook.Queue) hook.Hooks {
	target := &hook.Target{Key: g.queue, HasKey: true}
	return hook.Hooks{OnHead: func(_ hook.Instant, ms []hook.Message, vs []hook.Verdict) {
		for i := range ms {
			if vs[i].Action == hook.Drop {
				vs[i].Action, vs[i].Target = hook.Route, target
			}
		}
	}}
}

// slowFS takes a second for each sync of the files with a prefix, while it is slow.
type slowFS struct {
	vfs.FS
	prefix string
	slow   atomic.Bool
}

func (s *slowFS) Open(name string, mode vfs.Mode) (vfs.File, error) {
	f, err := s.FS.Open(name, mode)
	if err != nil || !strings.HasPrefix(name, s.prefix) {
		return f, err
	}
	return slowFile{f, s}, nil
}

type slowFile struct {
	vfs.File
	fs *slowFS
}

func (f slowFile) Sync() error {
	if f.fs.slow.Load() {
		time.Sleep(time.Second)
	}
	return f.File.Sync()
}

// What is on its way from one queue to another when the broker ends arrives, and is in one place then.
func TestCloseLetsMessagesArrive(t *testing.T) { synctest.Test(t, closeLetsMessagesArrive) }

func closeLetsMessagesArrive(t *testing.T) {
	t.Helper()
	disk := &slowFS{FS: crashfs.New(1), prefix: "00001-"}
	two := func(o *Options) {
		var err error
		o.Chain, err = chain.New([]chain.Named{{Name: "grave", Plugin: grave{"dead"}}}, chain.Options{})
		must(t, err)
	}
	k := open(t, disk, two)
	k.declare("dead")
	q := k.declare("q")
	k.put(q, "message")
	disk.slow.Store(true)
	var held []queue.PendingAck
	must(t, q.Do(func(q *queue.Queue, now hook.Instant) {
		c := &queue.Consumer{}
		q.Get(now, c, func(d queue.Delivery, _ int) { held = []queue.PendingAck{{Ref: d.Ref, Consumer: c}} })
	}))
	q.Settle(queue.Reject, held)
	k.close()
	disk.slow.Store(false)
	k = open(t, disk, two)
	k.wantMessages("q")
	k.wantMessages("dead", "message")
	k.close()
}

func TestLocked(t *testing.T) {
	dir := vfs.Dir(t.TempDir())
	k := open(t, dir)
	defer k.close()
	_, err := Open(t.Context(), options(t, dir, new(logtest.Log)))
	if !errors.Is(err, vfs.ErrLocked) || !strings.Contains(err.Error(), "by process ") {
		t.Errorf("got error %v", err)
	}
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// While the disk is full nothing is confirmed; when there is space again everything is.
func TestFullDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := crashfs.New(1)
		k := open(t, disk)
		q := k.declare("q")
		k.put(q, "1")
		fills := k.Fills()
		if k.Full() != nil || len(k.Alarms()) > 0 || closed(fills) {
			t.Error("there is an alarm at first")
		}
		disk.SetSpace(0)
		body := strings.Repeat("x", 1<<20)
		before, after := send(q, body), send(q, body, body, body)
		synctest.Wait()
		time.Sleep(10 * time.Second)
		if got := fmt.Sprint(k.Alarms()); got != "[disk]" || k.Full() == nil {
			t.Fatalf("alarms: got %s, want [disk]", got)
		}
		select {
		case err := <-after:
			t.Errorf("what does not fit was answered: %v", err)
		default:
		}
		if !closed(fills) || closed(k.Fills()) {
			t.Error("publishers that wait learn of no alarm, or of the next one")
		}
		full := k.Full()
		disk.SetSpace(1 << 26)
		<-full
		must(t, <-before)
		must(t, <-after)
		if got := k.Alarms(); len(got) > 0 || k.Full() != nil {
			t.Errorf("alarms: got %v, want none", got)
		}
		k.close()
	})
}

// What is in the logs must make sense.
func TestNonsense(t *testing.T) {
	for _, tt := range []struct {
		name  string
		write func(k *kept)
		want  [2]string // how the error begins, and what else it says
	}{
		{
			"registry", func(k *kept) { k.Registry().writer().Commit([]byte{0, 0, 0, 9}, nil, nil) },
			[2]string{"shard 0: ", "entry 0x"},
		},
		{
			"a definition of a vhost in the registry", func(k *kept) {
				k.Registry().writer().Commit(amqp.AppendTable(nil, queueIn("/", "q", 1<<8|1)), nil, nil)
			},
			[2]string{"shard 0: ", "entry 0x"},
		},
		{
			"a field of the registry that is missing", func(k *kept) {
				k.Registry().writer().Commit(amqp.AppendTable(nil, definition.New(opRemovePlacement)), nil, nil)
			},
			[2]string{"shard 0: ", "vhost is missing"},
		},
		{
			"definitions", func(k *kept) { k.shard(1).Commit([]byte{0, 0, 0, 9}, nil, nil) },
			[2]string{"shard 1: ", "entry 0x"},
		},
		{
			"operations", func(k *kept) { k.shard(1).Commit([]byte("nonsense"), nil, nil) },
			[2]string{"shard 1: ", "entry 0x"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			disk := crashfs.New(1)
			k := open(t, disk)
			tt.write(k)
			k.close()
			for range 2 { // it is given up again each time
				_, err := Open(t.Context(), options(t, disk, new(logtest.Log)))
				if err == nil || !strings.HasPrefix(err.Error(), tt.want[0]) || !strings.Contains(err.Error(), tt.want[1]) {
					t.Errorf("got error %v", err)
				}
			}
		})
	}
}

func TestOpenIsBrokenOff(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Open(ctx, options(t, crashfs.New(1), new(logtest.Log))); !errors.Is(err, context.Canceled) {
		t.Errorf("got error %v", err)
	}
}

// Messages that were handed out and not acknowledged come back, and those who get them are told.
func TestRedelivered(t *testing.T) {
	disk := crashfs.New(1)
	k := open(t, disk)
	q := k.declare("q")
	k.put(q, "a", "b")
	must(t, q.Do(func(q *queue.Queue, now hook.Instant) {
		q.Get(now, &queue.Consumer{}, func(queue.Delivery, int) {})
	}))
	k.close()
	k = open(t, disk)
	var got []bool
	q = k.queue("q")
	must(t, q.Do(func(q *queue.Queue, now hook.Instant) {
		for q.Get(now, &queue.Consumer{}, func(d queue.Delivery, _ int) { got = append(got, d.Redelivered) }) {
		}
	}))
	if fmt.Sprint(got) != "[true false]" {
		t.Errorf("redelivered: got %v", got)
	}
	k.close()
}
