package vhost

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/parts"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/core/telemetry"
	"github.com/curfewmq/curfew/sdk/hook"
)

// restarted returns the vhost that is restored from the log, with these plugins.
func (k *memoryLog) restarted(t *testing.T, offers ...hook.Plugin) *VHost {
	t.Helper()
	v, _ := offering(t, k, offers...)
	queues, err := v.Restore(k.read(t), func(id uint64) (*queue.Storage, error) { return &queue.Storage{Journal: k, ID: id}, nil })
	must(t, err)
	start(queues)
	return v
}

// An exchange whose plugin is gone stays with its bindings, refuses messages, and works again when the plugin is back.
func TestMissingExchangeType(t *testing.T) {
	k, routers := &memoryLog{}, map[string]*prefixes{}
	o := &offer{types: []hook.ExchangeType{prefixType(t, routers)}}
	v, _ := offering(t, k, o)
	for _, q := range []string{"a", "b", "from"} {
		declare(t, v, q)
	}
	x := Exchange{Name: "x", Type: "x-prefix", Durable: true, Args: args("x-header", "h", "alternate-exchange", "amq.fanout")}
	must(t, v.DeclareExchange(x, nil))
	must(t, v.DeclareExchange(Exchange{Name: "y", Type: "x-prefix", Durable: true, AutoDelete: true}, nil))
	bind(t, v, "x", "a", "k", "weight", int32(1))
	bind(t, v, "x", "b", "k")
	bind(t, v, "y", "a", "k")
	bindExchange(t, v, "amq.direct", "y", "k")
	before := durable(v)

	v = k.restarted(t)
	if got := durable(v); got != before {
		t.Fatalf("without the plugin: got\n%s\nwant\n%s", got, before)
	}
	if got := v.MissingTypes(); len(got) != 1 || got["x-prefix"] != 2 {
		t.Errorf("missing types: %v", got)
	}
	const refusal = "Cannot route message through exchange 'x' in vhost '/': exchange type x-prefix not found"
	_, _, err := v.Route("x", &parts.Message{Key: "k"}, nil)
	want(t, err, Precondition, refusal)
	want(t, v.Publishable("x"), Precondition, refusal)
	_, _, err = v.Route("amq.direct", &parts.Message{Key: "k"}, nil)
	want(t, err, Precondition, strings.ReplaceAll(refusal, "'x'", "'y'"))
	want(t, v.DeclareExchange(x, nil), Precondition, "unknown exchange type 'x-prefix'")
	must(t, v.CheckExchange("x"))
	bind(t, v, "x", "a", "later") // RabbitMQ accepts any, too
	must(t, v.Unbind(Binding{Source: "x", Destination: "b", Key: "k"}, 0))
	must(t, v.Unbind(Binding{Source: "y", Destination: "a", Key: "k"}, 0))
	if _, exists := v.Exchange("y"); exists {
		t.Error("y is there without bindings")
	}
	v.consistent(t)
	synctest.Test(t, func(t *testing.T) {
		v := k.restarted(t)
		die(v, v.Mailbox("from"), hook.ReasonExpired, &hook.Target{Exchange: "x"}, text("m"))
		if got := dead(v, hook.ReasonExpired); got != (outcomes{telemetry.Unroutable: 1}) {
			t.Errorf("a dead letter: %v", got)
		}
	})
	k.bulky.Store(true)
	v.CompactDefinitions()

	v = k.restarted(t, o)
	if n := len(v.MissingTypes()); n > 0 {
		t.Errorf("%d types are missing with the plugin back", n)
	}
	if r := routers["x"]; r.header != "h" || len(r.bindings) != 2 {
		t.Errorf("the router has %+v", r.bindings)
	}
	must(t, v.DeclareExchange(x, nil))
	p := amqp.Properties{Headers: args("h", "v")}
	p.Set(amqp.PropHeaders)
	queues, _, err := v.Route("x", &parts.Message{Key: "later", Props: p.Append(nil)}, nil)
	must(t, err)
	if join(queues) != "a" {
		t.Errorf("goes to %q", join(queues))
	}
	must(t, v.DeleteExchange("x", false))
}

