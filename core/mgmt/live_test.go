package mgmt

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"reflect"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/curfewmq/curfew/core/chain"
	"github.com/curfewmq/curfew/core/mgmt/live"
	"github.com/curfewmq/curfew/core/mgmt/streams"
	"github.com/curfewmq/curfew/core/telemetry"
	"github.com/curfewmq/curfew/core/vhost"
	"github.com/curfewmq/curfew/sdk/hook"
)

// newLiveRig has queues with deadlines and without, in two vhosts; the user u may enter one of them.
func newLiveRig(t *testing.T) *rig {
	t.Helper()
	r := newRigWith(t, []chain.Named{{Name: "keeper", Plugin: keeper{}}, {Name: "hours", Plugin: hours{}}})
	r.do(201, "PUT", "/api/vhosts/v", "")
	r.do(201, "PUT", "/api/users/u", `{"password":"u","tags":"management"}`)
	r.do(201, "PUT", "/api/permissions/v/u", `{"configure":"","write":"","read":""}`)
	for name, arguments := range map[string]string{"%2F/minutes": `"x-message-ttl":120000`, "%2F/hours": `"x-message-ttl":7200000`, "%2F/none": "", "v/lease": `"x-expires":600000`} {
		r.do(201, "PUT", "/api/queues/"+name, `{"arguments":{`+arguments+`}}`)
	}
	for _, name := range []string{"minutes", "minutes", "hours", "none"} {
		r.send(name, 0)
	}
	r.send("none", 1)
	return r
}

// liveState is a state of a view, with the members that tests look at.
type liveState struct {
	Order  []string
	Rows   map[string]map[string]any
	Total  int
	Totals map[string]int
	Counts map[string]int
	Next   struct{ VHost, Queue, Kind string }
	Node   any
	Held   int
	Never  int
	Name   string
	Due    struct {
		Buckets []any
		Never   int
	} `json:"deadlines"`
	Filtered int `json:"filtered_count"`
	All      int `json:"total_count"`
	Pages    int `json:"page_count"`
}

func (r *rig) state(user, query string) (s liveState) {
	r.t.Helper()
	w := r.serve(r.request(user, "GET", "/api/live?view="+query, ""))
	if w.Code != 200 || w.Header().Get("Content-Type") != "application/json" {
		r.t.Fatalf("%s: got %d %v %s", query, w.Code, w.Header(), w.Body)
	}
	must(r.t, json.Unmarshal(w.Body.Bytes(), &s))
	return s
}

// wantOrder checks which rows a guest's view has, and in which order, and returns it.
func (r *rig) wantOrder(query, want string) liveState {
	r.t.Helper()
	s := r.state(guest, query)
	if got := strings.ReplaceAll(strings.Join(s.Order, ", "), "\x00", " "); got != want || len(s.Rows) != len(s.Order) {
		r.t.Errorf("%s: got %s, want %s", query, got, want)
	}
	return s
}

