package vhost

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/definition"
	"github.com/curfewmq/curfew/core/journal"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/policies"
)

// memoryLog logs definitions in memory. It discards messages.
type memoryLog struct {
	queue.Journal
	numbers atomic.Uint64
	bulky   atomic.Bool
	wait    func() error
	between func() // called between the parts of a rewrite

	mu        sync.Mutex // guards the fields below
	written   []byte
	rewriting bool
	next      []byte // of a rewrite: its parts, and definitions that are written meanwhile
}

var _ DefinitionLog = (*memoryLog)(nil)

func (k *memoryLog) NewStorage() *queue.Storage {
	return &queue.Storage{Journal: k, ID: k.numbers.Add(1)}
}
func (k *memoryLog) NeedsCompaction() bool { return k.bulky.Load() }

func (k *memoryLog) Write(defs []byte) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.written = append(k.written, defs...)
	if k.rewriting {
		k.next = append(k.next, defs...)
	}
}

func (k *memoryLog) Rewrite(parts iter.Seq[[]byte]) {
	k.mu.Lock()
	k.rewriting = true
	k.mu.Unlock()
	parts(func(b []byte) bool {
		k.mu.Lock()
		k.next = append(k.next, b...)
		k.mu.Unlock()
		if k.between != nil {
			go k.between()
		}
		return true
	})
	k.mu.Lock()
	defer k.mu.Unlock()
	k.written, k.next, k.rewriting = k.next, nil, false
	k.bulky.Store(false)
}

func (k *memoryLog) WaitDurable() error {
	if k.wait == nil {
		return nil
	}
	return k.wait()
}

// read replays the log.
func (k *memoryLog) read(t *testing.T) *Definitions {
	t.Helper()
	return k.readBy(t, pluginRules)
}

// readBy replays the log, with policies by other rules.
func (k *memoryLog) readBy(t *testing.T, rules *policies.Rules) *Definitions {
	t.Helper()
	d := NewDefinitions(rules, nil)
	for def, err := range definition.Parse(k.written) {
		must(t, err)
		if def.VHost != "/" {
			t.Errorf("a definition of the vhost %q", def.VHost)
		}
		must(t, d.Apply(def))
	}
	must(t, d.Err())
	return d
}

// restart returns the vhost that is restored from the log.
func (k *memoryLog) restart(t *testing.T) *VHost {
	t.Helper()
	v, _ := newVHostWith(t, k)
	queues, err := v.Restore(k.read(t), func(id uint64) (*queue.Storage, error) { return &queue.Storage{Journal: k, ID: id}, nil })
	must(t, err)
	start(queues)
	if len(queues) != v.topology.queues.count() {
		t.Errorf("%d queues were made, %d are there", len(queues), v.topology.queues.count())
	}
	return v
}

// Commit implements [queue.Journal].
func (k *memoryLog) Commit([]byte, []journal.Delta, journal.Completer) {}

// Err implements [queue.Journal].
func (k *memoryLog) Err() error { return nil }

// start starts queues that were restored without messages.
func start(queues []*queue.Mailbox) {
	r := new(queue.Broker).NewRestorer()
	r.Fill(queues)
	r.Start()
}

// durable describes everything durable in a vhost.
func durable(v *VHost) string {
	var all []string
	lasting := map[string]bool{}
	for _, x := range v.Exchanges() {
		if x.Durable {
			all = append(all, fmt.Sprintf("exchange %+v", x))
			lasting["x"+x.Name] = true
		}
	}
	for _, q := range v.Queues() {
		if c := q.Config(); c.Storage != nil {
			all = append(all, fmt.Sprintf("queue %s %d %v %v", c.Name, c.Storage.ID, c.AutoDelete, c.Args))
			lasting["q"+c.Name] = true
		}
	}
	for _, b := range v.Bindings() {
		if lasting["x"+b.Source] && (b.ToExchange && lasting["x"+b.Destination] || !b.ToExchange && lasting["q"+b.Destination]) {
			all = append(all, fmt.Sprintf("binding %+v", b))
		}
	}
	slices.Sort(all)
	return strings.Join(all, "\n")
}

// A restart restores exactly the durable objects, from the whole log and from a rewrite.
func TestDefinitionsSurvive(t *testing.T) {
	for seed := range uint64(30) {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			k := &memoryLog{}
			v, _ := newVHostWith(t, k)
			r := rand.New(rand.NewPCG(seed, 1))
			for range 300 {
				disturb(t, v, r)
				k.bulky.Store(r.IntN(100) == 0)
			}
			want := durable(v)
			after := k.restart(t)
			if got := durable(after); got != want {
				t.Fatalf("after a restart there is\n%s\nwant\n%s", got, want)
			}
			k.Rewrite(slices.Values([][]byte{after.Definitions()}))
			if got := durable(k.restart(t)); got != want {
				t.Fatalf("of the rewritten definitions there is\n%s\nwant\n%s", got, want)
			}
			// Removing bindings must work on restored ones, too.
			disturb(t, after, r)
			for _, q := range after.Queues() {
				_, err := after.DeleteQueue(q.Config().Name, 0, false, false)
				must(t, err)
			}
			if n := len(after.Bindings()) - bindingsBetweenExchanges(after); n != 0 {
				t.Errorf("%d bindings lead to queues that are gone", n)
			}
		})
	}
}

