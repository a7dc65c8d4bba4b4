package spill

import (
	"iter"
	"os"
	"slices"
	"sync"
)

// pages allocates the pages of a file, and returns the disk space of free ones.
type pages struct {
	file *os.File

	mu       sync.Mutex // guards what follows
	size     int64      // pages in the file
	free     []int64    // free pages with disk space
	holes    []int64    // free pages without
	punching bool       // a goroutine makes holes
	noHoles  bool       // the file system has none
	closed   bool       // pages that are given back stay as they are

	background sync.WaitGroup // the goroutine that makes holes
}

const (
	// retainedPages is how many free pages retain their disk space while others are in use.
	retainedPages = 64 << 20 / PageSize
	// runPages is how many more free pages there are before holes are made, and the most
	// pages in one hole: a hole for each page costs the disk ten times as much.
	runPages = 16 << 20 / PageSize
)

// Pages is the pages of one segment; most segments have one.
type Pages struct {
	first int64
	more  []int64
}

// Count returns the number of pages.
func (l *Pages) Count() int { return 1 + len(l.more) }

// span is a run of bytes.
type span struct{ at, size int }

// each reads or writes the range of a segment's bytes that begins at from, page by page.
func (l *Pages) each(b []byte, from int, at func(b []byte, off int64) (int, error)) error {
	for part, off := range l.parts(from, len(b)) {
		if _, err := at(b[part.at:][:part.size], off); err != nil {
			return err
		}
	}
	return nil
}

// parts yields the parts of a range of a segment's bytes: each lies in one page. It also
// yields where each lies in the range and in the file.
func (l *Pages) parts(from, size int) iter.Seq2[span, int64] {
	return func(yield func(part span, off int64) bool) {
		for at := 0; at < size; {
			page, skip := l.first, (from+at)%PageSize
			if i := (from + at) / PageSize; i > 0 {
				page = l.more[i-1]
			}
			n := min(size-at, PageSize-skip)
			if !yield(span{at, n}, page*PageSize+int64(skip)) {
				return
			}
			at += n
		}
	}
}

// take returns free pages for a segment's bytes, if possible those with disk space.
func (p *pages) take(size int) (l Pages) {
	p.mu.Lock()
	defer p.mu.Unlock()
	l.first = p.takeOne()
	for size -= PageSize; size > 0; size -= PageSize {
		l.more = append(l.more, p.takeOne())
	}
	return l
}

// takeOne returns a free page. The caller holds mu.
func (p *pages) takeOne() int64 {
	for _, list := range [...]*[]int64{&p.free, &p.holes} {
		if n := len(*list); n > 0 {
			page := (*list)[n-1]
			*list = (*list)[:n-1]
			return page
		}
	}
	p.size++
	return p.size - 1
}

// Give frees a segment's pages.
func (p *pages) Give(l Pages) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.free = append(append(p.free, l.first), l.more...)
	switch {
	case p.closed:
	case p.noHoles:
		p.truncateUnused()
	case !p.punching && (len(p.free) > retainedPages+runPages || p.unused()):
		p.punching = true
		p.background.Go(p.punch)
	}
}

// InUse returns how many pages are in use.
func (p *pages) InUse() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.size - int64(len(p.free)+len(p.holes))
}

// unused reports whether no page is in use. The caller holds mu.
func (p *pages) unused() bool { return int64(len(p.free)+len(p.holes)) == p.size }

// truncateUnused empties the file if no page is in use. The caller holds mu.
func (p *pages) truncateUnused() {
	if p.unused() {
		p.free, p.holes, p.size = nil, nil, 0
		_ = p.file.Truncate(0) // a failure costs disk space and nothing else
	}
}

// punch makes holes until few free pages have disk space. It has a goroutine of its
// own, because the disk takes its time.
func (p *pages) punch() {
	for run := p.nextRun(); len(run) > 0; run = p.nextRun() {
		err := punchHole(p.file, run[0]*PageSize, int64(len(run))*PageSize)
		p.punched(run, err)
	}
}

// nextRun takes a run of consecutive pages from the free ones; none if few are left.
func (p *pages) nextRun() []int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	retained := retainedPages
	if p.unused() {
		retained = 0
	}
	if len(p.free) <= retained || p.noHoles {
		p.truncateUnused()
		p.punching = false
		return nil
	}
	slices.Sort(p.free)
	n := len(p.free) - 1
	for n > retained && len(p.free)-n < runPages && p.free[n-1] == p.free[n]-1 {
		n--
	}
	run := slices.Clone(p.free[n:])
	p.free = p.free[:n]
	return run
}

func (p *pages) punched(run []int64, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil {
		p.noHoles = true
		p.free = append(p.free, run...)
		return
	}
	p.holes = append(p.holes, run...)
}
