// Package journal is the group-commit layer between queues and a log. Queues commit
// operations and go on. Everything that is committed while one append is in flight becomes
// the next entry, so that one flush serves all of it.
//
// The journal also tracks which parts of the log are live. It trims the rest, and asks for
// live records to be relocated when too little of the log is live.
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

// Completer learns the result of a commit: one of its methods is called, once. The calls
// come from the writer's goroutine, one at a time and in the order of the commits. They
// must not block, and may call Commit but neither Sync nor Close.
type Completer interface {
	// Durable reports that the operations survive a crash.
	Durable()
	// Failed reports that the log failed or was closed before that was certain. The
	// operations may survive nevertheless.
	Failed(err error)
}

// Writer commits operations to one log. It is safe for concurrent use. With nothing to append it has no goroutine.
type Writer struct {
	log     wlog.Log
	most    int // bytes of a commit
	o       Options
	ctx     context.Context // of appends; ends when Close waits no longer
	cancel  context.CancelFunc
	work    func()        // run, bound once: starting it must not allocate
	closing chan struct{} // closed by Close

	latency, groupSize, entrySize *telemetry.Histogram // see Stats

	extent   atomic.Uint32                 // extents.current(), for all to read
	caughtUp atomic.Pointer[chan struct{}] // the channel that CaughtUp returns; changed under mu
	err      atomic.Pointer[error]         // why commits are refused; nil = they are taken. Changed under mu

	flights flights // run's own
	failure error   // why nothing is appended any more; run changes it, under mu

	mu          sync.Mutex // guards the fields below
	changed     *sync.Cond // signalled when running becomes false, and when relocations changes
	running     bool       // run is
	expecting   bool       // run waits for a commit
	earliest    time.Time  // when the next entry may begin
	queue       commitQueue
	extents     extents
	recovered   bool // live bytes are known: trimming is safe
	lowSpace    bool // see SetLowSpace
	tight       bool // see SetTight
	full        bool // see OnFull; changed by run only
	stuck       bool // the first group does not fit; changed by run only
	pending     int64
	relocations int // calls of Relocate that are not durable
	round       reclaimRound
	room
	stats Stats
}

// Open opens a shard's log and replays it: fn gets every entry in order, with its extent,
// and must not keep ops. An error of fn ends the replay and is returned.
//
// With Options.Replay, fn gets only the entries behind those that the Replay has. engine is
// the [wlog.Standby] that the Replay was made with. If Open returns [wlog.ErrTrimmed], the
// Replay is void, and the log can only be opened without it. After any other error that is
// not fn's, the Replay has the entries that fn has got.
//
// The log is not trimmed before Recovered was called.
func Open(ctx context.Context, engine wlog.Engine, shard uint32, fn func(extent uint32, at wlog.Index, ops []byte) error, o Options) (*Writer, error) {
	o = o.withDefaults()
	most := engine.MaxEntry()
	o.Entry = min(o.Entry, most)
	r := o.Replay
	if r == nil {
		r = NewReplay(nil, o)
	}
	w := &Writer{
		most:      most,
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
	w.largest.Store(w.extents.largest())
	w.ctx, w.cancel = context.WithCancel(context.WithoutCancel(ctx))
	w.extent.Store(w.extents.current())
	o.Space.add(w)
	w.look(true)

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
		w.count(d)
	}
	w.recovered = true
	w.wakeRunner()
}

// Commit appends ops to the log, in one entry, after everything that was committed before.
// It does not block, and keeps neither ops nor live. c, which may be nil, learns when ops
// are durable. Empty ops are durable when everything committed before is. Commit refuses
// more than MaxCommit bytes, and does not count their live then. The caller has a grant for
// operations that bring records.
//
// live says how the live bytes change. Records that become live count at once, in an extent
// that Extent returned before. Records that are no longer needed are subtracted when ops
// are durable, so that the record of an expired message is kept until the operation that
// dead-letters it is written.
func (w *Writer) Commit(ops []byte, live []Delta, c Completer) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.commit(ops, live, c)
}

// MaxCommit returns how many bytes of operations a commit may have.
func (w *Writer) MaxCommit() int { return w.most }

// commit adds a commit to the queue, unless it refuses it. The caller holds mu.
func (w *Writer) commit(ops []byte, live []Delta, c Completer) (refused bool) {
	err := w.Err()
	if err == nil && len(ops) > w.most {
		err = wlog.ErrTooLarge
	}
	if err != nil {
		if c != nil {
			w.queue.last(0, &w.extents).refuse(c, err)
			w.start()
		}
		return true
	}
	for _, d := range live {
		if d.Bytes > 0 {
			w.extents.add(d)
			w.extents.note(min(int64(len(ops)), w.largest.Load()))
		}
		w.count(d)
	}
	g := w.queue.last(len(ops), &w.extents)
	n := int64(len(ops))
	if n > 0 && len(g.entry) == 0 {
		n = w.o.Size(len(ops))
	}
	g.add(ops, live, c)
	w.extents.take(n)
	w.extent.Store(w.extents.current())
	w.pending += int64(len(ops))
	w.o.Waiting.Add(int64(len(ops)))
	w.o.Space.inflight.Add(int64(len(ops)))
	w.stats.Commits++
	w.updateCaughtUp()
	w.start()
	return false
}

