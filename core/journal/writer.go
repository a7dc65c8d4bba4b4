// Package journal stands between the turns of queues and the log. Queues commit
// operations and go on; whatever arrives while one append is in flight becomes
// the next entry, so that one flush serves them all. The journal also knows
// which part of the log is still needed, trims the rest, and asks for what is
// live to be moved when too little of the log is.
//
// Operations are opaque bytes here: queues write them, and read them again when
// the log is replayed.
package journal

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/curfewmq/curfew/core/wlog"
)

// ErrClosed is what becomes of operations committed after Close.
var ErrClosed = errors.New("journal: closed")

// Completer is told what became of a commit: one of its methods is called, once.
// The calls come from the shard's goroutine, one at a time and in the order of
// the commits, but for those that overtake others. They must not block, and may call Commit but neither Sync nor
// Close.
type Completer interface {
	// Durable reports that the operations survive a crash.
	Durable()
	// Failed reports that the log failed or was closed before that was certain.
	// The operations may survive nevertheless.
	Failed(err error)
}

var waiting atomic.Int64

// WaitingBytes returns the memory of operations in the whole process that were
// committed and are not durable.
func WaitingBytes() int64 { return waiting.Load() }

// Writer is one log and all that is committed to it. Any goroutine may call its
// methods. With nothing to append it has no goroutine.
type Writer struct {
	log     wlog.Log
	most    int // bytes an entry can have at all
	o       Options
	ctx     context.Context // of appends; ends when Close waits no longer
	cancel  context.CancelFunc
	work    func()        // run, bound once: starting it must not allocate
	closing chan struct{} // closed by Close
	entries measures

	extent atomic.Uint32                 // extents.current(), for all to read
	behind atomic.Pointer[chan struct{}] // what Behind returns; changed under mu
	ended  atomic.Bool                   // err is not nil; changed under mu

	broken error // why the log is at its end; run changes it, under mu
	owed   bool  // some in the line were written ahead of their turn; run's own

	mu        sync.Mutex // guards what follows
	resting   *sync.Cond // signalled when running becomes false, and when moves changes
	running   bool       // run is
	gather    commitQueue
	extents   extents
	recovered bool  // live bytes are known: trimming is safe
	err       error // why commits are refused; nil while they are taken
	low, full bool  // see Low and OnFull; full is changed by run only
	pending   int64 // bytes committed and not yet durable
	moves     int   // calls of Move that are not durable
	round     reclaimRound
	stats     Stats
}

// Commit has ops appended to the log, in one entry, after everything that was
// committed before. It waits for nothing and keeps neither ops nor live; c, if
// not nil, hears when they are durable. Empty ops are durable when everything
// committed before is. More than wlog.MaxEntry bytes are refused, and live then
// does not count.
//
// live says how the live bytes change. What becomes live counts at once, in the
// extent that Extent named at some time before; what is no longer needed is
// taken off when ops are durable, so that the record of an expired message, say,
// outlasts the writing of the one that dead-letters it. A commit that makes nothing
// live, or little in place of what it settles, may overtake others while there is no
// space for those: it is then in the log again, in one entry with what it overtook.
func (s *Writer) Commit(ops []byte, live []Delta, c Completer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.add(ops, live, commit{completer: c, purpose: s.o.Purpose})
}

// add takes a commit in. The caller holds mu.
func (s *Writer) add(ops []byte, live []Delta, c commit) {
	if s.err != nil {
		s.refuse(c.completer, s.err)
		return
	}
	if len(ops) > s.most {
		s.refuse(c.completer, wlog.ErrTooLarge)
		return
	}
	for _, d := range live {
		if d.Bytes > 0 {
			s.extents.add(d)
		}
	}
	s.gather.batch(len(ops)).put(ops, live, c)
	s.pending += int64(len(ops))
	waiting.Add(int64(len(ops)))
	s.stats.Commits++
	s.pace()
	s.start()
}

// Note is a Commit that nobody waits for and that changes nothing of what is live. It
// reports false, and drops ops, while the log is full and much waits for it: they
// would be in nobody's way but the memory's.
func (s *Writer) Note(ops []byte) (noted bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.full && s.pending+int64(len(ops)) > s.o.Pending {
		return false
	}
	s.add(ops, nil, commit{purpose: s.o.Purpose})
	return true
}

// refuse has c told why its commit was not taken. The caller holds mu.
func (s *Writer) refuse(c Completer, why error) {
	if c == nil {
		return
	}
	s.gather.batch(0).refuse(c, why)
	s.start()
}

// start sees to it that somebody works off the line. The caller holds mu.
func (s *Writer) start() {
	if !s.running {
		s.running = true
		go s.work()
	}
}

// Extent returns the extent that operations committed from now on are accounted
// to; they may lie in a later one. Extents are numbered from 1, anew in every
// process.
func (s *Writer) Extent() uint32 { return s.extent.Load() }

// CaughtUp returns nil, or, while the log does not keep up, a channel that is
// closed when it does. Whoever brings new messages waits for it before the next
// ones; whoever settles does not, as that is what makes room.
func (s *Writer) CaughtUp() <-chan struct{} {
	if c := s.behind.Load(); c != nil {
		return *c
	}
	return nil
}

// Sync waits until everything committed so far is durable.
func (s *Writer) Sync() error {
	b := make(barrier, 1)
	s.Commit(nil, nil, b)
	return <-b
}

type barrier chan error

func (b barrier) Durable()         { b <- nil }
func (b barrier) Failed(err error) { b <- err }

// Err returns why commits are refused, nil while they are taken. It is cheap while
// they are.
func (s *Writer) Err() error {
	if !s.ended.Load() {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// Close refuses further commits, waits until those that were taken are durable,
// and closes the log. When ctx ends first, what is left fails, and when the disk is
// full, what brings more: the error is then a wlog.ErrFull, which says that it was
// not confirmed and is dropped, and nothing worse.
func (s *Writer) Close(ctx context.Context) error {
	if !s.shut() {
		return nil
	}
	stop := context.AfterFunc(ctx, s.cancel)
	defer stop()
	broken := s.rest()
	s.cancel()
	err := s.log.Close()
	if err != nil && errors.Is(broken, wlog.ErrFull) {
		return fmt.Errorf("%w; and %s", err, broken.Error()) // which is worse
	}
	return errors.Join(broken, err)
}

// shut ends the taking of commits. It reports false if that was done before.
func (s *Writer) shut() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.closing:
		return false
	default:
	}
	close(s.closing)
	if s.err == nil {
		s.err = ErrClosed
		s.ended.Store(true)
	}
	s.round.end()
	s.pace()
	return true
}

// rest waits until the line is worked off and returns the log's failure.
func (s *Writer) rest() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.running {
		s.resting.Wait()
	}
	return s.broken
}
