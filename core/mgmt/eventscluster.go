package mgmt

import (
	"bufio"
	"context"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/curfewmq/curfew/core/mgmt/events"
	"github.com/curfewmq/curfew/core/mgmt/jsonobj"
	"github.com/curfewmq/curfew/core/mgmt/rows"
	"github.com/curfewmq/curfew/core/mgmt/streams"
	"github.com/curfewmq/curfew/core/replicas"
)

// The events of a cluster are the events of all nodes, each with a member node. An id holds the last event of every node that the reader
// has seen: their ids in the order of the nodes, with dots between. The id of a node without events so far is empty: "17..4" is event 17 of
// the first node, none of the second, and event 4 of the third.

// afterHeader says after which of its events a node's stream begins.
const afterHeader = "Curfew-Events-After"

const (
	// reopenAfter is the pause before the stream of a node that has ended is opened again.
	reopenAfter = 2 * time.Second
	// gatherFirst and gatherNext are how long events are collected before they are put in order and written.
	gatherFirst = 250 * time.Millisecond
	gatherNext  = 25 * time.Millisecond
	// eventHeartbeat is how long a stream may write nothing.
	eventHeartbeat = 15 * time.Second
	// maxEventLine limits an event, in bytes.
	maxEventLine = 256 << 10
)

// streamed is the scope of events.
var streamed = together("all nodes, merged", unchangedPart, func(c *request, e *endpoint) error {
	s, err := newClusterStream(c, e)
	if err != nil {
		return err
	}
	if c.r.Method == http.MethodHead {
		s.begin()
		return nil
	}
	if err := c.api.events.streams.Open(c.user.Name); err != nil {
		return &failure{http.StatusServiceUnavailable, "too_many_streams", err.Error()}
	}
	defer c.api.events.streams.Close(c.user.Name)
	s.run(c.r.Context())
	return nil
})

// clusterStream is a stream of the events of all nodes. It belongs to the goroutine that serves the request.
type clusterStream struct {
	*request
	asking   request // as the request began: the nodes' streams are opened with it, while the request itself is renewed
	endpoint *endpoint
	nodes    []replicas.Node
	at       []string // the last event of each node; "" = unknown
	lines    bool     // JSON lines, not server-sent events
	history  int
	out      *streams.Writer
	b        []byte
}

// nodeEvent is an event of a node, or where its stream begins.
type nodeEvent struct {
	seat  int
	begin string // after which event the stream begins; with object nil
	object
}

// newClusterStream reads the parameters of a request.
func newClusterStream(c *request, e *endpoint) (*clusterStream, error) {
	f, err := eventFilter(c)
	if err != nil {
		return nil, err
	}
	s := &clusterStream{request: c, asking: *c, endpoint: e, nodes: c.api.nodes.members(), history: f.History()}
	if s.lines, err = events.AsLines(c.r); err != nil {
		return nil, err
	}
	s.at = make([]string, len(s.nodes))
	s.out = c.api.events.streams.Writer(c.w, writeTimeout)
	from, id := "Last-Event-ID", c.r.Header.Get("Last-Event-ID")
	if id == "" {
		from, id = "after", c.query.raw.Get("after")
	}
	if id == "" {
		return s, nil
	}
	s.at = strings.Split(id, ".")
	valid := len(s.at) == len(s.nodes)
	for _, part := range s.at {
		_, err := strconv.ParseUint(part, 10, 64)
		valid = valid && (part == "" || err == nil)
	}
	if !valid {
		return nil, badRequest("%s: %.80q is not the id of an event of a cluster of %d nodes", from, id, len(s.nodes))
	}
	s.history = 0
	return s, nil
}

// mayFollowVHost refuses events of a vhost that does not exist, or that the user may not enter. Events of a vhost without an owner can be
// followed: they come once it has one. All nodes are asked for them, because owners change, and the events of a former owner stay at its
// node.
func mayFollowVHost(c *request, name string) error {
	switch {
	case !c.api.nodes.knows(name):
		return errNotFound
	case !isMonitor(c.user) && !c.mayEnter(name):
		return notAuthorised("User not authorised to access virtual host")
	}
	return nil
}

