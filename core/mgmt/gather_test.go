package mgmt

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/curfewmq/curfew/core/vhost"
	"github.com/curfewmq/curfew/core/wlog"
)

// longPart is a list of so many queues in vhost b, of a kilobyte each, which is sent as a part. Of a list that breaks off the end is missing.
func longPart(items int, whole bool) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set(filteredHeader, strconv.Itoa(items))
		w.Header().Set(totalHeader, strconv.Itoa(items))
		w.Header().Set(shardsHeader, "2")
		for i := range items {
			_, _ = fmt.Fprintf(w, `%s{"name":"q%06d","vhost":"b","arguments":{"a":"%s"}}`, map[bool]string{true: "[", false: ","}[i == 0], i, strings.Repeat("x", 1000))
		}
		if !whole {
			panic(http.ErrAbortHandler)
		}
		_, _ = w.Write([]byte("]"))
	}
}

// askOver asks a node over HTTP, and returns how many items the list has, and the error with which it broke off.
func (c *cluster) askOver(node int, path string) (items int, header http.Header, err error) {
	c.t.Helper()
	server := httptest.NewServer(c.rigs[node].api)
	defer server.Close()
	q, err := http.NewRequestWithContext(c.t.Context(), http.MethodGet, server.URL+path, nil)
	must(c.t, err)
	q.SetBasicAuth("guest", "guest")
	answer, err := server.Client().Do(q)
	must(c.t, err)
	defer func() { _ = answer.Body.Close() }()
	b, err := io.ReadAll(answer.Body)
	if err != nil {
		return 0, answer.Header, err
	}
	var all []json.RawMessage
	err = json.Unmarshal(b, &all)
	return len(all), answer.Header, err
}

// A list that is longer than the kept beginning of a part goes on to its reader while it is read. If it breaks off, the reader does not
// take it for complete.
func TestLongParts(t *testing.T) {
	c := newCluster(t)
	c.want(0, 201, "PUT", "/api/queues/a/q", "")
	const items = 5000
	c.nodes[1].answer(longPart(items, true))
	n, header, err := c.askOver(0, "/api/queues")
	if must(t, err); header.Get(unreachableHeader) != "" || n != items+1 {
		t.Errorf("got %d items, %v", n, header)
	}
	w := c.want(0, 200, "GET", "/api/queues?columns=name", "")
	var all []struct{ Name string }
	must(t, json.Unmarshal(w.Body.Bytes(), &all))
	if len(all) != items+1 || all[items].Name != fmt.Sprintf("q%06d", items-1) {
		t.Errorf("got %d items", len(all))
	}
	if w := c.want(0, 200, "GET", "/api/queues?page=2&page_size=100&columns=name", ""); !strings.Contains(w.Body.String(), `"total_count":5001`) || !strings.Contains(w.Body.String(), "q000099") {
		t.Errorf("got %.300s", w.Body)
	}
	c.nodes[1].answer(longPart(items, false))
	if _, _, err := c.askOver(0, "/api/queues"); err == nil {
		t.Error("a list that broke off was taken for complete")
	}
	c.nodes[1].answer(longPart(10, false)) // this is known before the answer begins
	if w := c.want(0, 200, "GET", "/api/queues", ""); w.Header().Get(unreachableHeader) != "curfew@n2" || w.Header().Get(missingHeader) != "b, d" {
		t.Errorf("got %v", w.Header())
	}
	if n := len(c.rigs[0].api.nodes.parts.gathers); n != 0 {
		t.Errorf("%d requests hold memory after all have ended", n)
	}
}

