// Package events streams what happens in the broker to readers over HTTP, from a ring that remembers the last events.
package events

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/curfewmq/curfew/core/mgmt/jsonobj"
	"github.com/curfewmq/curfew/core/telemetry"
	"github.com/curfewmq/curfew/sdk/hook"
)

const (
	// heartbeat is how long a stream may write nothing: proxies close what looks dead.
	heartbeat = 15 * time.Second
	// gather is how long a stream waits for more after an event: events come in thousands.
	gather = 20 * time.Millisecond
	// writeTimeout is how long a reader may take to read what is written at a time.
	writeTimeout = 30 * time.Second
	// atOnce is how many events are copied from the ring at a time.
	atOnce = 64
)

// Reader is the user who reads a stream.
type Reader interface {
	// Renew looks up again what the reader may see, and reports whether it still may read the stream.
	Renew() bool
	// MaySee reports whether the reader may see an event.
	MaySee(*telemetry.Event) bool
}

// Options configure a stream.
type Options struct {
	Ring    *telemetry.Ring
	Filter  Filter
	Columns [][]string // paths of the members that the reader wants; nil = all
	Reader  Reader
	Clock   func() hook.Instant
	Streams *Streams
}

// Stream is a stream of events to one reader. It belongs to the goroutine that serves the request.
type Stream struct {
	Options
	w     http.ResponseWriter
	r     *http.Request
	lines bool // JSON lines, not server-sent events

	after     uint64 // number of the last event that was read from the ring
	past      uint64 // events up to this number are history: gaps between them are not reported
	missed    uint64 // events that were lost since the last report
	restarted bool   // the reader saw events of an earlier run of the broker, which is not reported yet

	out      *http.ResponseController
	deadline sync.Mutex // held while the write deadline is set
	b        []byte
}

const (
	typeEvents = "text/event-stream"
	typeLines  = "application/x-ndjson"
)

// New returns the stream that a request asks for.
func New(w http.ResponseWriter, r *http.Request, o Options) (*Stream, error) {
	s := &Stream{Options: o, w: w, r: r, after: o.Ring.Last(), out: http.NewResponseController(w)}
	switch format := r.URL.Query().Get("format"); format {
	case "":
		s.lines = strings.Contains(r.Header.Get("Accept"), typeLines)
	case "ndjson":
		s.lines = true
	case "sse":
	default:
		return nil, jsonobj.Errorf("format: %q is unknown; there are sse, ndjson", format)
	}
	return s, s.seek(r.Header.Get("Last-Event-ID"))
}

// seek finds where in the ring to begin: after the last event that the reader has seen or, without one, where its history does.
func (s *Stream) seek(id string) error {
	if id == "" {
		s.past = s.after
		s.after = s.beforeHistory()
		return nil
	}
	seen, err := strconv.ParseUint(id, 10, 64)
	if err != nil {
		return jsonobj.Errorf("Last-Event-ID: %q is not the id of an event", id)
	}
	s.after, s.restarted = seen, !s.Ring.Knows(seen)
	if s.restarted {
		s.after = s.Ring.First()
	}
	return nil
}

// beforeHistory returns the number after which as many events follow as the reader wants to begin with.
func (s *Stream) beforeHistory() uint64 {
	if s.Filter.history == 0 {
		return s.after
	}
	var wanted []uint64
	events := make([]telemetry.Event, atOnce)
	for at := s.Ring.First(); at < s.after; {
		n := s.Ring.Read(at, events)
		if n == 0 {
			break
		}
		for i := range events[:n] {
			if at = events[i].Seq; at <= s.after && s.shows(&events[i]) {
				wanted = append(wanted, at)
			}
		}
	}
	if len(wanted) == 0 {
		return s.after
	}
	return wanted[max(0, len(wanted)-s.Filter.history)] - 1
}

// shows reports whether the reader wants an event, and may see it.
func (s *Stream) shows(e *telemetry.Event) bool { return s.Filter.Passes(e) && s.Reader.MaySee(e) }

// Begin sends the header.
func (s *Stream) Begin() {
	h := s.w.Header()
	h.Set("Content-Type", typeEvents)
	if s.lines {
		h.Set("Content-Type", typeLines)
	}
	h.Set("X-Accel-Buffering", "no") // else nginx would hold events back
	s.w.WriteHeader(http.StatusOK)
}

// Run streams until the reader leaves or may no longer read, or the streams end.
func (s *Stream) Run() {
	s.Begin()
	beat := time.NewTicker(heartbeat)
	defer beat.Stop()
	defer context.AfterFunc(s.Streams.ended, s.limit)() // also for a write that is under way
	events := make([]telemetry.Event, atOnce)
	for s.Reader.Renew() {
		n := s.Ring.Read(s.after, events)
		for i := range events[:n] {
			s.take(&events[i])
		}
		s.reportMissed(s.after)
		if s.flush() != nil || n < len(events) && !s.pause(beat.C) {
			return
		}
	}
}

// pause waits for an event, and then a little longer. It reports whether the stream goes on.
func (s *Stream) pause(beat <-chan time.Time) bool {
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
	case <-s.Streams.ended.Done():
		return false
	}
	more := time.NewTimer(gather)
	defer more.Stop()
	select {
	case <-more.C:
		return true
	case <-s.r.Context().Done():
	case <-s.Streams.ended.Done():
	}
	return false
}

// take writes the next event if the reader wants it, and counts those that were lost before it.
func (s *Stream) take(e *telemetry.Event) {
	if e.Seq > s.past {
		s.missed += e.Seq - max(s.after, s.past) - 1
	}
	if s.shows(e) {
		s.reportMissed(e.Seq - 1)
		s.write(e.Seq, e.Kind.String(), describe(e))
	}
	s.after = e.Seq
}

// kindMissed is the kind of the event that reports lost ones.
const kindMissed = "missed"

// reportMissed writes how many events were lost since the last report, if any. id is the last of them: a reader that resumes
// after it gets no second report.
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
	o = o.Pick(s.Columns)
	if s.lines {
		s.b = append(o.Append(s.b), '\n')
		return
	}
	s.b = strconv.AppendUint(append(s.b, "id: "...), id, 10)
	s.b = append(append(append(s.b, "\nevent: "...), kind...), "\ndata: "...)
	s.b = append(o.Append(s.b), "\n\n"...)
}

// flush sends what was written. It fails if the reader does not take it in time.
func (s *Stream) flush() error {
	s.limit()
	if len(s.b) > 0 {
		if _, err := s.w.Write(s.b); err != nil {
			return err
		}
		s.b = s.b[:0]
	}
	return s.out.Flush()
}

// limit sets the write deadline anew. Any goroutine may call it.
func (s *Stream) limit() {
	s.deadline.Lock()
	defer s.deadline.Unlock()
	until := time.Now().Add(writeTimeout)
	if s.Streams.ended.Err() != nil {
		until = s.Streams.until
	}
	_ = s.out.SetWriteDeadline(until) // a writer without deadlines, as tests have, has other limits
}
