package mgmt

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/curfewmq/curfew/core/mgmt/definitions"
	"github.com/curfewmq/curfew/core/replicas"
	"github.com/curfewmq/curfew/core/wlog"
)

// A body that is too large is refused as such wherever the vhost lives: by the owner, or before.
func TestForwardedBodyThatIsTooLarge(t *testing.T) {
	c := newCluster(t)
	for _, tc := range []struct {
		path string
		size int
	}{
		{"PUT /api/queues/b/q", maxSmallBody + 1},
		{"PUT /api/queues/b/q", 64 << 20},
		{"POST /api/exchanges/b/amq.default/publish", 64 << 20},
		{"POST /api/definitions/b", 64 << 20},
	} {
		method, path, _ := strings.Cut(tc.path, " ")
		for range 5 {
			q := c.rigs[0].request(guest, method, path, "")
			q.Body, q.ContentLength = io.NopCloser(io.LimitReader(spaces{}, int64(tc.size))), int64(tc.size)
			if w := c.rigs[0].serve(q); w.Code != 413 {
				t.Fatalf("%s with %d bytes: got %d %s, want 413", tc.path, tc.size, w.Code, w.Body)
			}
		}
	}
}

// spaces has no end.
type spaces struct{}

func (spaces) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = ' '
	}
	return len(b), nil
}

// Requests that several nodes answer do not need a body. One that has one got no answer of the others: they were told of a length that did
// not come.
func TestUselessBodies(t *testing.T) {
	c := newCluster(t)
	for _, path := range []string{"GET /api/queues", "GET /api/nodes", "DELETE /api/connections/username/guest", "DELETE /api/redrives/none", "GET /api/definitions"} {
		method, path, _ := strings.Cut(path, " ")
		bare := c.at(0, guest, method, path, "")
		for _, size := range []int{10, maxSmallBody + 10} {
			q := c.rigs[0].request(guest, method, path, strings.Repeat(" ", size))
			if w := c.rigs[0].serve(q); w.Code != bare.Code || w.Header().Get(unreachableHeader) != "" {
				t.Errorf("%s %s with a body of %d bytes: got %d, %q unreachable; without %d", method, path, size, w.Code, w.Header().Get(unreachableHeader), bare.Code)
			}
		}
	}
}

// A node that stops in the middle of an answer does not hold up its reader for ever.
func TestNodeThatHangsInTheMiddle(t *testing.T) {
	c := newCluster(t)
	c.rigs[0].api.nodes.silence = 50 * time.Millisecond
	for _, accept := range []string{"application/json", "text/event-stream"} {
		hung := make(chan struct{})
		c.nodes[1].answer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
			w.Header().Set("Content-Type", accept)
			_, _ = io.WriteString(w, "[{")
			_ = http.NewResponseController(w).Flush()
			<-q.Context().Done()
			close(hung)
		}))
		path := "/api/queues/b"
		if accept != "application/json" {
			path = "/api/live?view=queues&vhost=b"
		}
		server := httptest.NewServer(c.rigs[0].api)
		q, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+path, nil)
		must(t, err)
		q.SetBasicAuth("guest", "guest")
		q.Header.Set("Accept", accept)
		if answer, err := server.Client().Do(q); err == nil { // otherwise it has broken off before any of it was sent
			if b, err := io.ReadAll(answer.Body); err == nil {
				t.Errorf("%s: got %q: want an answer that breaks off", path, b)
			}
			must(t, answer.Body.Close())
		}
		<-hung // the request to the node has ended, too
		server.Close()
	}
}

// slowNode is a node that reads the body of a request, and answers after a time.
type slowNode struct {
	Peers
	takes time.Duration
}

// Do implements [Peers].
func (p slowNode) Do(ctx context.Context, _ wlog.NodeID, r *http.Request) (*http.Response, error) {
	if _, err := io.Copy(io.Discard, r.Body); err != nil {
		return nil, err
	}
	select {
	case <-time.After(p.takes):
		return &http.Response{StatusCode: http.StatusNoContent, Body: http.NoBody}, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// A client that sends its body slowly is given the time that it has at the owner. The owner was blamed, which waited for the rest.
func TestSlowBodyIsNotTheOwnersFault(t *testing.T) {
	for _, tc := range []struct {
		name  string
		takes time.Duration
		want  string
	}{
		{"the client is slow", 0, ""},
		{"both are", forwardTime - time.Second, ""},
		{"the owner is slower", forwardTime + time.Second, "no answer from curfew@n2 within " + forwardTime.String()},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				from, to := io.Pipe()
				go func() {
					for range 3 {
						time.Sleep(forwardTime * 2 / 3)
						_, _ = io.WriteString(to, " ")
					}
					_ = to.Close()
				}()
				c := &request{caller: caller{
					api: &API{nodes: &nodes{peers: slowNode{takes: tc.takes}, patience: forwardTime, silence: nodeSilence}},
					w:   httptest.NewRecorder(), r: httptest.NewRequestWithContext(t.Context(), "PUT", "/api/queues/b/q", from),
				}}
				answer, err := c.api.nodes.send(c, replicas.Node{Name: "curfew@n2"}, &endpoint{})
				if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
					t.Errorf("got %v, want %q", err, tc.want)
				}
				if err == nil {
					must(t, answer.Body.Close())
				}
			})
		})
	}
}

