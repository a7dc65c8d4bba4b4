package store

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/chain"
	"github.com/curfewmq/curfew/core/clock"
	"github.com/curfewmq/curfew/core/logtest"
	"github.com/curfewmq/curfew/core/parts"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/core/slab"
	"github.com/curfewmq/curfew/core/telemetry"
	"github.com/curfewmq/curfew/core/vhost"
	"github.com/curfewmq/curfew/core/wlog"
	"github.com/curfewmq/curfew/core/wlog/crashfs"
	"github.com/curfewmq/curfew/policies"
	"github.com/curfewmq/curfew/sdk/hook"
)

// mortal is a strategy whose messages live as long as their expiration says. Whatever leaves a queue goes to another.
type mortal struct{ grave }

var _ hook.Strategist = mortal{}

func (mortal) Strategies() []string    { return []string{"mortal"} }
func (mortal) DefaultStrategy() string { return "mortal" }

func (m mortal) Attach(q hook.Queue) hook.Hooks {
	if q.Name() == m.queue {
		return hook.Hooks{Strategy: true}
	}
	target := &hook.Target{Key: m.queue, HasKey: true, AtLeastOnce: q.Name() == "careful"}
	return hook.Hooks{
		Strategy: true, Scan: hook.ScanAnywhere,
		OnEnqueue: func(now hook.Instant, ms []hook.Message, vs []hook.Verdict) {
			for i := range ms {
				if ms[i].Expiration.Set() {
					vs[i].Deadline = now.AddMillis(ms[i].Expiration.N())
				}
			}
		},
		OnHead: func(now hook.Instant, ms []hook.Message, vs []hook.Verdict) {
			for i := range ms {
				if ms[i].Deadline != 0 && now >= ms[i].Deadline && ms[i].Why != hook.WhyLeaving {
					vs[i] = hook.Verdict{Action: hook.Drop, Reason: hook.ReasonExpired}
				}
				if vs[i].Action == hook.Drop {
					vs[i].Action, vs[i].Target = hook.Route, target
				}
			}
		},
	}
}

// movers are clients of a vhost, and what they know.
type movers struct {
	t       *testing.T
	v       *vhost.VHost
	reason  string // why they are evicted
	working sync.WaitGroup

	mu        sync.Mutex // guards the rest
	next      int
	confirmed map[string]bool
	settled   map[string]bool // it may be gone
	evicted   int
}

// newMovers returns clients of a vhost, which gets the queues that they use.
func newMovers(k *kept, reason string) *movers {
	k.t.Helper()
	for _, name := range []string{"q", "careful", "other", "dead"} {
		k.declare(name)
	}
	_, err := k.v.DeclareQueue(vhost.QueueDeclare{Name: "passing", Exclusive: true, Owner: 1})
	must(k.t, err)
	return &movers{t: k.t, v: k.v, reason: reason, confirmed: map[string]bool{}, settled: map[string]bool{}}
}

// begin lets all work, and returns how many there are.
func (c *movers) begin(stubborn bool) (clients int) {
	c.t.Helper()
	steps := []func(*rand.Rand) error{
		c.publish("passing", 0), c.publish("q", queue.Persistent), c.publish("careful", queue.Persistent), c.publish("q", 0),
		c.publish("other", queue.Persistent), c.commits, c.takes("q"), c.takes("other"), c.declares, c.redrives,
	}
	for i, step := range steps {
		c.join(vhost.Owner(i+1), stubborn, step)
	}
	return len(steps)
}

// number returns the body of another message.
func (c *movers) number() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.next++
	return "m" + strconv.Itoa(c.next)
}

func (c *movers) confirm(body string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.confirmed[body] = true
}

// join lets a client work, step after step, until its connection is evicted or a step fails, which it may do only because the vhost is
// served elsewhere. A stubborn client goes on until then.
func (c *movers) join(owner vhost.Owner, stubborn bool, step func(r *rand.Rand) error) {
	evicted := make(chan struct{})
	must(c.t, c.v.AddConnection(owner, "user", func(reason string) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.evicted++
		if reason != c.reason {
			c.t.Errorf("evicted because: %s", reason)
		}
		close(evicted)
	}))
	c.working.Go(func() {
		defer c.v.RemoveConnection(owner)
		r := rand.New(rand.NewPCG(owner, 1))
		for {
			if err := step(r); err != nil {
				if !errors.Is(err, wlog.ErrNotOwner) {
					c.t.Errorf("client %d: %v", owner, err)
				}
				return
			}
			pause := time.Duration(r.IntN(300)) * time.Microsecond
			select {
			case <-evicted:
				if !stubborn {
					return
				}
				pause *= 100
			default:
			}
			time.Sleep(pause)
		}
	})
}

