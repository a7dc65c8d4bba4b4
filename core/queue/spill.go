package queue

import (
	"errors"
	"fmt"

	"github.com/curfewmq/curfew/core/queue/spill"
	"github.com/curfewmq/curfew/core/slab"
)

// spillFile is the file for memory segments beyond the budget. Queues spill the segment
// that was filled last, because the first is delivered first. Any goroutine may call its
// methods.
type spillFile struct {
	*spill.File
	budget   int64
	hasSpace func() bool // reports whether the disk has space to spare; nil = it always has
	failed   func(error) // is called when bodies cannot be read back
}

// SpillTo makes every queue of the broker write message bodies to a file in dir
// while queued messages hold more than budget bytes of memory and hasSpace, which is
// called from any goroutine, reports that the disk has space to spare; nil = it always
// has. SpillTo is called once, before there are queues. failed is called, from a
// queue's turn, with the reason why the queue stops: its bodies cannot be read back.
func (b *Broker) SpillTo(dir string, budget int64, hasSpace func() bool, failed func(error)) error {
	f, err := spill.Open(dir)
	if err != nil {
		return err
	}
	b.spill = &spillFile{f, budget, hasSpace, failed}
	return nil
}

// Close closes the file for message bodies, if there is one. The queues must have ended.
func (b *Broker) Close() {
	if b.spill != nil {
		_ = b.spill.Close() // nothing in it is needed any more
	}
}

// coldBytes is how much memory the messages that one exchange holds may take. Bodies
// beyond it go to the file even if there is memory, because they are not needed soon.
const coldBytes = 4 << 20

// shouldSpill reports whether a segment of s should go to the file. It is the only
// function that decides this. The space of an almost full disk is left to the logs: then
// memory fills up, and the memory alarm stops publishers.
func (p *spillFile) shouldSpill(s *store) bool {
	wanted := p != nil && (slab.Used() > p.budget || s.cold && s.residentBytes > coldBytes)
	return wanted && (p.hasSpace == nil || p.hasSpace())
}

// read fills b with a segment's bytes from an offset on.
func (p *spillFile) read(b []byte, l *spill.Pages, from int) {
	if err := p.Read(b, l, from); err != nil {
		p.fail(err)
	}
}

// errUnreadable stops a queue whose bodies are lost. A restart restores the journalled
// messages.
var errUnreadable = errors.New("message bodies cannot be read back from the disk")

// unreadable is the panic of a queue that needs a body that cannot be read: see contain.
type unreadable struct{ error }

func (p *spillFile) fail(why error) {
	err := fmt.Errorf("%w: %w", errUnreadable, why)
	if p.failed != nil {
		p.failed(err)
	}
	panic(unreadable{err})
}
