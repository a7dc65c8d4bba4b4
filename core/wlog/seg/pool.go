package seg

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/curfewmq/curfew/core/wlog"
	"github.com/curfewmq/curfew/core/wlog/vfs"
)

// pool prepares the segment that follows the active one, in the background and one at a
// time. It reuses the files of trimmed segments, and watches the disk's free space.
type pool struct {
	maker

	mu      sync.Mutex // guards the fields below
	changed sync.Cond  // signalled when busy becomes false
	next    *segment   // prepared; nil = not yet
	number  uint32     // of next, or of the one to prepare: never that of a segment in use
	size    int64      // of the one to prepare
	spares  []named    // trimmed files of the usual size
	busy    bool       // a segment is being made, or Space is being called
	low     bool       // there was no space for a segment, apart from the reserve
	larger  int64      // bytes of a large segment and its successor for which there was no space; 0 = none
	err     error      // why no segment can be made any more
	retry   *time.Timer
	closed  bool
}

// The reserve is left to entries that free space, in addition to the rest of the active
// segment. Once free space is down to the reserve, there must be a surplus above the
// reserve before there is enough again, so that the state does not flap. Both are in
// segments.
const (
	reserved = 2
	surplus  = 2
)

// Needed returns how many bytes must be free on a directory's disk for a log that was out
// of space to go on. Other files should leave them to the logs.
func Needed(fsys vfs.FS) (int64, error) {
	space, err := capacity(fsys, maxSegment)
	if err != nil {
		return 0, err
	}
	o := Options{SegmentSize: defaultSegment}
	o.fit(space)
	return (1 + reserved + surplus) * o.SegmentSize, nil
}

// want begins to prepare the segment that follows one of that number and size, unless it is
// prepared or there is no space. It does not wait.
func (p *pool) want(number uint32, size int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.follow(number, size)
	p.begin()
}

// nextState says how far the next segment is.
type nextState int

const (
	nextUnknown nextState = iota // nothing
	nextBegun                    // it is being prepared, or the reserve is not complete
	nextReady                    // wait would not wait
)

// ahead returns how far the next segment is. It does not wait.
func (p *pool) ahead() nextState {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.next != nil && !p.low:
		return nextReady
	case p.next != nil || p.busy:
		return nextBegun
	}
	return nextUnknown
}

// scarce reports whether there was no space for a segment, apart from the reserve.
func (p *pool) scarce() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.low
}

// follow sets which segment comes next. The caller holds mu.
func (p *pool) follow(number uint32, size int64) {
	p.number, p.size = number+1, p.sizeAfter(size)
}

// begin begins to prepare the next segment, unless it is prepared or the pool is busy.
// While space is low, begin needs a spare file for that. The caller holds mu.
func (p *pool) begin() (begun bool) {
	if p.next != nil || p.busy || p.closed || p.err != nil || p.low && len(p.spares) == 0 {
		return false
	}
	p.prepareNext()
	return true
}

// prepareNext prepares the next segment in the background. The caller holds mu.
func (p *pool) prepareNext() {
	number, size := p.number, p.size
	var spare *named
	if len(p.spares) > 0 {
		spare = p.takeSpare(0)
		size = spare.Size
	}
	p.start(func() {
		g, short, err := p.prepare(number, size, spare)
		p.mu.Lock()
		defer p.mu.Unlock()
		p.next = g
		if spare != nil && short != nil {
			p.spares = append(p.spares, *spare)
		}
		p.done(short, err)
	})
}

// takeSpare takes out the i-th spare file. The caller holds mu.
func (p *pool) takeSpare(i int) *named {
	f := p.spares[i]
	p.spares = slices.Delete(p.spares, i, i+1)
	return &f
}

// start runs fn in the background. fn calls done at its end. The caller holds mu.
func (p *pool) start(fn func()) {
	p.busy = true
	if !p.inline {
		go fn()
		return
	}
	p.mu.Unlock()
	defer p.mu.Lock()
	fn()
}

// prepare makes a segment, unless that would take from the reserve: then it returns the shortage.
func (p *pool) prepare(number uint32, size int64, spare *named) (g *segment, short *Shortage, err error) {
	bytes := size
	if spare != nil {
		bytes = 0
	}
	if short := p.lacks(bytes); short != nil {
		return nil, short, nil
	}
	g, err = p.segment(number, size, spare)
	if vfs.Scarce(err) {
		return nil, p.shortageBy(err, bytes), nil
	}
	return g, nil, err
}

