// Business hours is an expiry policy: the time that a message may wait only runs
// while somebody is at work.
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

// hours is when somebody is at work, by the clock on their wall, and how long
// messages may wait in terms of that. Durations and times of day are
// milliseconds.
type hours struct {
	ttl        int64
	open, shut int64
	week       [7]bool // by time.Weekday
	holidays   []int64 // days since 1970-01-01, ascending
	zone       *time.Location

	// Of the last look at the zone: its offset to UTC, and since and until when.
	offset, since, until int64
}

var _ = policy.Register(&hours{})

func main() {} // is not called

const (
	millisPerDay = 24 * 60 * 60 * 1000
	maxTTL       = 365 * millisPerDay
	// maxDays is how far ahead the end of a wait is looked for. It may not be there:
	// a year at work takes centuries if somebody is at work for an hour on Mondays.
	maxDays = 3650
)

// OnEnqueue implements [policy.EnqueueHook]. A message's expiration and the
// queue's TTL count in time at work, too.
func (h *hours) OnEnqueue(_ int64, m *policy.Msg, v *policy.Verdict) {
	left := h.ttl
	for _, ttl := range []int64{m.Expiration, m.QueueTTL} {
		if ttl != policy.None {
			left = min(left, ttl)
		}
	}
	v.Keep(h.after(m.Enqueued, left))
}

// after returns when so much time at work has passed since the instant t.
func (h *hours) after(t, left int64) int64 {
	local := t + h.offsetAt(t)
	day, clock := local/millisPerDay, local%millisPerDay
	for range maxDays {
		if h.worksOn(day) {
			begin := max(clock, h.open)
			if begin+left <= h.shut {
				return h.at(day, begin+left)
			}
			left -= max(0, h.shut-begin)
		}
		day, clock = day+1, 0
	}
	return h.at(day, 0)
}

// worksOn reports whether there is work on a day, counted from 1970-01-01, which
// was a Thursday.
func (h *hours) worksOn(day int64) bool {
	if !h.week[(day+int64(time.Thursday))%7] {
		return false
	}
	_, off := slices.BinarySearch(h.holidays, day)
	return !off
}

// offsetAt is how far the clock on the wall is ahead of UTC. It is looked up once
// for all messages between two changes of the clocks.
func (h *hours) offsetAt(t int64) int64 {
	if t < h.since || t >= h.until {
		local := time.UnixMilli(t).In(h.zone)
		_, seconds := local.Zone()
		h.since, h.until, h.offset = math.MinInt64, math.MaxInt64, int64(seconds)*1000
		start, end := local.ZoneBounds()
		if !start.IsZero() {
			h.since = start.UnixMilli()
		}
		if !end.IsZero() {
			h.until = end.UnixMilli()
		}
	}
	return h.offset
}

// at returns the instant at which it is that time on that day: by the clock as it
// is set now, or as it is set then.
func (h *hours) at(day, clock int64) int64 {
	t := day*millisPerDay + clock - h.offset
	if t >= h.since && t < h.until {
		return t
	}
	return time.Date(1970, 1, 1+int(day), 0, 0, int(clock/1000), int(clock%1000)*1_000_000, h.zone).UnixMilli()
}

// Configure implements [policy.Configurer].
func (h *hours) Configure() error {
	h.ttl = policy.ConfigInt("ttl-ms", 8*60*60*1000)
	if h.ttl < 0 || h.ttl > maxTTL {
		return errors.New("ttl-ms is out of range; accepted are 0 to 31536000000")
	}
	var err error
	h.since, h.until = 0, 0
	if h.zone, err = time.LoadLocation(setting("zone", "UTC")); err != nil {
		return errors.New("zone is not known; an example of one that is: Europe/Berlin")
	}
	return errors.Join(h.readTimes(), h.readWeek(), h.readHolidays())
}

func setting(name, otherwise string) string {
	if s, ok := policy.ConfigText(name); ok {
		return s
	}
	return otherwise
}

func (h *hours) readTimes() (err error) {
	if h.open, err = readClock("open", "09:00"); err != nil {
		return err
	}
	if h.shut, err = readClock("close", "17:00"); err != nil {
		return err
	}
	if h.open >= h.shut {
		return errors.New("open has to be before close")
	}
	return nil
}

func readClock(name, otherwise string) (int64, error) {
	s := setting(name, otherwise)
	if s == "24:00" {
		return millisPerDay, nil
	}
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

func (h *hours) readWeek() error {
	h.week = [7]bool{}
	names := strings.Fields(setting("days", "mon tue wed thu fri"))
	for _, name := range names {
		i := slices.Index(weekdays, name)
		if i < 0 {
			return errors.New("days: " + name + " is no day; accepted are mon tue wed thu fri sat sun, with spaces between them")
		}
		h.week[i] = true
	}
	if len(names) == 0 {
		return errors.New("days has to name one at least")
	}
	return nil
}

func (h *hours) readHolidays() error {
	h.holidays = nil
	for name := range strings.FieldsSeq(setting("holidays", "")) {
		t, err := time.Parse(time.DateOnly, name)
		if err != nil {
			return errors.New("holidays: " + name + " is no date such as 2026-12-25")
		}
		h.holidays = append(h.holidays, t.UnixMilli()/millisPerDay)
	}
	slices.Sort(h.holidays)
	return nil
}
