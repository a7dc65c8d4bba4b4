package journal

import (
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/curfewmq/curfew/core/wlog"
)

// The journal writes commits in their order, each as a whole. So the first commit in the
// queue must not wait for space that only a later commit frees. Therefore operations that
// bring records are committed only with a grant, which reserves space for them. Publishers
// wait for their grant before the mailbox, and dead letters wait in their queue, so that no
// commit waits behind them. The rest of the disk is a reserve for operations without a
// grant.
//
// Let room be the bytes that the log can still take, minus the bytes granted and not yet
// written, minus endBytes for each live record. Let u be a quarter of a segment, g the
// largest grant, d = g + min(3g, 12u), e = g + min(4g, 4u), and o = 8u for each other log
// on the disk:
//
//	0          u                     7u+d      8u+d+g+o               12u+d+e+2o + a part of dead letters  room
//	├──────────┼─────────────────────┼─────────┼──────────────────────┼─────────────────────────────────▶
//	│          │ records are         │ other   │ dead letters move    │ publishers publish
//	│          │ relocated           │ changes │                      │
//
//   - Settlements need no grant, because room leaves endBytes free for the end of each live
//     record.
//   - A record that moves to another queue, or is relocated, first takes its size once
//     more. Its old place is free once all extents up to it are dead. Dead bytes do not
//     keep the room small: if dead letters have waited for a second and u bytes are dead,
//     the journal has live records relocated, at most two extents at a time. The disk gets
//     a segment, 4u, back only as a whole. Until the first segment is free, relocation
//     takes at most 6u + d: 6u for the live records of the six extents that may lie in that
//     segment, and d for records of g bytes, which may reach across the ends of extents and
//     leave bytes unused at the ends of two segments.
//   - Changes that neither bring nor end records, such as requeues, are not committed below 7u + d: see TryCommit.
//   - So only live records make the room smaller for long, until they are settled.
//
// Example: a disk of 64 MiB has segments of 2 MiB, so u is 512 KiB. With 50,000 messages of
// 1 KB in batches of 64 KiB, publishers wait when 9.9 MiB are left: 6 MiB, 256 KiB for dead
// letters, 576 KiB for the batches (d + e), and 3.1 MiB for the ends of the messages. Then
// all messages expire. Dead letters move, 256 KiB at a time, until 7.4 MiB are left. By
// then 2.5 MiB at the front of the log are dead, and further dead letters move as these
// bytes are trimmed. A message at the front that does not expire is relocated. Consumers of
// the dead letters settle 50,000 messages in 3.1 MiB at most, in any order, even if nothing
// is trimmed meanwhile.
//
// Example of d and e: messages of 300 KB, six in a segment, two in an extent. Without d,
// relocation would stop in the middle of the first segment, and a disk with 3 MB of dead
// bytes behind it would stay full. Each segment leaves 290 KB unused at its end, which
// publishers' grants do not count. Without e, four dead letters would move, which does not
// free the first segment, and all others would wait.
//
// Example of o: three logs on a disk, full of dead letters. A log begins a segment of 4u,
// and prepares the next one, also of 4u; the other two logs cannot use these 8u. Without o,
// each log would grant what its own room allows. Then all three would begin segments, the
// room of each would fall by 10u, and no dead letter could move in any of them.
//
// All logs on a disk count their grants together in a Space, and g is the largest grant of
// any of them. When the logs have written u/4 together, each asks again how much space is
// left. Other processes may fill the disk: then the first commit waits, with an alarm,
// until they free some; nothing is lost.

// endBytes bounds the size of the operations that end a record: its settlement, a mark up
// to which message was delivered, and the operation that says that the record was
// dead-lettered or is held.
const endBytes = 64

// Space counts the bytes that the logs on one disk have granted. The zero value is a disk
// without logs.
type Space struct {
	inflight atomic.Int64 // bytes granted or committed, and not yet written
	records  atomic.Int64 // live ones
	written  atomic.Int64 // bytes, by all logs ever
	largest  atomic.Int64 // bytes of the largest grant whose records a log may still have; changed under mu

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

// Moves reports whether each log has space for records of so many bytes that move from one
// queue to another. If a log lacks the space, OnMoves is called when the log has it.
func (s *Space) Moves(bytes int64) bool {
	w := s.lacksSpace(bytes)
	if w != nil {
		w.awaitMoves()
	}
	return w == nil
}

// lacksSpace returns a log without space for so many bytes that move; nil = all logs have
// it.
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

// updateLargest updates largest after the largest grant of a log has changed.
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

// room is a writer's knowledge of the space of its log. It belongs to the holder of the
// writer's mu, except for the atomics.
type room struct {
	left      int64        // bytes that the log can still take: as of the last look, less what this log has written since
	least     wlog.Purpose // the first purpose for which other nodes have space, as of the last look
	records   int64        // live ones
	waiters   []waiter
	pressed   time.Time // since when space has been short while pressedAt was the first extent; zero = it is not short
	pressedAt uint32
	retry     *time.Timer

	largest     atomic.Int64 // bytes of the largest grant whose records the log may still have
	seen        atomic.Int64 // Space.written as of the last look
	atMost      atomic.Int64 // the Space.largest that the ceilings were computed with
	ceiling     atomic.Int64 // a grant must not raise inflight above it
	moveCeiling atomic.Int64 // dead letters must not raise inflight above it
	waits       atomic.Bool  // there are waiters, or the last one is just being called
	movesWait   atomic.Bool  // Moves returned false because of this log
	scarce      atomic.Bool  // only operations that bring or end records are committed, see TryCommit
}

const (
	spaceRetry = 100 * time.Millisecond
	noSpace    = math.MinInt64 / 2
)

// MostGranted returns the bytes of the largest possible grant on an empty disk of disk
// bytes that so many logs share; unit and moves are as in [Options]. It leaves out the
// bytes that have to stay free beside the grant, and a tenth of the disk for its file
// system.
func MostGranted(disk, unit, moves int64, logs int) int64 {
	const (
		kept   = 12 + 12 + 4 + 4 // units: as in fits, with the most that dip and uneven add in units
		others = 2 * 8           // units for each other log; there is always the log of the registry
		each   = 3               // times the grant: itself, and in dip and in uneven
	)
	return max(0, (disk-disk/10-(kept+others*int64(max(1, logs-1)))*unit-moves)/each)
}

// MostGrant returns the bytes of the largest possible grant. A publisher would wait for a
// larger one without end.
func (w *Writer) MostGrant() int64 { return w.o.Most }

// Grant takes space for operations of so many bytes, and reports whether there was enough.
// The caller gives the space back with Return, once it has committed the operations.
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

// outdated reports whether the ceilings have to be computed again, because of the grants
// and writes of all logs.
func (w *Writer) outdated() bool {
	s := w.o.Space
	return s.largest.Load() != w.atMost.Load() || s.written.Load()-w.seen.Load() >= w.o.Unit/4
}

// lookAgain computes the ceilings again.
func (w *Writer) lookAgain() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.look(false)
}

