// Package events streams events of the broker to readers over HTTP, from a ring that holds the last events.
package events

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/curfewmq/curfew/core/mgmt/jsonobj"
	"github.com/curfewmq/curfew/core/mgmt/pattern"
	"github.com/curfewmq/curfew/core/mgmt/streams"
	"github.com/curfewmq/curfew/core/telemetry"
	"github.com/curfewmq/curfew/sdk/hook"
)

const (
	// heartbeat is how long a stream may write nothing: proxies close connections that look dead.
	heartbeat = 15 * time.Second
	// gather is how long a stream waits for more events after one: events come in thousands.
	gather = 20 * time.Millisecond
	// writeTimeout is how long a reader may take to read one write.
	writeTimeout = 30 * time.Second
	// atOnce is how many events are copied from the ring at a time.
	atOnce = 64
	// stretch is how long a stream with more to send works before it rests, and mostRest is
	// how long it rests at most: part of the work may have been waiting for the reader.
	stretch  = time.Millisecond
	mostRest = 20 * time.Millisecond
)

// Reader is the user who reads a stream.
type Reader interface {
	// Renew checks the reader's rights again, and reports whether the reader may still read
	// the stream.
	Renew() bool
	// MaySee reports whether the reader may see an event.
	MaySee(*telemetry.Event) bool
}

// Options configure a stream.
type Options struct {
	Ring    *telemetry.Ring
	Filter  Filter
	Columns [][]string // paths of members to send; nil = all
	Reader  Reader
	Clock   func() hook.Instant
	Streams *streams.Streams
	// Emit takes the events instead of the reader's connection; nil = they are written to that.
	Emit func(jsonobj.Object)
}

// Stream is a stream of events to one reader. It belongs to the goroutine that serves the request.
type Stream struct {
	Options
	r     *http.Request
	lines bool // JSON lines, not server-sent events

	after     uint64 // number of the last event read from the ring
	past      uint64 // events up to this number are history: gaps between them are not reported
	began     uint64 // events up to this number happened before the stream began
	missed    uint64 // events lost since the last report
	restarted bool   // the reader's last event is from an earlier run of the broker; not reported yet
	bound     *bound // nil = every event is sent

	out *streams.Writer
	b   []byte
}

const (
	typeEvents = "text/event-stream"
	typeLines  = "application/x-ndjson"
)

// New returns the stream that a request asks for.
func New(w http.ResponseWriter, r *http.Request, o Options) (*Stream, error) {
	s := &Stream{Options: o, r: r, after: o.Ring.Last(), out: o.Streams.Writer(w, writeTimeout)}
	s.began = s.after
	if n := o.Filter.perSecond; n > 0 {
		s.bound = boundOf(n, o.Clock())
	}
	var err error
	if s.lines, err = AsLines(r); err != nil {
		return nil, err
	}
	if id := r.Header.Get("Last-Event-ID"); id != "" {
		return s, s.seek("Last-Event-ID", id)
	}
	return s, s.seek("after", r.URL.Query().Get("after"))
}

// AsLines reports whether a request asks for JSON lines instead of server-sent events.
func AsLines(r *http.Request) (bool, error) {
	switch format := r.URL.Query().Get("format"); format {
	case "":
		return strings.Contains(r.Header.Get("Accept"), typeLines), nil
	case "ndjson":
		return true, nil
	case "sse":
		return false, nil
	default:
		return false, jsonobj.Errorf("format: %q is unknown; there are sse, ndjson", format)
	}
}

// After returns the number of the event behind which the stream continues.
func (s *Stream) After() uint64 { return s.after }

// seek finds the event in the ring with which to begin: the one after the last event that
// the reader has seen or, without that, the first of the history. from names the parameter
// that has the id.
func (s *Stream) seek(from, id string) error {
	if id == "" {
		s.past = s.after
		var err error
		s.after, err = s.beforeHistory()
		return err
	}
	seen, err := strconv.ParseUint(id, 10, 64)
	if err != nil {
		return jsonobj.Errorf("%s: %q is not the id of an event", from, id)
	}
	s.after, s.restarted = seen, !s.Ring.Knows(seen)
	if s.restarted {
		s.after = s.Ring.First()
	}
	return nil
}

// beforeHistory returns the number behind which the history begins that the reader wants.
func (s *Stream) beforeHistory() (uint64, error) {
	if s.Filter.history == 0 {
		return s.after, nil
	}
	var wanted []uint64
	run := s.Filter.Begin(s.r.Context().Done(), pattern.MostTime)
	events := make([]telemetry.Event, atOnce)
	for at := s.Ring.First(); at < s.after; {
		n := s.Ring.Read(at, events)
		if n == 0 {
			break
		}
		for i := range events[:n] {
			if at = events[i].Seq; at <= s.after && s.shows(&events[i], run) {
				wanted = append(wanted, at)
			}
		}
	}
	if err := run.End(); err != nil {
		return 0, jsonobj.Errorf("%v", err)
	}
	if len(wanted) == 0 {
		return s.after, nil
	}
	return wanted[max(0, len(wanted)-s.Filter.history)] - 1, nil
}

