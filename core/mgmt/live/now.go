package live

import (
	"math"
	"sync"
	"time"

	"github.com/curfewmq/curfew/core/clock"
	"github.com/curfewmq/curfew/core/mgmt/jsonobj"
	"github.com/curfewmq/curfew/core/telemetry"
	"github.com/curfewmq/curfew/core/vhost"
	"github.com/curfewmq/curfew/sdk/hook"
)

// Totals are sums over queues, and the message that is due next.
type Totals struct {
	At                           hook.Instant
	Queues                       int
	Ready, Unacked, Held, Others int // messages; the others wait to leave, or for confirms
	Delayed                      int // messages that exchanges hold, which are in no queue
	next                         *Entry
	nextAt                       hook.Instant
	released                     bool // the next event is the end of a hold, not a deadline
}

// Totals adds up the queues of the vhosts that watch selects. The next event is that of a queue which see selects, too.
func (r *Reading) Totals(watch, see func(*vhost.VHost) bool) Totals {
	all := Totals{At: r.At}
	for _, t := range r.Tenants {
		if !watch(t.VHost) {
			continue
		}
		named := see(t.VHost)
		for _, e := range t.Entries {
			if !e.gone {
				all.add(e, named)
			}
		}
		for _, e := range t.held {
			all.Delayed += e.Stats.Held
		}
	}
	return all
}

// add adds a queue. The totals may name it as the queue with the next event if named is set.
func (t *Totals) add(e *Entry, named bool) {
	s := &e.Stats
	t.Queues++
	t.Ready += s.Ready
	t.Unacked += s.Unacked
	t.Held += s.Held
	t.Others += s.Discarded
	if !named {
		return
	}
	for i, at := range [...]hook.Instant{s.NextDeadline, s.NextRelease} {
		if at != 0 && (t.next == nil || at < t.nextAt) {
			t.next, t.nextAt, t.released = e, at, i == 1
		}
	}
}

// Messages returns the totals as an object.
func (t *Totals) Messages() jsonobj.Object {
	return object{{"messages", t.Ready + t.Unacked + t.Held + t.Others}, {"ready", t.Ready}, {"unacked", t.Unacked}, {"held", t.Held}, {"delayed", t.Delayed}}
}

// Next returns the queue where a message expires or is released next, or nil. It is called before [Survey.Read] ends.
func (t *Totals) Next() any {
	if t.next == nil {
		return nil
	}
	kind := "deadline"
	if t.released {
		kind = "release"
	}
	return object{{"vhost", t.next.Config.VHost}, {"queue", t.next.Config.Name}, {"at", jsonobj.Instant(t.nextAt)}, {"kind", kind}}
}

// Rates turn counts into rates, from one state of a view to the next.
type Rates struct {
	at   hook.Instant
	last []uint64
}

// stale is the age from which the previous counts are not used: the average over a longer time does not describe the present.
const stale = 15 * time.Second

// Rates returns the rate of each count per second since the call before; nil if there was none, or it was a moment ago, or long ago.
func (r *Rates) Rates(now hook.Instant, counts ...uint64) []float64 {
	passed := now.Sub(r.at)
	if r.last != nil && passed < period/2 {
		return nil
	}
	var rates []float64
	if r.last != nil && passed <= stale {
		rates = make([]float64, len(counts))
		for i, n := range counts {
			if n > r.last[i] {
				const tenths = 10
				rates[i] = math.Round(float64(n-r.last[i])/passed.Seconds()*tenths) / tenths
			}
		}
	}
	r.at, r.last = now, append(r.last[:0], counts...)
	return rates
}

// Lateness says how late messages expired in the last minute, or since readers began to ask. Any goroutine may use it.
type Lateness struct {
	name  string // of the member
	read  func() map[string]telemetry.Distribution
	clock clock.Clock

	mu    sync.Mutex       // guards the fields below
	past  []latenessSample // of the last minute, the oldest first
	state object           // nil = nothing expired
}

type latenessSample struct {
	at     hook.Instant
	counts []uint64
}

// NewLateness returns the lateness that read counts. name is its member's.
func NewLateness(name string, read func() map[string]telemetry.Distribution, now clock.Clock) *Lateness {
	return &Lateness{name: name, read: read, clock: now}
}

// Latenesses has two members: how late the broker let messages expire, and how long consumers had messages past their deadlines.
type Latenesses []*Lateness

// AddTo adds the member of each to an object.
func (ls Latenesses) AddTo(o *jsonobj.Object) {
	for _, l := range ls {
		l.AddTo(o)
	}
}

// window is the time for which an expired message counts.
const window = time.Minute

// AddTo adds the lateness to an object, with the members p50, p99 and max, in milliseconds, unless no message has expired. They are exact
// to a bucket of the histogram, and max is the end of its bucket.
func (l *Lateness) AddTo(o *jsonobj.Object) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now := l.clock(); len(l.past) == 0 || int64(now)/int64(period) != int64(l.past[len(l.past)-1].at)/int64(period) {
		l.update(now)
	}
	if l.state != nil {
		o.Add(l.name, l.state)
	}
}

// update reads the counts again. The caller holds mu.
func (l *Lateness) update(now hook.Instant) {
	var bounds []float64
	var counts []uint64
	for _, d := range l.read() {
		if counts == nil {
			bounds, counts = d.Bounds, make([]uint64, len(d.Counts))
		}
		for i, n := range d.Counts[:len(counts)] {
			counts[i] += n
		}
	}
	if len(l.past) > 0 && now.Sub(l.past[len(l.past)-1].at) > window { // the last readers left long ago
		l.past = nil
	}
	for len(l.past) > 1 && now.Sub(l.past[1].at) >= window {
		l.past = l.past[1:]
	}
	l.state = nil
	if len(l.past) > 0 && bounds != nil {
		l.state = lateness(bounds, counts, l.past[0].counts)
	}
	l.past = append(l.past, latenessSample{now, counts})
}

// lateness returns the quantiles of the counts since before.
func lateness(bounds []float64, counts, before []uint64) object {
	passed, total, last := make([]uint64, len(counts)), uint64(0), -1
	for i, n := range counts {
		if passed[i] = n; i < len(before) {
			passed[i] -= before[i]
		}
		if total += passed[i]; passed[i] > 0 {
			last = i
		}
	}
	if total == 0 {
		return nil
	}
	end := func(i int) float64 { return bounds[min(i, len(bounds)-1)] }
	quantile := func(part float64) float64 {
		left := part * float64(total)
		for i, n := range passed {
			if left > float64(n) {
				left -= float64(n)
				continue
			}
			from := 0.
			if i > 0 {
				from = end(i - 1)
			}
			return from + (end(i)-from)*left/float64(n)
		}
		return end(last)
	}
	return object{{"p50", millis(quantile(.5))}, {"p99", millis(quantile(.99))}, {"max", millis(end(last))}}
}

// millis returns seconds as milliseconds, to the microsecond.
func millis(seconds float64) float64 {
	const million, thousand = 1e6, 1e3
	return math.Round(seconds*million) / thousand
}
