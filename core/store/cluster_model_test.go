package store

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/campaign"
	"github.com/curfewmq/curfew/core/chain"
	"github.com/curfewmq/curfew/core/parts"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/core/slab"
	"github.com/curfewmq/curfew/core/vhost"
	"github.com/curfewmq/curfew/core/wlog"
	"github.com/curfewmq/curfew/sdk/hook"
)

// Owners change at random, while clients publish with and without transactions, acknowledge, reject, declare and delete, and while
// messages expire, are dead-lettered and released. Nothing that was confirmed may be lost, or come twice, or early.

// crew is the clients of the vhost "/" of a cluster, and what they know.
type crew struct {
	t       *testing.T
	team    *team
	disks   []*scarce // of the nodes; nil = they are never full
	stop    chan struct{}
	working sync.WaitGroup

	mu     sync.Mutex // guards the rest
	next   int
	all    map[string]*fate // by body
	queues map[string]string
	terms  int
	errs   map[string]int
}

// fate is what clients know of a message.
type fate struct {
	began     time.Time
	notBefore time.Duration // after began: no consumer may have it earlier
	confirmed bool
	acked     bool // sent, at least
	gone      bool // acknowledged for good
	twice     bool // it may come twice
	with      string
}

// publishing notes a new message, and returns its body.
func (c *crew) publishing(prefix string, f fate) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.next++
	body := prefix + strconv.Itoa(c.next)
	f.began = time.Now()
	c.all[body] = &f
	return body
}

func (c *crew) note(body string, change func(f *fate)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change(c.all[body])
}

// seen checks a message that a consumer got.
func (c *crew) seen(body string) {
	c.note(body, func(f *fate) {
		if f.gone && !f.twice {
			c.t.Errorf("%s was acknowledged for good, and is here again", body)
		}
		if after := time.Since(f.began); after < f.notBefore {
			c.t.Errorf("%s is here after %v, want %v or later", body, after, f.notBefore)
		}
	})
}

// work has a client take step after step at whichever node serves the vhost.
func (c *crew) work(owner vhost.Owner, step func(k *kept, r *rand.Rand) error) {
	r := rand.New(rand.NewPCG(uint64(owner), 7))
	c.working.Go(func() {
		for {
			select {
			case <-c.stop:
				return
			case <-time.After(time.Duration(r.IntN(3000)) * time.Microsecond):
			}
			n := c.team.nodes[r.IntN(len(c.team.nodes))]
			v, here := n.VHost("/")
			if !here {
				continue
			}
			c.connect(&kept{n.Store, c.t, v, n.log}, owner, func(k *kept) error { return step(k, r) })
		}
	})
}

// connect works on a connection until that is evicted, or a step fails.
func (c *crew) connect(k *kept, owner vhost.Owner, step func(k *kept) error) {
	evicted := make(chan struct{})
	if k.v.AddConnection(owner, "user", func(string) { close(evicted) }) != nil {
		return
	}
	defer k.v.RemoveConnection(owner)
	for {
		if err := step(k); err != nil {
			c.failed(err)
			return
		}
		select {
		case <-evicted:
			return
		case <-c.stop:
			return
		case <-time.After(200 * time.Microsecond):
		}
	}
}

// failed checks why a step failed.
func (c *crew) failed(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.errs[err.Error()]++
	if !errors.Is(err, wlog.ErrNotOwner) {
		c.t.Errorf("a client got: %v", err)
	}
}

