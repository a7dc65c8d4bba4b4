package vhost

import (
	"errors"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/curfewmq/curfew/core/journal"
	"github.com/curfewmq/curfew/core/queue"
)

// slowLog is a memoryLog that makes messages durable only when the test says so.
type slowLog struct {
	memoryLog
	mu      sync.Mutex // guards waiting
	waiting []journal.Completer
	full    atomic.Bool // the disk is
}

func (k *slowLog) NewStorage() *queue.Storage {
	return &queue.Storage{Journal: k, ID: k.numbers.Add(1)}
}

// Commit implements [queue.Journal].
func (k *slowLog) Commit(_ []byte, _ []journal.Delta, c journal.Completer) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if c != nil {
		k.waiting = append(k.waiting, c)
	}
}

// Extent implements [queue.Journal].
func (*slowLog) Extent() uint32 { return 1 }

// Grant implements [queue.Granter].
func (*slowLog) Grant(int64) bool { return true }

// Return implements [queue.Granter].
func (*slowLog) Return(int64) {}

// Await implements [queue.Granter].
func (*slowLog) Await(_ int64, fn func()) { fn() }

// MostGrant implements [queue.Granter].
func (*slowLog) MostGrant() int64 { return 1 << 60 }

// Low implements [queue.Granter].
func (k *slowLog) Low() bool { return k.full.Load() }

// durable makes the commits so far durable.
func (k *slowLog) durable() {
	k.mu.Lock()
	all := k.waiting
	k.waiting = nil
	k.mu.Unlock()
	for _, c := range all {
		c.Durable()
	}
	synctest.Wait()
}

// An auto-delete exchange that released its last message was deleted before the message was durable elsewhere: a crash lost it.
func TestDrainedExchangeStaysUntilItsMessagesArrive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := &slowLog{}
		v, _ := newHoldingVHost(t, &holder{}, k)
		for _, name := range []string{"q", "other"} {
			_, err := v.DeclareQueue(QueueDeclare{Name: name, Durable: true})
			must(t, err)
		}
		must(t, v.DeclareExchange(Exchange{Name: "alternate", Type: "fanout", Durable: true}, nil))
		bind(t, v, "alternate", "other", "")
		must(t, v.DeclareExchange(Exchange{
			Name: "x", Type: "x-held", Durable: true, AutoDelete: true, Args: args("x-inner", "fanout", "alternate-exchange", "alternate"),
		}, nil))
		bind(t, v, "x", "q", "")
		sent{exchange: "x", body: "a", props: headersOf("wait", int32(100))}.send(t, v)
		k.durable()
		must(t, v.Unbind(Binding{Source: "x", Destination: "q"}, 0))
		time.Sleep(time.Second)
		if _, defined := k.read(t).exchanges["x"]; !defined || held(t, v, "x") != 0 {
			t.Error("the exchange is deleted, and its message is nowhere")
		}
		k.durable()
		if _, defined := k.read(t).exchanges["x"]; defined {
			t.Error("the exchange is still defined")
		}
		if _, ok := v.Exchange("x"); ok {
			t.Error("the exchange is still there")
		}
	})
}

// The deletion of an exchange was durable before a message that it had released: a crash lost the message.
func TestDeletionWaitsForWhatWasReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := &slowLog{}
		v, _ := newHoldingVHost(t, &holder{}, k)
		_, err := v.DeclareQueue(QueueDeclare{Name: "q", Durable: true})
		must(t, err)
		must(t, v.DeclareExchange(Exchange{Name: "x", Type: "x-held", Durable: true, Args: args("x-inner", "fanout")}, nil))
		bind(t, v, "x", "q", "")
		sent{exchange: "x", body: "a", props: headersOf("wait", int32(100))}.send(t, v)
		sent{exchange: "x", body: "b", props: headersOf("wait", int32(1500))}.send(t, v)
		k.durable()
		time.Sleep(time.Second)
		deleted := make(chan error)
		go func() { deleted <- v.DeleteExchange("x", false) }()
		time.Sleep(time.Second) // b is due meanwhile, and goes with the exchange
		if _, defined := k.read(t).exchanges["x"]; !defined {
			t.Error("the exchange is deleted, and its message is nowhere")
		}
		wantHeld(t, v, "x", 1) // b
		k.durable()
		must(t, <-deleted)
		if _, defined := k.read(t).exchanges["x"]; defined {
			t.Error("the exchange is still defined")
		}
	})
}

