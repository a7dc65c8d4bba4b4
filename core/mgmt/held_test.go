package mgmt

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/curfewmq/curfew/core/chain"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/sdk/hook"
)

// hours is a plugin that holds messages for as many hours as their priority says.
type hours struct{ hook.NoHooks }

func (hours) Attach(hook.Queue) hook.Hooks {
	return hook.Hooks{OnEnqueue: func(now hook.Instant, ms []hook.Message, vs []hook.Verdict) {
		for i := range ms {
			if n := int64(ms[i].Priority); n > 0 {
				vs[i].Hold = now.AddMillis(n * 3_600_000)
			}
		}
	}}
}

// newHoldingRig is a broker with the durable queue q, where messages are held for as many hours as their priority says.
func newHoldingRig(t *testing.T) *rig {
	t.Helper()
	r := newRigWith(t, []chain.Named{{Name: "hours", Plugin: hours{}}})
	r.do(201, "PUT", "/api/queues/%2F/q", `{"durable":true}`)
	return r
}

// hold publishes a message.
func (r *rig) hold(id string, hours int, key string) {
	r.t.Helper()
	r.do(200, "POST", "/api/exchanges/%2F/amq.default/publish", fmt.Sprintf(
		`{"properties":{"message_id":%q,"priority":%d,"delivery_mode":2},"routing_key":%q,"payload":"body of %s","payload_encoding":"string"}`,
		id, hours, key, id))
}

// heldList is an answer with a list.
type heldList struct {
	Items []struct {
		ID        string `json:"id"`
		MessageID string `json:"message_id"`
		DeliverAt int64  `json:"deliver_at"`
	} `json:"items"`
	Count    int     `json:"item_count"`
	Total    int     `json:"total_count"`
	Next     *string `json:"next"`
	Complete bool    `json:"complete"`
}

func (l heldList) messages() string {
	var all []string
	for _, it := range l.Items {
		all = append(all, it.MessageID)
	}
	return strings.Join(all, " ")
}

const heldPath = "/api/queues/%2F/q/held"

func (r *rig) held(query string) (l heldList) {
	r.t.Helper()
	must(r.t, json.Unmarshal([]byte(r.do(200, "GET", heldPath+query, "")), &l))
	if l.Count != len(l.Items) {
		r.t.Errorf("item_count %d, %d items", l.Count, len(l.Items))
	}
	return l
}

func TestHeldMessagesAreListed(t *testing.T) {
	r := newHoldingRig(t)
	if l := r.held(""); len(l.Items) != 0 || l.Total != 0 || l.Next != nil || !l.Complete {
		t.Errorf("nothing is held: %+v", l)
	}
	for i, hours := range []int{5, 1, 9, 0, 3} {
		r.hold(fmt.Sprintf("m%d", i), hours, "q")
	}
	if got := r.held("?order=due"); got.messages() != "m1 m4 m0 m2" || got.Total != 4 || got.Next != nil {
		t.Errorf("got %+v", got)
	}
	if got := r.held("?message_id=m0"); got.messages() != "m0" {
		t.Errorf("by message_id: got %+v", got)
	}
	if got := r.held("?message_id="); got.messages() != "" || !got.Complete {
		t.Errorf("by empty message_id: got %+v", got)
	}
	first := r.held("?count=1").Items[0]
	var queue struct {
		Messages, Ready, Held int
		NextRelease           int64 `json:"next_release"`
	}
	must(t, json.Unmarshal([]byte(strings.NewReplacer("messages_ready\"", "ready\"", "messages_held\"", "held\"").Replace(
		r.do(200, "GET", "/api/queues/%2F/q?columns=messages,messages_ready,messages_held,next_release", ""))), &queue))
	if queue.Messages != 5 || queue.Ready != 1 || queue.Held != 4 || queue.NextRelease != first.DeliverAt {
		t.Errorf("got %+v, want the next release at %d", queue, first.DeliverAt)
	}
	one := r.do(200, "GET", heldPath+"/"+first.ID, "")
	for _, want := range []string{
		`"id":"` + first.ID + `"`, `"message_id":"m1"`, `"exchange":""`, `"routing_key":"q"`, `"deadline":null`, `"redelivered":false`, `"returns":0`,
		`"payload_bytes":10`, `"properties":{"message_id":"m1","priority":1,"delivery_mode":2}`, `"payload":"body of m1","payload_encoding":"string"`,
	} {
		if !strings.Contains(one, want) {
			t.Errorf("got %s, want %s", one, want)
		}
	}
	if got := r.do(200, "GET", heldPath+"/"+first.ID+"?truncate=4&columns=payload,payload_bytes", ""); got != `{"payload_bytes":10,"payload":"body"}` {
		t.Errorf("truncated: got %s", got)
	}
}