func (c *movers) publish(name string, flags queue.Flags) func(r *rand.Rand) error {
	return func(r *rand.Rand) error {
		to, _, err := c.v.Route("", &parts.Message{Key: name}, nil)
		if err != nil {
			return err
		}
		body, o, b := c.number(), make(outcome, 1), queue.NewBatch()
		m := queue.Message{Routing: &queue.RoutingInfo{Key: name}, Props: []byte{0, 0}, Body: []byte(body), Seq: 1, Flags: flags}
		if r.IntN(3) == 0 {
			m.Expiration = hook.LimitOf(int64(r.IntN(5)))
		}
		b.Messages, b.Publisher = append(b.Messages, m), o
		to[0].Publish(b)
		if err := <-o; err != nil {
			return err
		}
		if flags&queue.Persistent != 0 {
			c.confirm(body)
		}
		return nil
	}
}

// commits publishes to two queues in transactions.
func (c *movers) commits(*rand.Rand) error {
	var all []queue.Part
	body := c.number()
	for _, name := range []string{"q", "other"} {
		m, err := c.v.Queue(name, 0)
		if err != nil {
			return err
		}
		b := queue.NewBatch()
		b.Messages = append(b.Messages, queue.Message{
			Routing: &queue.RoutingInfo{Key: name}, Props: []byte{0, 0}, Body: []byte(body), Flags: queue.Persistent,
		})
		all = append(all, queue.Part{Mailbox: m, Batch: b})
	}
	if _, err := queue.Transact(all); err != nil {
		return err
	}
	c.confirm(body)
	return nil
}

// takes gets a message, and settles it in some way.
func (c *movers) takes(name string) func(r *rand.Rand) error {
	return func(r *rand.Rand) error {
		m, err := c.v.Queue(name, 0)
		if err != nil {
			return err
		}
		var halt *queue.StoppedError
		var held []queue.PendingAck
		consumer := &queue.Consumer{Queue: m}
		kind := []queue.SettleKind{queue.Ack, queue.Reject, queue.Requeue}[r.IntN(3)]
		must(c.t, m.Do(func(q *queue.Queue, now hook.Instant) {
			if halt = q.Stopped(); halt != nil {
				return
			}
			q.Get(now, consumer, func(d queue.Delivery, _ int) {
				held = append(held, queue.PendingAck{Ref: d.Ref, Consumer: consumer})
				if kind == queue.Ack {
					c.mu.Lock()
					c.settled[string(d.Body)] = true
					c.mu.Unlock()
				}
			})
		}))
		if halt != nil {
			return halt
		}
		m.Settle(kind, held)
		return nil
	}
}

func (c *movers) declares(r *rand.Rand) error {
	name := "d" + strconv.Itoa(r.IntN(3))
	if _, err := c.v.DeclareQueue(vhost.QueueDeclare{Name: name, Durable: true}); err != nil {
		return err
	}
	if err := c.v.Bind(vhost.Binding{Source: "amq.fanout", Destination: name}, 0); err != nil {
		return err
	}
	_, err := c.v.DeleteQueue(name, 0, false, false)
	return err
}

func (c *movers) redrives(*rand.Rand) error {
	r := vhost.RedriveRequest{From: "dead", To: vhost.ToQueue, Queue: "other", Count: 10, MayPublish: func(string, string) error { return nil }}
	p, err := c.v.Redrives().Plan(&r, hook.Instant(1)<<62)
	if err == nil {
		_, err = c.v.Redrives().Start(&r, &p)
	}
	if e, ok := errors.AsType[*vhost.Error](err); ok && e.Kind == vhost.Conflict { // it is being redriven
		return nil
	}
	return err
}