// A restart binds each of many bindings once, and prepares once.
func TestRestartWithManyBindings(t *testing.T) {
	const queues, keys = 50, 60
	k, routers := &memoryLog{}, map[string]*prefixes{}
	o := &offer{types: []hook.ExchangeType{prefixType(t, routers)}}
	v, _ := offering(t, k, o)
	must(t, v.DeclareExchange(Exchange{Name: "x", Type: "x-prefix", Durable: true}, nil))
	for q := range queues {
		declare(t, v, strconv.Itoa(q))
		for key := range keys {
			bind(t, v, "x", strconv.Itoa(q), fmt.Sprintf("%d.%d", q, key))
		}
	}
	names := func() (all []string) {
		for _, b := range routers["x"].bindings {
			all = append(all, b.Name+" "+b.Key)
		}
		slices.Sort(all)
		return all
	}
	before := names()
	v = k.restarted(t, o)
	if got := names(); !slices.Equal(got, before) || len(got) != queues*keys {
		t.Errorf("%d bindings after the restart, %d before", len(got), len(before))
	}
	for range 3 {
		_, _, err := v.Route("x", &parts.Message{Key: "7.7"}, nil)
		must(t, err)
	}
	if n := routers["x"].prepared; n != 1 {
		t.Errorf("Prepare was called %d times", n)
	}
}

// turns is a router that leads each message to the next destination.
type turns struct {
	mu   sync.Mutex
	list []hook.Destination
	next int
	body bool // the body decides
}

func (r *turns) Bind(b *hook.Binding) { r.list = append(r.list, b.Destination) }
func (r *turns) Unbind(b *hook.Binding) {
	r.list = slices.DeleteFunc(r.list, func(d hook.Destination) bool { return d == b.Destination })
}

func (r *turns) Route(m *hook.Publishing, dst []hook.Destination) []hook.Destination {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.body {
		n, _ := strconv.Atoi(string(m.Part(hook.PartBody)))
		return append(dst, r.list[n%len(r.list)])
	}
	r.next++
	return append(dst, r.list[r.next%len(r.list)])
}

// Dead letters that differ in nothing but their bodies were routed together: a plugin is asked about each, if it wants to be or reads
// bodies.
func TestDeadLettersThroughPlugins(t *testing.T) {
	for _, byBody := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			r := &turns{body: byBody}
			v, _ := offering(t, nil, &offer{types: []hook.ExchangeType{{
				Name: "x-turns", Volatile: !byBody, New: func(*hook.Exchange) hook.Router { return r },
			}}})
			from := declare(t, v, "from")
			exchangeOf(t, v, "x", "x-turns")
			for _, q := range []string{"a", "b"} {
				declare(t, v, q)
				bind(t, v, "x", q, "")
			}
			die(v, from, hook.ReasonExpired, &hook.Target{Exchange: "x"}, text("0"), text("1"), text("2"), text("3"))
			a, b := bodies(drain(t, v.Mailbox("a"))), bodies(drain(t, v.Mailbox("b")))
			if byBody && (a != "0 2" || b != "1 3") || !byBody && (a != "1 3" || b != "0 2") {
				t.Errorf("by body: %v: a has %q, b %q", byBody, a, b)
			}
			if got := dead(v, hook.ReasonExpired); got != (outcomes{telemetry.DeadLettered: 4}) {
				t.Errorf("got %v", got)
			}
		})
	}
}