func bindingsBetweenExchanges(v *VHost) (n int) {
	for _, b := range v.Bindings() {
		if b.ToExchange {
			n++
		}
	}
	return n
}

// disturb makes a random request, which may be refused.
func disturb(t *testing.T, v *VHost, r *rand.Rand) {
	t.Helper()
	pick := func(names ...string) string { return names[r.IntN(len(names))] }
	exchange := func() string { return pick("x0", "x1", "x2", "amq.topic", "amq.headers") }
	queueName := func() string { return pick("q0", "q1", "q2", "q3") }
	table := func() amqp.Table {
		return []amqp.Table{nil, args("x-a", int32(1), "b", "c"), args("b", "c", "x-a", int32(1)), args("t", amqp.Table{}, "v", nil, "n", int8(-1))}[r.IntN(4)]
	}
	binding := func() Binding {
		b := Binding{Source: exchange(), Destination: queueName(), Key: pick("", "a.b", "#"), Args: table()}
		if r.IntN(3) == 0 {
			b.Destination, b.ToExchange = exchange(), true
		}
		return b
	}
	var err error
	switch r.IntN(8) {
	case 0, 1:
		_, err = v.DeclareQueue(QueueDeclare{Name: queueName(), Durable: r.IntN(3) > 0, AutoDelete: r.IntN(4) == 0, Args: table()})
	case 2:
		_, err = v.DeleteQueue(queueName(), 0, false, false)
	case 3:
		err = v.DeclareExchange(Exchange{
			Name: exchange(), Type: pick("topic", "headers", "fanout", "direct"), Durable: r.IntN(3) > 0, AutoDelete: r.IntN(3) == 0,
			Internal: r.IntN(4) == 0, Args: args("alternate-exchange", exchange()),
		}, nil)
	case 4:
		err = v.DeleteExchange(exchange(), r.IntN(2) == 0)
	case 5:
		err = v.Unbind(binding(), 0)
	default:
		err = v.Bind(binding(), 0)
	}
	if _, refused := errors.AsType[*Error](err); err != nil && !refused {
		t.Fatal(err)
	}
}

// The same holds for concurrent requests for the same names, while each waits for a disk of its own speed, and definitions are
// rewritten meanwhile.
func TestDefinitionsSurviveManyClients(t *testing.T) {
	for seed := range uint64(30) {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { surviveManyClients(t, seed) })
		})
	}
}

func surviveManyClients(t *testing.T, seed uint64) {
	t.Helper()
	var mu sync.Mutex // guards pace
	pace := rand.New(rand.NewPCG(seed, 2))
	k := &memoryLog{}
	v, _ := newVHostWith(t, k)
	k.wait = func() error {
		mu.Lock()
		d := time.Duration(pace.IntN(3000)) * time.Microsecond
		mu.Unlock()
		time.Sleep(d)
		return nil
	}
	var all sync.WaitGroup
	for client := range uint64(6) {
		all.Go(func() {
			r := rand.New(rand.NewPCG(seed, 3+client))
			for range 100 {
				disturb(t, v, r)
				if r.IntN(30) == 0 {
					k.bulky.Store(true)
				}
			}
		})
	}
	all.Wait()
	k.wait = nil
	if v.changes.adding != 0 || v.changes.exclusive || v.exchanges.pendingBindings != 0 || len(v.queues.pending) > 0 {
		t.Errorf("changes are left: %d that add, %d bindings, %d queues", v.changes.adding, v.exchanges.pendingBindings, len(v.queues.pending))
	}
	want := durable(v)
	if got := durable(k.restart(t)); got != want {
		t.Errorf("after a restart there is\n%s\nwant\n%s", got, want)
	}
}