// Requests that all nodes answer wait for one another when there are too many, or when they need much memory, and are refused in the end.
func TestGathersAreLimited(t *testing.T) {
	c := newCluster(t)
	parts := c.rigs[0].api.nodes.parts
	parts.wait = 10 * time.Millisecond
	for range maxGathers {
		parts.gathers <- struct{}{}
	}
	w := c.want(0, 503, "GET", "/api/queues", "")
	if !strings.Contains(w.Body.String(), `"error":"busy"`) || w.Header().Get("Retry-After") != "1" {
		t.Errorf("got %s", w.Body)
	}
	c.want(0, 200, "GET", "/api/queues/b", "") // which one node answers
	for range maxGathers {
		<-parts.gathers
	}
	c.nodes[1].answer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprintf(w, `{"vhosts":[{"name":"b"},{"name":"d"}],"queues":[{"name":"%s","vhost":"b"}]}`, strings.Repeat("x", 2*maxHeld))
	}))
	parts.whole <- struct{}{} // another request has long ones in memory
	if w := c.want(0, 503, "GET", "/api/definitions", ""); !strings.Contains(w.Body.String(), `"error":"busy"`) || w.Header().Get("Retry-After") != "1" {
		t.Errorf("got %s, %v", w.Body, w.Header())
	}
	<-parts.whole
	if w := c.want(0, 200, "GET", "/api/definitions", ""); w.Body.Len() < 2*maxHeld {
		t.Errorf("got %.300s", w.Body)
	}
	if len(parts.whole)+len(parts.gathers) != 0 {
		t.Error("memory is held after all requests have ended")
	}
}

// One user's requests, which may take as long as their readers like, leave places for other users.
func TestGathersOfOneUserAreLimited(t *testing.T) {
	c := newCluster(t)
	c.want(0, 201, "PUT", "/api/users/eve", `{"password":"x","tags":"monitoring"}`)
	parts := c.rigs[0].api.nodes.parts
	parts.wait = 10 * time.Millisecond
	var slow []*holding
	for range maxGathers {
		h := &holding{of: parts, user: "eve"}
		if h.begin(t.Context()) != nil {
			h.end()
			break
		}
		slow = append(slow, h)
	}
	if w := c.at(0, "eve:x", "GET", "/api/queues", ""); w.Code != 503 || w.Header().Get("Retry-After") != "1" {
		t.Errorf("eve, who has %d requests: got %d %s", len(slow), w.Code, w.Body)
	}
	c.want(0, 200, "GET", "/api/queues", "")
	for _, h := range slow {
		h.end()
	}
	if w := c.at(0, "eve:x", "GET", "/api/queues", ""); w.Code != 200 {
		t.Errorf("eve, who has none any more: got %d %s", w.Code, w.Body)
	}
	if len(parts.gathers)+len(parts.of) != 0 {
		t.Error("memory is held after all requests have ended")
	}
}

// For a page far from the beginning no node sends more items than are on the page.
func TestDeepPagesCostAPage(t *testing.T) {
	c := newCluster(t)
	for i := range 60 {
		for _, in := range []string{"a", "b", "c"} {
			c.want(clusterVHosts[in], 201, "PUT", fmt.Sprintf("/api/queues/%s/q%02d", in, i), "")
		}
	}
	for _, r := range c.rigs {
		r.api.nodes.deep = 20
	}
	var mu sync.Mutex
	sent := map[string]int{}
	for i := range c.nodes {
		c.nodes[i].answer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
			own := httptest.NewRecorder()
			c.rigs[i].api.Forwarded().ServeHTTP(own, q)
			mu.Lock()
			sent[q.Header.Get(rangeHeader)] += strings.Count(own.Body.String(), `"name":`)
			mu.Unlock()
			copyAll(w, own)
		}))
	}
	for _, tc := range []struct{ query, want string }{
		{"", `{"name":"q00","vhost":"b"},{"name":"q01","vhost":"b"}`},
		{"&sort=name", `{"name":"q20","vhost":"a"},{"name":"q20","vhost":"b"}`},
		{"&sort=name&sort_reverse=true", `{"name":"q39","vhost":"c"},{"name":"q39","vhost":"b"}`},
	} {
		clear(sent)
		w := c.want(0, 200, "GET", "/api/queues?page=7&page_size=10&columns=name,vhost"+tc.query, "")
		if !strings.Contains(w.Body.String(), `"items":[`+tc.want) {
			t.Errorf("%s: got %.400s", tc.query, w.Body)
		}
		if sent[""] != 0 || sent["0-10"] > 10 || len(sent) > 4 {
			t.Errorf("%s: other nodes have sent so many items, by range: %v", tc.query, sent)
		}
	}
	c.want(0, 400, "GET", "/api/queues?page=1900&page_size=10", "")
}

// copyAll answers with a recorder's answer.
func copyAll(w http.ResponseWriter, from *httptest.ResponseRecorder) {
	maps.Copy(w.Header(), from.Header())
	w.WriteHeader(from.Code)
	_, _ = w.Write(from.Body.Bytes())
}