func (s *clusterStream) begin() {
	var away []string
	for i := range s.nodes {
		if !s.nodes[i].Up {
			away = append(away, s.nodes[i].Name)
		}
	}
	if len(away) > 0 {
		s.w.Header().Set(unreachableHeader, joinNames(away))
	}
	if s.lines {
		s.out.Begin("application/x-ndjson")
		return
	}
	s.out.Begin("text/event-stream")
}

// run streams until the reader leaves or may no longer read, or the streams end.
func (s *clusterStream) run(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	var readers sync.WaitGroup
	defer readers.Wait()
	defer cancel()
	s.begin()
	defer s.out.HurryAtEnd()()
	came := make(chan nodeEvent)
	for seat := range s.nodes {
		readers.Go(func() { s.follow(ctx, seat, s.at[seat], came) })
	}
	beat := time.NewTicker(eventHeartbeat)
	defer beat.Stop()
	gather, checked := gatherFirst, time.Now()
	for {
		select {
		case first := <-came:
			s.write(s.batch(ctx, first, came, gather))
			gather = gatherNext
		case <-beat.C:
			s.beat()
		case <-ctx.Done():
			return
		case <-s.api.events.streams.Ended():
			return
		}
		if s.out.Send(s.b) != nil {
			return
		}
		s.b = s.b[:0]
		if now := time.Now(); now.Sub(checked) >= streamCheck {
			if checked = now; !s.renew() {
				return
			}
		}
	}
}

func (s *clusterStream) beat() {
	if s.lines {
		s.b = append(s.b, '\n')
		return
	}
	s.b = append(s.b, ":\n\n"...)
}

// batch collects events for a while, and puts them in order.
func (s *clusterStream) batch(ctx context.Context, first nodeEvent, came <-chan nodeEvent, most time.Duration) []nodeEvent {
	const atOnce = 4096
	all := []nodeEvent{first}
	timer := time.NewTimer(most)
	defer timer.Stop()
	for len(all) < atOnce {
		select {
		case e := <-came:
			all = append(all, e)
			continue
		case <-timer.C:
		case <-ctx.Done():
		}
		break
	}
	slices.SortStableFunc(all, func(x, y nodeEvent) int {
		if x.seat == y.seat { // a node's order is kept
			return 0
		}
		return rows.Compare(valueOf(x.object, "time"), valueOf(y.object, "time"))
	})
	return all
}

// write writes events. At the start of the stream, it leaves out older events beyond the history that the reader wants.
func (s *clusterStream) write(all []nodeEvent) {
	skip := 0
	if s.history > 0 {
		n := 0
		for i := range all {
			if all[i].object != nil {
				n++
			}
		}
		skip, s.history = max(n-s.history, 0), 0
	}
	for i := range all {
		e := &all[i]
		if e.object == nil {
			s.at[e.seat] = e.begin
			continue
		}
		if id := idOf(valueOf(e.object, "id")); id != "" {
			s.at[e.seat] = id
		}
		if skip > 0 {
			skip--
			continue
		}
		s.writeOne(e)
	}
}

// idOf returns the id of a node's event; "" if it has none.
func idOf(v any) string {
	n := intOf(v)
	if n <= 0 {
		return ""
	}
	return strconv.FormatInt(n, 10)
}

func (s *clusterStream) writeOne(e *nodeEvent) {
	id := strings.Join(s.at, ".")
	set(e.object, "id", id)
	o := append(e.object, member{"node", s.nodes[e.seat].Name}).Pick(s.query.columns)
	if s.lines {
		s.b = append(o.Append(s.b), '\n')
		return
	}
	kind, _ := valueOf(e.object, "kind").(string)
	s.b = append(append(append(s.b, "id: "...), id...), "\nevent: "...)
	s.b = append(append(append(s.b, strings.Map(printable, kind)...), "\ndata: "...), o.Append(nil)...)
	s.b = append(s.b, "\n\n"...)
}

// printable leaves out characters that would end a line of a stream.
func printable(r rune) rune {
	if r < ' ' {
		return -1
	}
	return r
}

