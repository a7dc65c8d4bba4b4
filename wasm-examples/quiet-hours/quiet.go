// Quiet hours is a policy that holds messages: those that come at night, or on a day
// off, are delivered in the morning.
package main

import (
	"errors"
	"math"
	"slices"
	"strings"
	"time"
	_ "time/tzdata" // a module has no files to read time zones from

	"github.com/curfewmq/curfew/sdk/go/policy"
)

// quiet is when it is quiet, by the clock on the wall. Times of day and instants are
// milliseconds.
type quiet struct {
	from, to int64   // when the night begins and ends; at the same time: there is none
	week     [7]bool // days on which messages are delivered, by time.Weekday
	urgent   int64   // messages of this priority or a higher one are not held
	zone     *time.Location

	// Of the last look at the zone: its offset to UTC, and since and until when.
	offset, since, until int64
	// Of the last call: when it was, and until when it is quiet.
	asked, ends int64
}

var _ = policy.Register(&quiet{})

func main() {} // is not called

const (
	millisPerDay = 24 * 60 * 60 * 1000
	// maxSteps is how many changes between quiet and loud hours are looked at: those of
	// two weeks, and of the zone's clocks. One of these weeks has a day for messages.
	maxSteps = 14*3 + 14
)

// OnEnqueue implements [policy.EnqueueHook]. How long messages may wait is for the
// publisher and the queue to say: their TTLs count from the morning.
func (q *quiet) OnEnqueue(now int64, m *policy.Msg, v *policy.Verdict) { q.decide(now, m, v) }

// OnHead implements [policy.HeadHook]: the night may have begun while the message waited.
func (q *quiet) OnHead(now int64, m *policy.Msg, v *policy.Verdict) { q.decide(now, m, v) }

// OnRequeue implements [policy.RequeueHook].
func (q *quiet) OnRequeue(now int64, m *policy.Msg, v *policy.Verdict) { q.decide(now, m, v) }

// decide holds a message while it is quiet, and asks for a call before it is delivered.
func (q *quiet) decide(now int64, m *policy.Msg, v *policy.Verdict) {
	if int64(m.Priority) >= q.urgent {
		return
	}
	v.AskAtHead()
	if now != q.asked {
		q.asked, q.ends = now, q.end(now)
	}
	if q.ends > now {
		m.Hold(q.ends)
	}
}

// end returns when it is not quiet, t or later.
func (q *quiet) end(t int64) int64 {
	for range maxSteps {
		if !q.quietAt(t) {
			return t
		}
		t = q.change(t)
	}
	return t
}

// quietAt reports whether it is quiet at an instant.
func (q *quiet) quietAt(t int64) bool {
	day, clock := q.wall(t)
	night := clock >= q.from && clock < q.to
	if q.from > q.to { // over midnight
		night = clock >= q.from || clock < q.to
	}
	return night || !q.week[(day+int64(time.Thursday))%7]
}

// change returns the first instant after t at which something else may hold: an hour of
// the settings, midnight, or a change of the zone's clocks.
func (q *quiet) change(t int64) int64 {
	_, clock := q.wall(t)
	next := q.until
	for _, at := range []int64{q.from, q.to, millisPerDay} {
		if at > clock {
			next = min(next, t+at-clock)
		}
	}
	return next
}

// wall returns the day, counted from 1970-01-01, which was a Thursday, and the time of
// day. The zone is looked up once for all instants between two changes of its clocks.
func (q *quiet) wall(t int64) (day, clock int64) {
	if t < q.since || t >= q.until {
		local := time.UnixMilli(t).In(q.zone)
		_, seconds := local.Zone()
		q.since, q.until, q.offset = math.MinInt64, math.MaxInt64, int64(seconds)*1000
		start, end := local.ZoneBounds()
		if !start.IsZero() {
			q.since = start.UnixMilli()
		}
		switch {
		case end.IsZero():
		case end.UnixMilli() > t:
			q.until = end.UnixMilli()
		default: // Go says of the last day of a leap year that it ends before that day does
			q.until = t + millisPerDay
		}
	}
	local := t + q.offset
	return local / millisPerDay, local % millisPerDay
}

// Configure implements [policy.Configurer].
func (q *quiet) Configure() (err error) {
	q.since, q.until, q.asked = 0, 0, policy.None
	if q.zone, err = time.LoadLocation(setting("zone", "UTC")); err != nil {
		return errors.New("zone is not known; an example of one that is: Europe/Berlin")
	}
	const none = math.MaxUint8 + 1
	if q.urgent = policy.ConfigInt("urgent", none); q.urgent < 0 || q.urgent > none {
		return errors.New("urgent is out of range; accepted are 0 to 256")
	}
	if q.from, err = readClock("from", "22:00"); err != nil {
		return err
	}
	if q.to, err = readClock("to", "07:00"); err != nil {
		return err
	}
	return q.readWeek()
}

func setting(name, otherwise string) string {
	if s, ok := policy.ConfigText(name); ok {
		return s
	}
	return otherwise
}

func readClock(name, otherwise string) (int64, error) {
	s := setting(name, otherwise)
	t, err := time.Parse("15:04", s)
	if err != nil {
		t, err = time.Parse("15", s) // a whole hour, perhaps written as a number
	}
	if err != nil {
		return 0, errors.New(name + " is not a time of day such as 09:00")
	}
	return int64(t.Hour()*60+t.Minute()) * 60_000, nil
}

var weekdays = []string{"sun", "mon", "tue", "wed", "thu", "fri", "sat"}

func (q *quiet) readWeek() error {
	q.week = [7]bool{}
	names := strings.Fields(setting("days", "mon tue wed thu fri sat sun"))
	for _, name := range names {
		i := slices.Index(weekdays, name)
		if i < 0 {
			return errors.New("days: " + name + " is no day; accepted are mon tue wed thu fri sat sun, with spaces between them")
		}
		q.week[i] = true
	}
	if len(names) == 0 {
		return errors.New("days has to name one at least")
	}
	return nil
}
