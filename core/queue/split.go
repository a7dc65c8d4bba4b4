package queue

import (
	"encoding/binary"
	"fmt"
)

// Splitter divides the operations of a journal among several others, in which queues have
// other numbers. The operations keep their order, but those of one entry may come to lie
// in several. A Splitter belongs to one goroutine.
type Splitter struct {
	// Number returns a queue's number in another journal, and which journal that is. ok
	// is false if the queue's operations are left out.
	Number func(id uint64) (to uint64, journal int, ok bool)
	// Put is called with the next entry of a journal, which is valid during the call, and
	// the number of the queue of its last operation.
	Put func(journal int, entry []byte, last uint64) error

	parts []splitPart // by journal
	base  uint64      // counts enqueues with properties; those of the last one are in the reader
}

// splitPart is an entry of a journal that is being composed.
type splitPart struct {
	b    []byte
	base uint64 // the last enqueue with properties in b; 0 = there is none
	last uint64 // the queue of the last operation
}

// splitEntry is about how many bytes an entry has. A longer operation is an entry by
// itself.
const splitEntry = 1 << 20

// Entry divides the operations at the beginning of an entry, and returns the rest, which
// begins with a definition: with a 0.
func (s *Splitter) Entry(ops []byte) (rest []byte, err error) {
	in := reader{b: ops}
	for len(in.b) > 0 && in.b[0] != 0 {
		from := in.b
		kind, id := in.u8(), in.u64()
		var whole []byte
		if kind == opEnqueued || kind == opEnqueuedAlike {
			whole = in.enqueue(kind)
		} else if err := new(Restorer).apply(kind, nil, 0, &in); err != nil { // it only reads
			return nil, err
		}
		if in.bad {
			return nil, errOps
		}
		if kind == opEnqueued {
			s.base++
		}
		to, journal, ok := s.Number(id)
		if !ok {
			continue
		}
		if err := s.add(journal, to, from[:len(from)-len(in.b)], whole); err != nil {
			return nil, fmt.Errorf("queue %d: %w", id, err)
		}
	}
	return in.b, nil
}

// enqueue reads the bytes of an enqueue behind the queue's number, and returns the record
// with its properties.
func (r *reader) enqueue(kind byte) (whole []byte) {
	r.take(8 + 8 + 8)
	flags := slotFlags(r.u8())
	r.u16()
	whole, _, _ = r.record(kind, int(r.u32()), flags)
	return whole
}

// add adds an operation. whole is the record of an enqueue.
func (s *Splitter) add(journal int, to uint64, op, whole []byte) error {
	for len(s.parts) <= journal {
		s.parts = append(s.parts, splitPart{})
	}
	p := &s.parts[journal]
	if len(p.b) > 0 && len(p.b)+len(op) > splitEntry {
		if err := s.put(journal); err != nil {
			return err
		}
	}
	kind := op[0]
	if kind == opEnqueuedAlike && p.base != s.base {
		kind = opEnqueued // the enqueue with its properties is in another entry
	}
	p.last = to
	p.b = appendOp(p.b, kind, to)
	if kind == op[0] {
		p.b = append(p.b, op[opHeader:]...)
	} else {
		p.b = append(p.b, op[opHeader:enqueueHeader-4]...)
		p.b = append(binary.LittleEndian.AppendUint32(p.b, uint32(len(whole))), whole...)
	}
	if kind == opEnqueued {
		p.base = s.base
	}
	return nil
}

func (s *Splitter) put(journal int) error {
	p := &s.parts[journal]
	if len(p.b) == 0 {
		return nil
	}
	err := s.Put(journal, p.b, p.last)
	p.b, p.base = p.b[:0], 0
	return err
}

// Flush puts the remaining operations.
func (s *Splitter) Flush() error {
	for journal := range s.parts {
		if err := s.put(journal); err != nil {
			return err
		}
	}
	return nil
}
