// Package journal is the group-commit layer between queues and a log. Queues commit operations and go on. Everything that is
// committed while one append is in flight becomes the next entry, so that one flush serves all of it.
//
// The journal also tracks which parts of the log are live. It trims the rest, and asks for live records to be relocated when
// too little of the log is live.
//
// Operations are opaque bytes here: queues write them, and read them again when the log is replayed.
package journal

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/curfewmq/curfew/core/telemetry"
	"github.com/curfewmq/curfew/core/wlog"
)

// ErrClosed is the error of operations committed after Close.
var ErrClosed = errors.New("journal: closed")

// Completer learns the result of a commit: one of its methods is called, once. The calls come from the writer's goroutine, one
// at a time and in the order of the commits, except for commits that overtake others. They must not block, and may call Commit
// but neither Sync nor Close.
type Completer interface {
	// Durable reports that the operations survive a crash.
	Durable()
	// Failed reports that the log failed or was closed before that was certain. The operations may survive nevertheless.
	Failed(err error)
}

// Writer commits operations to one log. It is safe for concurrent use. With nothing to append it has no goroutine.
type Writer struct {
	log     wlog.Log
	bounds  bounds
	o       Options
	ctx     context.Context // of appends; ends when Close waits no longer
	cancel  context.CancelFunc
	work    func()        // run, bound once: starting it must not allocate
	closing chan struct{} // closed by Close

	latency, groupSize, entrySize *telemetry.Histogram // see Stats

	extent   atomic.Uint32                 // extents.current(), for all to read
	vouchers atomic.Bool                   // Extent returns vouchers; changed under mu
	voucher  atomic.Uint32                 // the last one, less firstVoucher
	caughtUp atomic.Pointer[chan struct{}] // what CaughtUp returns; changed under mu
	err      atomic.Pointer[error]         // why commits are refused; nil = they are taken. Changed under mu

	flights   flights // run's own
	failure   error   // why nothing is appended any more; run changes it, under mu
	overtaken bool    // some commits in the queue were written before their turn; run's own

	mu          sync.Mutex // guards what follows
	changed     *sync.Cond // signalled when running becomes false, and when relocations changes
	running     bool       // run is
	expecting   bool       // run waits for something to begin
	earliest    time.Time  // when that may begin
	queue       commitQueue
	extents     extents
	recovered   bool // live bytes are known: trimming is safe
	lowSpace    bool // see SetLowSpace
	tight       bool // see SetTight
	full        bool // see OnFull; changed by run only
	pending     int64
	relocations int        // calls of Relocate that are not durable
	gone        *recordSet // settled, or relocated, while commits wait that may bring them, and have no vouchers; nil = none do, as far as is known
	round       reclaimRound
	stats       Stats
}

// Open opens a shard's log and replays it: fn gets every entry in order, with its extent, and must not keep ops. An error of fn
// ends the replay and is returned.
//
// With Options.Replay the entries that it has got are not replayed again; fn gets those behind them. The engine is the
// [wlog.Standby] that it was made with. If it returns [wlog.ErrTrimmed], what was replayed is void: only without it the log can be opened. After another error that is
// not fn's, the Replay has got what fn has.
//
// Nothing is trimmed before Recovered was called.
func Open(ctx context.Context, engine wlog.Engine, shard uint32, fn func(extent uint32, at wlog.Index, ops []byte) error, o Options) (*Writer, error) {
	o = o.withDefaults()
	b := boundsOf(engine)
	o.Entry = min(o.Entry, b.commit)
	r := o.Replay
	if r == nil {
		r = NewReplay(nil, o)
	}
	w := &Writer{
		bounds:    b,
		o:         o,
		closing:   make(chan struct{}),
		queue:     commitQueue{maxEntry: o.Entry},
		latency:   telemetry.NewHistogram(telemetry.Latencies),
		groupSize: telemetry.NewHistogram(groupBounds),
		entrySize: telemetry.NewHistogram(sizeBounds),
	}
	w.work = w.run
	w.changed = sync.NewCond(&w.mu)
	log, err := r.open(ctx, engine, shard, fn)
	if err != nil {
		return nil, fmt.Errorf("journal: shard %d: %w", shard, err)
	}
	w.log, w.flights, w.extents = log, newFlights(log), r.extents
	w.ctx, w.cancel = context.WithCancel(context.WithoutCancel(ctx))
	w.extent.Store(w.extents.current())
	if o.OnLost != nil {
		go w.watch()
	}
	return w, nil
}

// Recovered sets the live bytes of the replayed entries. It is called once, before the first commit.
func (w *Writer) Recovered(live []Delta) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, d := range live {
		w.extents.add(d)
	}
	w.recovered = true
	w.wakeRunner()
}

// Commit appends ops to the log, in one entry, after everything that was committed before. It does not block, and keeps neither
// ops nor live. c, which may be nil, learns when they are durable. Empty ops are durable when everything committed before is.
// Commits of more than MaxCommit bytes are refused, and their live does not count.
//
// live says how the live bytes change. Records that become live count at once, in an extent that Extent returned before, or, with a
// voucher, when they are written. Records that are no longer needed are subtracted when ops are durable: so the record of an
// expired message is kept until the operation that dead-letters it is written. They are settled by ops, or by operations that were
// durable before Commit was called: this commit may overtake those that are not.
//
// A commit that frees space on balance may overtake others that wait for space. What it does to their records is written again
// with them. A record that is settled while its commit waits is not written: see Options.Without.
func (w *Writer) Commit(ops []byte, live []Delta, c Completer) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.commit(ops, live, commit{completer: c, purpose: w.o.Purpose, inOrder: w.o.Purpose == wlog.Moving})
}