func TestLiveDeadlines(t *testing.T) {
	r := newLiveRig(t)
	for query, want := range map[string]string{
		"deadlines": "/ minutes, / none, / hours, v lease",
		"deadlines&sort=due_1m&sort_reverse=true":              "/ hours, / minutes, / none, v lease",
		"deadlines&sort=later&sort_reverse=true&page_size=1":   "/ hours",
		"deadlines&sort=lease_expires_at&sort_reverse=true":    "v lease, / hours, / minutes, / none",
		"deadlines&sort=queue&sort_reverse=true":               "/ none, / minutes, v lease, / hours",
		"deadlines&vhost=v":                                    "v lease",
		"deadlines&queue=hours":                                "/ hours",
		"deadlines&queue=/^(hours|LEASE)$/":                    "/ hours",
		"deadlines&queue=/E":                                   "",
		"deadlines&queue=/e&page=2&page_size=2&sort=queue":     "/ none",
		"deadlines&page=9":                                     "",
		"deadlines&sort=held&sort_reverse=true&page_size=1":    "/ none",
		"deadlines&sort=never&page_size=1&sort_reverse=true":   "/ none",
		"deadlines&sort=next_release&page_size=1":              "/ none",
		"deadlines&sort=strategy&page_size=2":                  "/ hours, / minutes",
		"deadlines&sort=due_1h&sort_reverse=true&page_size=1":  "/ minutes",
		"deadlines&sort=overdue&sort_reverse=true&page_size=1": "/ hours",
	} {
		r.wantOrder(query, want)
	}
	s := r.state(guest, "deadlines")
	row := s.Rows["/\x00minutes"]
	for name, want := range map[string]any{"due_1s": 0., "due_1m": 0., "due_1h": 2., "later": 0., "never": 0., "overdue": 0., "held": 0., "strategy": "keeper", "vhost": "/", "queue": "minutes"} {
		if row[name] != want {
			t.Errorf("%s: got %v, want %v", name, row[name], want)
		}
	}
	if _, there := row["next_release"]; there || row["next_deadline"] == nil {
		t.Errorf("got %v", row)
	}
	if s.Total != 4 || s.Held != 1 || s.Never != 1 {
		t.Errorf("got %+v", s)
	}
	if s := r.state("u:u", "deadlines"); s.Total != 1 || s.Never != 0 || s.Order[0] != "v\x00lease" {
		t.Errorf("a user of v got %+v", s)
	}
}

func TestLiveNow(t *testing.T) {
	r := newLiveRig(t)
	s := r.state(guest, "now")
	if want := map[string]int{"messages": 5, "ready": 4, "unacked": 0, "held": 1, "delayed": 0}; !reflect.DeepEqual(s.Totals, want) {
		t.Errorf("totals: got %v, want %v", s.Totals, want)
	}
	if s.Next.VHost != "/" || s.Next.Queue != "minutes" || s.Next.Kind != "deadline" || s.Node == nil || s.Counts["queues"] != 4 {
		t.Errorf("got %+v", s)
	}
	s = r.state("u:u", "now")
	if s.Totals["messages"] != 0 || s.Next.Queue != "" || s.Node != nil || s.Counts["queues"] != 1 {
		t.Errorf("a user of v got %+v", s)
	}
	if s = r.state(guest, "now&vhost=v"); s.Totals["messages"] != 0 || s.Counts["queues"] != 1 {
		t.Errorf("of v: got %+v", s)
	}
}

func TestLiveQueues(t *testing.T) {
	r := newLiveRig(t)
	for query, want := range map[string]string{
		"queues": "/ hours, / minutes, / none, v lease",
		"queues&sort=messages_ready&sort_reverse=true&page_size=1&columns=name": "/ minutes",
		"queues&sort=next_deadline&sort_reverse=true":                           "/ hours, / minutes, / none, v lease",
		"queues&name=HOU":                                            "/ hours",
		"queues&name=^.*es$&use_regex=true":                          "/ minutes",
		"queues&vhost=v&page_size=500":                               "v lease",
		"queues&page=2&page_size=3&sort=name&sort_reverse=true":      "/ hours",
		"queues&sort=expiry_strategy&sort_reverse=true&page_size=1":  "/ hours",
		"queues&sort=lease_expires_at&page_size=1&columns=name,type": "v lease",
	} {
		s := r.wantOrder(query, want)
		if s.Filtered == 0 || s.All < s.Filtered || s.Pages == 0 {
			t.Errorf("%s: got %+v", query, s)
		}
	}
	if row := r.state(guest, "queues&columns=name,messages_ready").Rows["/\x00minutes"]; !reflect.DeepEqual(row, map[string]any{"name": "minutes", "messages_ready": 2.}) {
		t.Errorf("got %v", row)
	}
	s := r.state(guest, "queue&vhost=/&queue=none&buckets=10")
	if s.Name != "none" || len(s.Due.Buckets) != 10 || s.Due.Never != 1 {
		t.Errorf("got %+v", s)
	}
}

