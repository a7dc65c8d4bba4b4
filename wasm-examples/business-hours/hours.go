// Business hours is an expiry policy: the time that a message may wait only runs
// while somebody is at work.
package main

import (
	"errors"
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
	holidays   []int   // as dayOf counts, ascending
	zone       *time.Location
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
	local := time.UnixMilli(t).In(h.zone)
	day, clock := dayOf(local), clockOf(local)
	weekday := local.Weekday()
	for range maxDays {
		if h.worksOn(day, weekday) {
			begin := max(clock, h.open)
			if begin+left <= h.shut {
				return h.at(day, begin+left)
			}
			left -= max(0, h.shut-begin)
		}
		day, weekday, clock = day+1, (weekday+1)%7, 0
	}
	return h.at(day, 0)
}

func (h *hours) worksOn(day int, weekday time.Weekday) bool {
	if !h.week[weekday] {
		return false
	}
	_, off := slices.BinarySearch(h.holidays, day)
	return !off
}

// dayOf numbers the days of the calendar, from 1970 on.
func dayOf(t time.Time) int {
	y, m, d := t.Date()
	return int(time.Date(y, m, d, 0, 0, 0, 0, time.UTC).Unix() / (24 * 60 * 60))
}

// clockOf is the time of day.
func clockOf(t time.Time) int64 {
	hour, minute, second := t.Clock()
	return int64(hour*3600+minute*60+second)*1000 + int64(t.Nanosecond()/1_000_000)
}

// at returns the instant at which it is that time on that day.
func (h *hours) at(day int, clock int64) int64 {
	return time.Date(1970, 1, 1+day, 0, 0, int(clock/1000), int(clock%1000)*1_000_000, h.zone).UnixMilli()
}

// Configure implements [policy.Configurer].
func (h *hours) Configure() error {
	h.ttl = policy.ConfigInt("ttl-ms", 8*60*60*1000)
	if h.ttl < 0 || h.ttl > maxTTL {
		return errors.New("ttl-ms is out of range; accepted are 0 to 31536000000")
	}
	var err error
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
	return clockOf(t), nil
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
		h.holidays = append(h.holidays, dayOf(t))
	}
	slices.Sort(h.holidays)
	return nil
}
