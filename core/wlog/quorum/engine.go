// Package quorum keeps each shard's log on a majority of the nodes of a cluster, with etcd's implementation of Raft.
//
// The package has no consensus of its own. A group is one node's replica of a shard, and a disk is the replica's copy in a local log of
// another engine. Neither has goroutines or a clock, so that a test can run a whole cluster in one goroutine, with disks that lose power
// and a network that loses, repeats and reorders messages.
package quorum

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/raft/v3"

	"github.com/curfewmq/curfew/core/clock"
	"github.com/curfewmq/curfew/core/wlog"
	"github.com/curfewmq/curfew/core/wlog/seg"
)

// MaxEntry is the maximum size of an entry in bytes. An entry travels to other nodes in one message.
const MaxEntry = 64 << 20

// Local is the engine that stores a node's replicas.
type Local interface {
	wlog.Engine
	// Stats describes the log of a shard; ok is false if it is not open.
	Stats(shard uint32) (st seg.Stats, ok bool)
}

// Options of an [Engine].
type Options struct {
	// Local is the engine that stores the node's replicas. The Engine closes it.
	Local Local
	// Node is the node's number in the cluster, not 0. It belongs to the contents of Local: a node that has lost them gets another number.
	Node wlog.NodeID
	// Voters are the nodes of a new cluster, the same on each of them. A node that joins a
	// cluster has none. A shard that has a log takes its voters from there.
	Voters []wlog.NodeID
	// Shards is how many shards StartAll starts: those from 0 to Shards-1.
	Shards uint32
	// Prompt are the shards that nodes follow: their owners announce each commit to all nodes at once. In other shards a node learns of a
	// commit with the next entries, or within half of the election timeout.
	Prompt []uint32
	// Election is how long an owner must be silent before a node campaigns: 300 ms to 10 s. By chance, a node waits up to twice as long.
	Election time.Duration
	// Clock is the node's clock.
	Clock clock.Clock
	// Stall is how long a write to the disk may take before the owner transfers the shard to another node. 0 = 5 s.
	Stall time.Duration
	// Lost is called when this node has lost a shard: with the new owner, and with one of
	// ErrDisk, ErrSlowDisk, ErrLeaving, ErrGiven, ErrOther and ErrAlone. 0 = this node
	// knows of no owner. Lost must not block. nil = it is not called.
	Lost func(shard uint32, owner wlog.NodeID, why error)
	// Send sends a message to another node. It does not block, and may lose messages.
	Send func(to wlog.NodeID, m Message)
}

// Engine keeps shards on a majority of the nodes of a cluster. Any goroutine may call its methods.
type Engine struct {
	options Options
	owners  *owners
	began   time.Time
	leaving atomic.Bool // the node owns no shard if another node can

	mu       sync.Mutex // guards the rest
	replicas map[uint32]*shardReplica
	closed   bool
}

var _ wlog.Cluster = (*Engine)(nil)

// shardReplica is a shard in the engine's table.
type shardReplica struct {
	mu      sync.Mutex              // held while the replica is started, and while the shard is opened; guards log
	log     *ownedLog               // the latest log that was opened; nil = none was
	current atomic.Pointer[replica] // changed under mu; nil = no replica runs
	closed  atomic.Bool             // the engine ends, and starts no replica any more
	failed  atomic.Pointer[error]   // why the last start failed; nil = it succeeded, or there was none
}

// New returns the engine of a node. Its shards take part in the cluster once they are started.
func New(o Options) (*Engine, error) {
	switch {
	case o.Node == 0:
		return nil, errors.New("node 0: numbers of nodes begin with 1")
	case slices.Contains(o.Voters, 0):
		return nil, fmt.Errorf("voters %v: numbers of nodes begin with 1", o.Voters)
	case o.Local == nil || o.Clock == nil || o.Send == nil:
		return nil, errors.New("options without Local, Clock or Send")
	case o.Election < 300*time.Millisecond || o.Election > 10*time.Second:
		return nil, fmt.Errorf("election timeout %v: not between 300ms and 10s", o.Election)
	}
	if o.Stall == 0 {
		o.Stall = 5 * time.Second
	}
	return &Engine{options: o, owners: &owners{table: map[uint32]wlog.Ownership{}, heard: map[*listener]struct{}{}}, began: time.Now(), replicas: map[uint32]*shardReplica{}}, nil
}

// MaxEntry returns how many bytes an entry may have.
func (*Engine) MaxEntry() int { return MaxEntry }

func (e *Engine) shard(shard uint32) (*shardReplica, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return nil, wlog.ErrClosed
	}
	if e.replicas[shard] == nil {
		e.replicas[shard] = &shardReplica{}
	}
	return e.replicas[shard], nil
}

// Start starts the node's replica of a shard, unless it runs.
func (e *Engine) Start(ctx context.Context, shard uint32) error {
	s, err := e.shard(shard)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.start(ctx, e, shard)
}

