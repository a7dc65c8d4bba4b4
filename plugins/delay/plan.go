package delay

import (
	"bytes"
	"fmt"
	"strconv"

	"github.com/curfewmq/curfew/sdk/hook"
)

// The headers of messages to an exchange. The headers of recurring messages are in recur.go.
const (
	delayHeader  = "x-delay"
	idHeader     = "x-schedule-id"
	cancelHeader = "x-schedule-cancel"

	// schedulePrefix begins the names of all these headers except x-delay.
	schedulePrefix = "x-schedule-"
	// deathHeader is present in dead letters, redrivenHeader in redriven messages.
	deathHeader    = "x-death"
	redrivenHeader = "x-redriven"
)

// maxID is the maximum length of a message's identity, in bytes.
const maxID = 255

// scheduler plans the messages of one exchange. It never changes, and any goroutine may use it.
type scheduler struct {
	delay      int64 // milliseconds for messages that ask for no delay; 0 = none
	max        int64 // milliseconds
	timetables *timetables
}

// plan implements [hook.Schedule.Plan]. A refused message may have been accepted before the limit was lowered, so p gets its plan under the
// highest limit.
func (s *scheduler) plan(m *hook.Publishing, p *hook.Plan) error {
	err := s.planWithin(s.max, m, p)
	if err != nil && s.max < hook.MaxMillis {
		_ = s.planWithin(hook.MaxMillis, m, p) // err describes the problem
	}
	return err
}

// planWithin is plan with the given limit, in milliseconds.
func (s *scheduler) planWithin(limit int64, m *hook.Publishing, p *hook.Plan) (err error) {
	identified := identifiable(m)
	if identified {
		if p.ID, p.Cancel, err = readID(m); err != nil {
			return err
		}
	}
	delay, err := readDelay(m, limit)
	if err != nil || p.Cancel {
		return err
	}
	if identified {
		r, err := s.readRecurrence(m, p.ID != nil, limit)
		if err != nil {
			return err
		}
		if r.recurs() {
			p.Hold, err = r.first(m.Now.AddMillis(delay), delay > 0)
			return err
		}
	}
	if delay == 0 {
		delay = s.delay
	}
	if delay > 0 {
		p.Hold = m.Now.AddMillis(delay)
	}
	return nil
}

// identifiable reports whether a message may have an identity. It is fast for the many
// messages without a header for that. Dead letters and redriven messages have no identity:
// otherwise they would replace the held message of the same identity, such as the next one
// of a recurring message.
func identifiable(m *hook.Publishing) bool {
	if headers := m.Part(hook.PartHeaders); headers != nil && !bytes.Contains(headers, []byte(schedulePrefix)) {
		return false
	}
	if _, dead := m.Header(deathHeader); dead {
		return false
	}
	_, redriven := m.Header(redrivenHeader)
	return !redriven
}

// readID returns a message's identity, nil if it has none, and whether the message is a cancellation.
func readID(m *hook.Publishing) (id []byte, cancels bool, err error) {
	if v, ok := m.Header(cancelHeader); ok {
		if cancels, ok = v.(bool); !ok {
			return nil, false, invalid(cancelHeader, "expected true or false, got "+hook.TypeName(v))
		}
	}
	id, ok := m.HeaderText(idHeader)
	switch {
	case ok && (len(id) == 0 || len(id) > maxID):
		return nil, false, invalid(idHeader, fmt.Sprintf("expected a string of 1 to %d bytes, got %d", maxID, len(id)))
	case ok:
		return id, cancels, nil
	}
	if v, ok := m.Header(idHeader); ok {
		return nil, false, invalid(idHeader, fmt.Sprintf("expected a string of 1 to %d bytes, got %s", maxID, hook.TypeName(v)))
	}
	if cancels {
		return nil, false, invalid(cancelHeader, "there is no "+idHeader)
	}
	return nil, false, nil
}

func invalid(header, why string) error {
	return fmt.Errorf("invalid header '%s': %s", header, why)
}

// quoted quotes a client's text, cut to its first bytes.
func quoted(text []byte) string {
	const most = 64
	if len(text) > most {
		return strconv.Quote(string(text[:most])) + "..."
	}
	return strconv.Quote(string(text))
}
