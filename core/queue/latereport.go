package queue

import (
	"bytes"
	"slices"
	"sync"

	"github.com/curfewmq/curfew/core/telemetry"
	"github.com/curfewmq/curfew/sdk/hook"
)

// A queue reports the outcome of its dead letters when they are routed. If one of the
// targets may refuse a message, only the targets' answers give the outcome, and the
// report waits for them. A message for several queues counts as dead-lettered if one of
// them took it.

// lateReport has removals that are reported once all targets have answered.
type lateReport struct {
	host Host
	from *Config
	at   hook.Instant // when the messages left

	mu       sync.Mutex // guards the rest
	pending  int        // batches that have not arrived
	index    []int      // by DeadLetter.Seq - 1: index in removals; -1 means that it was reported at once
	removals []telemetry.Removal
	sent     []int        // by index in removals: number of target queues
	refusals [][]*Mailbox // by index in removals: the queues that refused it
}

// newLateReport begins a report if dead letters go to queues that may refuse them; else
// it returns nil. It is called on the queue's turn, while buf.removals has their
// removals.
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

// reports reports whether p will report the outcome of a dead letter. p may be nil.
func (p *lateReport) reports(d *DeadLetter) bool { return p != nil && p.index[d.Seq-1] >= 0 }

// arrived records the answers about a batch. After the last batch all removals are
// reported.
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

// conclude sets the outcome of a message that was sent to several queues. refusals has
// those that refused it.
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
		case c.Schedule != nil: // Entered has no names of exchanges
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
