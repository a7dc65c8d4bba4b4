package mgmt

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/curfewmq/curfew/core/telemetry"
)

const (
	maxStreams = 64
	// maxUserStreams are one user's: nobody keeps all others from looking.
	maxUserStreams = 16

	// heartbeat is how long a stream says nothing, so that whoever is between knows that it is still there.
	heartbeat = 15 * time.Second
	// gather is how long a stream waits for more once something has happened: events come in thousands.
	gather = 20 * time.Millisecond
	// lastTime is how long a stream may take to its end when all of them end: a reader that is stuck must not hold up the broker.
	lastTime = time.Second
	// atOnce is how many events are copied from the ring at a time.
	atOnce = 64
)

// streams are the event streams that are open. Any goroutine may use them.
type streams struct {
	ended context.Context // over when they end
	end   func()          // ends them; once is enough
	until time.Time       // when the last byte of a stream must be gone; set before ended is over

	mu   sync.Mutex // guards what follows
	open int
	of   map[string]int // users
}

// begin makes it possible to end them.
func (s *streams) begin() {
	ended, cancel := context.WithCancel(context.Background())
	s.ended, s.of = ended, map[string]int{}
	s.end = sync.OnceFunc(func() {
		s.until = time.Now().Add(lastTime)
		cancel()
	})
}

// enter counts one more stream of a user in, unless there may be none. The one that is leaves.
func (s *streams) enter(user string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.of[user] >= maxUserStreams:
		return tooManyStreams("user '%s' has %d event streams already", user, maxUserStreams)
	case s.open >= maxStreams:
		return tooManyStreams("there are %d event streams already", maxStreams)
	}
	s.open++
	s.of[user]++
	return nil
}

func (s *streams) leave(user string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open--
	if s.of[user]--; s.of[user] == 0 {
		delete(s.of, user)
	}
}

func tooManyStreams(layout string, args ...any) error {
	return &failure{http.StatusServiceUnavailable, "too_many_streams", fmt.Sprintf(layout, args...)}
}

// EndStreams ends all event streams, which would go on for ever, and those that are asked for later.
func (a *API) EndStreams() { a.streams.end() }

var errNoEvents = &failure{http.StatusNotFound, "not_found", "telemetry.events is 0: no events are remembered"}

// events streams what happens, see the package's documentation.
func (a *API) events(c *request) error {
	if a.Events == nil {
		return errNoEvents
	}
	s := &eventStream{request: c, ring: a.Events, after: a.Events.Last()}
	if err := s.prepare(); err != nil {
		return err
	}
	if c.r.Method == http.MethodHead {
		s.begin()
		return nil
	}
	if err := a.streams.enter(c.user.Name); err != nil {
		return err
	}
	defer a.streams.leave(c.user.Name)
	s.run()
	return nil
}

// eventStream is one reader's view of the events. It belongs to the goroutine that serves the request.
type eventStream struct {
	*request
	ring   *telemetry.Ring
	filter eventFilter
	lines  bool // JSON lines, not server-sent events

	after    uint64 // number of the last event that was looked at
	told     uint64 // gaps in the numbers up to this one are not told of: they are history
	missed   uint64 // events since the last line about that
	restored bool   // the reader saw events of an earlier life of the broker, and has to be told
	visible  map[string]bool

	out      *http.ResponseController
	deadline sync.Mutex // held while that of writing is set
	b        []byte
}

// prepare understands what is asked for.
func (s *eventStream) prepare() (err error) {
	if s.filter, err = s.query.eventFilter(); err != nil {
		return err
	}
	if s.filter.inVHost {
		if err := s.mayFollow(s.filter.vhost); err != nil {
			return err
		}
	}
	switch format := s.query.raw.Get("format"); format {
	case "":
		s.lines = strings.Contains(s.r.Header.Get("Accept"), typeLines)
	case "ndjson":
		s.lines = true
	case "sse":
	default:
		return badRequest("format: %q is unknown; there are sse, ndjson", format)
	}
	return s.place()
}

func (c *request) mayFollow(vhost string) error {
	if _, ok := c.api.Store.VHost(vhost); !ok {
		return errNotFound
	}
	if !isMonitor(c.user) && !c.mayEnter(vhost) {
		return notAuthorised("User not authorised to access virtual host")
	}
	return nil
}

// place finds where in the ring to begin.
func (s *eventStream) place() error {
	id := s.r.Header.Get("Last-Event-ID")
	if id == "" {
		s.told = s.after
		s.after = s.before(s.filter.history)
		return nil
	}
	seen, err := strconv.ParseUint(id, 10, 64)
	if err != nil {
		return badRequest("Last-Event-ID: %q is not the id of an event", id)
	}
	if s.ring.Knows(seen) {
		s.after = seen
		return nil
	}
	s.after, s.restored = s.ring.First(), true
	return nil
}

