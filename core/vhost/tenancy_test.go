package vhost

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/definition"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/sdk/hook"
)

func TestConnectionLimit(t *testing.T) {
	v, _ := newVHost(t)
	enter := func(owner Owner) error { return v.AddConnection(owner, "u", func(string) { t.Error("evicted") }) }
	must(t, enter(1))
	must(t, v.Parameters().SetLimits(Limits{Connections: hook.LimitOf(1)}))
	want(t, enter(2), NotAllowed, "access to vhost '/' refused for user 'u': connection limit (1) is reached")
	must(t, v.Parameters().SetLimits(Limits{Connections: hook.LimitOf(0)}))
	want(t, enter(2), NotAllowed, "access to vhost '/' refused for user 'u': connection limit (0) is reached")
	must(t, v.Parameters().SetLimits(Limits{Connections: hook.LimitOf(1)}))
	v.RemoveConnection(1)
	must(t, enter(2))
	if n := v.Stats().Connections; n != 1 {
		t.Errorf("%d connections", n)
	}
}

func TestDelete(t *testing.T) {
	k := &memoryLog{}
	v, _ := newVHostWith(t, k)
	_, err := v.DeclareQueue(QueueDeclare{Name: "durable", Durable: true})
	must(t, err)
	_, err = v.DeclareQueue(QueueDeclare{Name: "exclusive", Exclusive: true, Owner: 1})
	must(t, err)
	queues := v.Queues()
	var evicted []string
	must(t, v.AddConnection(1, "u", func(reason string) { evicted = append(evicted, reason) }))

	must(t, v.Delete())
	if got := fmt.Sprint(evicted); got != "[vhost '/' is deleted]" {
		t.Errorf("got %s", got)
	}
	for _, s := range queues {
		if err := s.Do(func(*queue.Queue, hook.Instant) {}); !errors.Is(err, queue.ErrGone) {
			t.Errorf("queue %s: got %v", s.Config().Name, err)
		}
	}
	deleted := 0
	for def, err := range definition.Parse(k.written) {
		must(t, err)
		if deleted++; !Deletes(def.Op) || !Resets(def.Op) {
			t.Errorf("got %v", def.Fields)
		}
	}
	if deleted != 1 {
		t.Errorf("%d definitions were written", deleted)
	}

	// Connections that are still open can change nothing.
	want(t, v.AddConnection(2, "u", nil), NotAllowed, "vhost / not found")
	for _, durable := range []bool{true, false} {
		_, err = v.DeclareQueue(QueueDeclare{Name: "late", Durable: durable})
		want(t, err, NotFound, "no vhost '/'")
	}
	must(t, v.DeclareExchange(Exchange{Name: "late", Type: "topic", Durable: true}, nil))
	must(t, v.setParameter("c", "n", "1"))
	k.bulky.Store(true)
	v.CompactDefinitions()
	if n := len(k.written); n != len(encodedDeletion(v)) {
		t.Errorf("%d bytes are written", n)
	}
	v.RemoveConnection(1)
}

func encodedDeletion(v *VHost) []byte {
	return amqp.AppendTable(nil, v.changes.define(opDeleteVHost))
}

// Queues that are declared while the vhost is deleted are deleted, too.
func TestDeleteWhileDeclaring(t *testing.T) {
	for range 50 {
		v, _ := newVHostWith(t, &memoryLog{})
		var wg sync.WaitGroup
		for i := range 4 {
			wg.Go(func() {
				for n := range 20 {
					_, err := v.DeclareQueue(QueueDeclare{Name: fmt.Sprint(i, n), Durable: n%2 == 0})
					if e, ok := errors.AsType[*Error](err); err != nil && (!ok || e.Kind != NotFound) {
						t.Error(err)
					}
				}
			})
		}
		must(t, v.Delete())
		wg.Wait()
		if left := v.Queues(); len(left) > 0 {
			t.Errorf("%d queues are left", len(left))
		}
	}
}