// StartAll starts the replicas of all shards. It continues after a failure, and returns all errors.
func (e *Engine) StartAll(ctx context.Context) error {
	var all error
	for shard := range e.options.Shards {
		if err := e.Start(ctx, shard); err != nil {
			all = errors.Join(all, fmt.Errorf("shard %d: %w", shard, err))
		}
	}
	return all
}

// Stop stops the node's replica of a shard until the next Start. A [wlog.Log] of the shard ends.
func (e *Engine) Stop(shard uint32) error {
	s, err := e.shard(shard)
	if err != nil {
		return err
	}
	return s.close(false)
}

// start starts the replica. The caller holds mu.
func (s *shardReplica) start(ctx context.Context, e *Engine, shard uint32) error {
	if s.closed.Load() {
		return wlog.ErrClosed
	}
	if r := s.current.Load(); r != nil {
		if r.do(func() {}) == nil {
			return nil
		}
		if err := r.close(); errors.Is(err, errStuck) {
			return err // other errors say only why the replica ended
		}
		s.current.Store(nil)
	}
	r, err := startReplica(ctx, e, shard)
	if err != nil {
		s.failed.Store(&err)
		return err
	}
	s.failed.Store(nil)
	s.current.Store(r)
	if s.closed.Load() {
		r.halt() // close began before the replica was stored
	}
	return nil
}

// close ends an Open in progress and the replica. forGood: the engine ends, and the replica is not started again.
func (s *shardReplica) close(forGood bool) error {
	if forGood {
		s.closed.Store(true)
	}
	if r := s.current.Load(); r != nil {
		r.halt()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.log != nil {
		_ = s.log.Close()
	}
	r := s.current.Load()
	if r == nil {
		return nil
	}
	err := r.close()
	if !errors.Is(err, errStuck) {
		s.current.Store(nil)
	}
	return err
}

// Receive takes the bytes of a message about a shard that another node's engine sent to this one. It does not block. The engine keeps
// message, so the caller must not change it any more. An error means that no engine sends such bytes. A message that comes at a wrong time,
// or is about a shard that does not run here, is dropped without an error.
func (e *Engine) Receive(from wlog.NodeID, shard uint32, message []byte) error {
	m, err := decode(message, from, e.options.Node)
	if err != nil {
		return fmt.Errorf("shard %d: node %d: %w", shard, from, err)
	}
	if r := e.running(shard); r != nil {
		r.receive(m, spaceOf(message), len(message))
	}
	return nil
}

// Gone says that the process of another node has probably ended: its connections were reset, and it refuses new ones. The other nodes then
// elect new owners for its shards at once. A wrong report does no harm.
func (e *Engine) Gone(node wlog.NodeID) {
	for _, r := range e.all() {
		_ = r.do(func() { r.group.forget(uint64(node)) })
	}
}

// all returns the replicas that run, in no order.
func (e *Engine) all() (all []*replica) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, s := range e.replicas {
		if r := s.current.Load(); r != nil {
			all = append(all, r)
		}
	}
	return all
}

func (e *Engine) running(shard uint32) *replica {
	e.mu.Lock()
	defer e.mu.Unlock()
	if s := e.replicas[shard]; s != nil {
		return s.current.Load()
	}
	return nil
}

// Shards implements [wlog.Engine].
func (e *Engine) Shards(ctx context.Context) ([]uint32, error) { return e.options.Local.Shards(ctx) }

// Close implements [wlog.Engine].
func (e *Engine) Close() error {
	e.mu.Lock()
	closed := e.closed
	e.closed = true
	shards := slices.Collect(maps.Values(e.replicas))
	e.mu.Unlock()
	if closed {
		return nil
	}
	errs := make(chan error, len(shards))
	for _, s := range shards {
		go func() { errs <- s.close(true) }()
	}
	var all error
	for range shards {
		all = errors.Join(all, <-errs)
	}
	e.owners.close()
	if errors.Is(all, errStuck) {
		return all // closing the local engine would wait for the stuck disk
	}
	return errors.Join(all, e.options.Local.Close())
}

// silent is Raft's logger and writes nothing: the broker counts and logs the events that matter to operators. If Raft finds its own state
// broken it panics, as it would with any logger.
type silent struct{}

var _ raft.Logger = silent{}

func (silent) Debug(...any)            {}
func (silent) Debugf(string, ...any)   {}
func (silent) Error(...any)            {}
func (silent) Errorf(string, ...any)   {}
func (silent) Info(...any)             {}
func (silent) Infof(string, ...any)    {}
func (silent) Warning(...any)          {}
func (silent) Warningf(string, ...any) {}

func (silent) Fatal(a ...any)            { panic(fmt.Sprint(a...)) }
func (silent) Fatalf(f string, a ...any) { panic(fmt.Sprintf(f, a...)) }
func (silent) Panic(a ...any)            { panic(fmt.Sprint(a...)) }
func (silent) Panicf(f string, a ...any) { panic(fmt.Sprintf(f, a...)) }
