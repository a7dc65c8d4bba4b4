package mgmt

import (
	"bufio"
	"context"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/curfewmq/curfew/core/auth"
	"github.com/curfewmq/curfew/core/telemetry"
)

// newEventfulCluster returns a cluster whose nodes remember events, and their recorders.
func newEventfulCluster(t *testing.T) (*cluster, []*telemetry.Recorder) {
	t.Helper()
	var recorders []*telemetry.Recorder
	c := newCluster(t, func(o *Options) {
		r := telemetry.New(telemetry.Options{Clock: o.Clock, Events: 100})
		recorders = append(recorders, r)
		o.Events = r.Events()
	})
	return c, recorders
}

// streamOf follows the events of a node as guest.
func (c *cluster) streamOf(node int, query, lastID string) (lines func() map[string]any, end func()) {
	c.t.Helper()
	server := httptest.NewServer(c.rigs[node].api)
	q, err := http.NewRequestWithContext(c.t.Context(), http.MethodGet, server.URL+"/api/events?"+query, nil)
	must(c.t, err)
	q.SetBasicAuth("guest", "guest")
	q.Header.Set("Accept", "application/x-ndjson")
	if lastID != "" {
		q.Header.Set("Last-Event-ID", lastID)
	}
	answer, err := server.Client().Do(q) //nolint:bodyclose // end closes it
	must(c.t, err)
	if answer.StatusCode != 200 {
		c.t.Fatalf("events of node %d: %s", node, answer.Status)
	}
	read := bufio.NewScanner(answer.Body)
	lines = func() (e map[string]any) {
		c.t.Helper()
		for read.Scan() {
			if len(read.Bytes()) == 0 {
				continue
			}
			must(c.t, json.Unmarshal(read.Bytes(), &e))
			return e
		}
		c.t.Fatalf("the stream has ended: %v", read.Err())
		return nil
	}
	return lines, func() {
		_ = answer.Body.Close()
		server.CloseClientConnections()
		server.Close()
	}
}

// A client gets the events of all nodes through any node; when it comes back it misses none and gets none twice.
func TestEventsOfClusters(t *testing.T) {
	c, recorders := newEventfulCluster(t)
	raise := func(node int, name string) {
		recorders[node].Notice(telemetry.Notice{Kind: telemetry.AlarmRaised, Name: name})
	}
	for node := range recorders {
		raise(node, fmt.Sprintf("past-%d", node))
	}
	next, end := c.streamOf(1, "kind=alarm_raised&history=10", "")
	seen, last := map[string]string{}, ""
	for range 3 {
		e := next()
		seen[e["alarm"].(string)] = e["node"].(string)
		last = e["id"].(string)
	}
	for node := range recorders {
		if got := seen[fmt.Sprintf("past-%d", node)]; got != c.nodes[node].Name {
			t.Errorf("the event of node %d came from %q", node, got)
		}
	}
	raise(2, "now")
	e := next()
	if e["alarm"] != "now" || e["node"] != "curfew@n3" || strings.Count(e["id"].(string), ".") != 2 {
		t.Errorf("got %v", e)
	}
	end()
	raise(0, "later")
	next, end = c.streamOf(2, "kind=alarm_raised", last)
	seen = map[string]string{}
	for range 2 {
		e := next()
		seen[e["alarm"].(string)] = e["node"].(string)
	}
	end()
	if seen["now"] != "curfew@n3" || seen["later"] != "curfew@n1" {
		t.Errorf("a reader who comes back to another node got %v", seen)
	}
	for _, bad := range []string{"5", "1.2", "a.b.c", "1.2.3.4"} {
		c.want(0, 400, "GET", "/api/events?after="+url.QueryEscape(bad), "")
	}
	c.want(0, 400, "GET", "/api/events?format=none", "")
	c.want(0, 400, "GET", "/api/events?kind=none", "")
	c.want(0, 404, "GET", "/api/events?vhost=none", "")
}