// A user without permissions in any vhost shared the view of administrators, and saw all queues: neither key named a vhost.
func TestLiveViewsOfNoVHost(t *testing.T) {
	r := newLiveRig(t)
	r.do(204, "DELETE", "/api/permissions/v/u", "")
	r.do(201, "PUT", "/api/users/m", `{"password":"m","tags":"monitoring"}`)
	for _, first := range []string{guest, "u:u"} {
		for _, view := range []string{"queues&columns=name&name=" + first[:1], "deadlines&buckets=" + strconv.Itoa(4+len(first)), "queues&page_size=" + strconv.Itoa(len(first))} {
			r.state(first, view)
			for user, want := range map[string]bool{guest: true, "u:u": false, "m:m": false} {
				if s := r.state(user, view); (len(s.Order)+s.All > 0) != want {
					t.Errorf("%s after %s: %s sees %+v", view, first, user, s)
				}
			}
			if s := r.state("u:u", view); s.Never+s.Held > 0 {
				t.Errorf("%s after %s: u counts %+v", view, first, s)
			}
		}
	}
}

// A monitor without permissions in some vhosts saw zeros where the overview and the list of vhosts had thousands of messages. It sees the
// total of all vhosts, as in RabbitMQ, and names only in vhosts that it may enter.
func TestMonitorsCountAllVHosts(t *testing.T) {
	r := newLiveRig(t)
	r.do(201, "PUT", "/api/users/m", `{"password":"m","tags":"monitoring"}`)
	check := func(view, next string, rows int) {
		t.Helper()
		all, s := r.state(guest, view), r.state("m:m", view)
		if !reflect.DeepEqual(s.Totals, all.Totals) || !reflect.DeepEqual(s.Counts, all.Counts) || s.Never != all.Never || s.Held != all.Held {
			t.Errorf("%s: got %+v, want the totals of %+v", view, s, all)
		}
		if s.Next.Queue != next || len(s.Rows) != rows {
			t.Errorf("%s: got %+v", view, s)
		}
	}
	check("now", "", 0)
	check("top", "", 0)
	check("deadlines", "", 0)
	r.do(201, "PUT", "/api/permissions/%2F/m", `{"configure":"","write":"","read":""}`)
	check("now", "minutes", 0)
	check("top", "minutes", 3)
	check("deadlines", "", 3)
	r.do(204, "DELETE", "/api/permissions/%2F/m", "")
	r.do(201, "PUT", "/api/permissions/v/m", `{"configure":"","write":"","read":""}`)
	check("deadlines", "", 1)
	check("now", "", 0)
	if s := r.state("m:m", "now&vhost=v"); s.Totals["messages"] != 0 || s.Counts["queues"] != 1 {
		t.Errorf("of v: got %+v", s)
	}
	if got := r.serve(r.request("m:m", "GET", "/api/live?view=now&vhost=/", "")); got.Code != 401 {
		t.Errorf("of /: got %d %s", got.Code, got.Body)
	}
	if s := r.state("m:m", "deadlines&queue=minutes"); s.Total != 0 || s.Never != 0 || len(s.Rows) != 0 {
		t.Errorf("of a queue that is not seen: got %+v", s)
	}
}

// The view of a vhost that was deleted and created again stayed empty for as long as somebody looked.
func TestLiveViewsOfAVHostThatComesAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &rig{t: t, api: newLiveBubble(t).api}
		create := func(queue string) {
			r.do(201, "PUT", "/api/vhosts/v", "")
			r.do(201, "PUT", "/api/permissions/v/u", `{"configure":"","write":"","read":""}`)
			v, _ := r.api.Store.VHost("v")
			_, err := v.DeclareQueue(vhost.QueueDeclare{Name: queue})
			must(t, err)
		}
		r.do(201, "PUT", "/api/users/u", `{"password":"u","tags":"management"}`)
		create("first")
		look := func() {
			t.Helper()
			for view, user := range map[string]string{"queues&columns=name": "u:u", "queues&columns=name&vhost=v": guest} {
				if s := r.state(user, view); s.All != 1 {
					t.Errorf("%s of %s: got %+v", view, user, s)
				}
			}
		}
		look()
		_, err := r.api.Store.DeleteVHost("v")
		must(t, err)
		create("second")
		time.Sleep(time.Second)
		look()
	})
}

