package mgmt

import (
	"net/http"
	"strconv"

	"github.com/curfewmq/curfew/core/mgmt/events"
	"github.com/curfewmq/curfew/core/mgmt/jsonobj"
	"github.com/curfewmq/curfew/core/mgmt/streams"
	"github.com/curfewmq/curfew/core/telemetry"
)

// EndStreams ends all streams, which would go on for ever, and refuses later ones.
func (a *API) EndStreams() {
	a.events.streams.End()
	a.live.viewers.End()
	a.backups.runs.streams.End()
}

var errNoEvents = &failure{http.StatusNotFound, "not_found", "telemetry.events is 0: no events are remembered"}

type eventHandlers struct {
	ring    *telemetry.Ring // nil = no events are remembered
	streams *streams.Streams
}

// stream streams events, see the package's documentation.
func (a *eventHandlers) stream(c *request) error {
	f, err := eventFilter(c)
	if err != nil {
		return err
	}
	s, err := eventStream(c, f, nil)
	if err != nil {
		return err
	}
	if c.r.Method == http.MethodHead {
		s.Begin()
		return nil
	}
	if c.part { // the node that merges the events counts its reader
		c.w.Header().Set(afterHeader, strconv.FormatUint(s.After(), 10))
		s.Run()
		return nil
	}
	if err := a.streams.Open(c.user.Name); err != nil {
		return &failure{http.StatusServiceUnavailable, "too_many_streams", err.Error()}
	}
	defer a.streams.Close(c.user.Name)
	s.Run()
	return nil
}

// eventFilter reads which events are asked for.
func eventFilter(c *request) (f events.Filter, err error) {
	if c.api.Events == nil {
		return f, errNoEvents
	}
	if f, err = events.ParseFilter(c.api.turns, c.query.raw); err == nil && f.InVHost {
		err = mayFollowVHost(c, f.VHost)
	}
	return f, err
}

// eventStream returns a stream of this node's events, which goes to emit unless that is nil.
func eventStream(c *request, f events.Filter, emit func(object)) (*events.Stream, error) {
	return events.New(c.w, c.r, events.Options{
		Ring: c.api.Events, Filter: f, Columns: c.query.columns, Reader: &eventReader{request: c, filter: &f}, Clock: c.api.Clock, Streams: c.api.events.streams, Emit: emit,
	})
}

// remembered says how far back events of messages are remembered.
func (a *eventHandlers) remembered(c *request) error {
	if a.ring == nil {
		return errNoEvents
	}
	messages, most, since := a.ring.Remembered()
	return c.reply(object{{"messages", messages}, {"most", most}, {"since", jsonobj.Instant(since)}})
}

// eventReader is the user that reads a stream of events.
type eventReader struct {
	*request
	filter *events.Filter
	mayIn  map[string]bool // answers of mayEnter
}

// mayFollow reports whether the user may see the events of the vhost in the filter.
func (r *eventReader) mayFollow() bool {
	return !r.filter.InVHost || isMonitor(r.user) || r.mayEnter(r.filter.VHost)
}

// Renew implements [events.Reader].
func (r *eventReader) Renew() bool {
	clear(r.mayIn)
	return r.renew() && r.mayFollow()
}

// MaySee implements [events.Reader]. Every user sees alarms; other events without a vhost are for the tag monitoring.
func (r *eventReader) MaySee(e *telemetry.Event) bool {
	switch {
	case isMonitor(r.user):
		return true
	case e.VHost == "":
		return e.Kind == telemetry.AlarmRaised || e.Kind == telemetry.AlarmCleared
	}
	may, known := r.mayIn[e.VHost]
	if !known {
		may = r.mayEnter(e.VHost)
		if r.mayIn == nil {
			r.mayIn = map[string]bool{}
		}
		r.mayIn[e.VHost] = may
	}
	return may
}