// Each node keeps to the bound of a stream, and its reader hears from each how many were left out; after a pause, too.
func TestEventsOfClustersAreBound(t *testing.T) {
	const events = 80
	c, recorders := newEventfulCluster(t)
	next, end := c.streamOf(0, "per_second=2&kind=message_dropped,alarm_raised&history=1", "")
	for _, r := range recorders {
		r.Notice(telemetry.Notice{Kind: telemetry.AlarmRaised, Name: "begun"})
	}
	last := ""
	for range recorders {
		last = next()["id"].(string)
	}
	many := func(next func() map[string]any, sent int) {
		t.Helper()
		leftOut := map[any]any{}
		for got := map[any]int{}; len(got) < len(recorders) || slices.Min(slices.Collect(maps.Values(got))) < sent; {
			switch e := next(); e["kind"] {
			case "left_out":
				leftOut[e["node"]] = e["count"]
			case "message_dropped":
				got[e["node"]]++
			default:
				t.Fatalf("got %v", e)
			}
		}
		for _, n := range c.nodes {
			if leftOut[n.Name] != float64(events-sent) {
				t.Errorf("%s has left out %v, want %d", n.Name, leftOut[n.Name], events-sent)
			}
		}
	}
	for i, r := range recorders {
		r.Removed(&telemetry.QueueRef{VHost: "/", Queue: strconv.Itoa(i)}, 1, make([]telemetry.Removal, events))
	}
	many(next, 1)
	end()
	next, end = c.streamOf(1, "per_second=2&kind=message_dropped&history=7", last)
	defer end()
	many(next, 7)
}

// Where dead letters go is known of all vhosts.
func TestFlowOfClusters(t *testing.T) {
	c := newComparison(t, 9)
	for _, query := range []string{"", "?limit=3", "?name=orders", "?vhost=b"} {
		var sizes [4]string
		count := func(body string) string {
			var f struct {
				Complete             bool
				Nodes, Edges, Cycles []map[string]any
			}
			must(t, json.Unmarshal([]byte(body), &f))
			return fmt.Sprint(f.Complete, len(f.Nodes), len(f.Edges), len(f.Cycles))
		}
		for node := range c.rigs {
			sizes[node] = count(c.want(node, 200, "GET", "/api/dead-letters/flow"+query, "").Body.String())
		}
		sizes[3] = count(c.single.do(200, "GET", "/api/dead-letters/flow"+query, ""))
		if sizes[0] != sizes[3] || sizes[1] != sizes[3] || sizes[2] != sizes[3] {
			t.Errorf("%s: nodes, edges and cycles are %v; the last are those of a broker that has all", query, sizes)
		}
	}
	c.want(0, 400, "GET", "/api/dead-letters/flow?limit=0", "")
}

// The busiest edges stay, and the nodes that they lead to.
func TestMergeFlow(t *testing.T) {
	edge := func(vhost, from, to string, rate float64) object {
		return object{{"vhost", vhost}, {"from", from}, {"to", to}, {"rate", rate}}
	}
	graph := func(edges ...object) object {
		var nodes []object
		for _, e := range edges {
			nodes = append(nodes, object{{"vhost", valueOf(e, "vhost")}, {"queue", valueOf(e, "from")}})
		}
		return object{
			{"at", 5}, {"complete", true}, {"nodes", nodes}, {"edges", edges}, {"cycles", []object{}}, {"left_out", object{{"components", 0}, {"edges", 1}}},
		}
	}
	got := mergeFlow([]object{graph(edge("a", "q", "r", 1), edge("a", "s", "t", 9)), graph(edge("b", "q", "r", 5))}, 2)
	want := `{"at":5,"complete":true,"nodes":[{"vhost":"a","queue":"s"},{"vhost":"b","queue":"q"}],"edges":[{"vhost":"a","from":"s","to":"t","rate":9.0},` +
		`{"vhost":"b","from":"q","to":"r","rate":5.0}],"cycles":[],"left_out":{"components":0,"edges":3}}`
	if string(got.Append(nil)) != want {
		t.Errorf("got\n%s\nwant\n%s", got.Append(nil), want)
	}
}

// A certificate that has logged the reader in is checked again while the stream goes on, for this node's own events, too.
func TestEventsOfClustersByCertificate(t *testing.T) {
	var recorder *telemetry.Recorder
	c := newCluster(t, func(o *Options) {
		recorder = telemetry.New(telemetry.Options{Clock: o.Clock, Events: 100}) // the last node's in the end
		o.Events, o.CertificateLogin = recorder.Events(), auth.CertificateLogin{Field: auth.CommonName}
		o.VerifyClient = func([]*x509.Certificate) error { return nil }
	})
	r := c.rigs[2]
	_, err := r.api.users().Set(auth.Account{Name: "ops", Tags: []string{"administrator"}})
	must(t, err)
	q := &request{caller: caller{api: r.api, w: httptest.NewRecorder(), r: r.withCertificate("ops", "GET", "/api/events", "")}}
	must(t, q.authenticate())
	s, err := newClusterStream(q, &endpoint{})
	must(t, err)
	s.query.raw = url.Values{"kind": {"alarm_raised"}}
	s.opened(t, 2, func(came <-chan nodeEvent) {
		recorder.Notice(telemetry.Notice{Kind: telemetry.AlarmRaised, Name: "disk"})
		if e := <-came; valueOf(e.object, "alarm") != "disk" {
			t.Errorf("got %v", e)
		}
	})
}