// shows reports whether the reader may see an event, and wants it. An expression is
// compared only with names that the reader may see, because the time of a comparison would
// reveal other names.
func (s *Stream) shows(e *telemetry.Event, run *pattern.Run) bool {
	return s.Reader.MaySee(e) && s.Filter.Passes(e, run)
}

// Begin sends the header.
func (s *Stream) Begin() {
	if s.lines {
		s.out.Begin(typeLines)
		return
	}
	s.out.Begin(typeEvents)
}

// Run streams until the reader leaves or may no longer read, or the streams end.
func (s *Stream) Run() {
	if s.Emit == nil {
		s.Begin()
	}
	beat := time.NewTicker(heartbeat)
	defer beat.Stop()
	defer s.out.HurryAtEnd()()
	events := make([]telemetry.Event, atOnce)
	worked := time.Duration(0) // since the last rest
	for on := true; on && s.Reader.Renew(); {
		began := s.Clock()
		n := s.Ring.Read(s.after, events)
		run := s.Filter.Begin(s.r.Context().Done(), 0)
		for i := range events[:n] {
			s.take(&events[i], run)
		}
		if run.End() != nil {
			return // the reader has left
		}
		if s.flush(n < len(events)) != nil {
			return
		}
		worked += s.Clock().Sub(began)
		switch {
		case n < len(events):
			on, worked = s.pause(beat.C), 0
		case worked >= stretch:
			on, worked = s.rest(worked), 0
		}
	}
}

// rest leaves the processor to the queues before more events are sent. It reports whether
// the stream goes on. In a storm of events readers miss some, because the queues come
// first.
func (s *Stream) rest(worked time.Duration) bool {
	return s.wait(min(s.Streams.Share(worked), mostRest))
}

// pause waits for an event, and then a little longer. It reports whether the stream goes on.
func (s *Stream) pause(beat <-chan time.Time) bool {
	if s.unsent() {
		return s.wait(s.collect())
	}
	select {
	case <-s.Ring.Wait(s.after):
	case <-beat:
		if s.lines {
			s.b = append(s.b, '\n')
		} else {
			s.b = append(s.b, ":\n\n"...)
		}
		return true
	case <-s.r.Context().Done():
		return false
	case <-s.Streams.Ended():
		return false
	}
	return s.wait(s.collect())
}

func (s *Stream) wait(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-s.r.Context().Done():
	case <-s.Streams.Ended():
	}
	return false
}

// take writes an event if the reader wants it, and counts the events that were lost before it.
func (s *Stream) take(e *telemetry.Event, run *pattern.Run) {
	if e.Seq > s.past {
		s.missed += e.Seq - max(s.after, s.past) - 1
	}
	switch {
	case !s.shows(e, run):
	case s.bound != nil && e.Seq > s.past:
		s.keep(e)
	default:
		s.reportMissed(e.Seq - 1)
		s.write(e.Seq, e.Kind.String(), describe(e))
	}
	s.after = e.Seq
}

// kindMissed is the kind of the event that reports lost events.
const kindMissed = "missed"

// reportMissed writes how many events were lost since the last report, if any. id is the
// number of the last lost one, so that a reader that resumes after it gets no second
// report.
func (s *Stream) reportMissed(id uint64) {
	if s.missed == 0 && !s.restarted {
		return
	}
	s.write(id, kindMissed, object{
		{"id", id}, {"kind", kindMissed}, {"time", jsonobj.Instant(s.Clock())}, {"count", s.missed}, {"restarted", s.restarted},
	})
	s.missed, s.restarted = 0, false
}

func (s *Stream) write(id uint64, kind string, o object) {
	if s.Emit != nil {
		s.Emit(o)
		return
	}
	o = o.Pick(s.Columns)
	if s.lines {
		s.b = append(o.Append(s.b), '\n')
		return
	}
	s.b = strconv.AppendUint(append(s.b, "id: "...), id, 10)
	s.b = append(append(append(s.b, "\nevent: "...), kind...), "\ndata: "...)
	s.b = append(o.Append(s.b), "\n\n"...)
}

// flush sends the events that are due. all means that all events in the ring were read. It
// fails if the reader does not take them in time.
func (s *Stream) flush(all bool) error {
	if b := s.bound; b == nil {
		s.reportMissed(s.after)
	} else {
		now := s.Clock()
		if !b.due(now, all) {
			return nil
		}
		b.next = now.Add(b.every)
		s.release()
	}
	b := s.b
	s.b = s.b[:0]
	if s.Emit != nil {
		return nil
	}
	return s.out.Send(b)
}