// lacks returns the shortage for so many bytes more; nil = there is none, or the free space
// is unknown.
func (p *pool) lacks(bytes int64) *Shortage {
	short := p.shortage(bytes)
	p.mu.Lock()
	defer p.mu.Unlock()
	least := short.Needed
	if !p.low {
		least -= surplus * p.SegmentSize
	}
	if short.Free < 0 || short.Free >= least {
		return nil
	}
	return short
}

// shortage returns the space of the disk, and the space that it should have for so many
// bytes more. Spare files count as free space.
func (p *pool) shortage(bytes int64) *Shortage {
	p.mu.Lock()
	needed := max(0, bytes+(reserved+surplus)*p.SegmentSize-p.spareBytes())
	p.mu.Unlock()
	space, ok := vfs.SpaceOf(p.fs)
	if !ok {
		return &Shortage{Free: -1, Needed: needed}
	}
	return &Shortage{Path: space.Path, Free: space.Free, Needed: needed}
}

// shortageBy is shortage after a segment could not be made for lack of space or of descriptors.
func (p *pool) shortageBy(err error, bytes int64) *Shortage {
	short := p.shortage(bytes)
	short.Files = vfs.NoFiles(err)
	return short
}

// done ends the making of a segment. If space has become low, or is no longer low, done
// calls Space before the next segment may begin, so that the last call of Space is right.
// The caller holds mu, which done unlocks during the call.
func (p *pool) done(short *Shortage, err error) {
	low := short != nil
	switch {
	case err != nil:
		p.err = fmt.Errorf("prepare segment %08x: %w", p.number, err)
	case low != p.low:
		p.low = low
		p.mu.Unlock()
		p.Events.Space(p.shard, short)
		p.mu.Lock()
	}
	p.release()
}

// claim waits until the pool is not busy, and makes it so.
func (p *pool) claim() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.busy {
		p.changed.Wait()
	}
	p.busy = p.err == nil
	return p.err
}

// release ends the work that claim or start began. While space is low it is checked again
// later. The caller holds mu.
func (p *pool) release() {
	p.busy = false
	p.changed.Broadcast()
	switch {
	case !p.low || p.closed:
	case p.retry == nil:
		p.retry = time.AfterFunc(retryAfter, p.checkSpace)
	default:
		p.retry.Reset(retryAfter)
	}
}

// checkSpace checks whether there is space again, if it was low. It does not wait.
func (p *pool) checkSpace() {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case !p.low || p.busy || p.closed || p.err != nil:
	case p.next == nil:
		p.prepareNext()
	default:
		larger := p.larger
		p.start(func() {
			short := p.lacks(larger)
			p.mu.Lock()
			defer p.mu.Unlock()
			p.done(short, nil)
		})
	}
}

// wait waits until the next segment is prepared and the reserve is complete. It does not wait for space, but returns
// wlog.ErrFull; any other error is final.
func (p *pool) wait() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for begun := false; ; p.changed.Wait() {
		begun = begun || p.begin()
		switch {
		case p.next != nil && !p.low:
			return nil
		case p.err != nil:
			return p.err
		case !p.busy:
			return wlog.ErrFull
		}
	}
}

// take returns the next segment, which has space for an entry of that size. Its errors are those of wait.
func (p *pool) take(entry int64) (*segment, error) {
	if err := p.wait(); err != nil {
		return nil, err
	}
	if g := p.takeNext(entry); g != nil {
		return g, nil
	}
	return p.takeLarger(p.sizeFor(entry))
}

// takeNext takes the prepared segment if it has space for the entry.
func (p *pool) takeNext(entry int64) *segment {
	p.mu.Lock()
	defer p.mu.Unlock()
	g := p.next
	if g.size < p.sizeFor(entry) {
		return nil
	}
	p.next = nil
	p.follow(g.number, g.size)
	return g
}

// sizeFor returns the size of a segment for one entry and the end that entries leave free.
func (p *pool) sizeFor(entry int64) int64 {
	size := headerSize + entry + p.takeoverReserve()
	return roundUp(size+trimReserve(size+size/16), page)
}

