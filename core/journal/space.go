package journal

import (
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/curfewmq/curfew/core/wlog"
)

// A commit is written in its turn, whole. So the first one in the queue must not wait for space that only a later one frees. Operations that
// bring records are committed only with a grant, which is space for them that nothing else gets. Without one, publishers wait before the
// mailbox, and dead letters in their queue: nothing waits behind them. The rest of the disk is a reserve for operations without a grant.
//
// Let room be the bytes that the log can still take, minus the bytes granted and not yet written, minus endBytes for each live record:
// the most that the operations take which end it. Let u be a quarter of a segment, g the largest grant, d = g + min(3g, 12u), and
// e = g + min(4g, 4u), and o = 8u for each other log on the disk:
//
//	0          u                     7u+d      8u+d+g+o               12u+d+e+2o + a part of dead letters  room
//	├──────────┼─────────────────────┼─────────┼──────────────────────┼─────────────────────────────────▶
//	│          │ records are         │ other   │ dead letters move    │ publishers publish
//	│          │ relocated           │ changes │                      │
//
//   - Settlements need no grant. The record that they end has brought their space along.
//   - A record that moves to another queue, or is relocated, takes as much of the room as it frees, and frees that once the extents at the
//     front of the log are dead. Dead bytes never keep the room small: while dead letters wait and there are u of dead bytes, records are
//     relocated, at most two extents at a time. The files give space back one segment, 4u, at a time. Until the first one is free, relocation
//     takes at most 6u + d: the live records of the six extents that it may have parts of, which may end g later, and what entries leave
//     at the ends of two segments.
//   - Changes that neither bring nor end records, such as requeues, are not committed below 7u + d: see TryCommit.
//   - So only live records make the room smaller for long. When they have been settled, it is as before.
//
// Example: a disk of 64 MiB has segments of 2 MiB, so u is 512 KiB. With 50,000 messages of 1 KB in batches of 64 KiB, publishers wait when
// 9.6 MiB are left: 6 MiB, 256 KiB for dead letters, 320 KiB for the batches, and 3.1 MiB for the ends of the messages. All messages expire.
// 256 KiB of dead letters at a time move until 7.4 MiB are left; by then 2.2 MiB of the log are dead, at its front, and the next ones move as
// they are trimmed. If one message at the front lives on, it is relocated. Consumers of the dead letters settle 50,000 messages in 3.1 MiB at
// most, whatever their order, even if nothing is trimmed meanwhile.
//
// Example of d and e: messages of 300 KB, six in a segment, two in an extent. Without d, relocation stopped in the middle of the first segment: a
// disk with 3 MB of dead bytes behind it stayed full. Each segment leaves 290 KB at its end, so that publishers, too, leave less than was
// there when they got their grants. Without e, four dead letters moved, which did not free the first segment, and the others waited.
//
// Example of o: three logs on a disk, full of dead letters. Each segment that a log begins, and the next one that it prepares, are 4u that the
// other two cannot use. Without o, each had granted what its own room allowed; then all three began segments, the room of each fell by 10u,
// and no dead letter moved any more, in any of them.
//
// All logs on a disk share what is granted, and g is the largest grant in any of them: they leave one another what that takes. When they
// have written u/4 together, each looks again how much is left. Other processes may fill the disk: then the first commit waits, with an
// alarm, until they free some; nothing is lost.

// endBytes is what the operations take at most that end a record: a settlement of its own, a mark how far messages were delivered, and what
// says that it is dead-lettered or held.
const endBytes = 64

// Space is what the logs on a disk have granted of it. The zero value is a disk without logs.
type Space struct {
	inflight atomic.Int64 // bytes granted, or committed, and not written
	records  atomic.Int64 // live ones
	written  atomic.Int64 // bytes, by all logs ever
	largest  atomic.Int64 // bytes of the largest grant of which a log may have something; changed under mu

	// OnMoves is called when Moves may report true again; nil = no call. It must not block.
	OnMoves func()

	mu    sync.RWMutex // guards logs
	logs  []*Writer
	count atomic.Int64 // of logs
}

