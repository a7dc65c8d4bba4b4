package mgmt

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/curfewmq/curfew/core/clock"
	"github.com/curfewmq/curfew/core/mgmt/live"
	"github.com/curfewmq/curfew/core/mgmt/pattern"
	"github.com/curfewmq/curfew/core/mgmt/streams"
	"github.com/curfewmq/curfew/core/store"
	"github.com/curfewmq/curfew/core/wire"
	"github.com/curfewmq/curfew/sdk/hook"
)

// liveView is one of the views that GET /api/live shows.
type liveView struct {
	name       string
	parameters []string // that it has, besides view, after and vhost
	// read reads the parameters. begin begins the view, for readers with the rights of w.
	read func(a *liveHandlers, q url.Values) (begin func(w *watcher) maker, err error)
	// own means that users without the tag monitoring get states of their own.
	own bool
}

// maker makes the states of a view.
type maker = func() (object, error)

var liveViews = []liveView{
	{name: "now", read: readNow, own: true},
	{name: "deadlines", parameters: []string{"queue", "page", "page_size", "sort", "sort_reverse", "buckets"}, read: readDeadlines, own: true},
	{name: "queues", parameters: []string{"page", "page_size", "sort", "sort_reverse", "name", "use_regex", "columns"}, read: readQueues},
	{name: "queue", parameters: []string{"queue", "buckets"}, read: readQueue},
	{name: "top", parameters: []string{"page", "page_size", "sort"}, read: readTop, own: true},
}

// watcher is the user that reads a live view. It belongs to the goroutine that serves the request.
type watcher struct {
	*request
	view  *liveView
	begin func(w *watcher) maker
	of    string // the vhost that the view is about; with inOne
	inOne bool
	query string // all parameters of the view
}

// liveHandlers show live views, and when messages are due.
type liveHandlers struct {
	node    string
	store   *store.Store
	amqp    *wire.Server
	clock   clock.Clock
	started hook.Instant
	machine func() Machine
	turns   *pattern.Turns
	viewers *streams.Streams
	views   *live.Views
	survey  *live.Survey
	late    live.Latenesses
	totals  *totals
	checks  *healthHandlers
	queues  *queueHandlers
}

// show shows a view, see the package's documentation.
func (a *liveHandlers) show(c *request) error {
	w, err := a.readLive(c)
	if err != nil {
		return err
	}
	if err := w.enter(); err != nil {
		return err
	}
	spec := w.spec()
	if !strings.Contains(c.r.Header.Get("Accept"), "text/event-stream") {
		state, err := a.views.Once(&spec)
		if err != nil {
			return err
		}
		c.w.Header().Set("Content-Type", "application/json")
		_, _ = c.w.Write(state) // if the client is gone, the server notices
		return nil
	}
	out := a.viewers.Writer(c.w, live.Patience)
	if c.r.Method == http.MethodHead {
		out.Begin("text/event-stream")
		return nil
	}
	if err := a.viewers.Open(c.user.Name); err != nil {
		return tooManyStreams(c, err)
	}
	defer a.viewers.Close(c.user.Name)
	s := live.Stream{Views: a.views, Streams: a.viewers, Writer: out, LastID: c.r.Header.Get("Last-Event-ID"), Renew: func() (live.Spec, bool) {
		if !w.renew() || w.enter() != nil {
			return live.Spec{}, false
		}
		return w.spec(), true
	}}
	if after := c.query.raw.Get("after"); s.LastID == "" {
		s.LastID = after
	}
	if _, err := a.views.Once(&spec); err != nil { // before the header, after which errors cannot be reported
		return err
	}
	s.Run(c.r.Context())
	return nil
}

// tooManyStreams returns the answer to a reader with too many streams.
func tooManyStreams(c *request, err error) error {
	status := http.StatusServiceUnavailable
	if e, ok := errors.AsType[*streams.TooMany](err); ok && e.OfUser {
		status = http.StatusTooManyRequests
	}
	c.w.Header().Set("Retry-After", "5")
	return &failure{status, "too_many_streams", err.Error()}
}

