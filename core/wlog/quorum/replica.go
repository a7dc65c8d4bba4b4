package quorum

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/curfewmq/curfew/core/clock"
	"github.com/curfewmq/curfew/core/telemetry"
	"github.com/curfewmq/curfew/core/wlog"
	"github.com/curfewmq/curfew/sdk/hook"
)

// replica runs a group: it adds the clock, the goroutines and the local log. It has two goroutines: run, to which the group belongs, and
// write.
type replica struct {
	shard    uint32
	disk     *disk
	clock    clock.Clock
	send     func(to wlog.NodeID, m Message)
	owners   *owners
	leaving  *atomic.Bool
	election time.Duration
	stall    time.Duration // how long a write to the local log may take before the owner hands over
	lost     func(shard uint32, owner wlog.NodeID, why error)
	progress progress
	status   status

	mu       sync.Mutex  // guards inbox, received, offered and err
	inbox    []func()    // for run
	received int         // bytes of the messages in there
	offered  []*proposal // for run, which empties the inbox first
	err      error       // why the replica has ended; nil = it runs
	wake     chan struct{}
	stop     chan struct{} // closed to end the replica
	halting  sync.Once
	ended    chan struct{} // closed when the replica has ended

	least     atomic.Uint32             // the first wlog.Purpose for which a majority has space
	room      atomic.Int64              // of a majority's logs, in bytes
	localRoom atomic.Int64              // of the local log, in bytes
	reserving atomic.Pointer[time.Time] // since when an append waits for space in the local log; nil = none does
	closing   sync.Once                 // begins to close the local log
	closed    chan error                // capacity 1: its result

	offset atomic.Int64 // of the shard's time, in ns, while this node owns the shard

	// The rest belongs to run.
	group     *group
	jobs      chan job
	done      chan job
	writing   bool
	looks     bool      // the room of the local log is to be looked at
	unlooked  int       // ticks since that was due, or a write
	since     time.Time // when the write began, or the first of several refused writes
	probed    bool      // a probe has found space for the large write that was refused
	failed    error     // of the local log: nothing is written any more; nil = it works
	began     time.Time // start of the engine, from which ticks are counted
	ticks     *ticks
	idle      int         // ticks since an entry was last on its way
	farewell  int         // after a failure of the local log, ticks left for another node to take over
	trims     wlog.Index  // the local log is to be trimmed before this entry; 0 = nothing to trim
	due       []*proposal // to be proposed now
	pending   []*proposal
	told      int         // the first told of pending are confirmed already, see tellDurable
	held      []*proposal // while the shard is being transferred
	waiting   map[*candidacy]struct{}
	reads     reads
	moves     []*move
	samples   samples
	spaces    spaces
	kept      hook.Instant // when refresh last checked the time that is kept
	log       *ownedLog    // the shard's owner on this node; nil if there is none
	published wlog.Ownership
}

const (
	electionTicks    = 10
	heartbeatTicks   = 4
	maxSize          = 1 << 20
	maxInflight      = 64
	maxInflightBytes = MaxEntry
	trimEach         = 256
	trimBytes        = 1 << 20
)

// startReplica opens the replica of a shard and runs it.
func startReplica(ctx context.Context, e *Engine, shard uint32) (*replica, error) {
	voters := make([]uint64, 0, len(e.options.Voters))
	for _, n := range e.options.Voters {
		voters = append(voters, uint64(n))
	}
	d, err := openDisk(ctx, e.options.Local, shard, voters)
	if err != nil {
		return nil, err
	}
	r := &replica{
		shard: shard, disk: d, clock: e.options.Clock, send: e.options.Send, owners: e.owners, leaving: &e.leaving, election: e.options.Election, stall: e.options.Stall, lost: e.options.Lost, began: e.began,
		wake: make(chan struct{}, 1), stop: make(chan struct{}), ended: make(chan struct{}), closed: make(chan error, 1),
		jobs: make(chan job, 1), done: make(chan job, 1), waiting: map[*candidacy]struct{}{}, spaces: spaces{}, status: status{commits: telemetry.NewHistogram(telemetry.Latencies)},
		reads: reads{asked: rand.Uint64() / 2}, // an answer to a question from an earlier life must not match
	}
	r.room.Store(plenty)
	r.localRoom.Store(plenty)
	o := options{
		id: uint64(e.options.Node), election: electionTicks, heartbeat: heartbeatTicks, maxSize: maxSize, inflight: maxInflight, trimEach: trimEach, trimBytes: trimBytes,
		first: int(shard), prompt: slices.Contains(e.options.Prompt, shard),
	}
	if r.group, err = newGroup(ctx, d, o, r.committed, func(position) {}); err != nil {
		return nil, errors.Join(err, d.log.Close())
	}
	if r.trims = d.began; len(d.entries) > 0 { // the node may have ended before it trimmed
		r.trims = min(r.trims, d.entries[0].at)
	}
	r.samples = recall(d.time, r.clock)
	r.group.timed = func(term uint64, at hook.Instant, by source) { r.samples.take(term, at, r.clock(), by) }
	r.group.known = func() (uint64, hook.Instant, bool) { return r.samples.latestKnown(r.clock()) }
	r.group.start()
	r.group.passive = r.leaving.Load()
	r.group.prefer()
	go r.write(context.WithoutCancel(ctx))
	go r.run(e.options.Election / electionTicks)
	return r, nil
}