// takeLarger makes a segment of that size in place of the prepared one. There must be space
// for its successor, too: without one, Bringing entries could use only half of the segment.
func (p *pool) takeLarger(size int64) (*segment, error) {
	if err := p.claim(); err != nil {
		return nil, err
	}
	p.mu.Lock()
	smaller, number := p.next, p.number
	p.mu.Unlock()
	both := size + p.sizeAfter(size)
	short := p.lacks(both)
	var g *segment
	var err error
	if short == nil {
		g, err = p.makeLarge(number, size)
	}
	if vfs.Scarce(err) {
		short, err = p.shortageBy(err, both), nil
	}
	if g != nil {
		err = smaller.file.Close() // the larger segment has its name now
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.larger = 0; short != nil {
		p.larger = both
	}
	if g != nil {
		p.next = nil
		p.follow(number, size)
	}
	p.done(short, err)
	if short != nil {
		err = wlog.ErrFull
	}
	return g, err
}

// makeLarge makes a segment that no spare file is large enough for. If there is no space
// otherwise, spare files are removed.
func (p *pool) makeLarge(number uint32, size int64) (*segment, error) {
	g, err := p.segment(number, size, nil)
	if !vfs.NoSpace(err) {
		return g, err
	}
	removed, failed := p.removeSurplus(0)
	if failed != nil {
		return nil, failed
	}
	if removed == 0 {
		return nil, err
	}
	return p.segment(number, size, nil)
}

// takeReserved returns a segment with space for an entry of that size, made of whatever is
// left: the prepared segment, a spare file, or the rest of the disk, even if the segment is
// short then.
func (p *pool) takeReserved(entry int64, purpose wlog.Purpose) (*segment, error) {
	if err := p.claim(); err != nil {
		return nil, err
	}
	g, err := p.makeReserved(roundUp(headerSize+entry+p.kept(0, purpose), page))
	p.mu.Lock()
	defer p.mu.Unlock()
	if g != nil {
		p.next = nil
		p.follow(g.number, g.size)
	}
	p.release()
	if vfs.Scarce(err) {
		err = wlog.ErrFull
	}
	return g, err
}

func (p *pool) makeReserved(need int64) (g *segment, err error) {
	p.mu.Lock()
	prepared, number, size := p.next, p.number, p.size
	if prepared != nil && prepared.size >= need {
		p.mu.Unlock()
		return prepared, nil
	}
	var spare *named
	if i := slices.IndexFunc(p.spares, func(f named) bool { return f.Size >= need }); i >= 0 {
		spare = p.takeSpare(i)
	}
	p.mu.Unlock()
	if spare != nil {
		g, err = p.segment(number, spare.Size, spare)
	} else {
		g, err = p.makeShorter(number, max(size, need), need)
	}
	if g != nil && prepared != nil {
		err = prepared.file.Close() // the other segment has its name now
	}
	return g, err
}

// makeShorter makes a segment of that size or, if there is no space, a shorter one.
func (p *pool) makeShorter(number uint32, size, need int64) (*segment, error) {
	for least := max(need, minSegment); size > least; size = max(least, roundUp(size/2, page)) {
		if g, err := p.segment(number, size, nil); !vfs.NoSpace(err) {
			return g, err
		}
	}
	return p.makeLarge(number, size)
}

// available returns how many bytes can still become segments, including the prepared one,
// as far as is known.
func (p *pool) available() int64 {
	space, _ := vfs.SpaceOf(p.fs)
	_, idle := p.idleFiles()
	return space.Free + idle
}

// idleFiles returns how many files are prepared or spare, and their size.
func (p *pool) idleFiles() (n int, bytes int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	n, bytes = len(p.spares), p.spareBytes()
	if p.next != nil {
		n, bytes = n+1, bytes+p.next.size
	}
	return n, bytes
}

// spareBytes returns the size of all spare files. The caller holds mu.
func (p *pool) spareBytes() (n int64) {
	for _, f := range p.spares {
		n += f.Size
	}
	return n
}

// keep adds a trimmed file to the spare files, unless it does not have the usual size or
// most files are idle already. It reports whether it did.
func (p *pool) keep(f named, most int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if f.Size != p.SegmentSize || p.idle() >= most {
		return false
	}
	p.spares = append(p.spares, f)
	if p.low {
		p.begin()
	}
	return true
}

// removeSurplus removes spare files until at most most files are idle. It returns how many
// it removed.
func (p *pool) removeSurplus(most int) (n int, err error) {
	p.mu.Lock()
	n = min(max(p.idle()-most, 0), len(p.spares))
	files := slices.Clone(p.spares[:n])
	p.spares = p.spares[n:]
	p.mu.Unlock()
	return n, p.remove(files)
}

// idle returns the number of files that wait to be used, including one that is being made. The caller holds mu.
func (p *pool) idle() int {
	if p.next != nil || p.busy {
		return len(p.spares) + 1
	}
	return len(p.spares)
}

// close closes the pool. Its files stay for the next owner of the shard.
func (p *pool) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	if p.retry != nil {
		p.retry.Stop()
	}
	for p.busy {
		p.changed.Wait()
	}
	if p.next != nil {
		_ = p.next.file.Close() // it has no entries
		p.next = nil
	}
}