// Pages follow one another, also when messages on them are released or cancelled.
func TestPagesOfHeldMessages(t *testing.T) {
	r := newHoldingRig(t)
	for i := range 30 {
		r.hold(fmt.Sprintf("m%02d", i), 1+i%3, "q")
	}
	want, got, after := r.held("").messages(), []string(nil), ""
	for range 20 {
		l := r.held("?count=7&after=" + after)
		got = append(got, l.messages())
		for i, it := range l.Items {
			switch i % 3 {
			case 0:
				r.do(204, "DELETE", heldPath+"/"+it.ID, "")
			case 1:
				r.do(204, "POST", heldPath+"/"+it.ID+"/release", "")
			}
		}
		if l.Next == nil {
			break
		}
		after = *l.Next
	}
	if all := strings.Join(got, " "); all != want || len(got) != 5 {
		t.Errorf("%d pages\n%s\nwant\n%s", len(got), all, want)
	}
	if l := r.held(""); l.Total != 8 {
		t.Errorf("%d are left, want 8", l.Total)
	}
}

func TestHeldMessagesAreMovedReleasedAndCancelled(t *testing.T) {
	r := newHoldingRig(t)
	for i, hours := range []int{1, 2, 3, 4} {
		r.hold(fmt.Sprintf("m%d", i), hours, "q")
	}
	items := r.held("").Items
	at := items[3].DeliverAt + 1000
	r.do(204, "PATCH", heldPath+"/"+items[0].ID, fmt.Sprintf(`{"deliver_at":%d}`, at))
	if l := r.held(""); l.messages() != "m1 m2 m3 m0" || l.Items[3].DeliverAt != at || l.Items[3].ID != items[0].ID {
		t.Errorf("moved: %+v, want %d", l, at)
	}
	r.do(204, "DELETE", heldPath+"/"+items[1].ID, "")
	r.do(204, "POST", heldPath+"/"+items[2].ID+"/release", "")
	r.do(204, "PATCH", heldPath+"/"+items[3].ID, `{"deliver_at":0}`)
	for _, gone := range []string{items[1].ID, items[2].ID, items[3].ID, "77777", "18446744073709551615"} {
		r.do(404, "GET", heldPath+"/"+gone, "")
		r.do(404, "DELETE", heldPath+"/"+gone, "")
		r.do(404, "POST", heldPath+"/"+gone+"/release", "")
		r.do(404, "PATCH", heldPath+"/"+gone, fmt.Sprintf(`{"deliver_at":%d}`, at))
	}
	got := r.do(200, "GET", "/api/queues/%2F/q?columns=messages,messages_ready,messages_held,messages_cancelled,messages_dropped.expired", "")
	if got != `{"messages_dropped":{"expired":0},"messages_cancelled":1,"messages":3,"messages_ready":2,"messages_held":1}` {
		t.Errorf("got %s", got)
	}
	ready := r.do(200, "POST", "/api/queues/%2F/q/get", `{"count":5,"ackmode":"ack_requeue_false","encoding":"auto"}`)
	if !strings.Contains(ready, "body of m2") || !strings.Contains(ready, "body of m3") || strings.Contains(ready, "body of m0") {
		t.Errorf("ready: %s", ready)
	}
}