// A filter is asked once about each dead letter. Dead letters that it keeps out are counted so, and a panic drops the message for want of a
// route.
func TestFilteredDeadLetters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seen := map[string]int{}
		v, c := offering(t, nil, &offer{filter: func(x *hook.Exchange) hook.Filter {
			if x.Name != "once" {
				return nil
			}
			return func(m *hook.Publishing) bool { // keeps repeated bodies out
				body := string(m.Part(hook.PartBody))
				if body == "panic" {
					panic(body)
				}
				if string(m.Part(hook.PartExchange)) != "once" || string(m.Part(hook.PartRoutingKey)) != "key" || m.Now == 0 {
					t.Errorf("the filter sees exchange %q, key %q, now %d", m.Part(hook.PartExchange), m.Part(hook.PartRoutingKey), m.Now)
				}
				if reason, _ := m.HeaderText("x-first-death-reason"); string(reason) != "expired" {
					t.Errorf("the filter sees the reason %q", reason)
				}
				seen[body]++
				return seen[body] == 1
			}
		}})
		from := declare(t, v, "from")
		to := declare(t, v, "to")
		exchangeOf(t, v, "once", "fanout")
		bind(t, v, "once", "to", "")
		die(v, from, hook.ReasonExpired, &hook.Target{Exchange: "once"}, text("a"), text("b"), text("a"), text("panic"), text("c"))
		if got := bodies(drain(t, to)); got != "a b c" {
			t.Errorf("arrived: %q", got)
		}
		want := outcomes{telemetry.DeadLettered: 3, telemetry.Filtered: 1, telemetry.Unroutable: 1}
		if got := dead(v, hook.ReasonExpired); got != want {
			t.Errorf("got %v, want %v", got, want)
		}
		if c.Filtered()["offer1"] != 1 {
			t.Errorf("filtered: %v", c.Filtered())
		}
		again := []queue.DeadLetter{
			{Key: []byte("key"), Props: []byte{0, 0}, Body: []byte("a"), Reason: hook.ReasonExpired, Target: &hook.Target{Exchange: "once"}, Admitted: true},
			{Key: []byte("key"), Props: []byte{0, 0}, Body: []byte("b"), Reason: hook.ReasonExpired, Target: &hook.Target{Exchange: "once"}},
		}
		again[1].Target = again[0].Target
		v.QueueHost().DeadLetter(from.Config(), second, again, queue.Tracking{})
		synctest.Wait()
		if again[0].Outcome != telemetry.DeadLettered || again[1].Outcome != telemetry.Filtered {
			t.Errorf("a retry: %v, and after it a repeated message: %v", again[0].Outcome, again[1].Outcome)
		}
	})
}

// A dead letter that has to arrive at least once was not asked about after a first attempt that no filter saw, or that made it panic.
func TestDeadLetterWasNotAdmitted(t *testing.T) {
	for _, tt := range []struct {
		name     string
		first    func() bool // the filter at first; nil means that there is no exchange yet
		admitted bool
		want     telemetry.Outcome
	}{
		{"admitted", func() bool { return true }, true, telemetry.DeadLettered},
		{"no exchange", nil, false, telemetry.Filtered},
		{"panic", func() bool { panic("filter") }, false, telemetry.Filtered},
	} {
		synctest.Test(t, func(t *testing.T) {
			filter := tt.first
			v, _ := offering(t, nil, &offer{filter: func(*hook.Exchange) hook.Filter {
				return func(*hook.Publishing) bool { return filter() }
			}})
			from := declare(t, v, "from")
			declare(t, v, "to")
			create := func() {
				exchangeOf(t, v, "x", "fanout")
				bind(t, v, "x", "to", "")
			}
			if tt.first != nil {
				create()
			}
			ds := []queue.DeadLetter{{
				Key: []byte("key"), Props: []byte{0, 0}, Body: []byte("a"), Reason: hook.ReasonExpired, Target: &hook.Target{Exchange: "x"},
			}}
			v.QueueHost().DeadLetter(from.Config(), second, ds, queue.Tracking{})
			if ds[0].Admitted != tt.admitted {
				t.Errorf("%s: admitted: %v", tt.name, ds[0].Admitted)
			}
			if tt.first == nil {
				create()
			}
			filter = func() bool { return false }
			v.QueueHost().DeadLetter(from.Config(), second, ds, queue.Tracking{})
			if ds[0].Outcome != tt.want {
				t.Errorf("%s: %v, want %v", tt.name, ds[0].Outcome, tt.want)
			}
			synctest.Wait()
		})
	}
}