// A page of a hundred queues with long names is at most 60 KB.
func TestAPageOfQueuesIsSmall(t *testing.T) {
	r := newRigWith(t, []chain.Named{{Name: "keeper", Plugin: keeper{}}})
	for i := range 100 {
		r.do(201, "PUT", fmt.Sprintf("/api/queues/%%2F/%s-%d", strings.Repeat("q", 20), i), `{"arguments":{"x-message-ttl":10000000,"x-expires":20000000}}`)
	}
	if n := len(r.do(200, "GET", "/api/live?view=queues", "")); n > 60_000 || n < 20_000 {
		t.Errorf("it has %d bytes", n)
	}
}

func TestLiveRefuses(t *testing.T) {
	r := newLiveRig(t)
	for query, want := range map[string]string{
		"view=then":                       `400 view: \"then\" is unknown; there are now, deadlines, queues, queue, top`,
		"":                                `400 view: \"\" is unknown; there are now, deadlines, queues, queue, top`,
		"view=now&page=1":                 `400 unknown parameter \"page\"; accepted are view, after, vhost`,
		"view=deadlines&page=0":           `400 page: \"0\" is not a number from 1 to 1048576`,
		"view=deadlines&page_size=101":    `400 page_size: \"101\" is not a number from 1 to 100`,
		"view=deadlines&page_size=a":      `400 page_size: \"a\" is not a number from 1 to 100`,
		"view=deadlines&buckets=1":        `400 buckets: \"1\" is not a number of buckets from 4 to 96`,
		"view=deadlines&sort_reverse=yes": `400 sort_reverse: \"yes\" is unknown; there are true, false`,
		"view=deadlines&sort=messages":    `400 sort: \"messages\" is unknown; there are queue, due_1s`,
		"view=deadlines&queue=/(":         `400 queue: missing closing ): (`,
		"view=deadlines&queue=" + strings.Repeat("q", 1025): `400 queue has 1025 bytes: at most 1024 are allowed`,
		"view=queues&page_size=501":                         `400 page_size: \"501\" is not a number from 1 to 500`,
		"view=queues&sort=message_stats.publish":            `400 sort: \"message_stats.publish\" is unknown; there are consumers, delivery_leases_ended`,
		"view=queues&name=(&use_regex=true":                 `400 name: missing closing ): (`,
		"view=queues&columns=" + strings.Repeat(",", 200):   `400 columns: 201 of them: at most 200 are allowed`,
		"view=queue&vhost=/":                                `400 queue: is missing; the view queue needs a vhost and a queue`,
		"view=queue&queue=q":                                `400 vhost: is missing; the view queue needs a vhost and a queue`,
		"view=queue&vhost=/&queue=q":                        `404 Not Found`,
		"view=now&vhost=none":                               `404 Not Found`,
		"view=%zz":                                          `400 query: invalid URL escape`,
	} {
		for _, accept := range []string{"", "text/event-stream"} {
			q := r.request(guest, "GET", "/api/live?"+query, "")
			q.Header.Set("Accept", accept)
			w := r.serve(q)
			if got := strconv.Itoa(w.Code) + " " + w.Body.String(); !strings.HasPrefix(got, want[:4]) || !strings.Contains(got, want[4:]) {
				t.Errorf("%s: got %s, want %s", query, got, want)
			}
		}
	}
	w := r.serve(r.request("u:u", "GET", "/api/live?view=now&vhost=/", ""))
	if w.Code != 401 || !strings.Contains(w.Body.String(), "User not authorised to access virtual host") {
		t.Errorf("another vhost: got %d %s", w.Code, w.Body)
	}
}