func TestManyHeldMessagesAreCancelled(t *testing.T) {
	r := newHoldingRig(t)
	r.do(201, "PUT", "/api/exchanges/%2F/x", `{"type":"fanout"}`)
	r.do(201, "POST", "/api/bindings/%2F/e/x/q/q", `{}`)
	publish := func(key string, hours int) {
		r.do(200, "POST", "/api/exchanges/%2F/x/publish", fmt.Sprintf(
			`{"properties":{"message_id":%q,"priority":%d},"routing_key":%q,"payload":"x","payload_encoding":"string"}`, key, hours, key))
	}
	for i := range 700 {
		publish([]string{"a", "b"}[i%2], 1+i%7)
	}
	third := r.held("?count=250").Items[249].DeliverAt // of 100 for each hour
	for _, tt := range []struct {
		query string
		want  int
	}{
		{"?before=0", 0},
		{fmt.Sprintf("?before=%d&routing_key=none", third), 0},
		{fmt.Sprintf("?before=%d&routing_key=b", third-3_600_000/2), 100},
		{"?routing_key=a", 350},
		{"?before=9223372036854", 250},
		{"", 0},
	} {
		if got := r.do(200, "DELETE", heldPath+tt.query, ""); got != fmt.Sprintf(`{"cancelled":%d}`, tt.want) {
			t.Errorf("%s: got %s, want %d", tt.query, got, tt.want)
		}
	}
	if got := r.do(200, "GET", "/api/queues/%2F/q?columns=messages,messages_cancelled,next_release", ""); got != `{"next_release":null,"messages_cancelled":700,"messages":0}` {
		t.Errorf("got %s", got)
	}
}

// A request that cancelled a million messages waited for the disk after each part, ran into its time limit, and answered 503 without
// saying how many were cancelled.
func TestCancellingManyEndsInTime(t *testing.T) {
	var now atomic.Int64
	r := newRigWith(t, []chain.Named{{Name: "hours", Plugin: hours{}}}, func(o *Options) {
		began := o.Clock()
		o.Clock = func() hook.Instant { return began + hook.Instant(now.Add(int64(cancelTime))) }
	})
	r.do(201, "PUT", "/api/queues/%2F/q", `{"durable":true}`)
	for i := range scanPart + 10 {
		r.hold(fmt.Sprintf("m%d", i), 1, "q")
	}
	if got := r.do(200, "DELETE", heldPath, ""); got != `{"cancelled":0,"complete":false}` {
		t.Errorf("got %s", got)
	}
	r.api.held.clock = func() hook.Instant { return hook.Instant(time.Now().UnixNano()) }
	if got := r.do(200, "DELETE", heldPath, ""); got != fmt.Sprintf(`{"cancelled":%d}`, scanPart+10) {
		t.Errorf("got %s", got)
	}
}