// Take counts bytes that are about to be committed to some log of the disk; Give ends that.
func (s *Space) Take(bytes int64) { s.inflight.Add(bytes) }

// Give ends a Take.
func (s *Space) Give(bytes int64) { s.inflight.Add(-bytes) }

// Moves reports whether each log has space for so many bytes of records more that go from one queue to another. If one has not, OnMoves
// is called when it has.
func (s *Space) Moves(bytes int64) bool {
	w := s.lacksSpace(bytes)
	if w != nil {
		w.awaitMoves()
	}
	return w == nil
}

// lacksSpace returns a log that has no space for what moves; nil = all have.
func (s *Space) lacksSpace(bytes int64) *Writer {
	s.mu.RLock()
	logs := s.logs // it is appended to, or replaced
	s.mu.RUnlock()
	for _, w := range logs {
		if w.outdated() {
			w.lookAgain()
		}
		if s.inflight.Load()+bytes > w.moveCeiling.Load() {
			return w
		}
	}
	return nil
}

func (s *Space) add(w *Writer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.logs = append(s.logs, w)
	s.count.Store(int64(len(s.logs)))
	s.findLargest()
}

// updateLargest follows a change of what the largest grant of a log is.
func (s *Space) updateLargest() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.findLargest()
}

// findLargest finds the largest grant of all logs. The caller holds mu.
func (s *Space) findLargest() {
	largest := int64(0)
	for _, w := range s.logs {
		largest = max(largest, w.largest.Load())
	}
	s.largest.Store(largest)
}

func (s *Space) remove(w *Writer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, l := range s.logs {
		if l == w {
			s.logs = append(s.logs[:i:i], s.logs[i+1:]...)
			s.count.Store(int64(len(s.logs)))
			s.findLargest()
			return
		}
	}
}

// waiter waits for a grant.
type waiter struct {
	bytes int64
	fn    func()
}

// room is what a writer knows of the space of its log. It belongs to the holder of the writer's mu, but for the atomics.
type room struct {
	left      int64        // what the log takes, as of the last look less what was written since
	least     wlog.Purpose // for which other nodes have space, as of the last look
	records   int64        // live ones
	waiters   []waiter
	pressed   time.Time // since when space is short, and the log began with the extent pressedAt
	pressedAt uint32
	retry     *time.Timer

	largest     atomic.Int64 // bytes of the largest grant of which the log may have something
	seen        atomic.Int64 // what all logs had written at the last look
	atMost      atomic.Int64 // the largest grant of all logs that the ceilings are for
	ceiling     atomic.Int64 // inflight may be as much with a grant
	moveCeiling atomic.Int64 // inflight may be as much with dead letters
	waits       atomic.Bool  // there are waiters
	movesWait   atomic.Bool  // Moves returned false because of this log
	scarce      atomic.Bool  // only what ends records is committed
}

const (
	spaceRetry = 100 * time.Millisecond
	noSpace    = math.MinInt64 / 2
)

// MostGranted returns how many bytes can be granted at once on a disk of so many, with so many logs, however empty it is: see [Options] for the
// others. What else has to be free for that is taken off, and a tenth of the disk for its file system.
func MostGranted(disk, unit, moves int64, logs int) int64 {
	const (
		kept   = 12 + 12 + 4 + 4 // units, for the largest grants, while others wait for space
		others = 2 * 8           // units, for each other log; there is always that of the registry
		each   = 3               // times the grant itself: as it is written, moved and relocated
	)
	return max(0, (disk-disk/10-(kept+others*int64(max(1, logs-1)))*unit-moves)/each)
}

// MostGrant returns how many bytes can be granted at once: who waits for more waits for ever.
func (w *Writer) MostGrant() int64 { return w.o.Most }

// Grant reports whether there is space for operations of so many bytes, which is taken if there is. Return gives it back, once the
// operations were committed.
func (w *Writer) Grant(bytes int64) bool {
	if w.waits.Load() {
		return false
	}
	if bytes > w.atMost.Load() || w.outdated() {
		return w.grantAfterLook(bytes)
	}
	if w.o.Space.inflight.Add(bytes) <= w.ceiling.Load() {
		return true
	}
	w.o.Space.inflight.Add(-bytes)
	return false
}