// A retry of a dead letter reached the exchange that had kept it out, if a queue of another exchange had refused it.
func TestRetryIsKeptOutAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v, _ := offering(t, nil, &offer{filter: func(x *hook.Exchange) hook.Filter {
			if x.Name != "closed" {
				return nil
			}
			return func(*hook.Publishing) bool { return false }
		}})
		from := declare(t, v, "from")
		exchangeOf(t, v, "outer", "fanout")
		exchangeOf(t, v, "closed", "fanout")
		bindExchange(t, v, "outer", "closed", "")
		for exchange, q := range map[string]string{"outer": "open", "closed": "never"} {
			declare(t, v, q)
			bind(t, v, exchange, q, "")
		}
		ds := []queue.DeadLetter{{
			Key: []byte("key"), Props: []byte{0, 0}, Body: []byte("a"), Reason: hook.ReasonExpired, Target: &hook.Target{Exchange: "outer"},
		}}
		for range 2 {
			v.QueueHost().DeadLetter(from.Config(), second, ds, queue.Tracking{})
			if ds[0].Sent != 1 || ds[0].Admitted {
				t.Errorf("sent to %d queues, admitted: %v", ds[0].Sent, ds[0].Admitted)
			}
		}
		synctest.Wait()
		if got := bodies(drain(t, v.Mailbox("never"))); got != "" {
			t.Errorf("the closed exchange led to %q", got)
		}
	})
}

// Dead letters that differ in nothing but their bodies went where the first went if a filter kept that out of one exchange while
// another had queues for it: the filter was not asked about the others.
func TestFilterIsAskedAboutEachDeadLetter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v, _ := offering(t, nil, &offer{filter: func(x *hook.Exchange) hook.Filter {
			if x.Name != "even" {
				return nil
			}
			asked := 0
			return func(*hook.Publishing) bool { asked++; return asked%2 == 0 }
		}})
		from := declare(t, v, "from")
		exchangeOf(t, v, "outer", "fanout")
		exchangeOf(t, v, "even", "fanout")
		bindExchange(t, v, "outer", "even", "")
		for exchange, q := range map[string]string{"outer": "all", "even": "half"} {
			declare(t, v, q)
			bind(t, v, exchange, q, "")
		}
		die(v, from, hook.ReasonExpired, &hook.Target{Exchange: "outer"}, text("1"), text("2"), text("3"), text("4"))
		for q, want := range map[string]string{"all": "1 2 3 4", "half": "2 4"} {
			if got := bodies(drain(t, v.Mailbox(q))); got != want {
				t.Errorf("%s: got %q, want %q", q, got, want)
			}
		}
	})
}

// Routers get no concurrent calls except of Route, whatever clients do: the race detector watches prefixes, which has no lock.
func TestConcurrentPluginExchanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var created atomic.Int64
		kind := prefixType(t, map[string]*prefixes{})
		kind.New = func(*hook.Exchange) hook.Router { created.Add(1); return &prefixes{t: t} }
		v, c := offering(t, nil, &offer{
			types:  []hook.ExchangeType{kind},
			filter: func(*hook.Exchange) hook.Filter { return func(m *hook.Publishing) bool { return m.Key != "no" } },
		})
		var all sync.WaitGroup
		for worker := range 8 {
			all.Go(func() {
				r := rand.New(rand.NewPCG(7, uint64(worker)))
				for range 400 {
					pluginStep(t, v, r)
				}
			})
		}
		all.Wait()
		v.consistent(t)
		if created.Load() < 3 {
			t.Errorf("only %d exchanges were created", created.Load())
		}
		if fs := c.Faults(); len(fs) > 0 {
			t.Errorf("faults: %+v", fs)
		}
	})
}

