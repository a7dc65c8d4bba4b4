package vhost

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/curfewmq/curfew/core/definition"
	"github.com/curfewmq/curfew/policies"
)

// everything describes all durable objects, and the state that follows from them.
func everything(v *VHost) string {
	p := v.Policies()
	return fmt.Sprintln(durable(v), p.List(policies.User), p.List(policies.Operator), v.Parameters().All(), v.Parameters().Limits(), v.Metadata(), v.Generation())
}

// A change whose definition cannot be written has no effect, and no other client sees it meanwhile. Exchanges, bindings,
// policies and parameters used to change in memory first, were used by others at once, and stayed when the disk failed.
func TestChangeThatCannotBeKept(t *testing.T) {
	routed := Binding{Source: "x", Destination: "q", Key: "k"}
	for _, tt := range []struct {
		name   string
		change func(v *VHost) error
	}{
		{"queue.declare", func(v *VHost) error {
			_, err := v.DeclareQueue(QueueDeclare{Name: "new", Durable: true})
			return err
		}},
		{"exchange.declare", func(v *VHost) error {
			return v.DeclareExchange(Exchange{Name: "new", Type: "topic", Durable: true}, nil)
		}},
		{"exchange.delete", func(v *VHost) error { return v.DeleteExchange("x", false) }},
		{"queue.bind", func(v *VHost) error { return v.Bind(Binding{Source: "x", Destination: "q", Key: "new"}, 0) }},
		{"exchange.bind", func(v *VHost) error {
			return v.Bind(Binding{Source: "amq.topic", Destination: "x", ToExchange: true, Key: "new"}, 0)
		}},
		{"queue.unbind", func(v *VHost) error { return v.Unbind(routed, 0) }},
		{"set policy", func(v *VHost) error {
			_, err := v.SetPolicy(policies.User, policy(t, policies.User, "new", "", 3, "message-ttl", int64(4000)))
			return err
		}},
		{"clear policy", func(v *VHost) error { _, err := v.ClearPolicy(policies.User, "p"); return err }},
		{"set parameter", func(v *VHost) error {
			_, err := v.Parameters().Set(Parameter{Component: "c", Name: "new", Value: json.RawMessage("1")})
			return err
		}},
		{"clear parameter", func(v *VHost) error { _, err := v.Parameters().Clear("c", "n"); return err }},
		{"limits", func(v *VHost) error { return v.Parameters().SetLimits(Limits{}) }},
		{"metadata", func(v *VHost) error { return v.SetMetadata(Metadata{Description: "new"}) }},
		{"delete vhost", func(v *VHost) error { return v.Delete() }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				k := &memoryLog{}
				v, _ := newVHostWith(t, k)
				declare(t, v, "q")
				must(t, v.DeclareExchange(Exchange{Name: "x", Type: "direct", Durable: true, AutoDelete: true}, nil))
				must(t, v.Bind(routed, 0))
				setPolicy(t, v, policies.User, policy(t, policies.User, "p", "", 3, "message-ttl", int64(5000)))
				must(t, v.setParameter("c", "n", "1"))
				must(t, v.setParameter(limitsComponent, limitsName, `{"max-queues": 7}`))
				before := everything(v)

				disk, outcome := make(chan error), make(chan error)
				k.wait = func() error { return <-disk }
				go func() { outcome <- tt.change(v) }()
				synctest.Wait()
				if got := everything(v); got != before {
					t.Errorf("while the disk was written there was\n%s\nwant\n%s", got, before)
				}
				disk <- errors.New("input/output error")
				want(t, <-outcome, Stopped, "vhost '/': definitions cannot be kept: shard 0 failed, see the broker logfile")
				if got := everything(v); got != before {
					t.Errorf("afterwards there was\n%s\nwant\n%s", got, before)
				}
				must(t, v.AddConnection(1, "u", func(string) {}))

				k.wait = nil
				must(t, tt.change(v))
				if tt.name != "delete vhost" && everything(v) == before {
					t.Error("once the disk is well the change is not made")
				}
			})
		})
	}
}

// A queue is not deleted if a restart is known to restore it.
func TestQueueStaysThatWouldComeBack(t *testing.T) {
	k := &memoryLog{}
	v, _ := newVHostWith(t, k)
	declare(t, v, "q")
	v.FailDefinitions(errors.New("input/output error"))
	_, err := v.DeleteQueue("q", 0, false, false)
	want(t, err, Stopped, "vhost '/': definitions cannot be kept: shard 0 failed, see the broker logfile")
	_, err = v.Queue("q", 0)
	must(t, err)
}

