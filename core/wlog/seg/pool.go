package seg

import (
	"fmt"
	"slices"
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
	low    bool          // there was no space for a segment, but for what is kept
	larger int64         // what a segment was to take, with the next, that was too large then; 0 = none was
	err    error         // why no segment will ever be made again
	retry  *time.Timer   // looks for space again; nil = it never had to
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
	g, short, err := p.prepare(number, size, spare)
	p.mu.Lock()
	p.next = g
	if spare != nil && short != nil {
		p.spares = append(p.spares, *spare)
	}
	p.mu.Unlock()
	p.done(short, err)
}

// prepare makes a segment unless that would take from what is kept: then it says
// what is missing.
func (p *pool) prepare(number uint32, size int64, spare *named) (g *segment, short *Shortage, err error) {
	spares := p.spareBytes()
	if spare != nil {
		spares += spare.Size
	}
	if short := p.lacks(size, spares); short != nil {
		return nil, short, nil
	}
	g, err = p.segment(number, size, spare)
	if vfs.NoSpace(err) {
		return nil, p.shortage(size, spares), nil
	}
	return g, nil, err
}

// How many segments' bytes of the disk are left to entries that lead to space being
// given back, besides what is left of the active segment; and how many more there
// have to be until there are enough again, so that it does not go back and forth.
const (
	kept   = 2
	enough = 2
)

// Needed is how many bytes must be free on a directory's disk for a log that was out
// of space to go on. Nobody but logs should take of them.
func Needed(fsys vfs.FS) (int64, error) {
	room, err := capacity(fsys, maxSegment)
	if err != nil {
		return 0, err
	}
	o := Options{SegmentSize: defaultSegment}
	o.fit(room)
	return (1 + kept + enough) * o.SegmentSize, nil
}

// lacks says what is missing on the disk for so many bytes more, which may lie in
// spare files; nil = nothing, as far as that is known.
func (p *pool) lacks(bytes, spares int64) *Shortage {
	short := p.shortage(bytes, spares)
	least := short.Needed
	if !p.isLow() {
		least -= enough * p.SegmentSize
	}
	if short.Free < 0 || short.Free >= least {
		return nil
	}
	return short
}

func (p *pool) isLow() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.low
}

// shortage says what the disk has, and what it should have for so many bytes more.
func (p *pool) shortage(bytes, spares int64) *Shortage {
	needed := max(0, bytes+(kept+enough)*p.SegmentSize-spares)
	room, ok := vfs.SpaceOf(p.fs)
	if !ok {
		return &Shortage{Free: -1, Needed: needed}
	}
	return &Shortage{Path: room.Path, Free: room.Free, Needed: needed}
}

// done ends the turn: it remembers how making a segment went, and tells if that
// is a change in space. The next turn begins after that, so that what was told
// last is true.
func (p *pool) done(short *Shortage, err error) {
	if p.outcome(short, err) {
		p.Events.Space(p.shard, short)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.release()
}

// outcome reports whether there is a change in space.
func (p *pool) outcome(short *Shortage, err error) (changed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil {
		p.err = fmt.Errorf("prepare segment %08x: %w", p.number, err)
		return false
	}
	changed = p.low != (short != nil)
	p.low = short != nil
	return changed
}

// claim waits for the turn and takes it.
func (p *pool) claim() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.turn != nil {
		turn := p.turn
		p.mu.Unlock()
		<-turn
		p.mu.Lock()
	}
	if p.err != nil {
		return p.err
	}
	p.turn = make(chan struct{})
	return nil
}