// follow reads the events of a node until ctx ends, and asks again when its stream ends.
func (s *clusterStream) follow(ctx context.Context, seat int, after string, came chan<- nodeEvent) {
	for first := true; ctx.Err() == nil; first = false {
		if !first {
			pause(ctx, reopenAfter)
		}
		after = s.followOnce(ctx, seat, after, first, came)
	}
}

// followOnce reads one stream of a node's events. It returns the id of the last one.
func (s *clusterStream) followOnce(ctx context.Context, seat int, after string, first bool, came chan<- nodeEvent) string {
	n, to := s.holder(seat), s.urlAfter(after, first)
	if s.api.nodes.isSelf(&n) {
		return s.followOwn(ctx, seat, after, to, came)
	}
	from, begin, err := s.open(ctx, n, to)
	if err != nil {
		return after
	}
	defer func() { _ = from.Close() }() // the events that were read count
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, maxEventLine)
	if _, err := strconv.ParseUint(begin, 10, 64); err == nil {
		after = begin
		if !send(ctx, came, nodeEvent{seat: seat, begin: begin}) {
			return after
		}
	}
	for lines.Scan() {
		o, err := jsonobj.ParseObject(lines.Bytes())
		if err != nil {
			if len(lines.Bytes()) > 0 {
				return after // it is no stream of events
			}
			continue
		}
		if id := idOf(valueOf(o, "id")); id != "" {
			after = id
		}
		if !send(ctx, came, nodeEvent{seat: seat, object: o}) {
			return after
		}
	}
	return after
}

func send(ctx context.Context, to chan<- nodeEvent, e nodeEvent) bool {
	select {
	case to <- e:
		return true
	case <-ctx.Done():
		return false
	}
}

// followOwn is followOnce for this node's own events.
func (s *clusterStream) followOwn(ctx context.Context, seat int, after string, to *url.URL, came chan<- nodeEvent) string {
	own := s.asking
	if !own.renew() { // its rights may have changed
		return after
	}
	own.r = (&http.Request{Method: http.MethodGet, URL: to, Header: http.Header{}, TLS: s.r.TLS}).WithContext(ctx) // see renew
	own.query = query{raw: to.Query()}
	f, err := eventFilter(&own)
	if err != nil {
		return after
	}
	stream, err := eventStream(&own, f, func(o object) {
		if id := idOf(valueOf(o, "id")); id != "" {
			after = id
		}
		send(ctx, came, nodeEvent{seat: seat, object: o}) // the stream ends with ctx, too
	})
	if err != nil {
		return after
	}
	after = strconv.FormatUint(stream.After(), 10)
	if send(ctx, came, nodeEvent{seat: seat, begin: after}) {
		stream.Run()
	}
	return after
}

// urlAfter returns the URL for a node's events after one. Only the first request asks for the history that the reader wants.
func (s *clusterStream) urlAfter(after string, first bool) *url.URL {
	q := maps.Clone(s.query.raw)
	q.Del("after")
	q.Del("columns")
	q.Set("format", "ndjson")
	if !first && after == "" {
		q.Del("history")
	}
	if after != "" {
		q.Set("after", after)
	}
	return &url.URL{Path: root + "events", RawQuery: q.Encode()}
}

// open asks another node for its events.
func (s *clusterStream) open(ctx context.Context, n replicas.Node, to *url.URL) (from io.ReadCloser, begin string, err error) {
	r := s.asking.api.nodes.outgoing(ctx, &s.asking, http.MethodGet, to, http.NoBody)
	r.Header.Del("Last-Event-Id")
	r.Header.Set(partHeader, "1")
	answer, err := s.api.nodes.peers.Do(ctx, n.ID, r)
	if err != nil {
		return nil, "", err
	}
	if answer.StatusCode != http.StatusOK {
		_ = answer.Body.Close() // it is no stream
		return nil, "", errStatus(answer.StatusCode)
	}
	return answer.Body, answer.Header.Get(afterHeader), nil
}

// holder returns the node that has a seat now. The node that had it when the stream began may have been replaced.
func (s *clusterStream) holder(seat int) replicas.Node {
	if n, ok := s.api.nodes.member(s.nodes[seat].Name); ok {
		return n
	}
	return s.nodes[seat]
}