// Additive changes wait for the disk together. Exclusive changes wait for them, and later additive changes wait for the exclusive ones.
func TestChangesShareTheDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := make(chan error)
		k := &memoryLog{}
		v, _ := newVHostWith(t, k)
		for n := range 4 {
			declare(t, v, strconv.Itoa(n))
		}
		k.wait = func() error { return <-disk }
		did := make(chan error, 4)
		bound := func(n int) Binding { return Binding{Source: "amq.topic", Destination: strconv.Itoa(n), Key: "k"} }
		for n := range 2 {
			go func() { did <- v.Bind(bound(n), 0) }()
		}
		synctest.Wait()
		go func() { did <- v.DeleteExchange("nope", false) }() // nothing to do
		synctest.Wait()
		must(t, <-did)
		go func() { did <- v.Unbind(bound(0), 0) }()
		synctest.Wait()
		go func() { did <- v.Bind(bound(2), 0) }()
		synctest.Wait()
		if n := len(did); n != 0 || len(v.Bindings()) != 0 {
			t.Fatalf("%d changes are made, there are %d bindings: want none", n, len(v.Bindings()))
		}
		for range 2 {
			disk <- nil // two bindings
			must(t, <-did)
		}
		synctest.Wait()
		if n := len(v.Bindings()); n != 2 {
			t.Fatalf("%d bindings, want 2", n)
		}
		for range 2 {
			disk <- nil // the end of one, then the third
			must(t, <-did)
		}
		if got := fmt.Sprint(len(v.Bindings()), len(v.restartedOf(t, k).Bindings())); got != "2 2" {
			t.Errorf("bindings here and after a restart: %s, want 2 2", got)
		}
	})
}

func (v *VHost) restartedOf(t *testing.T, k *memoryLog) *VHost {
	t.Helper()
	k.wait = nil
	return k.restart(t)
}

// Definitions are rewritten in parts, and other changes may happen between them. One entry was made with the vhost locked,
// which stopped every publisher for as long as a hundred thousand queues take. Queues that are deleted meanwhile are not
// restored.
func TestRewrittenInParts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := &memoryLog{}
		v, _ := newVHostWith(t, k)
		const queues = 2000
		must(t, v.DeclareExchange(Exchange{Name: "x", Type: "direct", Durable: true, AutoDelete: true}, nil))
		for n := range queues {
			declare(t, v, strconv.Itoa(n))
			must(t, v.Bind(Binding{Source: "x", Destination: strconv.Itoa(n), Key: "k"}, 0))
			must(t, v.Bind(Binding{Source: "amq.topic", Destination: strconv.Itoa(n), Key: "k"}, 0))
		}
		parts := 0
		largest := 0
		for b := range v.parts() {
			parts++
			largest = max(largest, len(b))
		}
		if parts < 10 || largest > 2*definition.PartSize {
			t.Errorf("%d parts, the largest of %d bytes", parts, largest)
		}
		var gone atomic.Int64
		k.between = func() {
			_, err := v.DeleteQueue(strconv.Itoa(int(gone.Add(1)*7)), 0, false, false)
			must(t, err)
		}
		k.bulky.Store(true)
		v.CompactDefinitions()
		synctest.Wait()
		if gone.Load() == 0 || k.bulky.Load() {
			t.Errorf("%d queues went meanwhile; still bulky: %t", gone.Load(), k.bulky.Load())
		}
		if got, want := durable(k.restart(t)), durable(v); got != want {
			t.Errorf("after a restart there are %d bytes of things, want %d", len(got), len(want))
		}
	})
}

// A vhost has a limit of bindings. There was none.
func TestTooManyBindings(t *testing.T) {
	k := &memoryLog{}
	v, _ := newVHostWith(t, k)
	v.exchanges.maxBindings = 3
	declare(t, v, "q")
	declare(t, v, "r")
	must(t, v.DeclareExchange(Exchange{Name: "x", Type: "direct", Durable: true}, nil))
	bind(t, v, "amq.topic", "q", "1")
	bind(t, v, "amq.topic", "q", "2")
	bindExchange(t, v, "x", "x", "")
	refused := func() {
		t.Helper()
		want(t, v.Bind(Binding{Source: "amq.topic", Destination: "q", Key: "3"}, 0), Precondition,
			"cannot bind queue 'q' to exchange 'amq.topic': binding limit in vhost '/' (3) is reached")
		want(t, v.Bind(Binding{Source: "amq.topic", Destination: "amq.fanout", ToExchange: true}, 0), Precondition,
			"cannot bind exchange 'amq.fanout' to exchange 'amq.topic': binding limit in vhost '/' (3) is reached")
		bind(t, v, "amq.topic", "q", "1") // it is there
	}
	refused()
	must(t, v.Unbind(Binding{Source: "amq.topic", Destination: "q", Key: "2"}, 0))
	bind(t, v, "x", "r", "")
	refused()
	must(t, v.DeleteExchange("x", false))
	bind(t, v, "amq.topic", "r", "1")
	bind(t, v, "amq.topic", "r", "2")
	refused()
	_, err := v.DeleteQueue("r", 0, false, false)
	must(t, err)
	bind(t, v, "amq.topic", "q", "2")
	bind(t, v, "amq.topic", "q", "4")
	refused()
	v = k.restart(t)
	v.exchanges.maxBindings = 3
	refused()
}

