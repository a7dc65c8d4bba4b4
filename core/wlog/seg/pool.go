package seg

import (
	"fmt"
	"sync"
	"time"

	"github.com/curfewmq/curfew/core/wlog"
	"github.com/curfewmq/curfew/core/wlog/vfs"
)

// pool has the segment ready that comes after the active one, and keeps the
// files of reclaimed segments to make more of. It works in a goroutine of its
// own, on one segment at a time.
type pool struct {
	maker

	mu     sync.Mutex    // guards what follows
	next   *segment      // ready; nil = not yet
	number uint32        // of next, or of the one to be made: never that of a segment in use
	size   int64         // of the one to be made
	spares []named       // reclaimed files of the usual size
	turn   chan struct{} // closed when who makes a segment, or tells of space, is done; nil = nobody does
	low    bool          // there was no space for a segment
	err    error         // why no segment will ever be made again
	retry  *time.Timer   // looks for space again
	closed bool
}

// want has the segment made that follows one of that number and size, unless it
// is ready or there is no space. It does not wait.
func (p *pool) want(number uint32, size int64) {
	p.mu.Lock()
	p.follow(number, size)
	run := p.begin()
	p.mu.Unlock()
	p.start(run)
}

// follow says which segment comes next. The caller holds mu.
func (p *pool) follow(number uint32, size int64) {
	p.number, p.size = number+1, p.sizeAfter(size)
}

// begin takes the turn to make the next segment, if that is to be done now, and
// returns what is to be started once mu is free. The caller holds mu. Without
// space it is only done if there is a file already.
func (p *pool) begin() (run func()) {
	if p.next != nil || p.turn != nil || p.closed || p.err != nil || p.low && len(p.spares) == 0 {
		return nil
	}
	return p.begun()
}

// begun is begin when that is settled.
func (p *pool) begun() (run func()) {
	p.turn = make(chan struct{})
	number, size := p.number, p.size
	if len(p.spares) == 0 {
		return func() { p.run(number, size, nil) }
	}
	spare := p.spares[0]
	p.spares = p.spares[1:]
	return func() { p.run(number, spare.Size, &spare) }
}

func (p *pool) start(run func()) {
	switch {
	case run == nil:
	case p.inline:
		run()
	default:
		go run()
	}
}

// run makes the next segment.
func (p *pool) run(number uint32, size int64, spare *named) {
	g, err := p.segment(number, size, spare)
	p.mu.Lock()
	p.next = g
	if spare != nil && vfs.NoSpace(err) {
		p.spares = append(p.spares, *spare)
	}
	p.mu.Unlock()
	p.done(err)
}

// done ends the turn: it remembers how making a segment went, and tells if that
// is a change in space. The next turn begins after that, so that what was told
// last is true.
func (p *pool) done(err error) {
	short, changed := p.outcome(err)
	if changed {
		p.Events.Space(p.shard, short)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.turn)
	p.turn = nil
}

func (p *pool) outcome(err error) (short *Shortage, changed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	full := vfs.NoSpace(err)
	if err != nil && !full {
		p.err = fmt.Errorf("prepare segment %08x: %w", p.number, err)
		return nil, false
	}
	if full && !p.closed {
		p.retry = time.AfterFunc(retryAfter, p.again)
	}
	changed = p.low != full
	p.low = full
	if full && changed {
		short = p.shortage(p.size)
	}
	return short, changed
}

// shortage says that so many bytes are needed.
func (s *storage) shortage(needed int64) *Shortage {
	room, ok := vfs.SpaceOf(s.fs)
	if !ok {
		return &Shortage{Free: -1, Needed: needed}
	}
	return &Shortage{Path: room.Path, Free: room.Free, Needed: needed}
}

// again looks for space once more.
func (p *pool) again() {
	p.mu.Lock()
	run := p.retrying()
	p.mu.Unlock()
	if run != nil {
		run()
	}
}

// retrying returns what again is to do. The caller holds mu.
func (p *pool) retrying() (run func()) {
	if !p.low || p.turn != nil || p.closed || p.err != nil {
		return nil
	}
	if p.next == nil {
		return p.begun()
	}
	p.turn = make(chan struct{})
	return func() { p.done(nil) } // only for a larger one there was no space
}

// wait waits until the next segment is ready. It does not wait for space, but
// returns wlog.ErrFull; any other error is final.
func (p *pool) wait() error {
	for tried := false; ; {
		p.mu.Lock()
		var run func()
		if !tried {
			run = p.begin()
			tried = run != nil
		}
		ready, turn, err := p.next != nil, p.turn, p.err
		p.mu.Unlock()
		p.start(run)
		switch {
		case ready:
			return nil
		case err != nil:
			return err
		case turn == nil:
			return wlog.ErrFull
		}
		<-turn
	}
}

// take returns the next segment, which has room for an entry of that size. The
// errors are those of wait.
func (p *pool) take(entry int64) (*segment, error) {
	if err := p.wait(); err != nil {
		return nil, err
	}
	if g := p.takeNext(entry); g != nil {
		return g, nil
	}
	return p.takeLarger(roundUp(headerSize+entry, page))
}

// takeNext takes the segment that is ready if it has room for the entry.
func (p *pool) takeNext(entry int64) *segment {
	p.mu.Lock()
	defer p.mu.Unlock()
	g := p.next
	if g.size-headerSize < entry {
		return nil
	}
	p.next = nil
	p.follow(g.number, g.size)
	return g
}

// takeLarger makes a segment of that size in place of the one that is ready.
func (p *pool) takeLarger(size int64) (*segment, error) {
	p.mu.Lock()
	for p.turn != nil {
		turn := p.turn
		p.mu.Unlock()
		<-turn
		p.mu.Lock()
	}
	p.turn = make(chan struct{})
	smaller, number := p.next, p.number
	p.mu.Unlock()

	g, err := p.segment(number, size, nil)
	if err == nil {
		p.mu.Lock()
		p.next = nil
		p.follow(number, size)
		p.mu.Unlock()
		err = smaller.file.Close() // its name is the larger one's
	}
	p.done(err)
	if vfs.NoSpace(err) {
		err = wlog.ErrFull
	}
	return g, err
}

// keep takes a reclaimed file in, unless it is not of the right size or there
// are as many as that, the next segment included.
func (p *pool) keep(f named, most int) bool {
	run, kept := p.kept(f, most)
	p.start(run)
	return kept
}

func (p *pool) kept(f named, most int) (run func(), kept bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if f.Size != p.SegmentSize || p.idle() >= most {
		return nil, false
	}
	p.spares = append(p.spares, f)
	if p.low {
		run = p.begin()
	}
	return run, true
}

// surplus hands out files beyond so many, the next segment included.
func (p *pool) surplus(most int) []named {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := min(max(p.idle()-most, 0), len(p.spares))
	gone := p.spares[:n]
	p.spares = p.spares[n:]
	return gone
}

// idle counts the files that wait to be of use. The caller holds mu.
func (p *pool) idle() int {
	if p.next != nil || p.turn != nil {
		return len(p.spares) + 1
	}
	return len(p.spares)
}

// close ends the pool. What it has on disk is found again by the next owner.
func (p *pool) close() {
	p.mu.Lock()
	p.closed = true
	if p.retry != nil {
		p.retry.Stop()
	}
	turn := p.turn
	p.mu.Unlock()
	if turn != nil {
		<-turn
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.next != nil {
		_ = p.next.file.Close() // it is on the disk, and has no entries
		p.next = nil
	}
}