// before returns the number after which so many events come that the reader wants and may see.
func (s *eventStream) before(history int) uint64 {
	if history == 0 {
		return s.after
	}
	var wanted []uint64
	events := make([]telemetry.Event, atOnce)
	at := s.ring.First()
	for at < s.after {
		n := s.ring.Read(at, events)
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
	return wanted[max(0, len(wanted)-history)] - 1
}

// shows reports whether the reader wants an event, and may see it.
func (s *eventStream) shows(e *telemetry.Event) bool {
	if !s.filter.passes(e) {
		return false
	}
	switch {
	case isMonitor(s.user):
		return true
	case e.VHost == "":
		return e.Kind == telemetry.AlarmRaised || e.Kind == telemetry.AlarmCleared
	}
	may, known := s.visible[e.VHost]
	if !known {
		if s.visible == nil {
			s.visible = map[string]bool{}
		}
		may = s.mayEnter(e.VHost)
		s.visible[e.VHost] = may
	}
	return may
}

// renew looks again at who the reader is, and reports whether that is still somebody who may be here.
func (s *eventStream) renew() bool {
	clear(s.visible)
	account, ok := s.api.users().Lookup(s.user.Name)
	s.user.Tags = account.Tags
	return ok && isAnyone(s.user) && (!s.filter.inVHost || isMonitor(s.user) || s.mayEnter(s.filter.vhost))
}

const (
	typeEvents = "text/event-stream"
	typeLines  = "application/x-ndjson"
)

// begin answers that there is a stream.
func (s *eventStream) begin() {
	h := s.w.Header()
	h.Set("Content-Type", typeEvents)
	if s.lines {
		h.Set("Content-Type", typeLines)
	}
	h.Set("X-Accel-Buffering", "no") // a proxy that gathers answers would keep it
	s.w.WriteHeader(http.StatusOK)
}

// run streams until the reader, its permission or the broker has gone.
func (s *eventStream) run() {
	s.out = http.NewResponseController(s.w)
	s.begin()
	beat := time.NewTicker(heartbeat)
	defer beat.Stop()
	defer context.AfterFunc(s.api.streams.ended, s.limit)() // also for what is being written
	events := make([]telemetry.Event, atOnce)
	for s.renew() {
		n := s.ring.Read(s.after, events)
		for i := range events[:n] {
			s.take(&events[i])
		}
		s.tellMissed(s.after)
		if s.flush() != nil || n < len(events) && !s.pause(beat.C) {
			return
		}
	}
}

// pause waits until something has happened, and a little longer. It reports whether the stream goes on.
func (s *eventStream) pause(beat <-chan time.Time) bool {
	select {
	case <-s.ring.Wait(s.after):
		return s.sleep(gather)
	case <-beat:
		if s.lines {
			s.b = append(s.b, '\n')
		} else {
			s.b = append(s.b, ":\n\n"...)
		}
		return true
	case <-s.r.Context().Done():
	case <-s.api.streams.ended.Done():
	}
	return false
}

func (s *eventStream) sleep(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-s.r.Context().Done():
	case <-s.api.streams.ended.Done():
	}
	return false
}

// take looks at the next event.
func (s *eventStream) take(e *telemetry.Event) {
	if e.Seq > s.told {
		s.missed += e.Seq - max(s.after, s.told) - 1
	}
	if s.shows(e) {
		s.tellMissed(e.Seq - 1)
		s.write(e.Seq, e.Kind.String(), eventObject(e))
	}
	s.after = e.Seq
}

// tellMissed says how many events were forgotten before the reader came to them, if any were. It does not have to be told again
// if it goes on after the event of this number.
func (s *eventStream) tellMissed(id uint64) {
	if s.missed == 0 && !s.restored {
		return
	}
	s.write(id, kindMissed, object{
		{"id", id}, {"kind", kindMissed}, {"time", instant(s.api.Clock())}, {"count", s.missed}, {"restarted", s.restored},
	})
	s.missed, s.restored = 0, false
}

func (s *eventStream) write(id uint64, kind string, o object) {
	if s.query.columns != nil {
		o = o.pick(s.query.columns)
	}
	if s.lines {
		s.b = append(appendObject(s.b, o), '\n')
		return
	}
	s.b = strconv.AppendUint(append(s.b, "id: "...), id, 10)
	s.b = append(append(append(s.b, "\nevent: "...), kind...), "\ndata: "...)
	s.b = append(appendObject(s.b, o), "\n\n"...)
}

// flush sends what was written. A reader that does not take it in time is given up.
func (s *eventStream) flush() error {
	s.limit()
	if len(s.b) > 0 {
		if _, err := s.w.Write(s.b); err != nil {
			return err
		}
		s.b = s.b[:0]
	}
	return s.out.Flush()
}

// limit sets how long the reader may take from now on. Any goroutine may call it.
func (s *eventStream) limit() {
	s.deadline.Lock()
	defer s.deadline.Unlock()
	until := time.Now().Add(chunkTime)
	select {
	case <-s.api.streams.ended.Done():
		until = s.api.streams.until
	default:
	}
	_ = s.out.SetWriteDeadline(until) // a writer that cannot be given up has other limits
}
