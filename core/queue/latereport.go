package queue

import (
	"bytes"
	"slices"
	"sync"

	"github.com/curfewmq/curfew/core/telemetry"
	"github.com/curfewmq/curfew/sdk/hook"
)

// A queue reports what became of its dead letters when they are routed, unless one of the
// queues that they go to may refuse them: then only the answers of these say it. A message
// for several queues is dead-lettered if one of them took it.

// lateReport is removals that are reported once all targets have answered.
type lateReport struct {
	host Host
	from *Config
	at   hook.Instant // when the messages left

	mu       sync.Mutex // guards the rest
	pending  int        // batches that have not arrived
	index    []int      // by DeadLetter.Seq - 1: in removals; -1 means that it is reported already
	removals []telemetry.Removal
	sent     []int        // by index in removals: to how many queues
	refusals [][]*Mailbox // by index in removals: the queues that refused it
}

// newLateReport begins a report if dead letters go to queues that may refuse them. It is called on
// the queue's turn, while the turn's buffer has their removals.
func newLateReport(q *Queue, batches int, ds []DeadLetter) *lateReport {
	if !slices.ContainsFunc(ds, func(d DeadLetter) bool { return d.MayBeRefused && d.Sent > 0 }) {
		return nil
	}
	p := &lateReport{host: q.host, from: q.cfg, at: q.buf.removals.at, pending: batches, index: make([]int, len(ds))}
	all := q.buf.removals.all
	next := 0
	for i := range ds {
		for all[next].Target == nil {
			next++
		}
		r := &all[next]
		next++
		p.index[i] = -1
		if !ds[i].MayBeRefused || ds[i].Sent == 0 {
			continue
		}
		p.index[i] = len(p.removals)
		p.sent = append(p.sent, ds[i].Sent)
		p.removals = append(p.removals, *r)
		kept := &p.removals[len(p.removals)-1]
		kept.Exchange, kept.Key, kept.Props = bytes.Clone(r.Exchange), bytes.Clone(r.Key), bytes.Clone(r.Props)
		kept.Outcome, kept.Entered = ds[i].Outcome, ds[i].Entered
	}
	p.refusals = make([][]*Mailbox, len(p.removals))
	return p
}

// reports reports whether a dead letter is in the report, which may be nil.
func (p *lateReport) reports(d *DeadLetter) bool { return p != nil && p.index[d.Seq-1] >= 0 }

// arrived notes what became of a batch. The last one has all of it reported.
func (p *lateReport) arrived(b *Batch) {
	if p.note(b) {
		p.host.Removed(p.from, p.at, p.removals)
	}
}

func (p *lateReport) note(b *Batch) (last bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range b.Messages {
		m := &b.Messages[i]
		if n := p.index[m.Seq-1]; n >= 0 && m.Flags&Refused != 0 {
			p.refusals[n] = append(p.refusals[n], b.to)
		}
	}
	if p.pending--; p.pending > 0 {
		return false
	}
	for n := range p.removals {
		conclude(&p.removals[n], p.sent[n], p.refusals[n])
	}
	return true
}

// conclude sets the outcome of a message that was sent to several queues, of which some
// refused it.
func conclude(r *telemetry.Removal, sent int, refusals []*Mailbox) {
	switch {
	case len(refusals) == 0:
		return
	case len(refusals) == sent:
		r.Outcome, r.Entered = telemetry.Refused, nil
		return
	case r.Entered == nil: // exchanges hold it
		return
	}
	e := telemetry.Entered{Names: slices.Clone(r.Entered.Names), More: r.Entered.More}
	for _, m := range refusals {
		c := m.Config()
		switch i := slices.Index(e.Names, c.Name); {
		case c.Schedule != nil: // it has no name there
		case i >= 0:
			e.Names = slices.Delete(e.Names, i, i+1)
		default:
			e.More--
		}
	}
	if r.Entered = &e; len(e.Names)+e.More == 0 {
		r.Entered = nil
	}
}