func (c *crew) publish(name string, live time.Duration, f fate) func(k *kept, r *rand.Rand) error {
	return func(k *kept, _ *rand.Rand) error {
		to, _, err := k.v.Route("", &parts.Message{Key: name}, nil)
		if err != nil {
			return err
		}
		b, o := queue.NewBatch(), make(outcome, 1)
		var bodies []string
		for range 3 {
			f := f
			f.notBefore = live
			body := c.publishing(name+" ", f)
			m := queue.Message{Routing: &queue.RoutingInfo{Key: name}, Props: []byte{0, 0}, Body: []byte(body), Flags: queue.Persistent}
			if live > 0 {
				m.Expiration = hook.LimitOf(live.Milliseconds())
			}
			bodies = append(bodies, body)
			b.Messages = append(b.Messages, m)
		}
		b.Publisher = o
		to[0].Publish(b)
		return c.confirm(<-o, bodies...)
	}
}

// confirm notes that messages were confirmed, unless there is an error.
func (c *crew) confirm(err error, bodies ...string) error {
	for _, body := range bodies {
		c.note(body, func(f *fate) { f.confirmed = err == nil })
	}
	return err
}

// schedule publishes to an exchange that holds messages.
func (c *crew) schedule(k *kept, r *rand.Rand) error {
	millis := r.IntN(100)
	body := c.publishing("held ", fate{notBefore: time.Duration(millis) * time.Millisecond})
	key, props := strconv.Itoa(millis), amqp.Properties{}
	raw := props.Append(nil)
	to, _, err := k.v.Route("x", &parts.Message{Key: key, Props: raw, Body: []byte(body)}, nil)
	if err != nil {
		return err
	}
	b, o := queue.NewBatch(), make(outcome, 1)
	b.Messages = append(b.Messages, queue.Message{
		Routing: &queue.RoutingInfo{Exchange: "x", Key: key}, Props: raw, Body: []byte(body), Flags: queue.Persistent,
	})
	b.Publisher = o
	to[0].Publish(b)
	return c.confirm(<-o, body)
}

// transact publishes to two queues in one transaction.
func (c *crew) transact(k *kept, _ *rand.Rand) error {
	var all []queue.Part
	var bodies []string
	for _, name := range []string{"q", "other"} {
		m, err := k.v.Queue(name, 0)
		if err != nil {
			return err
		}
		body := c.publishing("tx ", fate{})
		b := queue.NewBatch()
		b.Messages = append(b.Messages, queue.Message{
			Routing: &queue.RoutingInfo{Key: name}, Props: []byte{0, 0}, Body: []byte(body), Flags: queue.Persistent,
		})
		all, bodies = append(all, queue.Part{Mailbox: m, Batch: b}), append(bodies, body)
	}
	c.note(bodies[0], func(f *fate) { f.with = bodies[1] })
	c.note(bodies[1], func(f *fate) { f.with = bodies[0] })
	_, err := queue.Transact(all)
	return c.confirm(err, bodies...)
}

// take gets messages, and acknowledges, rejects or returns them.
func (c *crew) take(name string, kinds ...queue.SettleKind) func(k *kept, r *rand.Rand) error {
	return func(k *kept, r *rand.Rand) error {
		m, err := k.v.Queue(name, 0)
		if err != nil {
			return err
		}
		kind := kinds[r.IntN(len(kinds))]
		bodies, held, err := c.get(m, kind == queue.Ack)
		if err != nil || len(held) == 0 {
			return err
		}
		m.Settle(kind, held)
		if kind != queue.Ack || r.IntN(4) > 0 {
			return nil
		}
		if halt := turn(c.t, m, func(*queue.Queue, hook.Instant) {}); halt != nil { // the settlement had its turn
			return halt
		}
		if s, ok := m.Config().Storage.Journal.(*shard); ok && s.Sync() == nil {
			for _, body := range bodies {
				c.note(body, func(f *fate) { f.gone = true })
			}
		}
		return nil
	}
}

// turn calls fn on a queue's turn, unless the queue is stopped.
func turn(t *testing.T, m *queue.Mailbox, fn func(q *queue.Queue, now hook.Instant)) error {
	t.Helper()
	var halt *queue.StoppedError
	must(t, m.Do(func(q *queue.Queue, now hook.Instant) {
		if halt = q.Stopped(); halt == nil {
			fn(q, now)
		}
	}))
	if halt != nil {
		return halt
	}
	return nil
}

