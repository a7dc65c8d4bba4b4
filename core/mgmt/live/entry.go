package live

import (
	"math"
	"slices"
	"time"

	"github.com/curfewmq/curfew/core/mgmt/jsonobj"
	"github.com/curfewmq/curfew/core/mgmt/rows"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/core/vhost"
	"github.com/curfewmq/curfew/sdk/hook"
)

// Entry is a queue as it was after its last change. Its exported members are valid while [Survey.Read] calls a function, which must not
// change them.
type Entry struct {
	VHost   *vhost.VHost
	Mailbox *queue.Mailbox
	Config  *queue.Config
	Stats   queue.Stats
	Oldest  hook.Instant // when the oldest message at the head of a level entered; 0 = none is ready
	In, Out float64      // messages that entered and that were delivered, per second, between the last two collections

	seen    bool         // it was looked at
	gone    bool         // it is deleted
	listed  uint64       // the number of the collection that found it in its vhost
	changes uint32       // of the mailbox, before it was looked at
	looked  hook.Instant // when In and Out were counted last; 0 = never

	// When its messages are due: see queue.DueSurvey.Marks.
	due, held []queue.DueMark
	never     int
	earliest  hook.Instant
	counted   hook.Instant // when that was counted; 0 = never
	again     hook.Instant // when it is counted again without a change; 0 = never
	stale     bool         // it has changed since, and there was no time to count again
}

// flow computes the rates of entering and leaving messages since the last collection, when the counters had the values in was. The first
// call only notes the time.
func (e *Entry) flow(now hook.Instant, was *queue.Counters) {
	is, passed := &e.Stats.Counters, now.Sub(e.looked)
	if e.looked == 0 {
		e.looked = now
		return
	}
	const tenths = 10
	per := func(n uint64) float64 { return math.Round(float64(n)/passed.Seconds()*tenths) / tenths }
	e.In = per(is.Published - min(was.Published, is.Published))
	e.Out = per(is.Delivered + is.DeliveredNoAck - min(was.Delivered+was.DeliveredNoAck, is.Delivered+is.DeliveredNoAck))
	e.looked = now
}

// oldest is how old counts by step may become while nothing changes.
const oldest = time.Minute

// whole reports whether the counts describe the queue as it is now.
func (e *Entry) whole() bool { return !e.stale && e.counted != 0 || e.gone }

// take keeps the counts of a survey.
func (e *Entry) take(s *queue.DueSurvey) {
	e.due, e.held = s.Marks(e.due[:0], e.held[:0])
	e.never, e.earliest, e.counted, e.stale, e.again = s.Never, s.Due.Earliest, s.Now(), false, 0
	for _, marks := range [...][]queue.DueMark{e.due, e.held} {
		if n := len(marks); n > 0 && !s.Exact() {
			e.again = e.counted.Add(min(oldest, max(period, first(marks, e.counted).Sub(e.counted)/2)))
		}
	}
}

// first returns the first instant of marks that is after now, or the last one.
func first(marks []queue.DueMark, now hook.Instant) hook.Instant {
	for _, m := range marks {
		if m.At > now {
			return m.At
		}
	}
	return marks[len(marks)-1].At
}

// addTo adds the queue's deadlines, as seen from now.
func (e *Entry) addTo(c *Counts, now hook.Instant) {
	c.Never += e.never
	c.Held += e.Stats.Held
	for _, m := range e.due {
		c.due.Add(now, m.At, m.N)
	}
	for _, m := range e.held {
		c.held.Add(now, m.At, m.N)
	}
	c.Earliest = earlier(c.Earliest, e.earliest)
	c.NextRelease = earlier(c.NextRelease, e.Stats.NextRelease)
	c.Complete = c.Complete && e.whole()
}

// earlier returns the earlier of two instants; 0 stands for no instant.
func earlier(a, b hook.Instant) hook.Instant {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// Order says how entries are sorted.
type Order struct {
	// Key returns a number or a text. Entries with the key nil come last, in either direction. Without Key, entries are in their own order.
	Key     func(*Entry) any
	Reverse bool
}

// InstantKey returns a key that is an instant; nil for none.
func InstantKey(at hook.Instant) any {
	if at == 0 {
		return nil
	}
	return int64(at)
}

// ByNext is a key: the next instant at which a message expires or is released.
func ByNext(e *Entry) any { return InstantKey(earlier(e.Stats.NextDeadline, e.Stats.NextRelease)) }

// Page returns at most size entries behind the first from, in order, and their sort keys as JSON values. The node that merges pages of
// several nodes needs the keys.
func (o *Order) Page(all []*Entry, from, size int) (page []*Entry, keys []any) {
	if o.Key == nil {
		page = o.own(all, from, size)
		for _, e := range page {
			keys = append(keys, e.Key())
		}
		return page, keys
	}
	first := rows.Order{Reverse: o.Reverse, AbsentLast: true, Steady: true}.First(len(all), from+size, func(at int) any { return o.Key(all[at]) })
	for _, p := range first[min(from, len(first)):] {
		page, keys = append(page, all[p.At]), append(keys, p.Key)
	}
	return page, keys
}

// KeysMember holds the sort keys of a state's rows, in their order; null for rows that come last. Only the node that merges states gets it,
// readers do not.
const KeysMember = "keys"

// Rows returns the members that show a page of entries: the rows by their keys, and their order.
func (o *Order) Rows(all []*Entry, page, size int, row func(*Entry) jsonobj.Object) jsonobj.Object {
	entries, keys := o.Page(all, (page-1)*size, size)
	rows, order := object{}, []string{}
	for _, e := range entries {
		rows.Add(e.Key(), row(e))
		order = append(order, e.Key())
	}
	return object{{"rows", rows}, {"order", order}, {KeysMember, keys}}
}

// own is a page of entries in their own order.
func (o *Order) own(all []*Entry, from, size int) []*Entry {
	from, end := min(from, len(all)), min(from+size, len(all))
	if !o.Reverse {
		return all[from:end]
	}
	page := slices.Clone(all[len(all)-end : len(all)-from])
	slices.Reverse(page)
	return page
}