// Lists name the vhosts that they lack, to users that may see into them.
func TestListsSayWhatTheyLack(t *testing.T) {
	c := newCluster(t)
	lacks := func(node int, path, header, member string) {
		t.Helper()
		w := c.want(node, 200, "GET", path, "")
		if got := w.Header().Get(missingHeader); got != header {
			t.Errorf("%s: header %q, want %q", path, got, header)
		}
		if has := strings.Contains(w.Body.String(), `"missing_vhosts"`); has != (member != "") || !strings.Contains(w.Body.String(), member) {
			t.Errorf("%s: got %.400s", path, w.Body)
		}
	}
	for _, path := range []string{"/api/queues", "/api/exchanges", "/api/overview", "/api/deadlines", "/api/queues?page=1"} {
		lacks(0, path, "", "")
	}
	c.mu.Lock()
	c.owners["b"] = 0
	c.mu.Unlock()
	_, err := c.rigs[1].api.Store.DeleteVHost("b")
	must(t, err)
	lacks(0, "/api/queues", "b", "")
	if w := c.want(2, 200, "GET", "/api/live?view=queues", ""); !strings.Contains(w.Body.String(), `"missing_vhosts":["b"]`) {
		t.Errorf("live: got %s", w.Body)
	}
	lacks(2, "/api/queues?page=1&columns=name", "b", `"missing_vhosts":["b"]`)
	lacks(1, "/api/overview", "b", `"missing_vhosts":["b"]`)
	c.mu.Lock()
	c.owners["b"] = 2 // it has an owner, which has not read its log yet
	c.mu.Unlock()
	lacks(0, "/api/queues?page=1", "b", `"missing_vhosts":["b"]`)
	c.nodes[2].down = true
	lacks(0, "/api/queues?page=1", "b, c", `"unreachable_nodes":["curfew@n3"],"missing_vhosts":["b","c"]`)
	must(t, func() error {
		hash, err := c.rigs[0].api.users().Hash("x")
		must(t, err)
		_, err = c.rigs[0].api.users().Set(definitionsUser("x", []string{"management"}, hash))
		return err
	}())
	if w := c.at(0, "x:x", "GET", "/api/queues", ""); w.Code != 200 || w.Header().Get(missingHeader) != "" {
		t.Errorf("a user without permissions: got %d, header %q", w.Code, w.Header().Get(missingHeader))
	}
}

// deluded are the placements of a node that takes itself for the owner of a vhost which another one has taken over.
type deluded struct {
	Placements
	vhost string
	self  wlog.NodeID
}

// OwnerOf implements [Placements].
func (d deluded) OwnerOf(vhost string) (wlog.NodeID, bool) {
	if vhost == d.vhost {
		return d.self, true
	}
	return d.Placements.OwnerOf(vhost)
}

// ShardOf implements [Placements].
func (d deluded) ShardOf(vhost string) (uint32, bool) {
	if vhost == d.vhost {
		return 3, true
	}
	return d.Placements.ShardOf(vhost)
}

// A vhost that two nodes take for theirs is listed once.
func TestMovingVHostIsListedOnce(t *testing.T) {
	c := newCluster(t)
	c.want(2, 201, "PUT", "/api/queues/c/new", "")
	_, err := c.rigs[1].api.Store.AddVHost("c", vhost.Metadata{})
	must(t, err)
	c.rigs[1].api.nodes.placements = deluded{c.nodes[1], "c", 2}
	must(t, func() error {
		v, _ := c.rigs[1].api.Store.VHost("c")
		_, err := v.DeclareQueue(vhost.QueueDeclare{Name: "old", Durable: true})
		return err
	}())
	if got := c.want(0, 200, "GET", "/api/queues?columns=name,vhost", "").Body.String(); got != `[{"name":"new","vhost":"c"}]` {
		t.Errorf("got %s", got)
	}
	if got := c.want(0, 200, "GET", "/api/vhosts?columns=name", "").Body.String(); strings.Count(got, `"c"`) != 1 {
		t.Errorf("got %s", got)
	}
	if got := c.want(0, 200, "GET", "/api/definitions", "").Body.String(); strings.Contains(got, `"old"`) || strings.Count(got, `{"name":"c"`) != 1 {
		t.Errorf("got %s", got)
	}
}
