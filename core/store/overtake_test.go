package store

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/curfewmq/curfew/core/vhost"
	"github.com/curfewmq/curfew/core/wlog"
)

// scarce is an engine whose logs refuse what brings more while they are full, and nothing else.
type scarce struct {
	wlog.Cluster
	full atomic.Bool
}

type scarceLog struct {
	wlog.Log
	of *scarce
}

func (e *scarce) Open(ctx context.Context, shard uint32, fn func(at wlog.Index, entry []byte) error) (wlog.Log, error) {
	log, err := e.Cluster.Open(ctx, shard, fn)
	return &scarceLog{log, e}, err
}

// Resume implements [wlog.Standby].
func (e *scarce) Resume(ctx context.Context, shard uint32, after wlog.Index, fn func(at wlog.Index, entry []byte) error) (wlog.Log, error) {
	log, err := e.Cluster.Resume(ctx, shard, after, fn)
	return &scarceLog{log, e}, err
}

// Depth implements [wlog.Log]: entries go through Append.
func (l *scarceLog) Depth() int { return 1 }

func (l *scarceLog) Append(ctx context.Context, entry []byte, purpose wlog.Purpose) (wlog.Index, error) {
	if l.of.full.Load() && purpose == wlog.Bringing {
		return 0, wlog.ErrFull
	}
	return l.Log.Append(ctx, entry, purpose)
}

// On a full disk definitions overtake messages, and are in the log again with what they overtook. A replay then reads of bindings to
// and from what is deleted already: no node could take the shard over.
func TestDefinitionsOvertakeMessages(t *testing.T) {
	gone := vhost.Binding{Source: "x", Destination: "gone", Key: "k"}
	for _, test := range []struct {
		name   string
		queue  bool // the queue is deleted, not the exchange
		change func(k *kept, publish func())
	}{
		{"a queue is bound and deleted", true, func(k *kept, publish func()) {
			k.declare("gone")
			publish()
			must(k.t, k.v.Bind(gone, 0))
			_, err := k.v.DeleteQueue("gone", 0, false, false)
			must(k.t, err)
		}},
		{"a queue is unbound and deleted", true, func(k *kept, publish func()) {
			k.declare("gone")
			must(k.t, k.v.Bind(gone, 0))
			publish()
			must(k.t, k.v.Unbind(gone, 0))
			_, err := k.v.DeleteQueue("gone", 0, false, false)
			must(k.t, err)
		}},
		{"an exchange is bound to a queue and deleted", false, func(k *kept, publish func()) {
			k.declare("gone")
			publish()
			must(k.t, k.v.Bind(gone, 0))
			must(k.t, k.v.DeleteExchange("x", false))
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				disk := &scarce{}
				m := newTeam(t, 1, func(o *Options) {
					disk.Cluster = o.Cluster
					o.Cluster = disk
				})
				two := m.join()
				defer m.close()
				m.registry.in(1, "/")
				m.own(1, m.nodes[0])
				k := m.nodes[0].serving("/")
				q := k.declare("q")
				must(t, k.v.DeclareExchange(vhost.Exchange{Name: "x", Type: "direct", Durable: true}, nil))

				disk.full.Store(true)
				first := send(q, "a")
				var second outcome
				test.change(k, func() { second = send(q, "b") })
				disk.full.Store(false)
				must(t, <-first)
				must(t, <-second)
				must(t, k.cluster.shards()[0].Sync())

				m.own(1, two)
				k = two.serving("/")
				k.wantMessages("q", "a", "b")
				if deleted := k.v.Mailbox("gone") == nil; deleted != test.queue {
					t.Errorf("the queue is deleted: %v, want %v", deleted, test.queue)
				}
			})
		})
	}
}
