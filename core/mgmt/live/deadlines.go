package live

import (
	"time"

	"github.com/curfewmq/curfew/core/mgmt/jsonobj"
	"github.com/curfewmq/curfew/core/mgmt/pattern"
	"github.com/curfewmq/curfew/core/vhost"
	"github.com/curfewmq/curfew/sdk/hook"
)

// Deadlines is the view of deadlines, in all queues together and in each queue of a page. It belongs to the view that it makes states for.
type Deadlines struct {
	Survey *Survey
	See    func(*vhost.VHost) bool // queues of these vhosts have rows
	Watch  func(*vhost.VHost) bool // vhosts that are counted, without Queue
	Queue  *pattern.Filter         // nil = all queues, and the holds of exchanges
	Sort   string                  // a member of rows
	Page   int                     // from 1
	Size   int
	Order
	Buckets int
	// Lateness is how late messages expire; nil = the reader may not know.
	Lateness Latenesses

	selection *Selection // nil before the first state
	now       hook.Instant
}

// RowMembers are the members of a row that rows can be sorted by.
var RowMembers = []string{
	"queue", "due_1s", "due_1m", "due_1h", "later", "never", "overdue", "next_deadline", "next_release", "lease_expires_at", "held", "strategy",
}

// SortBy sets the order by the name of a member, which is one of RowMembers.
func (d *Deadlines) SortBy(name string, reverse bool) {
	d.Order = Order{Reverse: reverse}
	count := func(n func(*row) int) func(*Entry) any {
		return func(e *Entry) any {
			r := e.row(d.now)
			return n(&r)
		}
	}
	switch name {
	case "queue":
		d.Key = func(e *Entry) any { return e.Config.Name }
	case "strategy":
		d.Key = func(e *Entry) any { return e.Config.Strategy }
	case "next_deadline":
		d.Key = ByNext
	case "next_release":
		d.Key = func(e *Entry) any { return InstantKey(e.Stats.NextRelease) }
	case "lease_expires_at":
		d.Key = func(e *Entry) any { return InstantKey(e.Stats.LeaseExpires) }
	case "held":
		d.Key = count(func(r *row) int { return r.held })
	case "never":
		d.Key = count(func(r *row) int { return r.never })
	case "overdue":
		d.Key = count(func(r *row) int { return r.overdue })
	case "due_1s":
		d.Key = count(func(r *row) int { return r.within[0] })
	case "due_1m":
		d.Key = count(func(r *row) int { return r.within[1] })
	case "due_1h":
		d.Key = count(func(r *row) int { return r.within[2] })
	case "later":
		d.Key = count(func(r *row) int { return r.later })
	}
}

// State returns the state.
func (d *Deadlines) State() (o jsonobj.Object, err error) {
	if d.selection == nil {
		d.selection = NewSelection(d.See, d.Queue)
	}
	err = d.selection.Read(d.Survey, func(r *Reading, matched []*Entry) { o = d.state(r, matched) })
	if err == nil {
		d.Lateness.AddTo(&o)
	}
	return o, err
}

func (d *Deadlines) state(r *Reading, matched []*Entry) object {
	d.now = r.At
	var counts Counts
	if d.Queue == nil {
		counts = r.Counts(d.Watch)
	} else {
		counts = Counts{At: r.At, Complete: true}
		for _, e := range matched {
			e.addTo(&counts, r.At)
		}
	}
	timed := make([]*Entry, 0, len(matched))
	for _, e := range matched {
		if e.timed() {
			timed = append(timed, e)
		}
	}
	o := append(counts.Object(d.Buckets), d.Order.Rows(timed, d.Page, d.Size, func(e *Entry) object { return e.row(r.At).object(e) })...)
	return append(o, member{"total", len(timed)})
}

// Key returns a name that is unique among the queues of all vhosts.
func (e *Entry) Key() string { return e.Config.VHost + "\x00" + e.Config.Name }

// Gone reports whether the queue is deleted.
func (e *Entry) Gone() bool { return e.gone }

// timed reports whether the queue has something that is due at a time: its messages, or its lease.
func (e *Entry) timed() bool {
	s := &e.Stats
	return len(e.due) > 0 || s.Held > 0 || s.NextDeadline != 0 || s.NextRelease != 0 || s.LeaseExpires != 0
}

// row describes when the messages of a queue are due.
type row struct {
	within                      [3]int // up to a second, a minute and an hour ahead; each count includes the ones before it
	later, never, overdue, held int
}

// rowEnds are the ends, from now, of the counts in row.within.
var rowEnds = [len(row{}.within)]time.Duration{time.Second, time.Minute, time.Hour}

func (e *Entry) row(now hook.Instant) row {
	r := row{never: e.never, held: e.Stats.Held}
	for _, m := range e.due {
		ahead, n := m.At.Sub(now), int(m.N)
		switch {
		case ahead <= 0:
			r.overdue += n
		case ahead > rowEnds[len(rowEnds)-1]:
			r.later += n
		}
		for i, end := range rowEnds {
			if ahead > 0 && ahead <= end {
				r.within[i] += n
			}
		}
	}
	return r
}

func (r row) object(e *Entry) object {
	s := &e.Stats
	return object{
		{"vhost", e.Config.VHost},
		{"queue", e.Config.Name},
		{"due_1s", r.within[0]},
		{"due_1m", r.within[1]},
		{"due_1h", r.within[2]},
		{"later", r.later},
		{"never", r.never},
		{"overdue", r.overdue},
		{"next_deadline", jsonobj.Instant(s.NextDeadline)},
		{"next_release", jsonobj.Instant(s.NextRelease)},
		{"lease_expires_at", jsonobj.Instant(s.LeaseExpires)},
		{"held", r.held},
		{"strategy", e.Config.Strategy},
	}
}