// liveBubble is an API in a bubble, with a connection to it.
type liveBubble struct {
	t       *testing.T
	api     *API
	client  net.Conn
	answers *bufio.Reader
	lines   *bufio.Scanner
}

func newLiveBubble(t *testing.T) *liveBubble {
	t.Helper()
	client, server := bubbleOf(t, told(1))
	return &liveBubble{t: t, api: server.Handler.(contained).Handler.(*API), client: client, answers: bufio.NewReader(client)}
}

// open asks for a stream and returns the answer.
func (b *liveBubble) open(query, more string) *http.Response {
	b.t.Helper()
	_, err := b.client.Write([]byte("GET /api/live?" + query + " HTTP/1.1\r\nHost: x\r\nAuthorization: Basic Z3Vlc3Q6Z3Vlc3Q=\r\nAccept: text/event-stream\r\n" + more + "\r\n"))
	must(b.t, err)
	answer, err := http.ReadResponse(b.answers, nil)
	must(b.t, err)
	b.lines = bufio.NewScanner(answer.Body)
	b.lines.Buffer(nil, 1<<20)
	return answer
}

// event returns the next event; its kind is empty when the stream has ended.
func (b *liveBubble) event() (kind, id string, data map[string]any) {
	b.t.Helper()
	for b.lines.Scan() {
		line := b.lines.Text()
		switch name, value, _ := strings.Cut(line, ": "); name {
		case "event":
			kind = value
		case "id":
			id = value
		case "data":
			must(b.t, json.Unmarshal([]byte(value), &data))
			return kind, id, data
		}
	}
	return "", "", nil
}

func (b *liveBubble) declare(name string) {
	b.t.Helper()
	v, _ := b.api.Store.VHost("/")
	_, err := v.DeclareQueue(vhost.QueueDeclare{Name: name})
	must(b.t, err)
}

// A stream begins with a state, and goes on with a change each second.
func TestLiveStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newLiveBubble(t)
		b.declare("a")
		answer := b.open("view=queues&columns=name", "")
		if answer.StatusCode != 200 || answer.Header.Get("Content-Type") != "text/event-stream" {
			t.Fatalf("got %d %v", answer.StatusCode, answer.Header)
		}
		kind, _, data := b.event()
		if kind != "state" || data["filtered_count"] != 1. || !reflect.DeepEqual(data["rows"], map[string]any{"/\x00a": map[string]any{"name": "a"}}) {
			t.Errorf("got %s %v", kind, data)
		}
		b.declare("b")
		began := time.Now()
		kind, id, data := b.event()
		at := data["at"]
		delete(data, "at")
		want := map[string]any{"rows": map[string]any{"/\x00b": map[string]any{"name": "b"}}, "order": []any{"/\x00a", "/\x00b"}, "filtered_count": 2., "total_count": 2.}
		if kind != "change" || !reflect.DeepEqual(data, want) || at == nil || time.Since(began) > time.Second {
			t.Errorf("after %v: got %s %v, want %v", time.Since(began), kind, data, want)
		}
		if !strings.HasSuffix(id, "-2") {
			t.Errorf("its id is %s", id)
		}
		for range 20 { // quiet seconds cost a few bytes each
			if kind, _, data := b.event(); kind != "change" || len(data) != 1 {
				t.Errorf("got %s %v", kind, data)
			}
		}
	})
}

