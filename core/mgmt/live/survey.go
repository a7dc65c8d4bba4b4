package live

import (
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/curfewmq/curfew/core/clock"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/core/vhost"
	"github.com/curfewmq/curfew/sdk/hook"
)

// Survey describes all queues as they were when a reader last asked. A collection looks
// only at queues that have changed since the one before. Without readers the survey forgets
// the queues, because it would keep deleted ones in memory. Any goroutine may use it.
type Survey struct {
	vhosts func() []*vhost.VHost
	clock  clock.Clock
	once   secondly

	// These fields belong to the collecting goroutine.
	due    queue.DueSurvey
	sample sample
	began  hook.Instant // of the present stretch of work
	worked time.Duration
	all    []*Entry // of all tenants
	from   int      // index in all of the queue that the next collection begins with
	behind bool     // there was no time to count the deadlines of a queue

	mu      sync.Mutex // guards the fields below; during a collection it is held for one entry at a time
	tenants []*Tenant  // by name
	number  uint64     // of the last collection
	set     uint64     // changes with the queues that there are
	at      hook.Instant
	forget  *time.Timer // forgets the queues; nil before the first collection
}

// Tenant is a vhost with its queues. It is valid while [Survey.Read] calls a function.
type Tenant struct {
	VHost   *vhost.VHost
	Entries []*Entry // by name; some may be deleted
	Counts  Counts
	churn   vhost.Churn
	listed  uint64 // the number of the collection that found the vhost
	held    []*Entry
}

const (
	// stretch is how long a collection works between two pauses for other goroutines.
	stretch = 200 * time.Microsecond
	pause   = 500 * time.Microsecond
	// mostCounting is how long a collection may work before it leaves deadlines to the next
	// collection, for queues that have changed; mostFirst is the same for queues that were
	// never counted.
	mostCounting = 20 * time.Millisecond
	mostFirst    = 250 * time.Millisecond
)

// NewSurvey returns a survey of the queues of all vhosts, which has not looked at any yet.
func NewSurvey(vhosts func() []*vhost.VHost, now clock.Clock) *Survey {
	s := &Survey{vhosts: vhosts, clock: now}
	s.sample.look = s.sample.take
	s.sample.count = func(q *queue.Queue) { s.sample.done = s.due.Next(q) }
	return s
}

// Read calls fn with all queues as they are now, or were within the last second. fn may use
// the reading until it returns. fn must not block.
func (s *Survey) Read(fn func(*Reading)) {
	s.once.do(s.clock, s.collect)
	s.mu.Lock()
	defer s.mu.Unlock()
	fn(&Reading{Tenants: s.tenants, Number: s.number, Set: s.set, At: s.at})
}

// Reading is the survey as one reader gets it.
type Reading struct {
	Tenants []*Tenant
	Number  uint64 // of the collection
	Set     uint64 // changes with the queues that there are
	At      hook.Instant
}