// get fetches up to two messages.
func (c *crew) get(m *queue.Mailbox, toAck bool) (bodies []string, held []queue.PendingAck, err error) {
	consumer := &queue.Consumer{Queue: m}
	err = turn(c.t, m, func(q *queue.Queue, now hook.Instant) {
		for range 2 {
			q.Get(now, consumer, func(d queue.Delivery, _ int) {
				held = append(held, queue.PendingAck{Ref: d.Ref, Consumer: consumer})
				bodies = append(bodies, string(d.Body))
			})
		}
	})
	for _, body := range bodies {
		c.seen(body)
		if toAck {
			c.note(body, func(f *fate) { f.acked = true })
		}
	}
	return bodies, held, err
}

// declare declares a queue, or deletes it. Only one client does, and knows.
func (c *crew) declare(name string) func(k *kept, r *rand.Rand) error {
	return func(k *kept, r *rand.Rand) error {
		c.mu.Lock()
		known := c.queues[name]
		c.queues[name] = "unknown"
		c.mu.Unlock()
		exists := k.v.Mailbox(name) != nil
		var err error
		outcome := ""
		switch {
		case known == "declared" && !exists, known == "deleted" && exists:
			if _, err = k.v.CheckQueue(name, 0, true); !errors.Is(err, wlog.ErrNotOwner) {
				c.t.Errorf("queue %s was %s; exists: %v", name, known, exists)
			}
		case r.IntN(2) == 0:
			_, err = k.v.DeclareQueue(vhost.QueueDeclare{Name: name, Durable: true})
			if err == nil {
				err = k.v.Bind(vhost.Binding{Source: "amq.fanout", Destination: name}, 0)
			}
			outcome = "declared"
		default:
			if r.IntN(2) == 0 {
				err = k.v.Unbind(vhost.Binding{Source: "amq.fanout", Destination: name}, 0)
			}
			if err == nil {
				_, err = k.v.DeleteQueue(name, 0, false, false)
			}
			outcome = "deleted"
		}
		if err != nil {
			return err
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.queues[name] = outcome
		return nil
	}
}

// describe sets parameters, so that definitions are rewritten.
func (c *crew) describe(k *kept, r *rand.Rand) error {
	_, err := k.v.Parameters().Set(vhost.Parameter{Component: "c", Name: "n", Value: []byte(`"` + strings.Repeat("x", r.IntN(20_000)) + `"`)})
	return err
}

// unrest changes the owner of shard 1 until the crew stops.
func (c *crew) unrest(r *rand.Rand) {
	for {
		pause := time.Duration(r.IntN(60)) * time.Millisecond
		if r.IntN(4) == 0 {
			pause /= 50 // while a node takes the shard over
		}
		select {
		case <-c.stop:
			return
		case <-time.After(pause):
		}
		for _, n := range c.team.nodes {
			n.SetLag(time.Duration(max(0, r.IntN(20)-10)) * time.Millisecond)
			n.SetLatency(time.Duration(r.IntN(500)) * time.Microsecond)
			n.SetReplay(time.Duration(r.IntN(30)) * time.Microsecond)
		}
		for _, d := range c.disks {
			d.full.Store(r.IntN(3) == 0)
		}
		if len(c.disks) > 0 && r.IntN(2) == 0 {
			continue // the owner stays
		}
		c.team.storage.SetOwner(1, wlog.NodeID(r.IntN(len(c.team.nodes)+1)))
		c.terms++
	}
}

func TestCampaignClusterModel(t *testing.T) {
	const short = 2
	seeds, length := campaign.Size(t, "SIMULATION_SEEDS", 1, short), time.Second
	if seeds <= short {
		length /= 4 // with less, a game may end before the first message is confirmed
	}
	for seed := range seeds {
		for _, disks := range []string{"large", "small"} {
			t.Run(fmt.Sprintf("seed %d, %s disks", seed, disks), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { clusterModel(t, seed, length, disks == "small", standbyPace{}) })
			})
			t.Run(fmt.Sprintf("seed %d, %s disks, eager standbys", seed, disks), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { clusterModel(t, seed, length, disks == "small", eager) })
			})
		}
	}
}