func TestHeldMessagesRefused(t *testing.T) {
	r := newHoldingRig(t)
	r.hold("m", 1, "q")
	id := heldPath + "/" + r.held("").Items[0].ID
	for _, tt := range []struct {
		status             int
		method, path, body string
		want               string
	}{
		{404, "GET", "/api/queues/%2F/none/held", "", "Not Found"},
		{404, "GET", "/api/queues/none/q/held", "", "Not Found"},
		{400, "GET", heldPath + "?order=position", "", `order: \"position\" is unknown; there is due`},
		{400, "GET", heldPath + "?count=0", "", `count: \"0\" is not a number from 1 to 500`},
		{400, "GET", heldPath + "?count=501", "", `count: \"501\" is not a number from 1 to 500`},
		{400, "GET", heldPath + "?count=1e2", "", `count: \"1e2\" is not`},
		{400, "GET", heldPath + "?count=99999999999999999999", "", "is not a number from 1 to 500"},
		{400, "GET", heldPath + "?after=x", "", `after: \"x\" is not the next of a list`},
		{400, "GET", heldPath + "?after=" + strings.Repeat("A", 23), "", "is not the next of a list"},
		{400, "GET", heldPath + "?after=_____________________w", "", "is not the next of a list"}, // before 1970
		{400, "GET", heldPath + "?after=AAAAAAAAAAAAAAAAAAAAAB", "", "is not the next of a list"}, // bits that mean nothing
		{400, "GET", heldPath + "/abc", "", `id \"abc\": a number from 0 to 18446744073709551615 is expected`},
		{400, "GET", heldPath + "/-1", "", `id \"-1\"`},
		{400, "DELETE", heldPath + "/%2B1", "", `id \"+1\"`},
		{400, "DELETE", heldPath + "/18446744073709551616", "", "a number from 0 to 18446744073709551615"},
		{400, "DELETE", heldPath + "/1_0", "", `id \"1_0\"`},
		{400, "DELETE", heldPath + "/0x1", "", `id \"0x1\"`},
		{400, "DELETE", heldPath + "/%00", "", `id \"\\x00\"`},
		{400, "PATCH", heldPath + "/" + strings.Repeat("9", 5000), `{"deliver_at":1}`, "a number from 0 to 18446744073709551615"},
		{400, "PATCH", id, ``, `[{key_missing,deliver_at}]`},
		{400, "PATCH", id, `[]`, `not_json`},
		{400, "PATCH", id, `{"deliver_at":`, `not_json`},
		{400, "PATCH", id, `{"deliver_at":1}{}`, `not_json`},
		{400, "PATCH", id, `{"deliver_at":null}`, `deliver_at is null`},
		{400, "PATCH", id, `{"deliver_at":"1"}`, `["not_int","deliver_at: line 1, column 15"]`},
		{400, "PATCH", id, `{"deliver_at":true}`, `["not_int","deliver_at: line 1, column 15"]`},
		{400, "PATCH", id, `{"deliver_at":{}}`, `["not_int","deliver_at: line 1, column 15"]`},
		{400, "PATCH", id, `{"deliver_at":-1}`, `deliver_at is -1: 0 to `},
		{400, "PATCH", id, `{"deliver_at":1.5}`, `deliver_at is 1.5: 0 to `},
		{400, "PATCH", id, `{"deliver_at":9223372036854775807}`, `deliver_at is 9223372036854775807: 0 to `},
		{400, "PATCH", id, `{"deliver_at":99999999999999999999999}`, `0 to `},
		{400, "PATCH", id, `{"deliver_at":1e300}`, `0 to `},
		{400, "PATCH", id, `{"deliver_at":1,"priority":2}`, `unknown member \"priority\"; accepted are deliver_at`},
		{413, "PATCH", id, `{"deliver_at":1,"x":"` + strings.Repeat("x", 1<<20) + `"}`, "more than 1048576 bytes"},
		{400, "GET", id + "?truncate=-1", "", `truncate: \"-1\" is not a number of bytes from 0 to 67108864`},
		{400, "GET", id + "?truncate=x", "", `truncate: \"x\"`},
		{400, "DELETE", heldPath + "?before=soon", "", `before: \"soon\" is not a number of milliseconds since 1970 from 0 to 9223372036854`},
		{400, "DELETE", heldPath + "?before=", "", `before: \"\" is not`},
		{400, "DELETE", heldPath + "?before=9223372036855", "", `is not a number of milliseconds`},
		{400, "DELETE", heldPath + "/", "", "the path ends in / and names no message"},
		{405, "POST", heldPath, "", ""},
		{405, "PUT", id, "", ""},
		{405, "GET", id + "/release", "", ""},
		{404, "POST", id + "/return", "", "Not Found"},
	} {
		if got := r.do(tt.status, tt.method, tt.path, tt.body); !strings.Contains(got, tt.want) {
			t.Errorf("%s %.80s %.60s: got %s, want %s", tt.method, tt.path, tt.body, got, tt.want)
		}
	}
	if l := r.held(""); l.messages() != "m" {
		t.Errorf("what is refused changes nothing: %+v", l)
	}
}

// Lists need the permission to read, changes that to write, and neither the tag administrator.
func TestPermissionsForHeldMessages(t *testing.T) {
	r := newHoldingRig(t)
	r.hold("m", 1, "q")
	id := heldPath + "/" + r.held("").Items[0].ID
	for user, permission := range map[string]string{
		"reader": `{"configure":"","write":"","read":"^q$"}`, "writer": `{"configure":"","write":"^q$","read":""}`,
		"other": `{"configure":".*","write":"^o","read":"^o"}`, "admin": "",
	} {
		r.do(201, "PUT", "/api/users/"+user, `{"password":"`+user+`","tags":"administrator"}`)
		if permission != "" {
			r.do(201, "PUT", "/api/permissions/%2F/"+user, permission)
		}
	}
	for _, tt := range []struct {
		method, path, body string
		read               bool
	}{
		{"GET", heldPath, "", true},
		{"GET", id, "", true},
		{"PATCH", id, `{"deliver_at":4102444800000}`, false},
		{"DELETE", heldPath + "?before=0", "", false},
		{"DELETE", heldPath + "/77", "", false},
		{"POST", heldPath + "/77/release", "", false},
	} {
		for _, user := range []string{"reader", "writer", "other", "admin"} {
			w := r.serve(r.request(user+":"+user, tt.method, tt.path, tt.body))
			may := tt.read && user == "reader" || !tt.read && user == "writer"
			if refused := w.Code == http.StatusUnauthorized; refused == may {
				t.Errorf("%s %s as %s: got %d %s", tt.method, tt.path, user, w.Code, w.Body)
			}
		}
	}
	w := r.serve(r.request("other:other", "GET", heldPath, ""))
	if !strings.Contains(w.Body.String(), "read access to queue 'q' in vhost '/' refused for user 'other'") {
		t.Errorf("got %s", w.Body)
	}
}