// do makes run call fn. It does not wait. It fails if the replica has ended.
func (r *replica) do(fn func()) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err != nil {
		return r.err
	}
	r.push(fn)
	return nil
}

// offer makes run propose an entry. Every proposal is settled, even if the replica ends first.
func (r *replica) offer(p *proposal) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err != nil {
		p.refuse(fmt.Errorf("%w: %w", wlog.ErrLost, r.err))
		return
	}
	r.offered = append(r.offered, p)
	r.rouse()
}

// push adds a function to the inbox. The caller holds mu.
func (r *replica) push(fn func()) {
	r.inbox = append(r.inbox, fn)
	r.rouse()
}

// rouse wakes run.
func (r *replica) rouse() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// maxReceived is how many bytes of messages may wait for run, and again for the disk. An owner sends less than that before it gets an
// answer.
const maxReceived = 4 * MaxEntry

// receive passes another node's message of size bytes to run, or drops it if too much waits already.
func (r *replica) receive(m *raftpb.Message, of space, size int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err != nil || r.received > maxReceived {
		return
	}
	r.received += size
	r.push(func() {
		if err := r.group.step(m); err != nil {
			panic(err)
		}
		if saysSpace(m.GetType()) && r.spaces.hear(m.GetFrom(), of) {
			r.weigh()
		}
	})
}

// run is the goroutine to which the group belongs.
func (r *replica) run(tick time.Duration) {
	r.ticks = newTicks(r.began, tick)
	defer r.ticks.stop()
	var err error
	for err == nil {
		err = r.turn()
	}
	r.end(err)
}

// turn does everything that can be done now, and waits for more. Raft panics when it finds itself in a wrong state, as it does if the disk
// has lost entries or another node sends messages that are not Raft's. Such a panic ends the replica, but not the broker.
func (r *replica) turn() (err error) {
	defer func() {
		switch p := recover().(type) {
		case nil:
		case error:
			err = fmt.Errorf("%w: %w", wlog.ErrDamaged, p)
		default:
			err = fmt.Errorf("%w: %v", wlog.ErrDamaged, p)
		}
	}()
	r.settle()
	if err := r.work(); err != nil {
		return err
	}
	return r.wait()
}

// wait waits for an event and handles it. It counts the passed ticks first, so that the group meets the event at the right time.
func (r *replica) wait() error {
	r.ticks.plan(r.lull())
	select {
	case <-r.ticks.timer.C:
		r.ticks.fired()
		r.tickAll()
	case <-r.wake:
		r.tickAll()
		r.empty()
	case j := <-r.done:
		r.tickAll()
		return r.wrote(j)
	case <-r.stop:
		return errEnded
	}
	return nil
}

// tickAll counts the ticks that have passed.
func (r *replica) tickAll() {
	for range r.ticks.passed() {
		r.tick()
	}
}

// lull returns how many ticks from now the replica next has work at the earliest, unless an event comes before.
func (r *replica) lull() int {
	if r.writing || r.failed != nil || r.leaving.Load() || len(r.reads.open) > 0 || len(r.moves) > 0 {
		return 1
	}
	return r.group.lull()
}

// tick counts a tick of the clock.
func (r *replica) tick() {
	stalled := r.stalled()
	r.group.passive = r.leaving.Load() || stalled || r.failed != nil
	r.group.lends = !stalled && r.failed == nil
	r.group.tick()
	r.reads.tick(r.group)
	r.tickMoves()
	r.tell()
	r.spaces.tick()
	r.weigh()
	r.trimIdle()
	r.looks = r.looks || r.looksDue()
	r.refresh()
	if stalled || r.failed != nil {
		r.group.handOver()
	}
	if r.failed != nil {
		r.farewell--
	}
}

