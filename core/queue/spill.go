package queue

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/curfewmq/curfew/core/slab"
)

// Messages beyond a memory budget lie in a file, whole segments of them: those
// that were filled last, since what was filled first is handed out first. The
// file is no part of what is durable. It has no name, so that nothing is left of
// it when the process ends however it ends.

// spillFile is the file and which of its pages are in use. Any goroutine may
// call its methods.
type spillFile struct {
	file   *os.File // for a part of a page
	whole  *os.File // the same one, for whole pages, which the system need not keep a copy of
	budget int64
	room   func() bool  // the disk has some to spare; nil = it always has
	failed func(error)  // is told of bodies that cannot be read back
	wait   atomic.Int64 // what writing a page takes lately, in nanoseconds

	mu    sync.Mutex // guards what follows
	size  int64      // pages in the file
	free  []int64    // pages given back
	holes []int64    // pages given back that take no room on the disk
	tidy  bool       // a goroutine makes holes
	solid bool       // the file system makes none
}

// pageSize is the size of a page: that of a segment.
const pageSize = segmentSize

var spill atomic.Pointer[spillFile]

// SpillTo makes every queue of the process write message bodies to a file in dir
// while queued messages hold more than budget bytes of memory, and the disk has room
// to spare, as room tells; nil = it always has. It is called once, before there are
// queues, and room from any goroutine. failed is told, from a queue's turn, why the queue stops
// because what it wrote there cannot be read back.
func SpillTo(dir string, budget int64, room func() bool, failed func(error)) error {
	f, err := os.CreateTemp(dir, "bodies-*")
	if err != nil {
		return err
	}
	whole := openDirect(f)
	if err := os.Remove(f.Name()); err != nil {
		_ = f.Close()
		return err
	}
	spill.Store(&spillFile{file: f, whole: whole, budget: budget, room: room, failed: failed})
	return nil
}

// shouldSpill reports whether a segment should go to the file: because memory is used
// up, or because it is dearer than the disk. What the logs need of a disk that is
// almost full is theirs: then memory fills up, and its alarm stops publishers.
func (p *spillFile) shouldSpill() bool {
	if p == nil {
		return false
	}
	n := slab.Used()
	wanted := n > p.budget || n > spillFloor && diskCheaper(p.wait.Load())
	return wanted && (p.room == nil || p.room())
}

// spillFloor is how much memory is used whatever it costs.
const spillFloor = 64 << 20

// transfer is the writing or reading of a segment, which goes on beside the
// queue's turn. buf is a slab; its contents are nobody's to change, or to look at
// while it is read, until done is closed.
type transfer struct {
	buf  []byte
	page int64
	done chan struct{}
	ok   bool  // it was written
	err  error // why it could not be read
}

func (t *transfer) finished() bool {
	select {
	case <-t.done:
		return true
	default:
		return false
	}
}

// write begins to put a segment on a page. A disk that takes no more is no
// error: the segment stays in memory then.
func (p *spillFile) write(b []byte) *transfer {
	t := &transfer{buf: b, page: p.take(), done: make(chan struct{})}
	go func() {
		defer close(t.done)
		began := time.Now()
		_, err := p.whole.WriteAt(b[:pageSize], t.page*pageSize) // with what lies behind the records: it is a whole page
		if t.ok = err == nil; !t.ok {
			p.give(t.page)
			return
		}
		was := p.wait.Load()
		p.wait.Store(was + (int64(time.Since(began))-was)/8)
	}()
	return t
}

// fetch begins to read a page into a slab.
func (p *spillFile) fetch(page int64) *transfer {
	t := &transfer{buf: slab.Alloc(pageSize), page: page, done: make(chan struct{})}
	go func() {
		defer close(t.done)
		_, t.err = p.whole.ReadAt(t.buf, page*pageSize)
	}()
	return t
}

// read fills b.
func (p *spillFile) read(b []byte, off int64) {
	if _, err := p.file.ReadAt(b, off); err != nil {
		p.lack(err)
	}
}

// errUnreadable is why a queue stops whose bodies are lost. After a restart, those
// that are in a journal are there again.
var errUnreadable = errors.New("message bodies cannot be read back from the disk")

// unreadable is panicked with when a body is needed that cannot be read: there is
// no way on from there for the queue whose turn it is. The turn's end stops it.
type unreadable struct{ error }

func (p *spillFile) lack(why error) {
	err := fmt.Errorf("%w: %w", errUnreadable, why)
	if p.failed != nil {
		p.failed(err)
	}
	panic(unreadable{err})
}

// readable runs fn and returns why it could not go on, nil if it could.
func readable(fn func()) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = lackOf(p)
		}
	}()
	fn()
	return nil
}

// lackOf is what was panicked with if a body could not be read; any other panic
// goes on.
func lackOf(p any) error {
	u, ok := p.(unreadable)
	if !ok {
		panic(p)
	}
	return u.error
}

// take returns a page to write to: one that has a place on the disk if possible.
func (p *spillFile) take() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
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

const (
	// keepPages is how many pages that are not in use keep their place on the disk
	// while others are.
	keepPages = 64 << 20 / pageSize
	// tidyPages is how many more there must be before they lose it.
	tidyPages = 16 << 20 / pageSize
)

// give takes a page back, and sees to it that the disk gets its room back.
func (p *spillFile) give(page int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.free = append(p.free, page)
	if !p.tidy && !p.solid && (len(p.free) > keepPages+tidyPages || p.unused()) {
		p.tidy = true
		go p.punch()
	}
	if p.solid && p.unused() {
		p.empty()
	}
}

// unused reports whether no page is in use. The caller holds mu.
func (p *spillFile) unused() bool { return int64(len(p.free)+len(p.holes)) == p.size }

// empty forgets all pages. The caller holds mu.
func (p *spillFile) empty() {
	p.free, p.holes, p.size = nil, nil, 0
	_ = p.file.Truncate(0) // room on the disk is all that is at stake
}

// punch makes holes of free pages until few are left. It is a goroutine's:
// giving room back takes the disk some time.
func (p *spillFile) punch() {
	for {
		run := p.surplus()
		if len(run) == 0 {
			return
		}
		err := punchHole(p.file, run[0]*pageSize, int64(len(run))*pageSize)
		p.punched(run, err)
	}
}

// surplus takes some consecutive pages out of those that are free, or none when
// there is no more to be done.
func (p *spillFile) surplus() []int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	keep := keepPages
	if p.unused() {
		keep = 0
	}
	if len(p.free) > keep && !p.solid {
		slices.Sort(p.free)
		n := len(p.free) - 1
		for n > keep && len(p.free)-n < tidyPages && p.free[n-1] == p.free[n]-1 {
			n--
		}
		run := slices.Clone(p.free[n:])
		p.free = p.free[:n]
		return run
	}
	if p.unused() {
		p.empty()
	}
	p.tidy = false
	return nil
}

func (p *spillFile) punched(run []int64, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil {
		p.solid = true
		p.free = append(p.free, run...)
		return
	}
	p.holes = append(p.holes, run...)
}

// diskCheaper reports whether memory had better not be used where a disk would do that
// takes a segment in wait nanoseconds. Machines that share their memory with
// others may need milliseconds to provide a megabyte. What was found out is taken
// for less and less true, so that it is found out again.
func diskCheaper(wait int64) bool {
	const (
		limit = 250_000 // ten times what it costs elsewhere
		lapse = 1024
	)
	cost := slab.FaultCost.Load()
	if cost < limit || wait > 2*cost {
		return false
	}
	slab.FaultCost.Store(cost - cost/lapse)
	return true
}
