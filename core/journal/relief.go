package journal

import (
	"errors"
	"iter"
	"slices"

	"github.com/curfewmq/curfew/core/wlog"
)

// While the log is full what brings more waits at the head of the line, and what
// lets go must not wait behind it: nothing else ends that. So commits that settle,
// and those that move, are written ahead of their turn. What they let go of may stand
// in one that waits, and would be there again once that is written: so whatever is
// written before its turn has come takes along, in the same entry, what has overtaken
// it. After each entry the log says of everything what it should.

// overtaking is commits that are written ahead of their turn, in one entry.
type overtaking struct {
	entry   []byte
	purpose wlog.Purpose
	commits []overtaker
}

// overtaker is the i-th commit of a group.
type overtaker struct {
	group *commitGroup
	i     int
}

// relieve writes what overtakes the batch at hand, or part of it, and reports
// whether that was any.
func (s *Writer) relieve(b *commitGroup) (some bool, err error) {
	const ordinary = 256 << 10
	for _, try := range []struct {
		least wlog.Purpose
		size  int
	}{{wlog.Moving, ordinary}, {wlog.Settling, ordinary}, {wlog.Settling, 1}} {
		o := s.overtaking(b, try.least, try.size)
		if len(o.commits) == 0 {
			return false, nil
		}
		var at wlog.Index
		if len(o.entry) > 0 {
			at, err = s.log.Append(s.ctx, o.entry, o.purpose)
		}
		if errors.Is(err, wlog.ErrFull) {
			err = nil
			continue
		}
		if err == nil {
			s.overtook(b, o, at)
		}
		return true, err
	}
	return false, nil
}

// overtaking gathers what overtakes the batch at hand, of such a purpose, in an
// entry of about size bytes.
func (s *Writer) overtaking(first *commitGroup, least wlog.Purpose, size int) (o overtaking) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o.purpose = wlog.Settling
	enough := false
	for b := range s.gather.from(first) {
		for i := range b.commits {
			c := &b.commits[i]
			ops := b.entry[c.off:b.end(i)]
			if c.ahead && len(o.entry) > 0 {
				o.add(c, ops)
			}
			if enough || c.ahead || c.refusal != nil || c.purpose < least && !s.void(c) {
				continue
			}
			if s.void(c) {
				ops = nil
			}
			if enough = len(o.entry) > 0 && len(o.entry)+len(ops) > size; enough {
				continue
			}
			o.commits = append(o.commits, overtaker{b, i})
			o.add(c, ops)
		}
	}
	return o
}

func (o *overtaking) add(c *commit, ops []byte) {
	if len(ops) > 0 {
		o.entry, o.purpose = append(o.entry, ops...), min(o.purpose, c.purpose)
	}
}

// overtook accounts for what was written ahead of its turn, at an index.
func (s *Writer) overtook(first *commitGroup, o overtaking, at wlog.Index) {
	var overtaken []Completer
	s.mu.Lock()
	s.appended(at, len(o.entry))
	for _, t := range o.commits {
		c := &t.group.commits[t.i]
		deltas := t.group.deltas(t.i)
		s.extents.freeAll(deltas)
		for i := range deltas {
			deltas[i].Bytes = 0
		}
		if c.completer != nil {
			overtaken = append(overtaken, c.completer)
		}
		c.completer, c.ahead = nil, true
	}
	s.prune(s.gather.from(first))
	d := s.due()
	s.mu.Unlock()
	for _, c := range overtaken {
		c.Durable()
	}
	s.carryOut(d)
}

// prune drops what was written ahead of its turn and has nothing before it any more.
// The caller holds mu.
func (s *Writer) prune(line iter.Seq[*commitGroup]) {
	s.owed = false
	first := true
	for b := range line {
		bytes, owed := b.prune(&first)
		s.owed = s.owed || owed
		s.pending -= int64(bytes)
		waiting.Add(-int64(bytes))
	}
}

// whole returns the batch's entry, and what has overtaken it and stands behind it.
func (s *Writer) whole(b *commitGroup) ([]byte, wlog.Purpose) {
	if !s.owed {
		return b.entry, b.purpose()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	entry, purpose := slices.Clone(b.entry), b.purpose()
	for _, l := range s.gather.line {
		entry, purpose = l.again(entry, purpose)
	}
	return entry, purpose
}

// move is a commit that Move made. It is void when none of its records is live any
// more.
type move struct {
	shard *Writer
	into  []uint32 // extents that its records are accounted to
}

var _ Completer = (*move)(nil)

// Durable implements [Completer].
func (m *move) Durable() { m.shard.moved() }

// Failed implements [Completer].
func (m *move) Failed(error) { m.shard.moved() }

func (s *Writer) moved() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.moves--
	s.resting.Broadcast()
}

// void reports whether a commit need not be written: it moves what is not live any
// more. The caller holds mu.
func (s *Writer) void(c *commit) bool {
	m, ok := c.completer.(*move)
	if !ok {
		return false
	}
	return !slices.ContainsFunc(m.into, s.extents.holds)
}

// Move has records written again: ops are copies of live ones, which live accounts
// for in their old and new places. It may overtake commits that wait for space.
func (s *Writer) Move(ops []byte, live []Delta) {
	m := &move{shard: s}
	for _, d := range live {
		if d.Bytes > 0 {
			m.into = append(m.into, d.Extent)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.moves++
	s.add(ops, live, commit{completer: m, purpose: wlog.Moving, move: true})
}

// Moved waits until what Move was called with is durable. It returns an error when
// no more is taken.
func (s *Writer) Moved() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.moves > 0 {
		s.resting.Wait()
	}
	return s.err
}
