package journal

import (
	"cmp"
	"slices"
)

// Run is consecutive records of a queue, from the first one on.
type Run struct {
	Record
	Count uint32
	Later bool // their bytes are freed by later commits, when the one that settles them is durable
}

// recordSet is a set of records. A purge adds millions in one run, which is kept as such.
type recordSet struct {
	single map[Record]struct{}
	runs   []Run // long ones, which do not overlap
	sorted bool  // they are
}

func newRecordSet() *recordSet { return &recordSet{single: map[Record]struct{}{}} }

func (s *recordSet) add(r Run) {
	const long = 64
	if r.Count > long {
		s.runs, s.sorted = append(s.runs, r), false
		return
	}
	for range r.Count {
		s.single[r.Record] = struct{}{}
		r.Ref++
	}
}

func (s *recordSet) has(r Record) bool {
	if s == nil {
		return false
	}
	if _, ok := s.single[r]; ok {
		return true
	}
	if !s.sorted {
		slices.SortFunc(s.runs, func(a, b Run) int { return a.compare(b.Record) })
		s.sorted = true
	}
	i, ok := slices.BinarySearchFunc(s.runs, r, func(run Run, r Record) int { return run.compare(r) })
	if !ok {
		i-- // the last one that begins before it
	}
	return i >= 0 && s.runs[i].Queue == r.Queue && r.Ref-s.runs[i].Ref < uint64(s.runs[i].Count)
}

func (r Record) compare(o Record) int {
	return cmp.Or(cmp.Compare(r.Queue, o.Queue), cmp.Compare(r.Ref, o.Ref))
}