// Concurrent bindings do not exceed the limit together.
func TestTooManyBindingsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk, did := make(chan error), make(chan error, 5)
		k := &memoryLog{}
		v, _ := newVHostWith(t, k)
		v.exchanges.maxBindings = 2
		declare(t, v, "q")
		k.wait = func() error { return <-disk }
		for n := range 5 {
			go func() { did <- v.Bind(Binding{Source: "amq.topic", Destination: "q", Key: strconv.Itoa(n)}, 0) }()
		}
		synctest.Wait()
		if len(did) != 3 {
			t.Errorf("%d bindings are refused, want 3", len(did))
		}
		disk <- errors.New("input/output error")
		disk <- nil
		synctest.Wait()
		if n := len(v.Bindings()); n != 1 || v.exchanges.pendingBindings != 0 || v.topology.bindings != 1 {
			t.Errorf("%d bindings, %d counted, %d coming: want 1, 1, 0", n, v.topology.bindings, v.exchanges.pendingBindings)
		}
	})
}

// A binding in its table is no longer pending. It counted twice until its client was answered, and other bindings below the
// limit were refused.
func TestABindingCountsOnce(t *testing.T) {
	v, _ := newVHostWith(t, nil)
	v.exchanges.maxBindings = 2
	declare(t, v, "q")
	for _, key := range []string{"1", "2"} {
		func() {
			v.topology.mu.Lock()
			defer v.topology.mu.Unlock()
			apply, err := v.exchanges.planBind(&Binding{Source: "amq.topic", Destination: "q", Key: key}, 0)
			must(t, err)
			must(t, apply())
		}()
	}
	if v.topology.bindings != 2 || v.exchanges.pendingBindings != 0 {
		t.Errorf("%d bindings are counted and %d coming, want 2 and 0", v.topology.bindings, v.exchanges.pendingBindings)
	}
}

// A declaration that waits for a deleted queue's dead letters, or is refused because a restart will restore that queue, delays no other
// change. It counted as a change under way: exchanges, unbindings, parameters and compaction waited for it, and declarations of other
// queues waited for these, in the second case for ever.
func TestNameOfAQueueThatGoes(t *testing.T) {
	for _, tt := range []struct {
		name string
		err  error
		want string
	}{
		{name: "its dead letters arrive"},
		{
			name: "they do not", err: errors.New("input/output error"),
			want: "queue 'q' in vhost '/': messages that it dead-lettered could not be written, see the broker logfile",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				v, _ := newVHostWith(t, &memoryLog{})
				c := &pendingQueue{config: declare(t, v, "q").Config(), done: make(chan struct{})}
				_, err := v.DeleteQueue("q", 0, false, false)
				must(t, err)
				v.topology.mu.Lock()
				v.queues.addPending(c)
				v.topology.mu.Unlock()

				outcome, changed := make(chan error, 1), make(chan error, 1)
				again := func() {
					_, err := v.DeclareQueue(QueueDeclare{Name: "q", Durable: true})
					outcome <- err
				}
				go again()
				change := func(exchange string) {
					t.Helper()
					go func() { changed <- v.DeclareExchange(Exchange{Name: exchange, Type: "topic", Durable: true}, nil) }()
					synctest.Wait()
					select {
					case err := <-changed:
						must(t, err)
					default:
						t.Fatal("an exchange is not declared")
					}
				}
				synctest.Wait()
				change("meanwhile")
				v.queues.finishDeletion(c, tt.err)
				if err := <-outcome; tt.err == nil {
					must(t, err)
				} else {
					want(t, err, Stopped, tt.want)
				}
				change("later")
			})
		})
	}
}

// A request that panicked while it changed a virtual host left it locked, or its next changes waiting.
func TestAChangeThatPanicsLeavesNothingLocked(t *testing.T) {
	v, _ := newVHostWith(t, &memoryLog{})
	for _, when := range []string{"planned", "applied"} {
		func() {
			defer func() { _ = recover() }()
			_ = v.changes.make(fixedMode(exclusive), func() (func(), error) {
				if when == "planned" {
					panic("at night")
				}
				return func() { panic("at night") }, nil
			})
			t.Errorf("%s: it did not panic", when)
		}()
		if _, err := v.DeclareQueue(QueueDeclare{Name: when, Durable: true}); err != nil {
			t.Errorf("%s: %v", when, err)
		}
	}
}