// release ends the turn. The caller holds mu.
func (p *pool) release() {
	close(p.turn)
	p.turn = nil
	switch {
	case !p.low || p.closed:
	case p.retry == nil:
		p.retry = time.AfterFunc(retryAfter, p.again)
	default:
		p.retry.Reset(retryAfter)
	}
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

// look is again at once, because files were given up.
func (p *pool) look() {
	p.mu.Lock()
	run := p.retrying()
	p.mu.Unlock()
	p.start(run)
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
	return func() { p.done(p.lacks(p.larger, p.spareBytes()), nil) }
}

// wait waits until the next segment is ready and nothing is to be kept for other
// purposes. It does not wait for space, but returns wlog.ErrFull; any other error
// is final.
func (p *pool) wait() error {
	for tried := false; ; {
		p.mu.Lock()
		var run func()
		if !tried {
			run = p.begin()
			tried = run != nil
		}
		ready, turn, err := p.next != nil && !p.low, p.turn, p.err
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

// takeLarger makes a segment of that size in place of the one that is ready. There
// must be space for the one that follows as well: it is of no use without.
func (p *pool) takeLarger(size int64) (*segment, error) {
	if err := p.claim(); err != nil {
		return nil, err
	}
	p.mu.Lock()
	smaller, number := p.next, p.number
	p.mu.Unlock()

	spares := p.spareBytes()
	short := p.lacks(size+p.sizeAfter(size), spares)
	var g *segment
	var err error
	if short == nil {
		g, err = p.fresh(number, size)
	}
	if vfs.NoSpace(err) {
		short, err = p.shortage(size+p.sizeAfter(size), spares), nil
	}
	p.mu.Lock()
	if p.larger = 0; short != nil {
		p.larger = size + p.sizeAfter(size)
	}
	if g != nil {
		p.next = nil
		p.follow(number, size)
	}
	p.mu.Unlock()
	if g != nil {
		err = smaller.file.Close() // its name is the larger one's
	}
	p.done(short, err)
	if short != nil {
		err = wlog.ErrFull
	}
	return g, err
}

// fresh makes a segment that no spare file is large enough for. They make way for
// it if they must.
func (p *pool) fresh(number uint32, size int64) (*segment, error) {
	g, err := p.segment(number, size, nil)
	if !vfs.NoSpace(err) {
		return g, err
	}
	gone := p.surplus(0)
	for _, f := range gone {
		if err := p.fs.Remove(f.Name); err != nil {
			return nil, err
		}
	}
	if len(gone) == 0 {
		return nil, err
	}
	return p.segment(number, size, nil)
}

// takeKept returns a segment with room for an entry of that size out of all that
// there is: the one that is ready, a spare file, or what is left of the disk, be
// it little.
func (p *pool) takeKept(entry int64) (*segment, error) {
	if err := p.claim(); err != nil {
		return nil, err
	}
	g, err := p.makeKept(roundUp(headerSize+entry+p.reserve(), page))
	p.mu.Lock()
	defer p.mu.Unlock()
	if g != nil {
		p.next = nil
		p.follow(g.number, g.size)
	}
	p.release()
	if vfs.NoSpace(err) {
		err = wlog.ErrFull
	}
	return g, err
}

func (p *pool) makeKept(need int64) (*segment, error) {
	p.mu.Lock()
	ready, number, size := p.next, p.number, p.size
	p.mu.Unlock()
	if ready != nil && ready.size >= need {
		return ready, nil
	}
	g, err := p.reuse(number, need)
	if g == nil && err == nil {
		g, err = p.shorter(number, max(size, need), need)
	}
	if g != nil && ready != nil {
		err = ready.file.Close() // its name is the other's
	}
	return g, err
}

// reuse makes a segment of a spare file, if one is large enough.
func (p *pool) reuse(number uint32, need int64) (*segment, error) {
	p.mu.Lock()
	i := slices.IndexFunc(p.spares, func(f named) bool { return f.Size >= need })
	if i < 0 {
		p.mu.Unlock()
		return nil, nil
	}
	spare := p.spares[i]
	p.spares = slices.Delete(p.spares, i, i+1)
	p.mu.Unlock()
	return p.segment(number, spare.Size, &spare)
}

// shorter makes a segment of that size or, if there is no space, a shorter one.
func (p *pool) shorter(number uint32, size, need int64) (*segment, error) {
	for least := max(need, minSegment); size > least; size = max(least, roundUp(size/2, page)) {
		if g, err := p.segment(number, size, nil); !vfs.NoSpace(err) {
			return g, err
		}
	}
	return p.fresh(number, size)
}

// left returns how many bytes segments can still be made of, as far as that is
// known, the one that is ready included.
func (p *pool) left() int64 {
	room, _ := vfs.SpaceOf(p.fs)
	p.mu.Lock()
	defer p.mu.Unlock()
	n := room.Free
	if p.next != nil {
		n += p.next.size
	}
	for _, f := range p.spares {
		n += f.Size
	}
	return n
}

func (p *pool) spareBytes() (n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, f := range p.spares {
		n += f.Size
	}
	return n
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
