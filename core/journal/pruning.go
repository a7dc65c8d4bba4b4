package journal

import (
	"iter"
	"slices"

	"github.com/curfewmq/curfew/core/wlog"
)

// prune removes written commits, and parts of them, that need not be repeated. The caller holds mu.
func (w *Writer) prune(groups iter.Seq[*commitGroup]) {
	w.overtaken = false
	p := pruning{operations: w.o.Operations, extents: &w.extents}
	p.gatherMarks(groups)
	for g := range groups {
		bytes, remain := g.prune(&p)
		w.overtaken = w.overtaken || remain
		w.pending -= int64(bytes)
		w.o.Waiting.Add(-int64(bytes))
	}
	if p.lasting == 0 {
		w.gone = nil
	}
}

// pruning is what prune knows of the commits that it has passed.
type pruning struct {
	operations Operations
	extents    *extents
	some       bool              // operations wait
	lasting    uint32            // the first extent that has records of them which no voucher stands for; 0 = none has
	marks      map[Record]uint64 // what may have to be repeated: Mark.Before of the newest that were written, less those that were passed
	brings     map[uint64]bool   // by queue with such a mark: whether records of it wait
	sought     int               // queues in brings of which none was passed
}

// gatherMarks finds the newest marks of the commits that were written before their turn.
func (p *pruning) gatherMarks(groups iter.Seq[*commitGroup]) {
	if p.operations.Marks == nil {
		return
	}
	for g := range groups {
		for i := range g.commits {
			if c := &g.commits[i]; c.written && !c.relocation && c.without&Marks == 0 {
				p.addMarks(g.ops(i))
			}
		}
	}
}

func (p *pruning) addMarks(ops []byte) {
	for m := range p.operations.Marks(ops) {
		if p.marks == nil {
			p.marks, p.brings = map[Record]uint64{}, map[uint64]bool{}
		}
		p.marks[m.Record] = max(p.marks[m.Record], m.Before)
		p.brings[m.Queue] = false
	}
	p.sought = len(p.brings)
}

// pass passes a commit that waits.
func (p *pruning) pass(c *commit, ops []byte) {
	p.some = p.some || len(ops) > 0
	if c.lasting != 0 && (p.lasting == 0 || c.lasting < p.lasting) {
		p.lasting = c.lasting
	}
	if p.sought == 0 || c.brought == 0 {
		return
	}
	brought, _ := p.operations.Records(ops)
	for r := range brought {
		if before, ok := p.brings[r.Queue]; ok && !before {
			p.brings[r.Queue] = true
			p.sought--
		}
	}
}

// repeated returns what must be repeated of a commit that was written before its turn. Its records are in the log. So are those that
// it has settled, unless one of the commits before it brings them.
func (p *pruning) repeated(c *commit, ops []byte, deltas []Delta) []byte {
	if p.operations.Without == nil {
		return ops
	}
	parts := Records
	if (p.lasting == 0 || c.settles < p.lasting) && !slices.ContainsFunc(deltas, p.waits) {
		parts |= Settlements
	}
	if c.without&Marks != 0 || !p.matter(ops) {
		parts |= Marks
	}
	if parts != c.without {
		c.without, c.purpose = parts, wlog.Settling
		ops = p.operations.Without(ops, parts)
	}
	return ops
}

// waits reports whether a record that a delta has freed is in a commit that waits.
func (p *pruning) waits(d Delta) bool { return p.extents.vouchers[d.Extent].waiting > 0 }

// matter reports whether a mark of a commit is the newest of its records, of which some are in a commit that waits: it must be
// written no earlier than they are, as the log may be trimmed up to them.
func (p *pruning) matter(ops []byte) (some bool) {
	for m := range p.operations.Marks(ops) {
		if before, ok := p.marks[m.Record]; ok && before == m.Before {
			delete(p.marks, m.Record)
			some = some || p.brings[m.Queue]
		}
	}
	return some
}