// Of many clients that cancel, release and move the same messages at the same time, one succeeds with each.
func TestOneOfAllWhoChangeAHeldMessageWins(t *testing.T) {
	r := newHoldingRig(t)
	const n = 60
	for i := range n {
		r.hold("m"+strconv.Itoa(i), 1, "q")
	}
	items := r.held("").Items
	var mu sync.Mutex
	won := map[string]int{}
	var all sync.WaitGroup
	for worker := range 4 {
		all.Go(func() {
			order := rand.New(rand.NewPCG(1, uint64(worker))).Perm(n)
			for _, i := range order {
				method, path := "DELETE", heldPath+"/"+items[i].ID
				if worker%2 == 1 {
					method, path = "POST", path+"/release"
				}
				if w := r.serve(r.request(guest, method, path, "")); w.Code == 204 {
					mu.Lock()
					won[items[i].ID]++
					won[method]++
					mu.Unlock()
				} else if w.Code != 404 {
					t.Errorf("got %d %s", w.Code, w.Body)
				}
				if w := r.serve(r.request(guest, "GET", heldPath+"?count=3", "")); w.Code != 200 {
					t.Errorf("a list: got %d %s", w.Code, w.Body)
				}
			}
		})
	}
	all.Wait()
	for _, it := range items {
		if won[it.ID] != 1 {
			t.Errorf("%s was changed %d times", it.ID, won[it.ID])
		}
	}
	want := fmt.Sprintf(`{"messages_cancelled":%d,"messages":%d,"messages_ready":%d}`, won["DELETE"], won["POST"], won["POST"])
	if got := r.do(200, "GET", "/api/queues/%2F/q?columns=messages,messages_ready,messages_cancelled", ""); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// Changes survive a restart once they are answered; here: the queue stops, and says so.
func TestHeldMessagesOfAStoppedQueue(t *testing.T) {
	r := newHoldingRig(t)
	r.hold("m", 1, "q")
	id := heldPath + "/" + r.held("").Items[0].ID
	v, _ := r.api.Store.VHost("/")
	must(t, v.Mailbox("q").Do(func(q *queue.Queue, _ hook.Instant) { q.End() }))
	const want = `{"error":"queue_stopped","reason":"queue 'q' in vhost '/' is stopped: the broker is shutting down"}`
	for _, tt := range []struct{ method, path, body string }{
		{"GET", heldPath, ""},
		{"GET", id, ""},
		{"DELETE", id, ""},
		{"DELETE", heldPath, ""},
		{"PATCH", id, `{"deliver_at":1}`},
		{"POST", id + "/release", ""},
	} {
		if got := r.do(503, tt.method, tt.path, tt.body); got != want {
			t.Errorf("%s %s: got %s", tt.method, tt.path, got)
		}
	}
}

func TestCursors(t *testing.T) {
	for _, p := range []duePosition{{}, {1, 2}, {1<<63 - 1, 1<<64 - 1}, {0, 1<<64 - 1}, {1 << 60, 1 << 56}} {
		if got, err := parseCursor(p.cursor()); err != nil || got != p {
			t.Errorf("%v: got %v, %v", p, got, err)
		}
	}
	all := []duePosition{{5, 1<<64 - 1}, {6, 0}, {6, 1}, {7, 0}}
	if all[0].next() != all[1] || all[1].next() != all[2] {
		t.Error("positions do not follow one another")
	}
}

func FuzzCursor(f *testing.F) {
	f.Add("")
	f.Add(duePosition{1, 2}.cursor())
	f.Add("AAAAAAAAAAEvvvv\n\n\n\nAAAAAAA") // decodes to the right number of bytes
	f.Add("AAAAAAAAAAEvvvvAAAAA\n\n")       // is as long as a cursor
	f.Fuzz(func(t *testing.T, s string) {
		p, err := parseCursor(s)
		if err != nil || s == "" {
			return
		}
		if p.at < 0 || p.cursor() != s {
			t.Errorf("%q is %v, which is %q", s, p, p.cursor())
		}
	})
}
