package mgmt

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/curfewmq/curfew/core/vhost"
)

// partOf asks a node for its part, as another node does. Headers are names and values.
func (c *cluster) partOf(node int, path string, headers ...string) *httptest.ResponseRecorder {
	q := httptest.NewRequest(http.MethodGet, path, nil)
	q.Header.Set("Curfew-User", "guest")
	q.Header.Set("Curfew-Part", "1")
	for i := 0; i < len(headers); i += 2 {
		q.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	c.rigs[node].api.Forwarded().ServeHTTP(w, q)
	return w
}

// While a cluster is upgraded, nodes of the last release ask for parts and send them. Their requests and answers keep their form.
func TestPartsKeepTheirForm(t *testing.T) {
	c := newCluster(t)
	for _, q := range []string{"b/x", "b/y", "d/x", "d/z"} {
		c.want(0, 201, "PUT", "/api/queues/"+q, `{"durable":true}`)
	}
	for _, tc := range []struct{ name, path, header, value, total, want string }{
		{"columns", "/api/queues?columns=messages", "", "", "4 of 4", `[{"vhost":"b","messages":0},{"vhost":"b","messages":0},{"vhost":"d","messages":0},{"vhost":"d","messages":0}]`},
		{"a page", "/api/queues?columns=durable&sort=name&page=1&page_size=3&name=x", "", "", "2 of 4", `[{"name":"x","vhost":"b","durable":true},{"name":"x","vhost":"d","durable":true}]`},
		{"keys", "/api/queues?columns=durable&page=9&page_size=100", "Curfew-Keys", "1", "4 of 4", `[{"n":2,"key":null,"natural":"b"},{"n":2,"key":null,"natural":"d"}]`},
		{"keys of a sorted list", "/api/queues?sort=name&page=2&page_size=2", "Curfew-Keys", "1", "4 of 4", `[{"n":1,"key":"x","natural":"b"},{"n":1,"key":"x","natural":"d"},{"n":1,"key":"y","natural":"b"},{"n":1,"key":"z","natural":"d"}]`},
		{"a range", "/api/queues?sort=name&columns=name&page=2&page_size=2", "Curfew-Range", "2-3", "4 of 4", `[{"name":"y","vhost":"b"}]`},
		{"no range", "/api/queues?sort=name&columns=name&page=2&page_size=2", "Curfew-Range", "0-0", "4 of 4", `[]`},
		{"without a shard", "/api/queues?columns=name", "Curfew-Without-Shards", "2", "0 of 0", `[]`},
	} {
		headers := []string{tc.header, tc.value}
		if tc.header == "" {
			headers = nil
		}
		w := c.partOf(1, tc.path, headers...)
		if got := w.Header().Get("Curfew-Filtered") + " of " + w.Header().Get("Curfew-Total"); w.Body.String() != tc.want || got != tc.total {
			t.Errorf("%s: got %s, %s, want %s, %s", tc.name, w.Body, got, tc.want, tc.total)
		}
	}
	if w := c.partOf(1, "/api/queues", "Curfew-Range", "3-1"); w.Code != 400 {
		t.Errorf("a range that is none: got %d %s", w.Code, w.Body)
	}
	c.want(0, 201, "PUT", "/api/queues/a/w", "")
	c.rigs[0].api.nodes.deep = 1
	c.nodes[1].answer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) { // as a node of the last release
		w.Header().Set("Curfew-Filtered", "3")
		w.Header().Set("Curfew-Total", "4")
		w.Header().Set("Curfew-Shards", "2:1")
		switch {
		case q.Header.Get("Curfew-Keys") == "1":
			_, _ = w.Write([]byte(`[{"n":1,"key":"x","natural":"b"},{"n":2,"key":"y","natural":"d"}]`))
		case q.Header.Get("Curfew-Range") == "2-3":
			_, _ = w.Write([]byte(`[{"name":"y","vhost":"d","of":"an older node"}]`))
		}
	}))
	want := `{"filtered_count":4,"item_count":1,"items":[{"name":"y","vhost":"d"}],"page":4,"page_count":4,"page_size":1,"total_count":5}`
	if w := c.want(0, 200, "GET", "/api/queues?sort=name&columns=name,vhost&page=4&page_size=1", ""); w.Body.String() != want {
		t.Errorf("got %s, want %s", w.Body, want)
	}
}

// A node may end between the two questions for a page far from the beginning. The page says that its rows are missing.
func TestNodeEndsBeforeItsRowsOfAPage(t *testing.T) {
	c := newCluster(t)
	for _, q := range []string{"a/q", "b/q", "c/q"} {
		c.want(0, 201, "PUT", "/api/queues/"+q, "")
	}
	for _, r := range c.rigs {
		r.api.nodes.deep = 1
	}
	for name, end := range map[string]http.HandlerFunc{
		"a fault":                func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) },
		"a refusal":              func(w http.ResponseWriter, _ *http.Request) { writeFailure(w, errNotFound) },
		"a broken connection":    func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"a list that breaks off": func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`[{"name":"q","vhost":"b"}`)) },
	} {
		c.nodes[1].answer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
			if q.Header.Get(rangeHeader) != "" {
				end(w, q)
				return
			}
			c.rigs[1].api.Forwarded().ServeHTTP(w, q)
		}))
		w := c.want(0, 200, "GET", "/api/queues?page=2&page_size=1", "")
		if w.Header().Get(unreachableHeader) != "curfew@n2" || !strings.Contains(w.Body.String(), `"items":[],`) || !strings.Contains(w.Body.String(), `"unreachable_nodes":["curfew@n2"]`) {
			t.Errorf("%s: got %s, %v", name, w.Body, w.Header())
		}
	}
}