// On a full disk, the deletion of an exchange that had just released messages waited for as long as the disk was full, and its client
// with it.
func TestDeletionDoesNotWaitForAFullDisk(t *testing.T) {
	for _, before := range []bool{true, false} { // or while the deletion waits for the disk
		t.Run(strconv.FormatBool(before), func(t *testing.T) { synctest.Test(t, func(t *testing.T) { deleteOnFullDisk(t, before) }) })
	}
}

func deleteOnFullDisk(t *testing.T, before bool) {
	t.Helper()
	k := &slowLog{}
	v, _ := newHoldingVHost(t, &holder{}, k)
	_, err := v.DeclareQueue(QueueDeclare{Name: "q", Durable: true})
	must(t, err)
	must(t, v.DeclareExchange(Exchange{Name: "x", Type: "x-held", Durable: true, Args: args("x-inner", "fanout")}, nil))
	bind(t, v, "x", "q", "")
	sent{exchange: "x", body: "a", props: headersOf("wait", int32(100))}.send(t, v)
	sent{exchange: "x", body: "b", props: headersOf("wait", int32(5000))}.send(t, v)
	k.durable()
	if before {
		k.full.Store(true)
	} else {
		time.AfterFunc(2*time.Second, func() { k.full.Store(true) })
	}
	time.Sleep(time.Second)
	want(t, v.DeleteExchange("x", false), Precondition,
		"exchange 'x' in vhost '/' has released messages that wait for space on the disk: delete it when there is space")
	wantHeld(t, v, "x", 1)
	k.full.Store(false)
	time.Sleep(5 * time.Second)
	wantHeld(t, v, "x", 0) // it releases on
	k.durable()
	must(t, v.DeleteExchange("x", false))
}

// An auto-delete exchange that lost its last binding while it held messages stayed for ever after a restart.
func TestUnboundExchangeIsDeletedAfterARestart(t *testing.T) {
	for _, tt := range []struct {
		name string
		then func(t *testing.T, v *VHost)
		want string // the end of the exchange: "deleted", or "stays"
	}{
		{"never bound", func(*testing.T, *VHost) {}, "stays"},
		{"bound", func(t *testing.T, v *VHost) {
			t.Helper()
			bind(t, v, "x", "q", "")
		}, "stays"},
		{"unbound", func(t *testing.T, v *VHost) {
			t.Helper()
			bind(t, v, "x", "q", "")
			must(t, v.Unbind(Binding{Source: "x", Destination: "q"}, 0))
		}, "deleted"},
		{"unbound, and bound again", func(t *testing.T, v *VHost) {
			t.Helper()
			bind(t, v, "x", "q", "")
			must(t, v.Unbind(Binding{Source: "x", Destination: "q"}, 0))
			bind(t, v, "x", "q", "")
		}, "stays"},
		{"its durable queue deleted", func(t *testing.T, v *VHost) {
			t.Helper()
			bind(t, v, "x", "q", "")
			_, err := v.DeleteQueue("q", 0, false, false)
			must(t, err)
		}, "deleted"},
		{"its transient queue deleted", func(t *testing.T, v *VHost) {
			t.Helper()
			_, err := v.DeclareQueue(QueueDeclare{Name: "transient"})
			must(t, err)
			bind(t, v, "x", "transient", "")
			_, err = v.DeleteQueue("transient", 0, false, false)
			must(t, err)
		}, "deleted"},
		{"unbound, and bound to a transient queue", func(t *testing.T, v *VHost) {
			t.Helper()
			bind(t, v, "x", "q", "")
			must(t, v.Unbind(Binding{Source: "x", Destination: "q"}, 0))
			_, err := v.DeclareQueue(QueueDeclare{Name: "transient"})
			must(t, err)
			bind(t, v, "x", "transient", "")
		}, "deleted"},
		{"its exchange deleted", func(t *testing.T, v *VHost) {
			t.Helper()
			exchangeOf(t, v, "to", "fanout")
			bindExchange(t, v, "x", "to", "")
			must(t, v.DeleteExchange("to", false))
		}, "deleted"},
	} {
		for _, compacted := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				k := &slowLog{}
				v, _ := newHoldingVHost(t, &holder{}, k)
				_, err := v.DeclareQueue(QueueDeclare{Name: "q", Durable: true})
				must(t, err)
				must(t, v.DeclareExchange(Exchange{Name: "x", Type: "x-held", Durable: true, AutoDelete: true, Args: args("x-inner", "fanout")}, nil))
				sent{exchange: "x", body: "a", props: headersOf("wait", int32(1000))}.send(t, v)
				tt.then(t, v)
				if _, ok := v.Exchange("x"); !ok {
					t.Fatalf("%s: it does not wait for its message", tt.name)
				}
				if compacted {
					k.bulky.Store(true)
					v.CompactDefinitions()
				}
				v = k.restarted(t, &holder{}) // without the message, which the log of this test does not keep
				synctest.Wait()
				got := "deleted"
				if _, ok := v.Exchange("x"); ok {
					got = "stays"
				}
				if got != tt.want {
					t.Errorf("%s, compacted %t: %s, want %s", tt.name, compacted, got, tt.want)
				}
				if _, defined := k.read(t).exchanges["x"]; defined != (got == "stays") {
					t.Errorf("%s, compacted %t: defined %t", tt.name, compacted, defined)
				}
			})
		}
	}
}