// eager is the pace of a standby that restores even short logs, in small steps.
var eager = standbyPace{begin: 1, end: 1, step: 1 << 10, pause: time.Millisecond, most: 5 * time.Millisecond}

// clusterModel plays a game. Small disks are full at times: then what brings more waits, and what frees space does not.
func clusterModel(t *testing.T, seed uint64, length time.Duration, small bool, pace standbyPace) {
	t.Helper()
	memory := slab.Used()
	var disks []*scarce
	m := newTeam(t, 3, func(o *Options) {
		var err error
		o.Chain, err = chain.New([]chain.Named{{Name: "clerk", Plugin: clerk{}}, {Name: "mortal", Plugin: mortal{grave{"dead"}}}}, chain.Options{})
		must(t, err)
		o.Extent, o.standby = 64<<10, pace
		if small {
			d := &scarce{Cluster: o.Cluster}
			disks, o.Cluster = append(disks, d), d
		}
	})
	m.registry.in(1, "/")
	m.own(1, m.nodes[0])
	k := m.nodes[0].serving("/")
	for _, name := range []string{"q", "careful", "other", "timed", "held", "dead"} {
		k.declare(name)
	}
	must(t, k.v.DeclareExchange(vhost.Exchange{Name: "x", Type: "x-held", Durable: true}, nil))
	must(t, k.v.Bind(vhost.Binding{Source: "x", Destination: "held"}, 0))

	c := &crew{t: t, team: m, disks: disks, stop: make(chan struct{}), all: map[string]*fate{}, queues: map[string]string{}, errs: map[string]int{}}
	for i, step := range []func(*kept, *rand.Rand) error{
		c.publish("q", 0, fate{}), c.publish("other", 0, fate{}), c.publish("careful", 0, fate{twice: true}),
		c.publish("timed", 20*time.Millisecond, fate{}), c.publish("careful", 30*time.Millisecond, fate{twice: true}),
		c.schedule, c.transact, c.take("q", queue.Ack, queue.Reject, queue.Requeue), c.take("other", queue.Ack, queue.Requeue),
		c.take("dead", queue.Ack, queue.Requeue), c.take("held", queue.Ack, queue.Requeue),
		c.declare("d1"), c.declare("d2"), c.describe,
	} {
		c.work(vhost.Owner(i+1), step)
	}
	c.working.Go(func() { c.unrest(rand.New(rand.NewPCG(seed, 1))) })
	time.Sleep(length)
	close(c.stop)
	synctest.Wait() // nobody fills a disk any more
	for _, d := range disks {
		d.full.Store(false)
	}
	c.working.Wait()
	for _, n := range m.nodes {
		n.SetLag(0)
		n.SetLatency(0)
		n.SetReplay(0)
	}
	m.own(1, m.nodes[0])
	time.Sleep(time.Second) // what expires has expired, and what is held was released
	if pace == eager {
		c.compare()
	}
	c.check(m.nodes[0].serving("/"))
	t.Logf("%d terms, %d messages, %v", c.terms, len(c.all), c.errs)
	for _, n := range m.nodes {
		if alarms := n.Alarms(); len(alarms) > 0 {
			t.Errorf("node %d has alarms %v\n%s", n.ID(), alarms, n.log.String())
		}
	}
	m.storage.SetOwner(1, 0)
	time.Sleep(time.Second)
	if now := slab.Used(); now != memory && pace == (standbyPace{}) {
		t.Errorf("%d bytes of memory are held by what no node serves", now-memory)
	}
	m.close()
	if now := slab.Used(); now != memory {
		t.Errorf("%d bytes of memory are held by nodes that have ended", now-memory)
	}
}