// Deleted queues leave nothing in memory, while there are other readers, and when there are none any more.
func TestLiveViewsForgetQueues(t *testing.T) {
	for name, looksOn := range map[string]bool{"nobody looks": false, "others look on": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newLiveBubble(t)
				look := func() {
					for _, view := range []string{"deadlines", "deadlines&queue=/.", "queues&columns=name"} {
						r := httptest.NewRequest("GET", "/api/live?view="+view, http.NoBody)
						r.SetBasicAuth("guest", "guest")
						r.RemoteAddr, r.Host = "127.0.0.1:1", "localhost"
						w := httptest.NewRecorder()
						if b.api.ServeHTTP(w, r); w.Code != 200 {
							t.Fatalf("%s: got %d %s", view, w.Code, w.Body)
						}
					}
				}
				for _, name := range []string{"a", "b", "c"} {
					b.declare(name)
				}
				v, _ := b.api.Store.VHost("/")
				queue := weak.Make(v.Mailbox("c"))
				look()
				_, err := v.DeleteQueue("c", 0, false, false)
				must(t, err)
				if looksOn {
					time.Sleep(time.Second)
					look()
				} else {
					time.Sleep(time.Minute)
				}
				synctest.Wait()
				runtime.GC()
				if queue.Value() != nil {
					t.Error("it is in memory")
				}
			})
		})
	}
}

// A stream ends with its user, its vhost and its queue.
func TestLiveStreamsEnd(t *testing.T) {
	for name, end := range map[string]func(b *liveBubble) error{
		"user": func(b *liveBubble) error { _, err := b.api.users().Delete("guest"); return err },
		"queue": func(b *liveBubble) error {
			v, _ := b.api.Store.VHost("/")
			_, err := v.DeleteQueue("q", 0, false, false)
			return err
		},
		"broker": func(b *liveBubble) error { b.api.EndStreams(); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newLiveBubble(t)
				b.declare("q")
				answer := b.open("view=queue&vhost=/&queue=q", "")
				b.event()
				began := time.Now()
				must(t, end(b))
				_, err := io.Copy(io.Discard, answer.Body)
				must(t, err)
				if took := time.Since(began); took > 2*time.Second {
					t.Errorf("it ended after %v", took)
				}
			})
		})
	}
}

// Queues that a reader may no longer see are gone with the next second, and come back when the reader may see them again.
func TestLiveStreamsFollowPermissions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newLiveBubble(t)
		b.declare("a")
		r := &rig{t: t, api: b.api}
		r.do(201, "PUT", "/api/users/second", `{"password":"second","tags":"administrator"}`)
		account, _ := b.api.users().Lookup("guest")
		account.Tags = []string{"management"}
		_, err := b.api.users().Set(account)
		must(t, err)
		second := func(method, path, body string) {
			t.Helper()
			if w := r.serve(r.request("second:second", method, path, body)); w.Code >= 300 {
				t.Fatalf("%s %s: got %d %s", method, path, w.Code, w.Body)
			}
		}
		b.open("view=queues&columns=name", "")
		if kind, _, data := b.event(); kind != "state" || data["filtered_count"] != 1. {
			t.Fatalf("got %s %v", kind, data)
		}
		second("DELETE", "/api/permissions/%2F/guest", "")
		if kind, _, data := b.event(); kind != "state" || data["filtered_count"] != 0. || data["total_count"] != 0. {
			t.Errorf("without permissions: got %s %v", kind, data)
		}
		second("PUT", "/api/permissions/%2F/guest", `{"configure":"","write":"","read":""}`)
		if kind, _, data := b.event(); kind != "state" || data["filtered_count"] != 1. {
			t.Errorf("with permissions again: got %s %v", kind, data)
		}
	})
}

// A reader that does not read is dropped.
func TestLiveStreamOfASlowReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newLiveBubble(t)
		b.open("view=queues", "")
		time.Sleep(live.Patience + 5*time.Second)
		synctest.Wait()
		if err := b.api.live.viewers.Open("other"); err != nil {
			t.Fatal(err)
		}
		if !b.api.live.viewers.Close("other") {
			t.Error("the stream is open")
		}
	})
}

