package mgmt

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"reflect"
	"strings"
	"testing"
)

// pageState is the part of a state that is the same in a cluster and in a broker that has all vhosts.
type pageState struct {
	Order         []string
	Rows          map[string]map[string]any
	FilteredCount int `json:"filtered_count"`
	TotalCount    int `json:"total_count"`
	PageCount     int `json:"page_count"`
	Page          int
	Queues, Total int
	Totals        map[string]any
	Never, Held   int
	Keys          []any
	Unreachable   []string `json:"unreachable_nodes"`
}

// pageStateOf asks for a state, and leaves out members that depend on the instant.
func pageStateOf(t *testing.T, w *httptest.ResponseRecorder) (s pageState) {
	t.Helper()
	if w.Code != 200 {
		t.Fatalf("got %d %s", w.Code, w.Body)
	}
	must(t, json.Unmarshal(w.Body.Bytes(), &s))
	for _, row := range s.Rows {
		for _, name := range []string{"next_deadline", "oldest", "node", "in", "out", "message_stats", "oldest_message_age"} {
			delete(row, name)
		}
	}
	delete(s.Totals, "oldest")
	return s
}

// A page of queues is the same as in a broker that has all vhosts, with any sort key.
func TestMergedLiveViews(t *testing.T) {
	c := newComparison(t, 5, unhurried)
	for vhost, i := range map[string]int{"/": 1, "b": 2, "c": 3, "d": 4} {
		path, body := "/api/exchanges/"+url.PathEscape(vhost)+"/amq.default/publish", ""
		q := "/api/queues/" + url.PathEscape(vhost) + "/timed"
		body = fmt.Sprintf(`{"properties":{"expiration":"%d00000"},"routing_key":"timed","payload":"p","payload_encoding":"string"}`, i)
		c.want(i%3, 201, "PUT", q, "")
		c.single.do(201, "PUT", q, "")
		c.want(i%3, 200, "POST", path, body)
		c.single.do(200, "POST", path, body)
	}
	for i, query := range []string{
		"view=now", "view=top", "view=top&sort=messages&page_size=7", "view=top&sort=messages&page=2&page_size=7", "view=top&sort=due&page_size=3", "view=top&sort=bytes&page=9&page_size=50",
		"view=queues", "view=queues&page_size=5&page=3", "view=queues&sort=name&page_size=6", "view=queues&sort=name&sort_reverse=true&page_size=6&page=2", "view=queues&sort=messages&sort_reverse=true&page_size=4",
		"view=queues&sort_reverse=true&page_size=4", "view=queues&name=Orders&sort=vhost", "view=queues&sort=next_deadline&page_size=6", "view=queues&sort=next_deadline&sort_reverse=true&page_size=6&columns=messages",
		"view=deadlines", "view=deadlines&sort=queue&page_size=2", "view=deadlines&sort=next_deadline&sort_reverse=true&page_size=2&page=2", "view=deadlines&queue=timed", "view=deadlines&vhost=b", "view=queue&vhost=c&queue=timed",
	} {
		want := pageStateOf(t, c.single.serve(c.single.request(guest, "GET", "/api/live?"+query, "")))
		if got := pageStateOf(t, c.at(i%3, guest, "GET", "/api/live?"+query, "")); !reflect.DeepEqual(got, want) {
			t.Errorf("%s at node %d: got\n%v\nwant\n%v", query, i%3, got, want)
		}
	}
	c.want(0, 404, "GET", "/api/live?view=queue&vhost=none&queue=q", "")
	c.want(0, 404, "GET", "/api/live?view=queue&vhost=b&queue=none", "")
	c.want(0, 400, "GET", "/api/live?view=top&sort=none", "")
	c.want(0, 400, "GET", "/api/live?view=top&%00part=1", "")
	c.nodes[1].down = true
	if got := pageStateOf(t, c.at(0, guest, "GET", "/api/live?view=top&sort=lag", "")); !reflect.DeepEqual(got.Unreachable, []string{"curfew@n2"}) {
		t.Errorf("the state is marked with %v", got.Unreachable)
	}
}

// A stream of the owner's comes through the node that is asked, and ends there when the login does.
func TestForwardedStream(t *testing.T) {
	c := newCluster(t)
	server := httptest.NewServer(c.rigs[0].api)
	defer server.Close()
	q, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+"/api/live?view=queue&vhost=b&queue=q", nil)
	must(t, err)
	c.want(0, 201, "PUT", "/api/queues/b/q", "")
	q.SetBasicAuth("guest", "guest")
	q.Header.Set("Accept", "text/event-stream")
	answer, err := server.Client().Do(q) //nolint:bodyclose // it is closed below
	must(t, err)
	defer func() { must(t, answer.Body.Close()) }()
	lines := bufio.NewScanner(answer.Body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
			if !strings.Contains(data, `"name":"q"`) {
				t.Errorf("got %s", data)
			}
			break
		}
	}
	password, err := c.rigs[0].api.users().Hash("other")
	must(t, err)
	_, err = c.rigs[0].api.users().Set(definitionsUser("guest", []string{"administrator"}, password))
	must(t, err)
	for range 5 { // a state without changes would not show that the login has ended
		c.want(1, 200, "POST", "/api/exchanges/b/amq.default/publish", `{"properties":{},"routing_key":"q","payload":"p","payload_encoding":"string"}`)
		for lines.Scan() {
			if strings.HasPrefix(lines.Text(), "data: ") {
				break
			}
		}
	}
	if lines.Scan() {
		t.Errorf("the stream goes on: %s", lines.Text())
	}
}
