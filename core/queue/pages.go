package queue

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
}

const (
	// retainedPages is how many free pages retain their disk space while others are in use.
	retainedPages = 64 << 20 / pageSize
	// runPages is how many more there are before holes are made, and the most that one
	// hole has: a hole for each page costs the disk ten times as much.
	runPages = 16 << 20 / pageSize
)

// pageList is the pages of one segment, of which most have one.
type pageList struct {
	first int64
	more  []int64
}

// parts yields the parts of a range of a segment's bytes, with where each lies in the range and in the file.
func (l *pageList) parts(from, size int) iter.Seq2[span, int64] {
	return func(yield func(part span, off int64) bool) {
		for at := 0; at < size; {
			page, skip := l.first, (from+at)%pageSize
			if i := (from + at) / pageSize; i > 0 {
				page = l.more[i-1]
			}
			n := min(size-at, pageSize-skip)
			if !yield(span{at, n}, page*pageSize+int64(skip)) {
				return
			}
			at += n
		}
	}
}

// take returns free pages for a segment's bytes, if possible those with disk space.
func (p *pages) take(size int) (l pageList) {
	p.mu.Lock()
	defer p.mu.Unlock()
	l.first = p.takeOne()
	for size -= pageSize; size > 0; size -= pageSize {
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

// give frees a segment's pages.
func (p *pages) give(l pageList) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.free = append(append(p.free, l.first), l.more...)
	switch {
	case p.noHoles:
		p.truncateUnused()
	case !p.punching && (len(p.free) > retainedPages+runPages || p.unused()):
		p.punching = true
		go p.punch()
	}
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
		err := punchHole(p.file, run[0]*pageSize, int64(len(run))*pageSize)
		p.punched(run, err)
	}
}

// nextRun removes consecutive pages from the free ones; none if there are few left.
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