func TestTooManyLiveStreams(t *testing.T) {
	r := newRig(t)
	ask := func() string {
		q := r.request(guest, "GET", "/api/live?view=deadlines", "")
		q.Header.Set("Accept", "text/event-stream")
		w := r.serve(q)
		return fmt.Sprint(w.Code, " ", w.Header().Get("Retry-After"), " ", w.Body)
	}
	for range streams.MostOfUser {
		must(t, r.api.live.viewers.Open("guest"))
	}
	if got := ask(); got != `429 5 {"error":"too_many_streams","reason":"user 'guest' has 16 live streams already"}` {
		t.Errorf("got %s", got)
	}
	for i := range streams.Most - streams.MostOfUser {
		must(t, r.api.live.viewers.Open("u"+strconv.Itoa(i)))
	}
	r.api.live.viewers.Close("guest")
	must(t, r.api.live.viewers.Open("another"))
	if got := ask(); got != `503 5 {"error":"too_many_streams","reason":"there are 64 live streams already"}` {
		t.Errorf("got %s", got)
	}
}

// The view top has the members of queues that are known without asking them, in the order of urgency.
func TestLiveTop(t *testing.T) {
	r := newLiveRig(t)
	for query, want := range map[string]string{
		"top&sort=messages":                     "/ minutes, / none, / hours, v lease",
		"top&sort=messages&page=2&page_size=2":  "/ hours, v lease",
		"top&sort=due&vhost=%2F":                "/ minutes, / none, / hours",
		"top&sort=lag&vhost=v":                  "v lease",
		"top&sort=bytes&page_size=1&vhost=%2F":  "/ minutes",
		"top&page_size=500&vhost=v&sort=rate":   "v lease",
		"top&sort=due&page_size=1&page=4":       "v lease",
		"top&sort=messages&page=9&page_size=10": "",
	} {
		r.wantOrder(query, want)
	}
	s := r.state(guest, "top&sort=messages")
	row := s.Rows["/\x00minutes"]
	for name, want := range map[string]any{"name": "minutes", "vhost": "/", "ready": 2., "unacked": 0., "held": 0., "consumers": 0., "strategy": "keeper"} {
		if row[name] != want {
			t.Errorf("%s: got %v, want %v", name, row[name], want)
		}
	}
	if row["oldest"] == nil || row["next_deadline"] == nil || s.Node == nil || s.Totals["ready"] != 4 || s.Totals["held"] != 1 {
		t.Errorf("got %v, %+v", row, s)
	}
	if s := r.state("u:u", "top"); len(s.Order) != 1 || s.Order[0] != "v\x00lease" || s.Node != nil {
		t.Errorf("a user of v got %+v", s)
	}
	for query, want := range map[string]string{"top&sort=name": "rate, due, lag, messages, bytes", "top&page_size=501": "1 to 500", "top&name=x": "name"} {
		if w := r.serve(r.request(guest, "GET", "/api/live?view="+query, "")); w.Code != 400 || !strings.Contains(w.Body.String(), want) {
			t.Errorf("%s: got %d %s", query, w.Code, w.Body)
		}
	}
}

// How long consumers had messages past their deadline is a figure of its own; a broker that is in time has none.
func TestLiveLateness(t *testing.T) {
	asked, now := 0, hook.Instant(time.Hour)
	grows := func(bucket int) func() map[string]telemetry.Distribution {
		return func() map[string]telemetry.Distribution {
			asked++
			d := telemetry.Distribution{Bounds: []float64{.001, 2}, Counts: make([]uint64, 3)}
			d.Counts[bucket] = uint64(asked)
			return map[string]telemetry.Distribution{"deadline": d}
		}
	}
	r := newRig(t, func(o *Options) {
		o.Clock, o.Lateness, o.Overstays = func() hook.Instant { return now }, grows(0), grows(1)
	})
	for _, view := range []string{"now", "deadlines"} {
		r.do(200, "GET", "/api/live?view="+view, "")
		now = now.Add(2 * time.Second)
		var got struct{ Lateness, Overstay struct{ Max float64 } }
		must(t, json.Unmarshal([]byte(r.do(200, "GET", "/api/live?view="+view, "")), &got))
		if got.Lateness.Max != 1 || got.Overstay.Max != 2000 {
			t.Errorf("%s: got %+v, want 1 ms, and 2 s of consumers", view, got)
		}
	}
}
