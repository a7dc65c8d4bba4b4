package delay

import (
	"fmt"
	"math"
	"time"

	"github.com/curfewmq/curfew/sdk/hook"
)

// The headers of recurring messages.
const (
	everyHeader  = "x-schedule-every"
	cronHeader   = "x-schedule-cron"
	zoneHeader   = "x-schedule-zone"
	untilHeader  = "x-schedule-until"
	countHeader  = "x-schedule-count"
	missedHeader = "x-schedule-missed"
)

const (
	// minEvery is the shortest interval, in milliseconds.
	minEvery = 1000
	// grace is how late a release may be. Points in time that are further back count as missed.
	grace = time.Minute
)

// recurrence describes when a message is released repeatedly. The zero value means that it does not recur.
type recurrence struct {
	every     time.Duration
	timetable *timetable   // nil if every is set
	until     hook.Instant // last instant at which it may be released; 0 = no end
	count     int64        // number of releases; 0 = any number
	skip      bool         // missed releases are skipped
}

func (r *recurrence) recurs() bool { return r.every > 0 || r.timetable != nil }

// readRecurrence reads the headers of a recurring message. Its interval may be at most longest milliseconds.
func (s *scheduler) readRecurrence(m *hook.Publishing, identified bool, longest int64) (r recurrence, err error) {
	by, err := s.readPoints(m, &r, longest)
	if err != nil {
		return recurrence{}, err
	}
	if by == "" {
		return recurrence{}, refuseAlone(m)
	}
	if !identified {
		return recurrence{}, invalid(by, "there is no "+idHeader)
	}
	if err := r.readEnd(m); err != nil {
		return recurrence{}, err
	}
	return r, nil
}

// readPoints reads the points in time, and returns the name of the header that defines them; "" if there is none.
func (s *scheduler) readPoints(m *hook.Publishing, r *recurrence, longest int64) (by string, err error) {
	cron, hasCron, err := readText(m, cronHeader)
	if err != nil {
		return "", err
	}
	every, hasEvery, err := readInteger(m, everyHeader, minEvery, max(longest, minEvery))
	switch {
	case err != nil:
		return "", err
	case hasEvery && hasCron:
		return "", invalid(cronHeader, "there is "+everyHeader+", too")
	case hasEvery:
		r.every = time.Duration(every) * time.Millisecond
		return everyHeader, nil
	case !hasCron:
		return "", nil
	}
	zone, hasZone, err := readText(m, zoneHeader)
	if err != nil {
		return "", err
	}
	if !hasZone {
		zone = utc
	}
	r.timetable, err = s.timetables.find(cron, zone)
	return cronHeader, err
}

var utc = []byte("UTC")

func readText(m *hook.Publishing, header string) (text []byte, ok bool, err error) {
	if text, ok = m.HeaderText(header); ok {
		return text, true, nil
	}
	if v, ok := m.Header(header); ok {
		return nil, false, invalid(header, "expected a string, got "+hook.TypeName(v))
	}
	return nil, false, nil
}

// readInteger reads a header that is a number from low to high. Where a time is expected, it also accepts a timestamp.
func readInteger(m *hook.Publishing, header string, low, high int64) (n int64, ok bool, err error) {
	v, ok := m.Header(header)
	if !ok {
		return 0, false, nil
	}
	n, isInt := m.HeaderInt(header)
	_, isBool := v.(bool)
	switch {
	case !isInt || isBool || header != untilHeader && hook.TypeName(v) == "timestamp":
		return 0, false, invalid(header, fmt.Sprintf("expected %d to %d, got %s", low, high, hook.TypeName(v)))
	case n < low || n > high:
		return 0, false, invalid(header, fmt.Sprintf("expected %d to %d, got %d", low, high, n))
	}
	return n, true, nil
}

// refuseAlone refuses headers that are valid only for recurring messages.
func refuseAlone(m *hook.Publishing) error {
	for _, header := range []string{zoneHeader, untilHeader, countHeader, missedHeader} {
		if _, ok := m.Header(header); ok {
			return invalid(header, "there is no "+everyHeader+" or "+cronHeader)
		}
	}
	return nil
}

// readEnd reads the end of the recurrence, and how to treat missed points in time.
func (r *recurrence) readEnd(m *hook.Publishing) error {
	if _, ok := m.Header(zoneHeader); ok && r.timetable == nil {
		return invalid(zoneHeader, "there is no "+cronHeader)
	}
	until, ends, err := readInteger(m, untilHeader, 1, maxMillis)
	if err != nil {
		return err
	}
	if ends {
		r.until = hook.Instant(0).AddMillis(until)
	}
	if r.count, _, err = readInteger(m, countHeader, 1, math.MaxInt64); err != nil {
		return err
	}
	return r.readMissed(m)
}

// maxMillis is the last instant, in milliseconds since 1970.
const maxMillis = math.MaxInt64 / int64(time.Millisecond)

func (r *recurrence) readMissed(m *hook.Publishing) error {
	missed, ok, err := readText(m, missedHeader)
	if !ok {
		return err
	}
	switch string(missed) {
	case "once":
	case "skip":
		r.skip = true
	default:
		return invalid(missedHeader, "expected once or skip, got "+quoted(missed))
	}
	return nil
}

// first returns the first point in time. from is when the message was published or, if
// delayed is set, the end of its delay. In the latter case an interval begins with a
// release.
func (r *recurrence) first(from hook.Instant, delayed bool) (hook.Instant, error) {
	at := from
	if r.timetable != nil || !delayed {
		at = r.after(from)
	}
	switch {
	case at == 0:
		return 0, invalid(cronHeader, quoted([]byte(r.timetable.expression))+" names no time within ten years")
	case r.until != 0 && at > r.until:
		return 0, invalid(untilHeader, "it comes before the first release")
	}
	return at, nil
}

// after returns the first point in time after t; 0 if there is none. With an interval, t must be such a point.
func (r *recurrence) after(t hook.Instant) hook.Instant {
	if r.timetable != nil {
		return r.timetable.next(t)
	}
	return t.Add(r.every)
}

// following returns the first point in time that is after both due, a point itself, and now; 0 if there is none.
func (r *recurrence) following(due, now hook.Instant) hook.Instant {
	if r.every > 0 && now > due {
		due = due.Add(now.Sub(due) / r.every * r.every)
		now = due
	}
	return r.after(max(due, now))
}

// released implements [hook.Schedule.Released]. State counts the releases.
func (s *scheduler) released(m *hook.Publishing, release *hook.Release) {
	if !identifiable(m) {
		return
	}
	// An error means that the message was accepted by other rules, of another version or other time zones; it then leaves. Lowered limits
	// apply to new messages only.
	r, err := s.readRecurrence(m, true, hook.MaxMillis)
	if err != nil || !r.recurs() {
		return
	}
	next := r.following(release.Due, m.Now)
	if missed := m.Now.Sub(release.Due) > grace || next != r.after(release.Due); missed && r.skip {
		release.Skip = true
	} else {
		release.State++
	}
	if next == 0 || r.until != 0 && next > r.until || r.count != 0 && release.State >= r.count {
		return
	}
	release.Hold = next
}