// everyCall is a call of each kind that clients and the management API make.
func everyCall(v *vhost.VHost) map[string]func() error {
	return map[string]func() error{
		"a connection":       func() error { return v.AddConnection(99, "user", func(string) {}) },
		"a durable queue":    func() error { _, err := v.DeclareQueue(vhost.QueueDeclare{Name: "new", Durable: true}); return err },
		"a transient queue":  func() error { _, err := v.DeclareQueue(vhost.QueueDeclare{Name: "new"}); return err },
		"the same queue":     func() error { _, err := v.DeclareQueue(vhost.QueueDeclare{Name: "q", Durable: true}); return err },
		"a passive queue":    func() error { _, err := v.CheckQueue("q", 0, false); return err },
		"an unknown queue":   func() error { _, err := v.CheckQueue("unknown", 0, false); return err },
		"a purge":            func() error { _, err := v.PurgeQueue("q", 0); return err },
		"a deletion":         func() error { _, err := v.DeleteQueue("q", 0, false, false); return err },
		"a deletion of none": func() error { _, err := v.DeleteQueue("unknown", 0, false, false); return err },
		"an exchange": func() error {
			return v.DeclareExchange(vhost.Exchange{Name: "x", Type: "topic", Durable: true}, nil)
		},
		"the same exchange": func() error {
			return v.DeclareExchange(vhost.Exchange{Name: "amq.fanout", Type: "fanout", Durable: true}, nil)
		},
		"a passive exchange":     func() error { return v.CheckExchange("amq.fanout") },
		"an exchange's deletion": func() error { return v.DeleteExchange("x", false) },
		"a binding":              func() error { return v.Bind(vhost.Binding{Source: "amq.fanout", Destination: "q"}, 0) },
		"an unbinding":           func() error { return v.Unbind(vhost.Binding{Source: "amq.fanout", Destination: "q"}, 0) },
		"a message":              func() error { _, _, err := v.Route("", &parts.Message{Key: "q"}, nil); return err },
		"a message to nothing":   func() error { _, _, err := v.Route("amq.topic", &parts.Message{Key: "q"}, nil); return err },
		"a policy": func() error {
			_, err := v.SetPolicy(policies.User, &policies.Policy{Name: "p", Pattern: ".*"})
			return err
		},
		"a limit": func() error { return v.Parameters().SetLimits(vhost.Limits{Queues: hook.LimitOf(1)}) },
		"a redrive": func() error {
			_, err := v.Redrives().Plan(&vhost.RedriveRequest{From: "q", MayPublish: func(string, string) error { return nil }}, 1)
			return err
		},
		"its end":    v.Delete,
		"a schedule": func() error { _, err := v.Schedule("unknown"); return err },
		"metadata":   func() error { return v.SetMetadata(vhost.Metadata{}) },
	}
}

// A vhost that is served elsewhere from now on leaves nothing behind: no memory, no goroutine, and no entry in the log, whatever its
// clients do. What was confirmed is in the log.
func TestMoveUnderLoad(t *testing.T) {
	for seed := range uint64(4) {
		for _, stubborn := range []bool{false, true} {
			t.Run(fmt.Sprintf("seed %d, stubborn %v", seed, stubborn), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { moveUnderLoad(t, seed, stubborn) })
			})
		}
	}
}

func moveUnderLoad(t *testing.T, seed uint64, stubborn bool) {
	t.Helper()
	memory := slab.Used()
	fs := crashfs.New(seed)
	change, told := with(t, mortal{grave{"dead"}}, 1), telemetry.New(telemetry.Options{Events: 1 << 15})
	k := open(t, fs, change, func(o *Options) { o.Telemetry = told })
	c := newMovers(k, "moved")
	clients := c.begin(stubborn)
	time.Sleep(time.Duration(10+seed*7) * time.Millisecond)
	lost := k.v.Move("moved")
	if lost == 0 {
		t.Error("no message was in memory only")
	}
	if got := movedEvent(told); got == nil || got.VHost != "/" || got.Messages != lost || got.Queues < 4 {
		t.Errorf("reported %+v, and %d messages are lost", got, lost)
	}
	synctest.Wait() // what was handed to the journal before, such as acknowledgements, is written
	appends := appendsOf(k)
	c.working.Wait()
	const text = "vhost '/' is not served by this node any more"
	for name, call := range everyCall(k.v) {
		if err := call(); err == nil || err.Error() != text || !errors.Is(err, wlog.ErrNotOwner) {
			t.Errorf("%s: got %v, want %s", name, err, text)
		}
	}
	if again := k.v.Move("moved"); again != 0 || c.evicted != clients {
		t.Errorf("moved again, %d messages are lost; %d connections of %d were evicted", again, c.evicted, clients)
	}
	time.Sleep(time.Minute)
	synctest.Wait()
	if n := appendsOf(k); n != appends {
		t.Errorf("%d entries were written after it had moved", n-appends)
	}
	if now := slab.Used(); now != memory {
		t.Errorf("%d bytes of memory are held", now-memory)
	}
	k.close()
	k = open(t, fs, change)
	checkKept(t, c, k)
	k.close()
}

