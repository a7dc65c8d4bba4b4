package mgmt

import (
	"net/http"

	"github.com/curfewmq/curfew/core/mgmt/events"
	"github.com/curfewmq/curfew/core/telemetry"
)

// EndStreams ends all event streams, which would go on for ever, and those that are opened later.
func (a *API) EndStreams() { a.streams.End() }

var errNoEvents = &failure{http.StatusNotFound, "not_found", "telemetry.events is 0: no events are remembered"}

// streamEvents streams what happens, see the package's documentation.
func (a *API) streamEvents(c *request) error {
	if a.Events == nil {
		return errNoEvents
	}
	f, err := events.ParseFilter(c.query.raw)
	if err != nil {
		return err
	}
	reader := &eventReader{request: c, filter: &f}
	if f.InVHost {
		if _, ok := a.Store.VHost(f.VHost); !ok {
			return errNotFound
		}
		if !reader.mayFollow() {
			return notAuthorised("User not authorised to access virtual host")
		}
	}
	s, err := events.New(c.w, c.r, events.Options{
		Ring: a.Events, Filter: f, Columns: c.query.columns, Reader: reader, Clock: a.Clock, Streams: a.streams,
	})
	if err != nil {
		return err
	}
	if c.r.Method == http.MethodHead {
		s.Begin()
		return nil
	}
	if err := a.streams.Open(c.user.Name); err != nil {
		return &failure{http.StatusServiceUnavailable, "too_many_streams", err.Error()}
	}
	defer a.streams.Close(c.user.Name)
	s.Run()
	return nil
}

// eventReader is the user who reads a stream of events.
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
	account, ok := r.api.users().Lookup(r.user.Name)
	r.user.Tags = account.Tags
	return ok && isAnyone(r.user) && r.mayFollow()
}

// MaySee implements [events.Reader]. Everybody sees alarms; other events that are about no vhost are for the tag monitoring.
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