// If its client leaves, an import into a cluster either changes nothing or, once it has begun to, goes on, as an import into a single
// broker does. It ended in the middle, and the policies that it had loaded stayed.
func TestImportWhoseClientLeaves(t *testing.T) {
	for _, tc := range []struct {
		step   definitions.Step
		status int
	}{{definitions.CheckVHosts, 404}, {definitions.ApplyVHosts, 200}} {
		own := &carrier{}
		c := newCluster(t, func(o *Options) { o.Modules = &slowCarrier{carrier: own, after: described("code", "")} })
		ctx, leave := context.WithCancel(t.Context())
		c.nodes[1].answer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
			if q.Header.Get(stepHeader) == string(tc.step) {
				leave()
			}
			c.rigs[1].api.Forwarded().ServeHTTP(w, q)
		}))
		file := withPolicies(moduleOf("x", "code", ""), `"users":[{"name":"new","password":"p","tags":""}]`,
			`"queues":[{"name":"q","vhost":"b","durable":true},{"name":"q","vhost":"c","durable":true}]`)
		c.rigs[0].serve(c.rigs[0].request(guest, "POST", "/api/definitions", file).WithContext(ctx))
		for _, path := range []string{"/api/users/new", "/api/queues/b/q", "/api/queues/c/q"} {
			c.want(0, tc.status, "GET", path, "")
		}
		if loaded := len(own.all) > 0; loaded != (tc.status == 200) {
			t.Errorf("the client leaves at %s: called %q", tc.step, own.calls)
		}
	}
}

// Two nodes that each take the other for the owner do not pass a request to and fro: one asks the other, and repeats that only after a pause.
func TestNodesThatTakeOneAnotherForTheOwner(t *testing.T) {
	c := newCluster(t)
	must(t, func() error { _, err := c.rigs[1].api.Store.DeleteVHost("b"); return err }())
	c.rigs[1].api.nodes.placements = deluded{c.nodes[1], "b", 1}
	asked := 0
	for i := range 2 {
		c.rigs[i].api.EndStreams() // so that no request is repeated
		c.nodes[i].answer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
			asked++
			c.rigs[i].api.Forwarded().ServeHTTP(w, q)
		}))
	}
	for _, path := range []string{"GET /api/queues/b/q", "PUT /api/queues/b/q", "GET /api/vhosts/b", "GET /api/live?view=queues&vhost=b", "GET /api/dead-letters/flow?vhost=b", "POST /api/definitions/b"} {
		method, path, _ := strings.Cut(path, " ")
		for node := range 2 {
			asked = 0
			w := c.at(node, guest, method, path, "{}")
			told := strings.Contains(w.Body.String(), "vhost 'b' has no owner now") || strings.Contains(w.Body.String(), errElsewhere.reason.(string))
			if w.Code != 503 || asked > 1 || !told {
				t.Errorf("%s at node %d: got %d %s, after %d requests to others", path, node, w.Code, w.Body, asked)
			}
		}
	}
}

// A node that ends does not wait until another one says something on a stream that it passes on.
func TestForwardedStreamsEndWithTheirNode(t *testing.T) {
	c := newCluster(t)
	c.nodes[1].answer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "data: {}\n\n")
		_ = http.NewResponseController(w).Flush()
		<-q.Context().Done()
	}))
	server := httptest.NewServer(c.rigs[0].api)
	defer server.Close()
	q, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+"/api/live?view=queues&vhost=b", nil)
	must(t, err)
	q.SetBasicAuth("guest", "guest")
	q.Header.Set("Accept", "text/event-stream")
	answer, err := server.Client().Do(q)
	must(t, err)
	c.rigs[0].api.EndStreams()
	if b, err := io.ReadAll(answer.Body); err != nil || string(b) != "data: {}\n\n" {
		t.Errorf("got %q, %v", b, err)
	}
	must(t, answer.Body.Close())
}