// compare compares what a node serves that has restored the shard while another one owned it with what one does that has replayed the log.
func (c *crew) compare() {
	c.t.Helper()
	m := c.team
	stood := m.nodes[1]
	m.own(1, stood)
	got, live := c.view(stood)
	if s := stood.log.String(); !strings.Contains(s, "bytes_before=") || strings.HasSuffix(strings.TrimSpace(s), "bytes_before=0") {
		c.t.Errorf("nothing was restored before the shard was taken over:\n%s", s)
	}
	other := m.join(func(o *Options) { o.Chain = stood.cluster.options.Chain; o.Extent = stood.cluster.options.Extent })
	m.own(1, other)
	want, wantLive := c.view(other)
	if got != want {
		c.t.Errorf("a standby has restored\n%s\nand the log has\n%s", got, want)
	}
	if live != wantLive {
		c.t.Errorf("%d bytes are live for a standby, %d in the log", live, wantLive)
	}
	m.own(1, m.nodes[0])
}

// view returns what a node serves, as text, and how many bytes of the log are live.
func (c *crew) view(n *member) (text string, live int64) {
	c.t.Helper()
	k := n.serving("/")
	s := n.cluster.seats[0].shard()
	must(c.t, s.Sync())
	live = s.Stats().Live
	var lines []string
	for _, b := range k.v.Bindings() {
		lines = append(lines, fmt.Sprintf("binding %+v", b))
	}
	for _, p := range k.v.Parameters().All() {
		lines = append(lines, fmt.Sprintf("parameter %s/%s: %s", p.Component, p.Name, p.Value))
	}
	for _, q := range k.v.Queues() {
		line := fmt.Sprintf("queue %s, number %d:", q.Config().Name, q.Config().Storage.ID)
		must(c.t, turn(c.t, q, func(q *queue.Queue, now hook.Instant) {
			for more := true; more; {
				more = false
				q.Get(now, &queue.Consumer{}, func(d queue.Delivery, _ int) {
					more = true
					line += fmt.Sprintf(" %v %s", d.Ref, d.Body)
				})
			}
		}))
		lines = append(lines, line)
	}
	slices.Sort(lines)
	return fmt.Sprintf("numbers up to %d\n%s", s.lastNumber.Load(), strings.Join(lines, "\n")), live
}

// check looks where all messages are.
func (c *crew) check(k *kept) {
	c.t.Helper()
	found := map[string][]string{}
	for _, name := range []string{"q", "careful", "other", "timed", "held", "dead"} {
		for body := k.take(k.queue(name)); body != ""; body = k.take(k.queue(name)) {
			found[body] = append(found[body], name)
			c.seen(body)
		}
	}
	confirmed := 0
	for body, f := range c.all {
		in := found[body]
		if f.confirmed {
			confirmed++
		}
		if f.confirmed && !f.acked && len(in) == 0 {
			c.t.Errorf("%s was confirmed, and is lost", body)
		}
		if len(in) > 1 && !f.twice {
			c.t.Errorf("%s is in %v", body, in)
		}
		if other := c.all[f.with]; other != nil && !f.acked && !other.acked && len(in) != len(found[f.with]) {
			c.t.Errorf("half of a transaction: %s is in %v, %s in %v", body, in, f.with, found[f.with])
		}
	}
	if confirmed < 100 {
		c.t.Errorf("only %d messages were confirmed", confirmed)
	}
	for body, in := range found {
		if c.all[body] == nil {
			c.t.Errorf("%s is in %v, and nobody has published it", body, in)
		}
	}
	for name, known := range c.queues {
		if exists := k.v.Mailbox(name) != nil; known == "declared" && !exists || known == "deleted" && exists {
			c.t.Errorf("queue %s was %s; exists: %v", name, known, exists)
		}
	}
}