// CommitAs is Commit of operations with a purpose of at least p, for those that must not wait for space as others do. Those with
// [wlog.Moving], which are definitions, are written in their order: a later one may undo what an earlier one does, and who waits for one
// counts how many were written.
func (w *Writer) CommitAs(p wlog.Purpose, ops []byte, live []Delta, c Completer) {
	w.mu.Lock()
	defer w.mu.Unlock()
	p = max(p, w.o.Purpose)
	w.commit(ops, live, commit{completer: c, purpose: p, inOrder: p == wlog.Moving})
}

// commit adds a commit to the queue. The caller holds mu.
func (w *Writer) commit(ops []byte, live []Delta, c commit) {
	err := w.Err()
	if err == nil && len(ops) > w.bounds.commit {
		err = wlog.ErrTooLarge
	}
	if err != nil {
		if c.completer != nil {
			w.queue.last(0).refuse(c.completer, err)
			w.start()
		}
		return
	}
	w.extents.commit++
	for _, d := range live {
		if d.Bytes > 0 {
			w.extents.add(d)
		}
	}
	if c.relocation {
		w.extents.copied(live)
	}
	w.queue.last(len(ops)).add(ops, live, c, &w.extents)
	w.pending += int64(len(ops))
	w.o.Waiting.Add(int64(len(ops)))
	w.stats.Commits++
	w.updateCaughtUp()
	w.start()
}

// TryCommit commits operations that may be lost, and change nothing of what is live. It drops them and returns false while the
// log is full and much waits for it: they would only take up memory.
func (w *Writer) TryCommit(ops []byte) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.full && w.pending+int64(len(ops)) > w.o.Pending {
		return false
	}
	w.commit(ops, nil, commit{purpose: w.o.Purpose})
	return true
}

// start starts run, unless it is running. The caller holds mu.
func (w *Writer) start() {
	switch {
	case !w.running:
		w.running = true
		go w.work()
	case w.expecting:
		w.expected()
	}
}

// Extent returns the number of the extent that operations committed from now on are accounted to; they may lie in a later one.
// While space is low, it returns the number of a voucher, another one with each call: it stands for the extent of one commit,
// whichever that will be, see Home. Extents are numbered from 1, anew in every process.
func (w *Writer) Extent() uint32 {
	if w.vouchers.Load() {
		return firstVoucher | w.voucher.Add(1)
	}
	return w.extent.Load()
}

// Current is Extent without vouchers, for what has no use for them: it counts at once, and keeps its extent while it waits for space.
func (w *Writer) Current() uint32 { return w.extent.Load() }

// Home returns the extent that a number stands for, which Extent returned; 0 = what was committed with it is not written.
func (w *Writer) Home(number uint32) uint32 {
	if !IsVoucher(number) {
		return number
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.extents.home(number)
}

// updateVouchers has Extent return vouchers while commits may have to wait for space. The caller holds mu.
func (w *Writer) updateVouchers() { w.vouchers.Store(w.lowSpace || w.full) }

// CaughtUp returns nil, or, while the log does not keep up, a channel that is closed when it does. Publishers wait on it before
// they commit more. Settlements do not wait, because they free space.
func (w *Writer) CaughtUp() <-chan struct{} {
	if c := w.caughtUp.Load(); c != nil {
		return *c
	}
	return nil
}

// Sync waits until everything committed so far is durable.
func (w *Writer) Sync() error {
	b := make(barrier, 1)
	w.Commit(nil, nil, b)
	return <-b
}

type barrier chan error

func (b barrier) Durable()         { b <- nil }
func (b barrier) Failed(err error) { b <- err }

// Err returns why commits are refused, nil while they are taken.
func (w *Writer) Err() error {
	if err := w.err.Load(); err != nil {
		return *err
	}
	return nil
}

// Close refuses further commits, waits until those before are durable, and closes the log. When ctx ends, the rest fails. On a
// full disk, commits that bring more fail: the error is then a wlog.ErrFull, which says only that they were not confirmed and
// are dropped.
func (w *Writer) Close(ctx context.Context) error {
	if !w.shut() {
		return nil
	}
	stop := context.AfterFunc(ctx, w.cancel)
	defer stop()
	failure := w.drain()
	w.cancel()
	err := w.log.Close()
	if err != nil && errors.Is(failure, wlog.ErrFull) {
		return fmt.Errorf("%w; and %s", err, failure.Error()) // err is worse
	}
	return errors.Join(failure, err)
}

// shut makes commits be refused. It returns false if it was called before.
func (w *Writer) shut() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.shutting() {
		return false
	}
	close(w.closing)
	w.flights.hurry()
	if w.Err() == nil {
		w.err.Store(&ErrClosed)
	}
	w.round.end()
	w.updateCaughtUp()
	return true
}

// shutting reports whether Close was called.
func (w *Writer) shutting() bool {
	select {
	case <-w.closing:
		return true
	default:
		return false
	}
}

// drain waits until the queue is empty and returns why the log failed, if it did.
func (w *Writer) drain() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.running {
		w.changed.Wait()
	}
	return w.failure
}
