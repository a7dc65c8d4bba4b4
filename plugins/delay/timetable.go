package delay

import (
	"bytes"
	"fmt"
	"hash/maphash"
	"strings"
	"sync/atomic"
	"time"
	_ "time/tzdata" // for systems without time zones, such as bare containers

	"github.com/netresearch/go-cron"

	"github.com/curfewmq/curfew/sdk/hook"
)

// parser reads the five fields of cron. If both days of the month and days of the week are limited, either one matches, as in cron.
var parser = cron.MustNewParser(cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow | cron.DowOrDom).WithMaxSearchYears(searchYears)

const (
	// searchYears is how many years ahead points in time are searched: there are at most eight between leap days.
	searchYears = 10
	// maxExpression and maxZone are the maximum lengths of the texts, in bytes.
	maxExpression = 255
	maxZone       = 64
)

// timetable is a cron expression in a time zone. It never changes.
//
// The clock of a zone jumps, and the library only knows clocks that do not. So the library is used between two jumps at a time, and
// takes readings of the zone's clock for times in UTC. Points that the clock jumps over are released right after the jump: in a zone that
// goes from 02:00 to 03:00, "30 2 * * *" is released at 03:00. Points that the clock reads twice are released the first time. As in cron,
// neither rule applies to expressions that name all hours ("*", "*/2"): these keep their rhythm, whatever the clock reads.
type timetable struct {
	expression, name string
	schedule         cron.Schedule
	zone             *time.Location
	everyHour        bool
}

func newTimetable(expression, zone []byte) (*timetable, error) {
	t := &timetable{expression: string(expression), name: string(zone)}
	fields := bytes.Fields(expression)
	const cronFields = 5
	switch {
	case len(expression) > maxExpression:
		return nil, invalid(cronHeader, fmt.Sprintf("expected at most %d bytes, got %d", maxExpression, len(expression)))
	case len(fields) != cronFields, bytes.ContainsAny(expression, "=@"): // the library also reads zones and names of intervals
		return nil, invalid(cronHeader, "expected five fields (minute, hour, day of the month, month, day of the week), got "+quoted(expression))
	}
	var err error
	if t.schedule, err = parser.Parse(string(expression)); err != nil {
		return nil, invalid(cronHeader, fmt.Sprintf("%s: %s", quoted(expression), explained(err)))
	}
	t.everyHour = fields[1][0] == '*' || fields[1][0] == '?' // the library treats both as all
	if len(zone) > maxZone || !isIANA(t.name) {
		return nil, noZone(zone)
	}
	if t.zone, err = time.LoadLocation(t.name); err != nil {
		return nil, noZone(zone)
	}
	return t, nil
}

// isIANA reports whether a name may be an IANA name; these begin with a capital letter. Other files among the time zones of a system
// do not: localtime and posixrules are the machine's zone, and those in the folder right count leap seconds.
func isIANA(zone string) bool {
	return zone != "" && zone[0] >= 'A' && zone[0] <= 'Z' && zone != "Local" // Go takes this name for the machine's zone
}

// explained returns the library's error text, replaced where it mentions the library's own options, or a number instead of the actual text.
func explained(err error) string {
	text := err.Error()
	for _, own := range []string{"option", "strconv"} {
		if strings.Contains(text, own) {
			return "expected numbers, *, lists, ranges, steps, and names such as JAN and MON"
		}
	}
	return text
}

func noZone(name []byte) error {
	return invalid(zoneHeader, "no time zone "+quoted(name)+"; expected a name of the IANA, such as Europe/Berlin")
}

// next returns the first point in time after an instant; 0 if there is none in the years that are searched.
func (t *timetable) next(after hook.Instant) hook.Instant {
	at := after.Time().In(t.zone)
	last := at.AddDate(searchYears, 0, 0)
	reading := t.schedule.Next(t.unread(at))
	for !reading.IsZero() && at.Before(last) {
		jump, jumps := nextJump(at)
		found := at.Add(reading.Sub(clockAt(at)))
		if !jumps || found.Before(jump) {
			return hook.Instant(found.UnixNano())
		}
		switch to := clockAt(jump); {
		case t.everyHour:
			reading = t.schedule.Next(to.Add(-time.Second))
		case reading.Before(to):
			return hook.Instant(jump.UnixNano())
		}
		at = jump
	}
	return 0
}

// nextJump returns an instant until which the clock does not jump and after which it may; false if there are no more jumps. For the
// last day of a leap year, Go reports an end of the zone's period before the end of that day; one day without a jump is assumed then.
func nextJump(at time.Time) (time.Time, bool) {
	_, end := at.ZoneBounds()
	if end.IsZero() {
		return end, false
	}
	if !end.After(at) {
		const day = 24 * time.Hour
		return at.Add(day), true
	}
	return end, true
}

// unread returns the clock's reading after which to search for points in time at an instant. It is the reading at that instant. While the
// clock repeats an hour, it is the last reading before the repetition.
func (t *timetable) unread(at time.Time) time.Time {
	reading := clockAt(at)
	jump, _ := at.ZoneBounds()
	if t.everyHour || jump.IsZero() {
		return reading
	}
	if from := clockAt(jump.Add(-1)); !from.Before(reading) {
		return from
	}
	return reading
}

// clockAt returns the reading of t's clock as if it were a time in UTC.
func clockAt(t time.Time) time.Time {
	_, offset := t.Zone()
	return t.Add(time.Duration(offset) * time.Second).UTC()
}

// timetables caches the timetables that were used last. Any goroutine may use it.
type timetables struct {
	seed  maphash.Seed
	slots [256]atomic.Pointer[timetable]
}

// find returns the timetable for an expression and a zone. It parses them if they are not in the cache.
func (ts *timetables) find(expression, zone []byte) (*timetable, error) {
	slot := &ts.slots[(maphash.Bytes(ts.seed, expression)^maphash.Bytes(ts.seed, zone)<<1)%uint64(len(ts.slots))]
	if t := slot.Load(); t != nil && t.expression == string(expression) && t.name == string(zone) {
		return t, nil
	}
	t, err := newTimetable(expression, zone)
	if err == nil {
		slot.Store(t)
	}
	return t, err
}