// outdated reports whether what other logs have got changes the ceilings.
func (w *Writer) outdated() bool {
	s := w.o.Space
	return s.largest.Load() != w.atMost.Load() || s.written.Load()-w.seen.Load() >= w.o.Unit/4
}

// lookAgain updates what is outdated.
func (w *Writer) lookAgain() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.look(false)
}

// grantAfterLook is Grant of more than any before, or when the ceilings are outdated.
func (w *Writer) grantAfterLook(bytes int64) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.look(false)
	fits := w.Err() != nil || w.fits(bytes, w.o.Space.inflight.Load())
	if fits {
		w.granted(bytes)
	}
	return fits
}

// Await calls fn when there is space for operations of so many bytes, with the grant. Who calls it later is called later. fn must not
// block. It is called also if the log fails, or is closed.
func (w *Writer) Await(bytes int64, fn func()) {
	if !w.wait(bytes, fn) {
		fn()
	}
}

// wait adds a waiter, unless nothing is committed any more: then it has the grant.
func (w *Writer) wait(bytes int64, fn func()) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.Err() != nil {
		w.o.Space.inflight.Add(bytes)
		return false
	}
	w.waiters = append(w.waiters, waiter{bytes, fn})
	w.o.Waiting.Add(bytes)
	w.waits.Store(true)
	w.updateCaughtUp()
	w.wakeRunner()
	return true
}

// Return gives back a grant.
func (w *Writer) Return(bytes int64) {
	w.o.Space.inflight.Add(-bytes)
	if w.waits.Load() || w.movesWait.Load() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.wakeRunner()
	}
}

// granted takes a grant. The caller holds mu.
func (w *Writer) granted(bytes int64) {
	w.o.Space.inflight.Add(bytes)
	w.extents.note(bytes)
	if bytes > w.largest.Load() {
		w.setLargest(bytes)
	}
}

// setLargest changes what the largest grant is of which the log may have something. The caller holds mu.
func (w *Writer) setLargest(bytes int64) {
	w.largest.Store(bytes)
	w.o.Space.updateLargest()
	w.updateCeilings()
}

// dip returns by how much more than 6u the room gets smaller before the first segment of the log is free, with records of so many bytes: they may lie
// across the ends of two extents, and leave space at the ends of two segments.
func (w *Writer) dip(largest int64) int64 { return largest + min(3*largest, 12*w.o.Unit) }

// uneven returns what publishers leave beside what moves take until the first segment is free: a record of that size, and what others leave
// at the ends of segments, which no grant counts.
func (w *Writer) uneven(largest int64) int64 { return largest + min(4*largest, 4*w.o.Unit) }

// beside returns by how much the room gets smaller, at most, while the other logs of the disk begin a segment each, and prepare the next one:
// the space at the end of a segment is that log's alone.
func (w *Writer) beside() int64 { return 8 * w.o.Unit * max(0, w.o.Space.count.Load()-1) }

// fits reports whether there is space for operations with a grant, with so much in flight. The caller holds mu.
func (w *Writer) fits(bytes, inflight int64) bool {
	if w.lowSpace || w.least > wlog.Bringing {
		return false
	}
	largest := max(w.o.Space.largest.Load(), bytes)
	least := 12*w.o.Unit + w.o.Moves + w.dip(largest) + w.uneven(largest) + 2*w.beside()
	if w.full {
		least += 4 * w.o.Unit // it does not blink
	}
	return w.free()-inflight-bytes >= least
}

// free returns the free bytes, minus the bytes for the ends of live records. The caller holds mu.
func (w *Writer) free() int64 { return w.left - endBytes*max(0, w.o.Space.records.Load()) }