// collect looks at the queues that have changed.
func (s *Survey) collect() {
	s.list()
	s.began, s.worked, s.behind = s.clock(), 0, false
	all, from := s.all, s.from
	for i := range all {
		at := from + i
		if at >= len(all) {
			at -= len(all)
		}
		if !s.visit(all[at]) && !s.behind {
			s.behind, s.from = true, at // the next collection begins with it
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.at = s.clock()
	s.number++
	for _, t := range s.tenants {
		t.sum(s.at)
	}
	if s.forget == nil {
		s.forget = time.AfterFunc(idle, func() { s.once.unless(s.forgetAll) })
	} else {
		s.forget.Reset(idle)
	}
}

// forgetAll forgets the queues, unless a reader has asked meanwhile.
func (s *Survey) forgetAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.clock().Sub(s.at) < idle {
		return
	}
	s.due, s.all, s.tenants = queue.DueSurvey{}, nil, nil
	s.sample.config = nil
	s.set++
}

// list finds the queues that exist. It does not ask a vhost that has neither created nor deleted a queue since.
func (s *Survey) list() {
	s.mu.Lock()
	defer s.mu.Unlock()
	next, set := s.number+1, s.set
	known := make(map[*vhost.VHost]*Tenant, len(s.tenants))
	for _, t := range s.tenants {
		known[t.VHost] = t
	}
	for _, v := range s.vhosts() {
		t := known[v]
		if t == nil {
			t = &Tenant{VHost: v}
			s.tenants = append(s.tenants, t)
			s.set++
		}
		t.listed = next
		if churn := v.Churn(); t.churn != churn || t.Entries == nil {
			t.churn = churn
			s.relist(&t.Entries, v.Mailboxes(), v)
		}
		s.relist(&t.held, v.Schedules(), v)
	}
	n := len(s.tenants)
	s.tenants = slices.DeleteFunc(s.tenants, func(t *Tenant) bool { return t.listed != next })
	if len(s.tenants) != n {
		s.set++
	}
	if s.set == set {
		return
	}
	slices.SortFunc(s.tenants, func(a, b *Tenant) int { return strings.Compare(a.VHost.Name(), b.VHost.Name()) })
	s.listAll()
}

// listAll lists the queues of all tenants. The next collection still begins with the same
// queue, or with the first one if that queue is gone: without this, the last queues would
// never be counted where queues come and go all the time.
func (s *Survey) listAll() {
	var turn *Entry
	if s.from < len(s.all) {
		turn = s.all[s.from]
	}
	s.all = nil // the array would keep queues that are deleted
	for _, t := range s.tenants {
		s.all = append(append(s.all, t.Entries...), t.held...)
	}
	s.from = max(slices.Index(s.all, turn), 0)
}

// relist makes a list consist of these queues, by name: it keeps the entries of known
// queues, and adds entries for new ones. The caller holds mu.
func (s *Survey) relist(list *[]*Entry, all []*queue.Mailbox, v *vhost.VHost) {
	old, number := *list, s.number+1
	if len(old)+len(all) == 0 {
		return
	}
	known := make(map[*queue.Mailbox]*Entry, len(old))
	for _, e := range old {
		known[e.Mailbox] = e
	}
	fresh := 0
	for _, m := range all {
		e := known[m]
		if e == nil {
			e = &Entry{VHost: v, Mailbox: m, Config: m.Config()}
			old = append(old, e)
			fresh++
		}
		e.listed = number
	}
	n := len(old)
	old = slices.DeleteFunc(old, func(e *Entry) bool { return e.listed != number })
	if fresh > 0 { // sorting a sorted list is cheap, but not free
		slices.SortFunc(old, func(a, b *Entry) int {
			return strings.Compare(a.Config.Name, b.Config.Name)
		})
	}
	if fresh > 0 || len(old) < n {
		s.set++
	}
	if len(old) == 0 {
		old = nil // the array would stay as long as it was
	}
	*list = old
}

// visit looks at a queue if it has changed, and counts its deadlines. It reports whether there was time for that.
func (s *Survey) visit(e *Entry) bool {
	changes := e.Mailbox.Changes()
	changed := !e.seen || changes != e.changes
	now := s.clock()
	if !changed && e.looked != 0 {
		s.still(e, now)
	}
	if e.gone || !changed && !e.stale && (e.again == 0 || e.Mailbox.Now() < e.again) {
		return true
	}
	s.rest(now)
	e.changes = changes
	if changed && !s.look(e) {
		return true
	}
	most := mostCounting
	if e.counted == 0 {
		most = mostFirst
	}
	if s.worked > most {
		return false
	}
	s.count(e)
	return true
}

// still notes that nothing has entered or left a queue since the collection before.
func (s *Survey) still(e *Entry, now hook.Instant) {
	e.looked = now
	if e.In == 0 && e.Out == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	e.In, e.Out = 0, 0
}

// look samples a queue, and reports whether it exists.
func (s *Survey) look(e *Entry) bool {
	err := e.Mailbox.Look(s.sample.look)
	s.mu.Lock()
	defer s.mu.Unlock()
	if e.seen = true; err != nil {
		*e = Entry{VHost: e.VHost, Mailbox: e.Mailbox, Config: e.Config, listed: e.listed, seen: true, gone: true}
		return false
	}
	was := e.Stats.Counters
	e.Stats, e.Oldest, e.Config, e.stale = s.sample.stats, s.sample.head.Oldest, s.sample.config, true
	e.flow(s.clock(), &was)
	return true
}

// count counts when the messages of a queue are due.
func (s *Survey) count(e *Entry) {
	s.due.Reset(e.Mailbox.Now())
	for s.sample.done = false; !s.sample.done; {
		if e.Mailbox.Look(s.sample.count) != nil {
			break // the next collection sees that it is gone
		}
		s.rest(s.clock())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	e.take(&s.due)
}

// rest pauses after a stretch of work.
func (s *Survey) rest(now hook.Instant) {
	if now.Sub(s.began) < stretch {
		return
	}
	s.worked += now.Sub(s.began)
	time.Sleep(pause)
	s.began = s.clock()
}

// sample is a look at a queue. Its functions are bound once: a closure for each queue would cost more than the look.
type sample struct {
	stats  queue.Stats
	head   queue.Head
	config *queue.Config
	done   bool
	look   func(*queue.Queue)
	count  func(*queue.Queue)
}

func (s *sample) take(q *queue.Queue) {
	s.stats, s.config = q.Stats(), q.Config()
	s.head, _ = q.Head()
}

// sum adds up when the messages of a vhost are due.
func (t *Tenant) sum(now hook.Instant) {
	ahead := t.VHost.Offset() // instants in the vhost are of its own time; sums over vhosts need a common one
	t.Counts = Counts{At: now, Complete: true}
	for _, all := range [...][]*Entry{t.Entries, t.held} {
		for _, e := range all {
			e.addTo(&t.Counts, now.Add(ahead))
		}
	}
	for _, at := range [...]*hook.Instant{&t.Counts.Earliest, &t.Counts.NextRelease} {
		if *at != 0 {
			*at = at.Add(-ahead)
		}
	}
}

// Counts adds up when messages are due in the vhosts that see selects.
func (r *Reading) Counts(see func(*vhost.VHost) bool) (c Counts) {
	c = Counts{At: r.At, Complete: true}
	for _, t := range r.Tenants {
		if see(t.VHost) {
			c.add(&t.Counts)
		}
	}
	return c
}

// Queues returns how many queues there are in the vhosts that see selects.
func (r *Reading) Queues(see func(*vhost.VHost) bool) (n int) {
	for _, t := range r.Tenants {
		if see(t.VHost) {
			n += len(t.Entries)
		}
	}
	return n
}