// grantAfterLook is Grant when it asks for more than the largest grant before, or when the
// ceilings are outdated.
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

// Await calls fn, with the grant, when there is space for operations of so many bytes.
// Several fn are called in the order of the calls of Await. fn must not block. It is called
// also if the log fails, or is closed.
func (w *Writer) Await(bytes int64, fn func()) {
	if !w.wait(bytes, fn) {
		fn()
	}
}

// wait adds a waiter. If the log takes no commits any more, wait takes the grant at once
// and returns false.
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

// setLargest changes largest. The caller holds mu.
func (w *Writer) setLargest(bytes int64) {
	w.largest.Store(bytes)
	w.o.Space.updateLargest()
	w.updateCeilings()
}

// dip returns d: by how much more than 6u the room gets smaller before the first segment of
// the log is free. Records of the largest size may lie across the ends of two extents, and
// leave space unused at the ends of two segments.
func (w *Writer) dip(largest int64) int64 { return largest + min(3*largest, 12*w.o.Unit) }

// uneven returns e: what publishers leave free in addition to what moves take until the
// first segment is free. It is one record of the largest size, and the space that records
// leave unused at the ends of segments, which no grant counts.
func (w *Writer) uneven(largest int64) int64 { return largest + min(4*largest, 4*w.o.Unit) }

// beside returns o: by how much the room gets smaller, at most, while each other log on the
// disk begins a segment and prepares the next one. Only the log of a segment can use the
// space at its end.
func (w *Writer) beside() int64 { return 8 * w.o.Unit * max(0, w.o.Space.count.Load()-1) }

// fits reports whether there is space for a grant of so many bytes while inflight bytes are
// in flight. The caller holds mu.
func (w *Writer) fits(bytes, inflight int64) bool {
	if w.lowSpace || w.least > wlog.Bringing {
		return false
	}
	largest := max(w.o.Space.largest.Load(), bytes)
	least := 12*w.o.Unit + w.o.Moves + w.dip(largest) + w.uneven(largest) + 2*w.beside()
	if w.full {
		least += 4 * w.o.Unit // so that the alarm does not flap
	}
	return w.free()-inflight-bytes >= least
}

// free returns the free bytes, minus the bytes for the ends of live records. The caller holds mu.
func (w *Writer) free() int64 { return w.left - endBytes*max(0, w.o.Space.records.Load()) }

// updateCeilings computes the ceilings from the free space. The caller holds mu.
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
	case w.o.Moves == 0: // no records move into this log
		move = math.MaxInt64
	case w.least > wlog.Moving:
		move = noSpace
	}
	w.ceiling.Store(bring)
	w.moveCeiling.Store(move)
	w.scarce.Store(w.Err() == nil && free-w.o.Space.inflight.Load() < 7*w.o.Unit+dip)
	w.queue.maxEntry = w.o.Entry
	if w.lowSpace || w.full || len(w.waiters) > 0 || w.movesWait.Load() { // small entries leave little unused at the end of a segment
		w.queue.maxEntry = max(w.o.Entry/8, 1)
	}
}

// Low reports whether grants wait for space on the disk.
func (w *Writer) Low() bool { return w.ceiling.Load() == noSpace }

// look asks the log how many bytes it can still take, if now is set or all logs together
// have written u/4 since it last asked. Then it computes the ceilings. The caller holds mu.
func (w *Writer) look(now bool) {
	if written := w.o.Space.written.Load(); now || written-w.seen.Load() >= w.o.Unit/4 { // read before Room, so that a write in between makes the next look come early, never late
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

// letIn calls the waiters that get a grant, as far as there is space, and OnMoves if it is
// due. run calls letIn.
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

// nextWaiter takes the first waiter and its grant, if there is space. blocked reports that
// there would be no space even if nothing were in flight.
func (w *Writer) nextWaiter() (fn func(), blocked bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	waits := len(w.waiters) > 0
	if !waits && w.waits.Load() { // only now: a caller of Grant must not overtake the last waiter
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

// awaitMoves makes run call OnMoves when there is space for dead letters.
func (w *Writer) awaitMoves() {
	if w.movesWait.Swap(true) {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.wakeRunner()
}

// lookLater makes run look again after spaceRetry. The caller holds mu.
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

// leaveSpace leaves the disk to the other logs, because this one takes no commits any more.
// run then calls the waiters, whose commits are refused. The caller holds mu.
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