// readLive reads the parameters of a request for a view.
func (a *liveHandlers) readLive(c *request) (*watcher, error) {
	q := c.query.raw
	names := make([]string, len(liveViews))
	for i := range liveViews {
		names[i] = liveViews[i].name
	}
	i := slices.Index(names, q.Get("view"))
	if i < 0 {
		return nil, badRequest("view: %.40q is unknown; there are %s", q.Get("view"), strings.Join(names, ", "))
	}
	w := &watcher{request: c, view: &liveViews[i]}
	if err := onlyParameters(q, append([]string{"view", "after", "vhost"}, w.view.parameters...)); err != nil {
		return nil, err
	}
	kept := url.Values{}
	for name := range q {
		if q.Get(name) != "" && name != "after" {
			kept.Set(name, q.Get(name))
		}
	}
	if w.inOne = q.Get("vhost") != ""; c.part || c.joins {
		kept.Set(partParameter, "1")
	}
	w.of, w.inOne, w.query = q.Get("vhost"), q.Get("vhost") != "", kept.Encode()
	var err error
	w.begin, err = w.view.read(a, kept)
	return w, err
}

// enter checks that the user may see into the vhost that the view is about, if it is about one.
func (w *watcher) enter() error {
	if !w.inOne {
		return nil
	}
	v, ok := w.api.Store.VHost(w.of)
	switch {
	case !ok && w.api.nodes.knows(w.of):
		return w.errUnowned(vhostText(w.of))
	case !ok:
		return errNotFound
	case !w.mayEnter(w.of):
		return notAuthorised("User not authorised to access virtual host")
	}
	w.vhost = v
	return nil
}

// spec returns the view for the user's present rights.
func (w *watcher) spec() live.Spec {
	var key strings.Builder
	key.WriteString(w.query)
	if w.view.own && !isMonitor(w.user) {
		key.WriteString("\x00of " + w.user.Name)
	} else if w.view.own {
		key.WriteString("\x00of all")
	}
	if w.vhost == nil && isAdministrator(w.user) {
		key.WriteString("\x00in all")
	} else {
		key.WriteString("\x00in these")
		for _, v := range w.visible() { // a vhost that was deleted and created again has another address; the view keeps the old one from being reused
			fmt.Fprintf(&key, " %p", v)
		}
	}
	if w.joins {
		key.WriteString(w.clusterKey())
	}
	return live.Spec{Key: key.String(), Begin: func() func() (object, error) {
		reader := *w.request // the state is for many readers, and must not change with the first one's request
		reader.r, reader.w, reader.query = nil, nil, query{}
		own := &watcher{request: &reader, view: w.view, query: w.query}
		state := w.begin(own)
		switch {
		case w.joins:
			return own.merged(state)
		case w.part:
			return state
		}
		return func() (object, error) {
			o, err := state()
			return o.Without(live.KeysMember), err
		}
	}}
}

// pageOf reads the parameters page and page_size.
func pageOf(q url.Values, most int) (page, size int, err error) {
	const maxPages = 1 << 20
	if page, err = numberOf(q, "page", 1, maxPages, 1); err == nil {
		size, err = numberOf(q, "page_size", 1, most, defaultPage)
	}
	if q.Has(partParameter) { // the page may have rows of one node alone
		return 1, page * size, err
	}
	return page, size, err
}

// numberOf reads a parameter that is a number.
func numberOf(q url.Values, name string, least, most, absent int) (int, error) {
	s := q.Get(name)
	if s == "" {
		return absent, nil
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < least || n > most {
		return 0, badRequest("%s: %.40q is not a number from %d to %d", name, s, least, most)
	}
	return n, nil
}

// choiceOf reads a parameter that is one of several words.
func choiceOf(q url.Values, name string, words []string, absent string) (string, error) {
	s := q.Get(name)
	if s == "" {
		return absent, nil
	}
	if !slices.Contains(words, s) {
		return "", badRequest("%s: %.40q is unknown; there are %s", name, s, strings.Join(words, ", "))
	}
	return s, nil
}

// truthOf reads a parameter that is true or false.
func truthOf(q url.Values, name string) (bool, error) {
	s, err := choiceOf(q, name, []string{"true", "false"}, "false")
	return s == "true", err
}