// movedEvent returns what was reported about a vhost that moved, nil if nothing was.
func movedEvent(told *telemetry.Recorder) *telemetry.Notice {
	events := make([]telemetry.Event, 1<<15)
	for _, e := range events[:told.Events().Read(told.Events().First(), events)] {
		if e.Kind == telemetry.VHostMoved {
			return e.Notice
		}
	}
	return nil
}

func appendsOf(k *kept) (n uint64) {
	for _, l := range k.Logs() {
		n += l.Appends
	}
	return n
}

// A shard that another node takes over while clients use it: nobody is told that something is durable which the new owner does not
// have, and the old one has nothing left.
func TestTakenOverUnderLoad(t *testing.T) {
	for seed := range uint64(4 / fewer) {
		for _, stubborn := range []bool{false, true} {
			t.Run(fmt.Sprintf("seed %d, stubborn %v", seed, stubborn), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { takenOverUnderLoad(t, seed, stubborn) })
			})
		}
	}
}

func takenOverUnderLoad(t *testing.T, seed uint64, stubborn bool) {
	t.Helper()
	memory := slab.Used()
	m := newTeam(t, 2, with(t, mortal{grave{"dead"}}, 2))
	m.registry.in(1, "/")
	owner, next := m.nodes[0], m.nodes[1]
	m.own(1, owner)
	k := owner.serving("/")
	c := newMovers(k, "vhost '/' is not served by this node any more")
	for life := range 4 {
		c.begin(stubborn)
		time.Sleep(time.Duration(3+seed*5) * time.Millisecond)
		m.storage.SetOwner(1, next.ID())
		c.working.Wait()
		time.Sleep(2 * time.Second)
		synctest.Wait()
		owner, next = next, owner
		next.notServing("/", owner.ID())
		k = owner.serving("/")
		if c.v = k.v; life < 3 {
			_, err := c.v.DeclareQueue(vhost.QueueDeclare{Name: "passing", Exclusive: true, Owner: 1})
			must(t, err)
		}
	}
	checkKept(t, c, k)
	m.close()
	if now := slab.Used(); now != memory {
		t.Errorf("%d bytes of memory are held", now-memory)
	}
}

// checkKept checks that all that was confirmed is there, unless it was settled.
func checkKept(t *testing.T, c *movers, k *kept) {
	t.Helper()
	found := map[string]map[string]int{}
	for _, name := range []string{"q", "careful", "other", "dead"} {
		for body := k.take(k.queue(name)); body != ""; body = k.take(k.queue(name)) {
			if found[body] == nil {
				found[body] = map[string]int{}
			}
			found[body][name]++
		}
	}
	if len(c.confirmed) == 0 {
		t.Error("nothing was confirmed")
	}
	for body := range c.confirmed {
		if !c.settled[body] && len(found[body]) == 0 {
			t.Errorf("%s was confirmed and is lost", body)
		}
	}
}

// The same vhost is served again while a client still uses it as it was.
func TestMoveAndBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := crashfs.New(1)
		k := open(t, fs)
		k.put(k.declare("q"), "a", "b")
		old := k.queue("q")
		must(t, k.v.AddConnection(1, "user", func(string) {})) // it never leaves
		if lost := k.v.Move("moved"); lost != 0 {
			t.Errorf("%d messages are lost", lost)
		}
		k.close()
		again := open(t, fs)
		err := <-send(old, "c")
		if why, ok := errors.AsType[*queue.StoppedError](err); !ok || !why.Moved() {
			t.Errorf("the client that stayed got %v", err)
		}
		k.v.RemoveConnection(1)
		again.wantMessages("q", "a", "b")
		again.close()
	})
}