// pluginStep makes a random request about exchanges x0 to x2 and queues q0 to q3.
func pluginStep(t *testing.T, v *VHost, r *rand.Rand) {
	t.Helper()
	x, y, q := "x"+strconv.Itoa(r.IntN(3)), "x"+strconv.Itoa(r.IntN(3)), "q"+strconv.Itoa(r.IntN(4))
	key := strconv.Itoa(r.IntN(3))
	var err error
	switch r.IntN(12) {
	case 0:
		err = v.DeclareExchange(Exchange{Name: x, Type: "x-prefix", AutoDelete: r.IntN(2) == 0, Args: args("alternate-exchange", y)}, nil)
	case 1:
		_, err = v.DeclareQueue(QueueDeclare{Name: q})
	case 2, 3:
		err = v.Bind(Binding{Source: x, Destination: q, Key: key}, 0)
	case 4:
		err = v.Bind(Binding{Source: x, Destination: y, ToExchange: true, Key: key}, 0)
	case 5:
		err = v.Unbind(Binding{Source: x, Destination: q, Key: key}, 0)
	case 6:
		_, err = v.DeleteQueue(q, 0, false, false)
	case 7:
		if r.IntN(4) == 0 {
			err = v.DeleteExchange(x, false)
		}
	default:
		_, _, err = v.Route(x, &parts.Message{Key: key, More: []string{"no", strconv.Itoa(r.IntN(3))}}, nil)
	}
	if e, ok := err.(*Error); ok && (e.Kind == NotFound || e.Kind == Precondition) { //nolint:errorlint // it is not wrapped
		return
	}
	must(t, err)
}

// remembers is a Router that leads a body to its bindings once.
type remembers struct {
	to   []hook.Destination
	seen map[string]bool
}

func (r *remembers) Bind(b *hook.Binding) { r.to = append(r.to, b.Destination) }
func (*remembers) Unbind(*hook.Binding)   {}

func (r *remembers) Route(m *hook.Publishing, dst []hook.Destination) []hook.Destination {
	body := string(m.Part(hook.PartBody))
	if m.Filtered = r.seen[body] && !m.Again; m.Filtered {
		return dst
	}
	r.seen[body] = true
	return append(dst, r.to...)
}

// A type that remembers messages took a dead letter that was tried again for its own duplicate, which its queue then held forever.
// Nothing counted duplicates but as unroutable.
func TestRetryThroughATypeThatRemembers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v, c := offering(t, nil, &offer{types: []hook.ExchangeType{{
			Name: "x-once", Volatile: true, New: func(*hook.Exchange) hook.Router { return &remembers{seen: map[string]bool{}} },
		}}})
		from, to, others := declare(t, v, "from"), declare(t, v, "to"), declare(t, v, "others")
		exchangeOf(t, v, "x", "x-once")
		exchangeOf(t, v, "y", "x-once", "alternate-exchange", "amq.fanout")
		bind(t, v, "amq.fanout", "others", "")
		target := &hook.Target{Exchange: "x"}
		letter := queue.DeadLetter{Key: []byte("key"), Props: []byte{0, 0}, Body: []byte("a"), Reason: hook.ReasonExpired, Target: target}
		ds := []queue.DeadLetter{letter}
		send := func() telemetry.Outcome {
			v.QueueHost().DeadLetter(from.Config(), second, ds, queue.Tracking{})
			synctest.Wait()
			return ds[0].Outcome
		}
		if got := send(); got != telemetry.Unroutable {
			t.Errorf("without a binding: %v", got)
		}
		bind(t, v, "x", "to", "")
		bind(t, v, "y", "to", "")
		if got := send(); got != telemetry.DeadLettered {
			t.Errorf("a retry: %v", got)
		}
		ds[0] = letter
		if got := send(); got != telemetry.Filtered {
			t.Errorf("a duplicate: %v", got)
		}
		target.Exchange = "y"
		for _, want := range []string{"a a", ""} {
			ds[0] = letter
			if got := send(); got != telemetry.DeadLettered {
				t.Errorf("through an exchange with an alternate exchange: %v", got)
			}
			if got := bodies(drain(t, to)); got != want {
				t.Errorf("arrived: %q, want %q", got, want)
			}
		}
		if got := bodies(drain(t, others)); got != "a" {
			t.Errorf("the alternate exchange got %q", got)
		}
		if got := c.Filtered()["offer1"]; got != 2 {
			t.Errorf("counted %d messages as filtered, want 2", got)
		}
	})
}