// Impossible counts of one node do not make the other nodes' counts wrong, or negative.
func TestCountsOfOtherNodes(t *testing.T) {
	c := newCluster(t)
	for _, q := range []string{"a/q", "c/q"} {
		c.want(0, 201, "PUT", "/api/queues/"+q, "")
	}
	for count, want := range map[string]string{"-5": `"page_count":1,"page_size":2,"total_count":2}`, "99999999999999999999": `"page_size":2,"total_count":2147483649}`} {
		c.nodes[1].answer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set(filteredHeader, count)
			w.Header().Set(totalHeader, count)
			w.Header().Set(shardsHeader, "2")
			_, _ = w.Write([]byte(`[]`))
		}))
		if w := c.want(0, 200, "GET", "/api/queues?page=1&page_size=2", ""); !strings.HasSuffix(w.Body.String(), want) {
			t.Errorf("%s: got %s, want %s", count, w.Body, want)
		}
	}
}

// A row may be as long as a part, and no longer: it is in memory as a whole. The rest of its list is not read.
func TestRowsAreLimited(t *testing.T) {
	c := newCluster(t)
	c.rigs[0].api.nodes.parts.longest = 4 * maxHeld
	for size, status := range map[int]int{2: 200, 16: 503} {
		c.nodes[1].answer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set(shardsHeader, "2")
			_, _ = fmt.Fprintf(w, `[{"name":"q","vhost":"b"},{"name":"%s","vhost":"b"}]`, strings.Repeat("x", size*maxHeld))
		}))
		w := c.want(0, status, "GET", "/api/queues?page=1", "")
		if status == 503 && !strings.Contains(w.Body.String(), "its part of the list broke off") {
			t.Errorf("got %.300s", w.Body)
		}
	}
}

// Of a vhost that two nodes take for theirs, a page far from the beginning has the queues of one, and counts no others.
func TestPagesWithoutClaims(t *testing.T) {
	c := newCluster(t)
	c.want(0, 201, "PUT", "/api/queues/a/a", "")
	c.want(2, 201, "PUT", "/api/queues/c/new", "")
	_, err := c.rigs[1].api.Store.AddVHost("c", vhost.Metadata{})
	must(t, err)
	former, _ := c.rigs[1].api.Store.VHost("c")
	_, err = former.DeclareQueue(vhost.QueueDeclare{Name: "former", Durable: true})
	must(t, err)
	c.rigs[1].api.nodes.placements = deluded{c.nodes[1], "c", 2}
	for node, term := range []uint64{5, 5, 6} {
		c.rigs[node].api.nodes.replicas = inTerm{shard: 3, term: term}
		c.rigs[node].api.nodes.deep = 1
	}
	for node := range c.rigs {
		for _, query := range []string{"page=2&page_size=1&sort=name", "page=2&page_size=1"} {
			w := c.want(node, 200, "GET", "/api/queues?columns=name&"+query, "")
			if want := `"filtered_count":2,"item_count":1,"items":[{"name":"new"}],"page":2,"page_count":2,"page_size":1,"total_count":2}`; !strings.HasSuffix(w.Body.String(), want) {
				t.Errorf("node %d, %s: got %s", node+1, query, w.Body)
			}
		}
	}
}

// This node's own definitions are written one by one: an export of long ones waits for no other request. They were in memory as a whole.
func TestOwnDefinitionsAreNotHeld(t *testing.T) {
	c := newCluster(t)
	parts := c.rigs[0].api.nodes.parts
	var long []string
	for i := range 40 {
		long = append(long, fmt.Sprintf(`{"name":"long-%d","value":"%s"}`, i, strings.Repeat("x", 65_000)))
	}
	if w := c.at(0, guest, "POST", "/api/definitions", `{"global_parameters":[`+strings.Join(long, ",")+`]}`); w.Code != 204 {
		t.Fatalf("got %d %s", w.Code, w.Body)
	}
	parts.wait = 10 * time.Millisecond
	parts.whole <- struct{}{} // another request has long ones in memory
	if w := c.at(0, guest, "GET", "/api/definitions", ""); w.Code != 200 || w.Body.Len() < 2*maxHeld {
		t.Errorf("got %d %.300s", w.Code, w.Body)
	}
}

// A node whose definitions cannot be read to the end gives none of them. Its vhosts were exported without their queues.
func TestBrokenDefinitions(t *testing.T) {
	c := newCluster(t)
	for _, part := range []string{`{"vhosts":[{"name":"b"},{"name":"d"}],"queues":[1]}`, `{"vhosts":[{"name":"b"},{"name":"d"}],"queues":{}}`, `[]`, `{`} {
		c.nodes[1].answer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(part)) }))
		w := c.want(0, 503, "GET", "/api/definitions", "")
		if want := "no answer from curfew@n2; without that the definitions would lack vhost 'b'"; !strings.Contains(w.Body.String(), want) {
			t.Errorf("%s: got %s", part, w.Body)
		}
	}
}

// Where dead letters go may be anything, as another node says. A list in the place of a name was a panic.
func TestFlowToNoName(t *testing.T) {
	c := newCluster(t)
	c.nodes[1].answer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"complete":true,"nodes":[{"vhost":[1],"queue":{"a":[]}}],"edges":[{"vhost":"b","from":{},"to":[1]},{"vhost":{},"from":"q"}],"cycles":[],"left_out":{"edges":"x"}}`))
	}))
	c.want(0, 200, "GET", "/api/dead-letters/flow?limit=1", "")
}