// The time of a vhost is that of its shard, which the node's clock may be ahead of.
func TestOffset(t *testing.T) {
	c, err := chain.New(nil, chain.Options{})
	must(t, err)
	v := vhost.New(vhost.Config{Name: "/", Chain: c, Clock: clock.New(), Offset: time.Second, Log: options(t, nil, new(logtest.Log)).Log})
	if v.Offset() != time.Second {
		t.Errorf("got %v", v.Offset())
	}
}

// A vhost goes back to the node that it is meant for only if nobody notices.
func TestAVHostThatMovesFreely(t *testing.T) {
	for name, tc := range map[string]struct {
		prepare func(k *kept, q *queue.Mailbox)
		free    bool
	}{
		"durable":     {func(k *kept, q *queue.Mailbox) { k.put(q, "m") }, true},
		"unpersisted": {func(k *kept, q *queue.Mailbox) { must(k.t, <-k.memory(q, "m")) }, false},
		"connected":   {func(k *kept, _ *queue.Mailbox) { must(k.t, k.v.AddConnection(1, "guest", func(string) {})) }, false},
		"transient": {func(k *kept, _ *queue.Mailbox) {
			_, err := k.v.DeclareQueue(vhost.QueueDeclare{Name: "t"})
			must(k.t, err)
		}, false},
		"transient exchange": {func(k *kept, _ *queue.Mailbox) {
			must(k.t, k.v.DeclareExchange(vhost.Exchange{Name: "t", Type: "fanout"}, nil))
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				k := open(t, crashfs.New(1))
				defer k.end()
				tc.prepare(k, k.declare("q"))
				if got := k.v.MovesFreely(); got != tc.free {
					t.Errorf("got %v", got)
				}
			})
		})
	}
}

// remembering is a plugin that remembers messages: of the exchanges with the argument "x-once", and of the queue "q" while they are there.
type remembering struct{ hook.NoHooks }

func (remembering) Attach(q hook.Queue) hook.Hooks {
	if q.Name() != "q" {
		return hook.Hooks{}
	}
	return hook.Hooks{
		OnEnqueue: func(_ hook.Instant, _ []hook.Message, vs []hook.Verdict) {
			for i := range vs {
				vs[i].Watch = true
			}
		},
		OnGone: func([]hook.Message) {},
	}
}

func (remembering) ExchangeArguments() []hook.ExchangeArgument {
	return []hook.ExchangeArgument{{Name: "x-once"}}
}

func (remembering) Filter(x *hook.Exchange) hook.Filter {
	if _, ok := x.Args.Lookup("x-once"); !ok {
		return nil
	}
	return func(*hook.Publishing) bool { return true }
}

// A vhost went back by itself while a plugin remembered its messages to keep duplicates out: the other node let them in.
func TestAVHostThatRemembersStays(t *testing.T) {
	for name, tc := range map[string]struct {
		prepare func(k *kept, q, other *queue.Mailbox)
		free    bool
	}{
		"nothing":            {func(*kept, *queue.Mailbox, *queue.Mailbox) {}, true},
		"a queue's messages": {func(k *kept, q, _ *queue.Mailbox) { k.put(q, "m") }, false},
		"another's":          {func(k *kept, _, other *queue.Mailbox) { k.put(other, "m") }, true},
		"an exchange's": {func(k *kept, _, _ *queue.Mailbox) {
			must(k.t, k.v.DeclareExchange(vhost.Exchange{
				Name: "x", Type: "fanout", Durable: true, Args: amqp.Table{{Key: "x-once", Value: true}},
			}, nil))
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				k := open(t, crashfs.New(1), with(t, remembering{}, 1))
				defer k.end()
				tc.prepare(k, k.declare("q"), k.declare("other"))
				if got := k.v.MovesFreely(); got != tc.free {
					t.Errorf("moves freely: %v", got)
				}
			})
		})
	}
}
