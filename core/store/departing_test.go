package store

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/curfewmq/curfew/core/chain"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/core/slab"
	"github.com/curfewmq/curfew/core/vhost"
	"github.com/curfewmq/curfew/core/wlog/crashfs"
	"github.com/curfewmq/curfew/policies"
	"github.com/curfewmq/curfew/sdk/hook"
)

// lease is a plugin that deletes the queue "q", after a minute without use, when its messages have gone to another queue.
type lease struct{ grave }

func (l lease) Attach(q hook.Queue) hook.Hooks {
	hs := l.grave.Attach(q)
	if q.Name() == "q" {
		hs.OnIdle = func(now hook.Instant, idle time.Duration, v *hook.Verdict) {
			if idle < time.Minute {
				v.Deadline = now.Add(time.Minute - idle)
				return
			}
			v.Action, v.Reason, v.DeadLetter = hook.Drop, hook.ReasonQueueExpired, true
		}
	}
	return hs
}

func with(t *testing.T, p hook.Plugin, shards int) func(*Options) {
	t.Helper()
	return func(o *Options) {
		var err error
		o.Shards = shards
		o.Chain, err = chain.New([]chain.Named{{Name: "plugin", Plugin: p}}, chain.Options{})
		must(t, err)
	}
}

// holds is what a queue holds, "-" if there is none.
func (k *kept) holds(name string) string {
	k.t.Helper()
	s := k.v.Mailbox(name)
	if s == nil {
		return "-"
	}
	var all strings.Builder
	for body := k.take(s); body != ""; body = k.take(s) {
		all.WriteString(body)
	}
	return all.String()
}

// reject fetches all messages of a queue and rejects them.
func reject(t *testing.T, s *queue.Mailbox) {
	t.Helper()
	var held []queue.PendingAck
	must(t, s.Do(func(q *queue.Queue, now hook.Instant) {
		c := &queue.Consumer{}
		for q.Get(now, c, func(d queue.Delivery, _ int) { held = append(held, queue.PendingAck{Ref: d.Ref, Consumer: c}) }) {
		}
	}))
	s.Settle(queue.Reject, held)
}

// A queue's deletion was written to another log than the dead letters that it had left behind, and overtook them: when the
// power went in between, confirmed messages were nowhere.
func TestDeadLettersOutliveTheirQueue(t *testing.T) {
	for name, leave := range map[string]func(k *kept, q *queue.Mailbox){
		"expired": func(*kept, *queue.Mailbox) {},
		"deleted": func(k *kept, q *queue.Mailbox) {
			reject(k.t, q)
			go func() { _, _ = k.v.DeleteQueue("q", 0, false, false) }()
		},
		"auto-deleted": func(k *kept, q *queue.Mailbox) {
			c := &queue.Consumer{Queue: q, Sink: &server{}, Prefetch: 1, NoAck: false}
			must(k.t, q.Do(func(q *queue.Queue, now hook.Instant) { must(k.t, q.AddConsumer(now, c)) }))
			q.Settle(queue.Reject, []queue.PendingAck{{Ref: 0, Consumer: c}, {Ref: 1, Consumer: c}, {Ref: 2, Consumer: c}})
			q.Settle(queue.Reject, []queue.PendingAck{{Ref: 1, Consumer: c}})
			q.Settle(queue.Reject, []queue.PendingAck{{Ref: 2, Consumer: c}})
			must(k.t, q.Do(func(q *queue.Queue, now hook.Instant) { q.RemoveConsumers(now, nil, c) }))
		},
	} {
		for shards := 1; shards <= 2; shards++ {
			t.Run(fmt.Sprint(name, " ", shards), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					for seed := range uint64(10 / fewer) {
						losePowerWithDeadLetters(t, seed, shards, name == "auto-deleted", leave)
					}
				})
			})
		}
	}
}

func losePowerWithDeadLetters(t *testing.T, seed uint64, shards int, autoDelete bool, leave func(*kept, *queue.Mailbox)) {
	t.Helper()
	fs := crashfs.New(seed)
	disk := &slowFS{FS: fs, prefix: fmt.Sprintf("%05d-", shards)}
	change := with(t, lease{grave{"dead"}}, shards)
	k := open(t, disk, change)
	if shards > 1 {
		k.declare("somewhere else")
	}
	k.declare("dead")
	d, err := k.v.DeclareQueue(vhost.QueueDeclare{Name: "q", Durable: true, AutoDelete: autoDelete})
	must(t, err)
	k.put(d.Mailbox, "1", "2", "3")
	time.Sleep(time.Minute - time.Millisecond)
	disk.slow.Store(true)
	leave(k, d.Mailbox)
	time.Sleep(time.Duration(200+seed*100) * time.Millisecond) // it is over, and what it held on its way to the disk
	next := fs.LosePower()
	if k.v.Mailbox("q") != nil {
		t.Error("the queue is still there")
	}
	disk.slow.Store(false)
	k.end()

	k = open(t, next, change)
	q, dead := k.holds("q"), k.holds("dead")
	for _, m := range []string{"1", "2", "3"} {
		switch strings.Count(q+dead, m) {
		case 1:
		case 2:
			if shards > 1 && strings.Contains(q, m) && strings.Contains(dead, m) {
				continue // a crash may show it in both
			}
			fallthrough
		default:
			t.Errorf("seed %d: in the queue %q, in the other %q", seed, q, dead)
		}
	}
	k.close()
}