// A durable queue exists once its definition is durable, not before. From then on, messages that are published to it are safe.
func TestQueueComes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := make(chan error)
		k := &memoryLog{wait: func() error { return <-disk }}
		v, _ := newVHostWith(t, k)
		first, second := make(chan *queue.Mailbox, 1), make(chan *queue.Mailbox, 1)
		declare := func(c chan<- *queue.Mailbox, durable bool) {
			d, err := v.DeclareQueue(QueueDeclare{Name: "q", Durable: durable})
			if want := durable; (err == nil) != want {
				t.Errorf("durable=%v: got error %v", durable, err)
			}
			c <- d.Mailbox
		}
		go declare(first, true)
		synctest.Wait()
		go declare(second, true)
		third := make(chan *queue.Mailbox, 1)
		go declare(third, false) // it waits, too, and is then refused as not equivalent
		synctest.Wait()
		_, err := v.Queue("q", 0)
		want(t, err, NotFound, "no queue 'q' in vhost '/'")
		if got := names(t, v, "", "q"); got != "" {
			t.Errorf("a message is routed to %s", got)
		}
		if got := len(k.read(t).queues); got != 1 {
			t.Errorf("%d queues are written down, want 1", got)
		}
		k.bulky.Store(true)
		go v.CompactDefinitions() // it waits for the queue: it would leave it out
		synctest.Wait()
		if !k.bulky.Load() {
			t.Error("definitions are rewritten while a queue comes")
		}

		disk <- nil
		if a, b := <-first, <-second; a == nil || a != b {
			t.Errorf("got %p and %p, want one queue", a, b)
		}
		<-third
		synctest.Wait()
		if k.bulky.Load() || len(k.read(t).queues) != 1 {
			t.Errorf("of the rewritten definitions there are %d queues, want 1", len(k.read(t).queues))
		}
	})
}

// A queue whose definition could not be written does not exist, and can be declared again.
func TestQueueDoesNotCome(t *testing.T) {
	broken := errors.New("input/output error")
	k := &memoryLog{wait: func() error { return broken }}
	v, _ := newVHostWith(t, k)
	_, err := v.DeclareQueue(QueueDeclare{Name: "q", Durable: true})
	want(t, err, Stopped, "vhost '/': definitions cannot be kept: shard 0 failed, see the broker logfile")
	if !errors.Is(err, broken) {
		t.Errorf("got error %#v, want it to say why", err)
	}
	_, err = v.Queue("q", 0)
	want(t, err, NotFound, "no queue 'q' in vhost '/'")
	k.wait = nil
	declare(t, v, "q")
}

// Transient objects are not written, and do not wait for the disk.
func TestTransientIsNotWritten(t *testing.T) {
	k := &memoryLog{wait: func() error { return errors.New("it was waited") }}
	v, _ := newVHostWith(t, k)
	for _, d := range []QueueDeclare{{Name: "q"}, {Name: "e", Durable: true, Exclusive: true, Owner: 1}} {
		_, err := v.DeclareQueue(d)
		must(t, err)
		must(t, v.Bind(Binding{Source: "amq.topic", Destination: d.Name, Key: "k"}, 1))
		must(t, v.Unbind(Binding{Source: "amq.topic", Destination: d.Name, Key: "k"}, 1))
	}
	exchangeOf(t, v, "x", "fanout")
	bindExchange(t, v, "amq.topic", "x", "k")
	must(t, v.DeleteExchange("x", false))
	_, err := v.DeleteQueue("q", 0, false, false)
	must(t, err)
	v.RemoveConnection(1)
	if len(k.written) > 0 {
		t.Errorf("%q was written", k.written)
	}
}

// A queue is restored even if a plugin no longer accepts its arguments.
func TestRestoreChecksNoArguments(t *testing.T) {
	k := &memoryLog{}
	v, _ := newVHostWith(t, k)
	k.Write(amqp.AppendTable(nil, v.changes.defineQueue(&queue.Config{
		Profile: &queue.Profile{Args: hookArgs(args("x-expires", "soon", "x-queue-type", "quorum"))},
		Name:    "q", Storage: &queue.Storage{ID: 7},
	})))
	v = k.restart(t)
	s, err := v.Queue("q", 0)
	must(t, err)
	if c := s.Config(); c.Kind != queue.Quorum || c.Storage.ID != 7 || !c.Durable {
		t.Errorf("got %+v", c)
	}
}

