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
	"github.com/curfewmq/curfew/core/wlog"
	"github.com/curfewmq/curfew/sdk/hook"
)

// replica runs a group: it has the clock, the goroutines and the local log. Two goroutines are its own: run, to which the group
// belongs, and write.
type replica struct {
	shard    uint32
	disk     *disk
	clock    clock.Clock
	send     func(to wlog.NodeID, m Message)
	owners   *owners
	leaving  *atomic.Bool
	election time.Duration
	stall    time.Duration // how long an append of the local log may take an owner
	lost     func(shard uint32, owner wlog.NodeID, why error)
	progress progress
	status   status

	mu       sync.Mutex  // guards inbox, received, offered and err
	inbox    []func()    // for run
	received int         // bytes of the messages in there
	offered  []*proposal // for run, which has the inbox first
	err      error       // why the replica has ended; nil = it runs
	wake     chan struct{}
	stop     chan struct{} // closed to end the replica
	halting  sync.Once
	ended    chan struct{} // closed when it has

	least     atomic.Uint32             // the first wlog.Purpose for which a majority has space
	reserving atomic.Pointer[time.Time] // since when an append waits for space in the local log; nil = none does
	closing   sync.Once                 // begins to close the local log
	closed    chan error                // capacity 1: its result

	offset atomic.Int64 // of the shard's time, in ns, while this node owns the shard

	// The rest belongs to run.
	group     *group
	jobs      chan job
	done      chan job
	writing   bool
	since     time.Time // when the write began, or the first of those that were refused
	probed    bool      // there was space for the large write that was refused
	failed    error     // of the local log: nothing is written any more; nil = it works
	began     time.Time // of the engine, whose ticks are counted from then
	ticks     *ticks
	idle      int         // ticks since an entry was on its way
	farewell  int         // ticks in which another node may take over from a replica whose local log has failed
	trims     wlog.Index  // of the local log, not trimmed yet; 0 = nothing
	due       []*proposal // to be proposed now
	pending   []*proposal
	told      int         // of pending, how many of the first were told that they are durable
	held      []*proposal // while the shard is being transferred
	waiting   map[*candidacy]struct{}
	reads     reads
	moves     []*move
	samples   samples
	spaces    spaces
	kept      hook.Instant // when it was last looked at what is kept of samples
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
		jobs: make(chan job, 1), done: make(chan job, 1), waiting: map[*candidacy]struct{}{}, spaces: spaces{}, status: newStatus(),
		reads: reads{asked: rand.Uint64() / 2}, // what was asked in an earlier life is not answered in this one
	}
	o := options{
		id: uint64(e.options.Node), election: electionTicks, heartbeat: heartbeatTicks, maxSize: maxSize, inflight: maxInflight, trimEach: trimEach, trimBytes: trimBytes,
		first: int(shard), prompt: slices.Contains(e.options.Prompt, shard),
	}
	if r.group, err = newGroup(ctx, d, o, r.committed, func(position) {}); err != nil {
		return nil, errors.Join(err, d.log.Close())
	}
	if r.trims = d.began; len(d.entries) > 0 { // the node may have ended before that was trimmed
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

// do has run call a function, unless the replica has ended. It does not wait.
func (r *replica) do(fn func()) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err != nil {
		return r.err
	}
	r.push(fn)
	return nil
}

// offer has run propose an entry. Every proposal is settled, also when the replica ends.
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

// rouse has run look for something to do.
func (r *replica) rouse() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// maxReceived is how many bytes of messages may wait for run, and again for the disk. Owners send less before they get an answer.
const maxReceived = 4 * MaxEntry

