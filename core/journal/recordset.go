package journal

// Run is consecutive records of a queue, from the first one on.
type Run struct {
	Record
	Count uint32
}

// recordSet is a set of records. A purge adds millions in one run, which is kept as such.
type recordSet struct {
	single map[Record]struct{}
	runs   []Run // long ones
}

func newRecordSet() *recordSet { return &recordSet{single: map[Record]struct{}{}} }

func (s *recordSet) add(r Run) {
	const long = 64
	if r.Count > long {
		s.runs = append(s.runs, r)
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
	for _, run := range s.runs {
		if run.Queue == r.Queue && r.Ref-run.Ref < uint64(run.Count) {
			return true
		}
	}
	return false
}