// Nobody else has the name of a queue before its deletion is written, which would take the definition of its successor.
func TestAnExpiredQueueHasASuccessor(t *testing.T) { synctest.Test(t, hasASuccessor) }

func hasASuccessor(t *testing.T) {
	t.Helper()
	disk := &slowFS{FS: crashfs.New(1), prefix: "00001-"}
	change := with(t, lease{grave{"dead"}}, 1)
	k := open(t, disk, change)
	k.declare("dead")
	old := k.declare("q")
	k.put(old, "1", "2", "3")
	time.Sleep(time.Minute - time.Millisecond)
	disk.slow.Store(true)
	time.Sleep(2 * time.Millisecond)
	if k.v.Mailbox("q") != nil {
		t.Fatal("the queue is still there")
	}
	k.v.CompactDefinitions()
	next := k.declare("q")
	disk.slow.Store(false)
	if next == old {
		t.Error("it is the same queue")
	}
	k.put(next, "4")
	k.close()
	k = open(t, disk, change)
	k.wantMessages("q", "4")
	k.wantMessages("dead", "1", "2", "3")
	k.close()
}

// brief has the messages of the queue "q" expire with the hour.
type brief struct{ grave }

func (brief) Strategies() []string    { return []string{"brief"} }
func (brief) DefaultStrategy() string { return "brief" }

func (b brief) Attach(q hook.Queue) hook.Hooks {
	if q.Name() != "q" {
		return hook.Hooks{}
	}
	hs := b.grave.Attach(q)
	route := hs.OnHead
	hs.Strategy = true
	hs.OnEnqueue = func(now hook.Instant, _ []hook.Message, vs []hook.Verdict) {
		for i := range vs {
			vs[i].Deadline = now - now%hook.Instant(time.Hour) + hook.Instant(time.Hour)
		}
	}
	hs.OnHead = func(now hook.Instant, ms []hook.Message, vs []hook.Verdict) {
		for i := range ms {
			if vs[i].Action == hook.Keep && now >= ms[i].Deadline {
				vs[i].Action, vs[i].Reason = hook.Drop, hook.ReasonExpired
			}
		}
		route(now, ms, vs)
	}
	return hs
}

// crowd drops messages from queues that hold too many.
type crowd struct{ grave }

func (crowd) Arguments() []hook.Argument {
	return []hook.Argument{{Name: "x-max-length", Policy: &hook.PolicyKey{}}}
}

func (c crowd) Attach(q hook.Queue) hook.Hooks {
	hs := c.grave.Attach(q)
	hs.Length = hook.IntSetting(q, "max-length")
	return hs
}

func (k *kept) ready(name string) (n int) {
	k.t.Helper()
	must(k.t, k.queue(name).Do(func(q *queue.Queue, _ hook.Instant) { n = q.Stats().Ready }))
	return n
}

// However many messages die at a time, and however slow the disk is: they leave as fast as it takes them. 85 MB waited in the
// journal, where nobody counted them.
func TestAStormWaitsForTheDisk(t *testing.T) {
	for _, name := range []string{"expired", "queue expired", "rejected", "too many"}[:4/fewer] {
		t.Run(name, func(t *testing.T) { synctest.Test(t, func(t *testing.T) { stormWaits(t, name) }) })
	}
}

func stormWaits(t *testing.T, how string) {
	t.Helper()
	disk := &slowFS{FS: crashfs.New(3), prefix: "00001-"}
	plugin := map[string]hook.Plugin{
		"expired": brief{grave{"dead"}}, "queue expired": lease{grave{"dead"}}, "rejected": grave{"dead"}, "too many": crowd{grave{"dead"}},
	}[how]
	k := open(t, disk, with(t, plugin, 1), func(o *Options) { o.SegmentSize = 16 << 20 })
	k.declare("dead")
	q := k.declare("q")
	const count = 40 * 256
	body := strings.Repeat("x", 4000)
	for range 40 {
		var many []string
		for range 256 {
			many = append(many, body)
		}
		k.put(q, many...)
	}
	held, own := slab.Used(), k.vhostConfig.Queues.UnderwayBytes()
	disk.slow.Store(true) // a second for each sync
	switch how {
	case "expired":
		time.Sleep(time.Hour - time.Duration(time.Now().UnixNano())%time.Hour)
	case "queue expired":
		time.Sleep(time.Minute)
	case "rejected":
		reject(t, q)
	case "too many":
		rules := policies.NewRules(plugin.Arguments(), nil)
		p, err := rules.Parse(policies.User, "none", []byte(`{"pattern": "^q$", "definition": {"max-length": 0}}`))
		must(t, err)
		_, err = k.v.SetPolicy(policies.User, p)
		must(t, err)
	}
	for range 20 {
		time.Sleep(50 * time.Millisecond)
		if n := k.shard(1).Stats().Pending; n > 16<<20 {
			t.Fatalf("%d bytes wait for the disk", n)
		}
		if now := slab.Used() + k.vhostConfig.Queues.UnderwayBytes(); now > held+own+32<<20 {
			t.Fatalf("%d bytes, and %d before", now, held+own)
		}
	}
	if k.vhostConfig.Queues.UnderwayBytes() == own {
		t.Error("none of it is counted")
	}
	time.Sleep(time.Minute)
	if n := k.ready("dead"); n != count {
		t.Errorf("%d of %d have arrived", n, count)
	}
	disk.slow.Store(false)
	k.end()
}