// empty calls the functions in the inbox, and proposes the offered entries.
func (r *replica) empty() {
	r.mu.Lock()
	fns, offered := r.inbox, r.offered
	r.inbox, r.received, r.offered = nil, 0, nil
	r.mu.Unlock()
	r.due = offered // if Raft panics meanwhile, end settles them
	for _, fn := range fns {
		fn()
	}
	r.proposeDue()
}

func (r *replica) proposeDue() {
	for len(r.due) > 0 {
		p := r.due[0]
		r.due = r.due[1:]
		r.propose(p)
	}
}

// work sends the messages in the outbox, and gives write its next job.
func (r *replica) work() error {
	r.reads.ask(r.group)
	for {
		r.sendAll(r.group.outbox())
		if r.failed != nil && (r.group.state != raft.StateLeader || r.farewell <= 0) {
			return r.failed
		}
		if r.failed != nil || r.writing {
			return nil
		}
		if size := r.group.large(); size > 0 && !r.probed {
			r.writing = true
			r.jobs <- job{probe: size, trim: r.trims}
			r.trims = 0
			return nil
		}
		r.probed = false
		r.remember()
		j := job{write: r.group.nextWrite(maxSize), trim: r.trims, look: r.looks}
		r.trims = 0
		switch {
		case j.write == nil && j.trim == 0 && !j.look:
			return nil
		case j.write != nil && j.trim == 0 && len(j.write.data) == 0: // only its answers wait, for writes that are done
			if _, err := r.group.written(j.write, 0); err != nil {
				return err
			}
			r.settle()
		default:
			if r.writing = true; !r.group.full {
				r.since = time.Now()
			}
			r.looks, r.unlooked = false, 0
			r.jobs <- j
		}
	}
}

func (r *replica) sendAll(ms []*raftpb.Message) {
	var last *raftpb.Message // the last message with entries
	var bytes []byte         // its bytes
	for _, m := range ms {
		out := Message{Shard: r.shard, Bulk: bulk(m.GetType())}
		if last != nil && alike(last, m) {
			out.Bytes = bytes
		} else {
			out.Bytes = encode(m)
		}
		if saysSpace(m.GetType()) {
			r.space().say(out.Bytes)
		}
		if len(m.GetEntries()) > 0 && out.Bulk {
			last, bytes = m, out.Bytes
		}
		if m.GetType() == raftpb.MsgSnap {
			out.Done = func(delivered bool) { _ = r.do(func() { r.group.delivered(m, delivered) }) }
		}
		r.send(wlog.NodeID(m.GetTo()), out)
	}
}

// settle answers all callers whose requests are decided.
func (r *replica) settle() {
	r.publish()
	r.progress.set(r.group.applied, r.group.body)
	r.settleProposals()
	r.settleWaiting()
	r.reads.settle(r.group)
	r.settleMoves()
}

// settleProposals ends the log and the proposals of a term that is over.
func (r *replica) settleProposals() {
	owner := r.group.owner
	if l := r.log; l != nil && l.term != owner {
		r.log = nil
		l.lose()
	}
	if len(r.pending) > 0 && r.pending[0].log != r.log { // all are of one log
		r.refusePending(wlog.ErrLost)
	}
	r.tellDurable()
	if len(r.held) == 0 {
		return
	}
	if r.held[0].log != r.log {
		refuse(r.held, wlog.ErrLost)
		r.held = nil
		return
	}
	if r.group.transferee() == raft.None {
		r.due, r.held = r.held, nil
		r.proposeDue()
	}
}

// tellDurable confirms entries that a majority of the nodes has on disk while this owner's own disk is slow. So one slow disk does not
// delay all publishers. The entries are in this node's memory, and are written when the disk answers, so that the owner usually has them
// after a restart. tellDurable confirms nothing while more than maxReceived bytes wait for the disk, because that memory is bounded.
func (r *replica) tellDurable() {
	if !r.isSlow() || r.told == len(r.pending) || r.group.unwritten > maxReceived {
		return
	}
	durable := r.group.durable()
	for ; r.told < len(r.pending) && r.pending[r.told].index <= durable; r.told++ {
		p := r.pending[r.told]
		r.status.committed(p.since)
		p.crowd()
		p.log.appended.Store(p.index)
		p.tell(wlog.Appended{At: wlog.Index(p.index)})
	}
}

// isSlow reports whether a write to the local log takes long, for another reason than missing space.
func (r *replica) isSlow() bool {
	return r.writing && !r.group.full && time.Since(r.since) >= r.election/electionTicks
}