// count counts live records.
func (w *Writer) count(d Delta) {
	if d.Records != 0 {
		w.records += int64(d.Records)
		w.o.Space.records.Add(int64(d.Records))
	}
}

// TryCommit commits operations that may be lost, and leave the live bytes as they are. It
// drops them and returns false while space is scarce, and while the log cannot write and
// many bytes wait: they would only take up memory.
func (w *Writer) TryCommit(ops []byte) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stuck && w.pending+int64(len(ops)) > w.o.Pending || w.scarce.Load() {
		return false
	}
	w.commit(ops, nil, nil)
	return true
}

// relocation is the completer of a commit that Relocate made. It implements [Completer].
type relocation Writer

var _ Completer = (*relocation)(nil)

func (r *relocation) Durable() { (*Writer)(r).relocated() }

func (r *relocation) Failed(error) { (*Writer)(r).relocated() }

func (w *Writer) relocated() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.relocations--
	w.changed.Broadcast()
}

// Relocate commits copies of live records. live accounts for them in their old and new places.
func (w *Writer) Relocate(ops []byte, live []Delta) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.relocations++
	if !w.commit(ops, live, (*relocation)(w)) {
		w.round.give(w.o.Space, int64(len(ops)))
	}
}

// WaitRelocated waits until all calls of Relocate are durable. It returns an error if commits are refused.
func (w *Writer) WaitRelocated() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.relocations > 0 {
		w.changed.Wait()
	}
	return w.Err()
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

// Extent returns the number of the extent that operations committed from now on are
// accounted to; they may lie in a later one. Extents are numbered from 1, anew in every
// process.
func (w *Writer) Extent() uint32 { return w.extent.Load() }

// CaughtUp returns nil, or, while the log does not keep up, a channel that is closed when
// it does. Publishers wait on it before they commit more. Settlements do not wait, because
// they free space.
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

// Close refuses further commits, waits until those before are durable, and closes the log.
// When ctx ends, the rest fails. On a full disk, commits that bring more fail: the error is
// then a wlog.ErrFull, which says only that they were not confirmed and are dropped.
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

// shut makes the writer refuse commits. It returns false if it was called before.
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
	w.round.end(w.o.Space)
	w.updateCaughtUp()
	w.leaveSpace()
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

// watch wakes run when the log is lost, because run does not notice it without commits.
// watch ends with the log.
func (w *Writer) watch() {
	select {
	case <-w.log.Lost():
		w.mu.Lock()
		defer w.mu.Unlock()
		w.wakeRunner()
	case <-w.closing:
	}
}

// ended returns the writer's failure for an error of the log. Where owners change, the
// failure for a lost log wraps [wlog.ErrNotOwner].
func (w *Writer) ended(err error) error {
	if w.o.OnLost != nil && errors.Is(err, wlog.ErrLost) && !errors.Is(err, wlog.ErrNotOwner) {
		return fmt.Errorf("%w: %w", wlog.ErrNotOwner, err)
	}
	return err
}

// Offset returns the shard's clock minus this node's, as long as the log is open: see [wlog.Log].
func (w *Writer) Offset() time.Duration { return w.log.Offset() }

// Stats counts events since the log was opened, and describes the log's present size.
type Stats struct {
	Commits  uint64
	Appends  uint64
	Bytes    uint64 // appended
	Reclaims uint64 // calls of Options.Reclaim
	Pending  int64  // bytes committed and not yet durable
	Live     int64  // bytes of live records
	LogBytes int64  // bytes of entries that were not trimmed
	Extents  int
	Low      bool // see SetLowSpace
	Full     bool // see Options.OnFull

	// Of entries: the seconds from when each was complete until it was durable, its commits, and its bytes.
	Latency, Group, Size telemetry.Distribution
}

var (
	groupBounds = []float64{1, 2, 4, 8, 16, 32, 64, 128, 256, 1 << 10, 4 << 10, 16 << 10}                     // commits
	sizeBounds  = []float64{256, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20} // bytes
)

// Stats returns the current statistics.
func (w *Writer) Stats() Stats {
	w.mu.Lock()
	st := w.stats
	st.Pending, st.Low, st.Full = w.pending, w.lowSpace, w.full
	st.Live, st.LogBytes, st.Extents = w.extents.live, w.extents.bytes, len(w.extents.list)
	w.mu.Unlock()
	st.Latency, st.Group, st.Size = w.latency.Read(), w.groupSize.Read(), w.entrySize.Read()
	return st
}