// A message that an exchange took while its deletion with its last binding was written had the log say afterwards that it was unbound:
// the next start found nothing to unbind, and failed.
func TestAnExchangeThatTakesAMessageWhileItIsDeleted(t *testing.T) {
	publish := func(t *testing.T, v *VHost) {
		t.Helper()
		sent{exchange: "x", body: "a", props: headersOf("wait", int32(1000))}.send(t, v)
	}
	for name, tc := range map[string]struct {
		remove    func(v *VHost) error
		meanwhile func(t *testing.T, v *VHost)
	}{
		"unbound":              {func(v *VHost) error { return v.Unbind(Binding{Source: "x", Destination: "to", ToExchange: true}, 0) }, publish},
		"its exchange deleted": {func(v *VHost) error { return v.DeleteExchange("to", false) }, publish},
		"deleted before its queue": {func(v *VHost) error {
			if _, err := v.DeclareQueue(QueueDeclare{Name: "q"}); err != nil {
				return err
			}
			if err := v.Bind(Binding{Source: "x", Destination: "q"}, 0); err != nil {
				return err
			}
			if err := v.Unbind(Binding{Source: "x", Destination: "to", ToExchange: true}, 0); err != nil {
				return err
			}
			return v.DeleteExchange("x", false)
		}, func(t *testing.T, v *VHost) {
			t.Helper()
			publish(t, v)
			if _, err := v.DeleteQueue("q", 0, false, false); err != nil {
				t.Error(err)
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				k := &slowLog{}
				v, _ := newHoldingVHost(t, &holder{}, k)
				exchangeOf(t, v, "to", "fanout")
				must(t, v.DeclareExchange(Exchange{Name: "x", Type: "x-held", Durable: true, AutoDelete: true, Args: args("x-inner", "fanout")}, nil))
				bindExchange(t, v, "x", "to", "")
				k.wait = func() error {
					if x := v.topology.exchanges["x"]; !strings.Contains(string(k.written), opDeleteExchange) || x == nil {
						return nil
					}
					k.wait = nil
					tc.meanwhile(t, v)
					return nil
				}
				must(t, tc.remove(v))
				synctest.Wait()
				d := k.read(t)
				if _, defined := d.exchanges["x"]; defined || d.Err() != nil {
					t.Errorf("defined: %v; the next start fails: %v", defined, d.Err())
				}
			})
		})
	}
}

// An auto-delete exchange was deleted with its last binding although its released messages had never arrived: a restart finds them in the
// exchange.
func TestAnExchangeStaysThatReleasedInVain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := &slowLog{}
		v, _ := newHoldingVHost(t, &holder{}, k)
		_, err := v.DeclareQueue(QueueDeclare{Name: "q", Durable: true})
		must(t, err)
		must(t, v.DeclareExchange(Exchange{Name: "x", Type: "x-held", Durable: true, AutoDelete: true, Args: args("x-inner", "fanout")}, nil))
		bind(t, v, "x", "q", "")
		sent{exchange: "x", body: "a", props: headersOf("wait", int32(100))}.send(t, v)
		k.durable()
		time.Sleep(time.Second)
		synctest.Wait()
		for _, c := range k.waiting {
			c.Failed(errors.New("queue 'q' is stopped"))
		}
		k.waiting = nil
		must(t, v.Unbind(Binding{Source: "x", Destination: "q"}, 0))
		synctest.Wait()
		if d := k.read(t); d.exchanges["x"] == nil || !d.exchanges["x"].unbound {
			t.Error("the exchange is deleted, and its message is nowhere")
		}
	})
}