// receive has run take a message of another node, of so many bytes, unless it has more than enough to do.
func (r *replica) receive(m *raftpb.Message, takes wlog.Purpose, size int) {
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
		if saysSpace(m.GetType()) && r.spaces.hear(m.GetFrom(), takes) {
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

// turn does all there is to do, and waits for more. Raft panics if it finds itself wrong, as it must be if the disk has lost what it had,
// or if another node's messages are not those of Raft: that ends the replica, and not the broker.
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

// wait waits for something to do, and begins it. What comes finds the clock of the group as late as it is.
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

// lull returns at which of the next ticks something happens at the earliest, if nothing else does until then.
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
	r.refresh()
	if stalled || r.failed != nil {
		r.group.handOver()
	}
	if r.failed != nil {
		r.farewell--
	}
}

// empty calls the functions in the inbox, and proposes what was offered.
func (r *replica) empty() {
	r.mu.Lock()
	fns, offered := r.inbox, r.offered
	r.inbox, r.received, r.offered = nil, 0, nil
	r.mu.Unlock()
	r.due = offered // end settles them if Raft finds itself wrong meanwhile
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

// work sends what there is to send, and gives write something to do.
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
		j := job{write: r.group.nextWrite(maxSize), trim: r.trims}
		r.trims = 0
		switch {
		case j.write == nil && j.trim == 0:
			return nil
		case j.trim == 0 && len(j.write.data) == 0: // it only waits for what was written before
			if _, err := r.group.written(j.write, 0); err != nil {
				return err
			}
			r.settle()
		default:
			if r.writing = true; !r.group.full {
				r.since = time.Now()
			}
			r.jobs <- j
		}
	}
}

func (r *replica) sendAll(ms []*raftpb.Message) {
	var last *raftpb.Message // that brings entries
	var bytes []byte         // of that
	for _, m := range ms {
		out := Message{Shard: r.shard, Bulk: bulk(m.GetType())}
		if last != nil && alike(last, m) {
			out.Bytes = bytes
		} else {
			out.Bytes = encode(m)
		}
		if saysSpace(m.GetType()) {
			sayTakes(out.Bytes, r.takes())
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

// settle tells those who wait what has become of what they wait for.
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

// tellDurable tells of the entries that a majority of the nodes has, while the local log is slow to write them: an owner's disk does not keep the
// others' majority waiting. As a rule the owner has what it tells of, and can go on as the owner after a restart. It stops at what waits for the disk in memory, which is bounded.
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

// isSlow reports whether the local log is slow to write, for another reason than that there is no space.
func (r *replica) isSlow() bool {
	return r.writing && !r.group.full && time.Since(r.since) >= r.election/electionTicks
}

// refusePending ends all that is pending.
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

// publish says who owns the shard, if that has changed.
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

// Why a node does not own a shard any more, for errors.Is.
var (
	ErrDisk     = errors.New("its log on this node's disk failed")
	ErrSlowDisk = errors.New("this node's disk does not answer")
	ErrLeaving  = errors.New("this node ends")
	ErrGiven    = errors.New("this node has handed it to another one")
	ErrOther    = errors.New("another node has taken over: the nodes have not heard of this one for the election timeout")
	ErrAlone    = errors.New("this node has heard of no majority of the others for the election timeout")
)

// lostBecause returns why this node does not own the shard any more, when it has just lost it.
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

// committed is told of each committed entry, in order.
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

// errEnded says that the broker closes the replica.
var errEnded = fmt.Errorf("the replica ends: %w", wlog.ErrClosed)

// end ends the replica, with run.
func (r *replica) end(err error) {
	r.halt() // write may wait for space on the disk
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
	for range r.done { // what is being written ends
	}
	close(r.ended)
}

// halt has the replica end.
func (r *replica) halt() { r.halting.Do(func() { close(r.stop) }) }

// errStuck says that the disk does not answer.
var errStuck = errors.New("the disk does not answer: what is being written may be there later")

// close ends the replica and its local log. It does not wait for ever for a disk that does not answer: then nobody may open the local log
// again, or close its engine.
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
		r.closed <- err // for who asks again
		return err
	case <-time.After(r.stall):
		return fmt.Errorf("shard %d: %w", r.shard, errStuck)
	}
}