// updateCeilings follows the free space. The caller holds mu.
func (w *Writer) updateCeilings() {
	largest := w.o.Space.largest.Load()
	free, dip := w.free(), w.dip(largest)
	beside := w.beside()
	bring, move := free-12*w.o.Unit-w.o.Moves-dip-w.uneven(largest)-2*beside, free-8*w.o.Unit-dip-largest-beside
	w.atMost.Store(largest)
	if w.lowSpace || w.full || w.least > wlog.Bringing {
		bring = noSpace
	}
	switch {
	case w.Err() != nil:
		bring, move = math.MaxInt64, math.MaxInt64
	case w.o.Moves == 0: // none come here
		move = math.MaxInt64
	case w.least > wlog.Moving:
		move = noSpace
	}
	w.ceiling.Store(bring)
	w.moveCeiling.Store(move)
	w.scarce.Store(w.Err() == nil && free-w.o.Space.inflight.Load() < 7*w.o.Unit+dip)
	w.queue.maxEntry = w.o.Entry
	if w.lowSpace || w.full || len(w.waiters) > 0 || w.movesWait.Load() { // what is left at the end of a segment is small
		w.queue.maxEntry = max(w.o.Entry/8, 1)
	}
}

// Low reports whether grants wait for space on the disk.
func (w *Writer) Low() bool { return w.ceiling.Load() == noSpace }

// look looks how much the log takes, if that was long ago. The caller holds mu.
func (w *Writer) look(now bool) {
	if written := w.o.Space.written.Load(); now || written-w.seen.Load() >= w.o.Unit/4 { // before the look: that may count some twice
		w.left = w.log.Room()
		w.seen.Store(written)
	}
	w.least = w.log.Least()
	w.updateCeilings()
}

// used accounts for an entry of so many bytes. The caller holds mu.
func (w *Writer) used(bytes int64) {
	w.left -= bytes
	w.o.Space.written.Add(bytes)
}

// letIn lets those in that wait for a grant, as far as there is space. It is called by run.
func (w *Writer) letIn() {
	for {
		fn, blocked := w.nextWaiter()
		if fn == nil {
			w.setFull(blocked)
			break
		}
		fn()
	}
	if !w.movesWait.Load() {
		return
	}
	s := w.o.Space
	if s.inflight.Load()+w.o.Moves <= w.moveCeiling.Load() {
		w.movesWait.Store(false)
		if s.OnMoves != nil {
			s.OnMoves()
		}
	}
}

// nextWaiter takes the first waiter that gets a grant. blocked reports that it gets none, though nothing is in flight that would make
// space.
func (w *Writer) nextWaiter() (fn func(), blocked bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	waits := len(w.waiters) > 0
	if !waits && w.waits.Load() { // only now: what follows the last one must not get in before that was called
		w.waits.Store(false)
		w.updateCaughtUp()
	}
	w.look(waits || w.movesWait.Load() || w.lowSpace)
	if waits {
		first := w.waiters[0]
		switch {
		case w.Err() != nil || w.fits(first.bytes, w.o.Space.inflight.Load()):
			w.granted(first.bytes)
			w.o.Waiting.Add(-first.bytes)
			w.waiters[0] = waiter{}
			if w.waiters = w.waiters[1:]; len(w.waiters) == 0 {
				w.waiters = nil
			}
			return first.fn, false
		default:
			blocked = !w.fits(first.bytes, 0)
		}
	}
	if waits || w.movesWait.Load() || w.scarce.Load() {
		w.lookLater()
	}
	return nil, blocked
}

// awaitMoves has run call OnMoves.
func (w *Writer) awaitMoves() {
	if w.movesWait.Swap(true) {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.wakeRunner()
}

// lookLater has run look again. The caller holds mu.
func (w *Writer) lookLater() {
	if w.Err() != nil {
		return
	}
	if w.retry == nil {
		w.retry = time.AfterFunc(spaceRetry, func() {
			w.mu.Lock()
			defer w.mu.Unlock()
			if w.failure == nil && w.Err() == nil {
				w.wakeRunner()
			}
		})
		return
	}
	w.retry.Reset(spaceRetry)
}

// leaveSpace leaves the disk to the other logs: nothing is committed any more. Those who wait are let in, to be refused. The caller holds mu.
func (w *Writer) leaveSpace() {
	w.o.Space.remove(w)
	w.o.Space.records.Add(-w.records)
	w.records = 0
	if w.retry != nil {
		w.retry.Stop()
	}
	w.updateCeilings()
	if len(w.waiters) > 0 || w.movesWait.Load() {
		w.wakeRunner()
	}
}