func TestMalformedDefinitions(t *testing.T) {
	field := func(k string, v any) amqp.Field { return amqp.Field{Key: k, Value: v} }
	def := func(op string, fields ...amqp.Field) amqp.Table {
		return append(amqp.Table{field("op", op), field("vhost", "/")}, fields...)
	}
	for _, tt := range []struct {
		name string
		def  amqp.Table
		want string
	}{
		{"no op", amqp.Table{field("vhost", "/")}, `definition "": op is missing`},
		{"no vhost", amqp.Table{field("op", "bind")}, `definition "bind": vhost is missing`},
		{"op of another type", amqp.Table{field("op", int32(1))}, `definition "": op is of type signedint`},
		{"unknown op", def("drop"), `definition "drop": is unknown`},
		{"no name", def(opDeleteQueue), `definition "queue.delete": name is missing`},
		{"id of another type", def(opDeclareQueue, field("name", "q"), field("id", "1")), `definition "queue.declare": id is of type longstr`},
		{
			"type of exchange", def(opDeclareExchange, field("name", "x"), field("type", ""), field("auto-delete", false), field("internal", false), field("arguments", amqp.Table{})),
			`definition "exchange.declare": exchange "x" has no type`,
		},
		{
			"nothing to bind", def(opBind, field("source", "amq.topic"), field("destination", "q"), field("to-exchange", false), field("key", ""), field("arguments", amqp.Table{})),
			`definition "bind": there is nothing to bind "amq.topic" to "q"`,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := NewDefinitions(pluginRules, nil)
			var got error
			for def, err := range definition.Parse(amqp.AppendTable(nil, tt.def)) {
				if got = err; err == nil {
					got = d.Apply(def)
				}
			}
			got = cmp.Or(got, d.Err())
			if fmt.Sprint(got) != tt.want {
				t.Errorf("got %v\nwant %s", got, tt.want)
			}
		})
	}
}

// After 10,000 exchanges had been deleted, a restart took a minute: each deletion looked at all exchanges that were there then.
func TestDeletionsLookAtTheirOwnBindings(t *testing.T) {
	k := &memoryLog{}
	v, _ := newVHostWith(t, k)
	for _, q := range []string{"q", "r"} {
		_, err := v.DeclareQueue(QueueDeclare{Name: q, Durable: true})
		must(t, err)
	}
	for round := range 2 {
		for i := range 20 {
			x := strconv.Itoa(i)
			must(t, v.DeclareExchange(Exchange{Name: x, Type: "fanout", Durable: true}, nil))
			must(t, v.Bind(Binding{Source: x, Destination: "q"}, 0))
			if round == 0 {
				must(t, v.Bind(Binding{Source: x, Destination: "r"}, 0))
				must(t, v.Bind(Binding{Source: x, Destination: x, ToExchange: true}, 0))
			}
		}
		d := k.read(t)
		for i := range 20 {
			if n := d.exchanges[strconv.Itoa(i)].table.Len(); n != 3-2*round {
				t.Errorf("round %d: exchange %d has %d bindings", round, i, n)
			}
		}
		for i := range 20 {
			must(t, v.DeleteExchange(strconv.Itoa(i), false))
		}
	}
	for to, sources := range k.read(t).sources {
		if len(sources) > 0 {
			t.Errorf("%v is bound to %v, which are deleted", to, sources)
		}
	}
}

// Parsing arbitrary bytes does not panic.
func FuzzDefinitions(f *testing.F) {
	k := &memoryLog{}
	v, _ := newVHostWith(f, k)
	_, err := v.DeclareQueue(QueueDeclare{Name: "q", Durable: true, Args: args("x-expires", int32(1000))})
	must(f, err)
	must(f, v.DeclareExchange(Exchange{Name: "x", Type: "headers", Durable: true, Args: args("alternate-exchange", "y")}, nil))
	must(f, v.Bind(Binding{Source: "x", Destination: "q", Args: args("x-match", "all")}, 0))
	must(f, v.Bind(Binding{Source: "amq.topic", Destination: "x", ToExchange: true, Key: "#"}, 0))
	must(f, v.Unbind(Binding{Source: "x", Destination: "q", Args: args("x-match", "all")}, 0))
	must(f, v.DeleteExchange("x", false))
	f.Add(k.written)
	f.Add(v.Definitions())
	f.Fuzz(func(t *testing.T, b []byte) {
		d := NewDefinitions(pluginRules, nil)
		for def, err := range definition.Parse(b) {
			if err != nil || d.Apply(def) != nil {
				return
			}
		}
		v, _ := newVHostWith(t, &memoryLog{})
		queues, err := v.Restore(d, func(id uint64) (*queue.Storage, error) { return &queue.Storage{Journal: &memoryLog{}, ID: id}, nil })
		if err != nil {
			return // two have one number
		}
		start(queues)
		for _, s := range v.Queues() {
			_, err := v.DeleteQueue(s.Config().Name, 0, false, false)
			must(t, err)
		}
	})
}

// Each field of a definition that was replayed took two closures, so that a restart allocated two thirds more for its queues
// and bindings.
func TestReadingFieldsAllocatesOnlyTheirList(t *testing.T) {
	q := definedQueue{name: "q", id: 1, args: amqp.Table{}}
	v, _ := newVHost(t)
	for d, err := range definition.Parse(amqp.AppendTable(nil, v.changes.define(opDeclareQueue, q.fields()...))) {
		must(t, err)
		var got definedQueue
		if n := testing.AllocsPerRun(100, func() { _ = read(d, got.fields()...) }); n > 1 || got.name != "q" {
			t.Errorf("%v allocations for %+v", n, got)
		}
	}
}