// refusePending ends all pending proposals.
func (r *replica) refusePending(err error) {
	for _, p := range r.pending[:r.told] {
		p.release()
	}
	refuse(r.pending[r.told:], err)
	r.pending, r.told = nil, 0
}

func refuse(ps []*proposal, err error) {
	for _, p := range ps {
		p.refuse(err)
	}
}

// publish announces a changed ownership.
func (r *replica) publish() {
	g := r.group
	o := wlog.Ownership{Shard: r.shard, Owner: wlog.NodeID(g.leader), Mine: g.owner > 0, Epoch: g.term}
	if o == r.published {
		return
	}
	if o.Mine && (!r.published.Mine || r.published.Epoch != o.Epoch) {
		now := r.clock()
		offset := r.samples.offset(now, g.head.at, g.disk.trimmed())
		r.offset.Store(int64(offset))
		r.samples.own(g.owner, offset)
	}
	if r.published.Mine && !o.Mine && r.lost != nil {
		r.lost(r.shard, o.Owner, r.lostBecause())
	}
	if o.Owner > 0 && (r.published.Owner != o.Owner || r.published.Epoch != o.Epoch) {
		r.status.elections++
	}
	r.published = o
	r.owners.set(o)
}

// Reasons for which a node has lost a shard, for errors.Is.
var (
	ErrDisk     = errors.New("its log on this node's disk failed")
	ErrSlowDisk = errors.New("this node's disk does not answer")
	ErrLeaving  = errors.New("this node shuts down")
	ErrGiven    = errors.New("this node has handed it to another one")
	ErrOther    = errors.New("another node has taken over: the nodes have not heard from this one for the election timeout")
	ErrAlone    = errors.New("this node has not heard from a majority of the nodes for the election timeout")
)

// lostBecause returns the reason for which this node has just lost the shard.
func (r *replica) lostBecause() error {
	switch {
	case r.failed != nil:
		return fmt.Errorf("%w: %w", ErrDisk, r.failed)
	case r.stalled():
		return fmt.Errorf("%w within %v", ErrSlowDisk, r.stall)
	case r.leaving.Load():
		return ErrLeaving
	case r.group.giving == r.published.Epoch:
		return ErrGiven
	case r.group.leader != raft.None:
		return ErrOther
	}
	return ErrAlone
}

// committed receives each committed entry, in order.
func (r *replica) committed(p position, data []byte) {
	if data == nil {
		return
	}
	if p.term != r.group.owner || len(r.pending) == 0 {
		return
	}
	first := r.pending[0]
	r.pending = r.pending[1:]
	if r.told > 0 {
		r.told--
		first.release()
		return
	}
	r.status.committed(first.since)
	first.settle(wlog.Appended{At: wlog.Index(p.index)})
}

// errEnded says that the broker has closed the replica.
var errEnded = fmt.Errorf("the replica ends: %w", wlog.ErrClosed)

// end ends the replica when run ends.
func (r *replica) end(err error) {
	r.halt() // in case write waits for space on the disk
	r.mu.Lock()
	r.err = err
	offered := r.offered
	r.inbox, r.offered = nil, nil
	r.mu.Unlock()
	if r.log != nil {
		r.log.lose()
	}
	lost := fmt.Errorf("%w: %w", wlog.ErrLost, err)
	r.refusePending(lost)
	refuse(r.due, lost)
	refuse(r.held, lost)
	refuse(offered, lost)
	r.elect(ownership{err: err})
	r.reads.end(lost)
	r.endMoves(lost)
	r.owners.set(wlog.Ownership{Shard: r.shard, Epoch: r.published.Epoch})
	close(r.jobs)
	for range r.done { // a write in progress ends first
	}
	close(r.ended)
}

// halt asks the replica to end.
func (r *replica) halt() { r.halting.Do(func() { close(r.stop) }) }

// errStuck says that the disk does not answer.
var errStuck = errors.New("the disk does not answer: a write in progress may still succeed")

// close ends the replica and its local log. If the disk does not answer, close gives up with errStuck; the local log must not be opened
// again then, nor its engine closed.
func (r *replica) close() error {
	r.halt()
	r.closing.Do(func() {
		go func() {
			<-r.ended
			r.closed <- r.disk.log.Close()
		}()
	})
	select {
	case err := <-r.closed:
		r.closed <- err // for the next caller
		return err
	case <-time.After(r.stall):
		return fmt.Errorf("shard %d: %w", r.shard, errStuck)
	}
}