// opened calls fn while it reads the events of a node that are next. It reports whether the node's stream has begun.
func (s *clusterStream) opened(t *testing.T, seat int, fn func(came <-chan nodeEvent)) bool {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	came, ended := make(chan nodeEvent), make(chan struct{})
	go func() {
		defer close(ended)
		s.followOnce(ctx, seat, "", false, came)
	}()
	defer func() {
		cancel()
		<-ended
	}()
	select {
	case <-came: // where it begins
		fn(came)
		return true
	case <-ended:
		return false
	}
}

// The events of a vhost are followed from one owner to the next; the events of a node that takes another one's seat come, too.
func TestEventsFollowOwners(t *testing.T) {
	c, recorders := newEventfulCluster(t)
	raise := func(node int, strategy string) {
		recorders[node].Notice(telemetry.Notice{Kind: telemetry.PolicyApplied, VHost: "b", Name: strategy})
	}
	next, end := c.streamOf(0, "vhost=b&history=10", "")
	defer end()
	raise(1, "first")
	if e := next(); e["node"] != "curfew@n2" || e["vhost"] != "b" {
		t.Errorf("got %v", e)
	}
	c.place("b", 2)
	raise(2, "second")
	if e := next(); e["node"] != "curfew@n3" || e["vhost"] != "b" {
		t.Errorf("after the vhost has moved: got %v", e)
	}
	// A stream that begins while the vhost has no owner goes on, too.
	c.mu.Lock()
	c.owners["b"] = 0
	c.mu.Unlock()
	next, endSecond := c.streamOf(1, "vhost=b&history=10", "")
	defer endSecond()
	raise(0, "third")
	for e := next(); e["node"] != "curfew@n1"; {
		e = next()
	}
}

// eventsFor returns a stream of the events of a cluster that a user has asked for, before it begins.
func (r *rig) eventsFor(t *testing.T, user, query string) *clusterStream {
	t.Helper()
	q := &request{caller: caller{api: r.api, w: httptest.NewRecorder(), r: r.request(user, "GET", "/api/events?"+query, "")}}
	must(t, q.authenticate())
	var err error
	q.query, err = q.api.parseQuery(query)
	must(t, err)
	s, err := newClusterStream(q, &endpoint{})
	must(t, err)
	return s
}

// A stream asks the node that has a seat now, not the one that had it when the stream began.
func TestEventsOfReplacedNodes(t *testing.T) {
	c, _ := newEventfulCluster(t)
	s := c.rigs[0].eventsFor(t, guest, "")
	c.nodes[2].ID = 9
	if n := s.holder(2); n.ID != 9 || n.Name != "curfew@n3" {
		t.Errorf("got %+v", n)
	}
}

// Streams of nodes that ended are opened again while the request of their reader is renewed: with the race detector, this fails if both
// use the same.
func TestEventsAreReopenedWhileRenewed(t *testing.T) {
	c, _ := newEventfulCluster(t)
	s := c.rigs[0].eventsFor(t, guest, "")
	var readers sync.WaitGroup
	for seat := range 2 { // the node itself, and another one
		readers.Go(func() {
			if !s.opened(t, seat, func(<-chan nodeEvent) {}) {
				t.Errorf("seat %d: there is no stream", seat)
			}
		})
	}
	for range 100 {
		if !s.renew() {
			t.Fatal("guest may not read any more")
		}
	}
	readers.Wait()
}

// A user that has lost the tag monitoring gets fewer events of this node when its stream is opened again.
func TestEventsAreReopenedWithPresentRights(t *testing.T) {
	c, _ := newEventfulCluster(t)
	c.want(0, 201, "PUT", "/api/users/eve", `{"password":"x","tags":"monitoring"}`)
	s := c.rigs[0].eventsFor(t, "eve:x", "vhost=a")
	c.want(0, 204, "PUT", "/api/users/eve", `{"password":"x","tags":"management"}`)
	if s.opened(t, 0, func(<-chan nodeEvent) {}) {
		t.Error("the stream of a vhost that the user may not enter was opened")
	}
}
