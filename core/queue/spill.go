package queue

import (
	"errors"
	"fmt"
	"os"

	"github.com/curfewmq/curfew/core/slab"
)

// pageSize is the size of a page of the spill file: a whole memory segment. One with a larger record has several pages.
const pageSize = segmentSize

// spillFile holds the memory segments beyond the budget. Queues spill the segment that
// was filled last, because the first is delivered first. The file promises no
// durability. It has no name, so it vanishes with the process, however that ends.
// Any goroutine may call its methods.
type spillFile struct {
	direct   *os.File // pages.file, opened to transfer whole pages past the system's cache
	budget   int64
	hasSpace func() bool // whether the disk has space to spare; nil = it always has
	failed   func(error) // is called when bodies cannot be read back
	pages
}

// SpillTo makes every queue of the broker write message bodies to a file in dir
// while queued messages hold more than budget bytes of memory and hasSpace, which is
// called from any goroutine, reports that the disk has space to spare; nil = it always
// has. SpillTo is called once, before there are queues. failed is called, from a
// queue's turn, with the reason why the queue stops: its bodies cannot be read back.
func (b *Broker) SpillTo(dir string, budget int64, hasSpace func() bool, failed func(error)) error {
	f, err := os.CreateTemp(dir, "bodies-*")
	if err != nil {
		return err
	}
	direct := openDirect(f)
	if err := os.Remove(f.Name()); err != nil {
		_ = f.Close()
		return err
	}
	b.spill = &spillFile{direct: direct, budget: budget, hasSpace: hasSpace, failed: failed, pages: pages{file: f}}
	return nil
}

// coldBytes is the memory for messages that an exchange holds. Bodies beyond it go to the
// file even if there is memory, because they are not needed soon.
const coldBytes = 4 << 20

// shouldSpill reports whether a segment of s should go to the file. It is the only place
// that decides. An almost full disk belongs to the logs: memory fills up then, and the
// memory alarm stops publishers.
func (p *spillFile) shouldSpill(s *store) bool {
	wanted := p != nil && (slab.Used() > p.budget || s.cold && s.residentBytes > coldBytes)
	return wanted && (p.hasSpace == nil || p.hasSpace())
}

// segmentIO is the writing or reading of a segment by a goroutine of its own. Until done
// is closed, buf must not be changed; and not be read, either, while the read fills it.
type segmentIO struct {
	buf   []byte
	pages pageList
	done  chan struct{}
	err   error // set before done is closed
}

func begin(l pageList, buf []byte, transferAt func(b []byte, off int64) (int, error)) *segmentIO {
	t := &segmentIO{buf: buf, pages: l, done: make(chan struct{})}
	go func() {
		defer close(t.done)
		t.err = l.each(buf, 0, transferAt)
	}()
	return t
}

// each transfers bytes of a segment, which begin at from, page by page.
func (l *pageList) each(b []byte, from int, transferAt func(b []byte, off int64) (int, error)) error {
	for part, off := range l.parts(from, len(b)) {
		if _, err := transferAt(b[part.at:][:part.size], off); err != nil {
			return err
		}
	}
	return nil
}

func (t *segmentIO) wait() error {
	<-t.done
	return t.err
}

func (t *segmentIO) finished() bool {
	select {
	case <-t.done:
		return true
	default:
		return false
	}
}

// wholePages returns how many bytes of a slab with so many bytes of records are written and read: whole pages of the system's, as
// nothing else gets past its cache.
func wholePages(size int) int {
	const systemPage = 4 << 10
	if size <= pageSize {
		return pageSize
	}
	return (size + systemPage - 1) &^ (systemPage - 1)
}

// write begins to write a segment to free pages.
func (p *spillFile) write(b []byte) *segmentIO {
	n := wholePages(len(b))
	return begin(p.take(n), b[:n], p.direct.WriteAt)
}

// load begins to read a segment with so many bytes of records into a new slab.
func (p *spillFile) load(l pageList, size int) *segmentIO {
	n := wholePages(size)
	return begin(l, slab.Alloc(n)[:n], p.direct.ReadAt)
}

// read fills b with a segment's bytes from an offset on.
func (p *spillFile) read(b []byte, l *pageList, from int) {
	if err := l.each(b, from, p.file.ReadAt); err != nil {
		p.fail(err)
	}
}

// errUnreadable stops a queue whose bodies are lost. After a restart, the journalled
// ones are there again.
var errUnreadable = errors.New("message bodies cannot be read back from the disk")

// unreadable is the panic of a queue that needs a body that cannot be read. It stops the
// queue: see contain.
type unreadable struct{ error }

func (p *spillFile) fail(why error) {
	err := fmt.Errorf("%w: %w", errUnreadable, why)
	if p.failed != nil {
		p.failed(err)
	}
	panic(unreadable{err})
}
