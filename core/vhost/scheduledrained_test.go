package vhost

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/curfewmq/curfew/core/journal"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/core/wlog"
)

// slowLog is a memoryLog whose messages are durable when it is told so.
type slowLog struct {
	memoryLog
	mu      sync.Mutex // guards waiting
	waiting []journal.Completer
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

// CommitAs implements [queue.Journal].
func (k *slowLog) CommitAs(_ wlog.Purpose, ops []byte, live []journal.Delta, c journal.Completer) {
	k.Commit(ops, live, c)
}

// Extent implements [queue.Journal].
func (k *slowLog) Extent() uint32 { return 1 }

// durable makes durable what was committed.
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
