package mgmt

import (
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/curfewmq/curfew/core/chain"
)

// dueAnswer is the answer to a request for deadlines.
type dueAnswer struct {
	At, Earliest int64
	Next         *int64 `json:"next_release"`
	Complete     bool
	Overdue      int
	Never, Held  int
	Buckets      []struct {
		To    *int64 `json:"to_ms"`
		Count int
		Held  int
	}
}

func (r *rig) deadlines(path string) (d dueAnswer) {
	r.t.Helper()
	must(r.t, json.Unmarshal([]byte(r.do(200, "GET", path, "")), &d))
	return d
}

// in counts messages that are due, and messages that are released, in buckets of more than from and at most to milliseconds; 0 is without
// end.
func (d *dueAnswer) in(from, to int64) (due, held int) {
	for _, b := range d.Buckets {
		if at := b.To; at == nil && to == 0 || at != nil && *at > from && (to == 0 || *at <= to) {
			due += b.Count
			held += b.Held
		}
	}
	return due, held
}

func (r *rig) send(queue string, priority int) {
	r.t.Helper()
	r.do(200, "POST", "/api/exchanges/%2F/amq.default/publish", fmt.Sprintf(`{"properties":{"priority":%d},"routing_key":%q,"payload":"x","payload_encoding":"string"}`, priority, queue))
}

func TestDeadlines(t *testing.T) {
	r := newRigWith(t, []chain.Named{{Name: "keeper", Plugin: keeper{}}, {Name: "hours", Plugin: hours{}}})
	r.do(201, "PUT", "/api/vhosts/other", "")
	for name, arguments := range map[string]string{"%2F/minutes": `"x-message-ttl":120000`, "%2F/days": `"x-message-ttl":7200000000`, "%2F/never": "", "other/q": ""} {
		r.do(201, "PUT", "/api/queues/"+name, `{"arguments":{`+arguments+`}}`)
	}
	for range 3 {
		r.send("minutes", 0)
	}
	r.send("days", 0)
	r.send("never", 0)
	r.send("never", 2)
	for _, path := range []string{"/api/deadlines", "/api/deadlines/%2F?buckets=48"} {
		d := r.deadlines(path)
		if len(d.Buckets) != 48 || !d.Complete || d.Never != 1 || d.Held != 1 || d.Overdue != 0 {
			t.Errorf("%s: got %+v", path, d)
		}
		if due, held := d.in(60_000, 200_000); due != 3 || held != 0 {
			t.Errorf("%s: %d messages in the next minutes, %d released", path, due, held)
		}
		if due, held := d.in(3_600_000, 24*3_600_000); due != 0 || held != 1 {
			t.Errorf("%s: %d messages in the next hours, %d released", path, due, held)
		}
		if last := d.Buckets[47]; last.To != nil || last.Count != 1 {
			t.Errorf("%s: later is %+v", path, last)
		}
		if ahead := d.Earliest - d.At; ahead > 120_000 || ahead < 60_000 || d.Next == nil || *d.Next-d.At < 3_600_000 {
			t.Errorf("%s: the earliest is %d ms ahead", path, ahead)
		}
	}
	for path, want := range map[string][4]int{
		"/api/queues/%2F/minutes/deadlines?buckets=4": {4, 3, 0, 0},
		"/api/queues/%2F/never/deadlines?buckets=96":  {96, 0, 1, 1},
		"/api/deadlines/other":                        {48, 0, 0, 0},
	} {
		d := r.deadlines(path)
		due, held := d.in(-1, 0)
		if got := [4]int{len(d.Buckets), due, held, d.Never}; got != want || !d.Complete {
			t.Errorf("%s: got %v, want %v", path, got, want)
		}
	}
	for _, natural := range []int64{10, 1000, 60_000, 3_600_000, 86_400_000, 2_592_000_000} {
		d := r.deadlines("/api/deadlines")
		if !slices.ContainsFunc(d.Buckets[:47], func(b struct {
			To    *int64 `json:"to_ms"`
			Count int
			Held  int
		},
		) bool {
			return *b.To == natural
		}) {
			t.Errorf("no bucket ends after %d ms", natural)
		}
	}
}

// Deadlines are counted in queues that the user may see.
func TestDeadlinesOfOthers(t *testing.T) {
	r := newRig(t)
	r.do(201, "PUT", "/api/queues/%2F/q", "")
	r.send("q", 0)
	r.do(201, "PUT", "/api/vhosts/v", "")
	r.do(201, "PUT", "/api/users/u", `{"password":"u","tags":"monitoring"}`)
	r.do(201, "PUT", "/api/permissions/v/u", `{"configure":"","write":"","read":""}`)
	w := r.serve(r.request("u:u", "GET", "/api/deadlines?columns=never,held", ""))
	if got := w.Body.String(); got != `{"never":0,"held":0}` {
		t.Errorf("got %s", got)
	}
	if w := r.serve(r.request("u:u", "GET", "/api/deadlines/%2F", "")); w.Code != 401 {
		t.Errorf("another vhost: got %d %s", w.Code, w.Body)
	}
}

func TestDeadlinesRefuse(t *testing.T) {
	r := newRig(t)
	r.do(201, "PUT", "/api/queues/%2F/q", "")
	for query, want := range map[string]string{
		"buckets=3":       `buckets: \"3\" is not a number of buckets from 4 to 96`,
		"buckets=97":      `buckets: \"97\" is not a number of buckets from 4 to 96`,
		"buckets=ten":     `buckets: \"ten\" is not a number of buckets from 4 to 96`,
		"bucket=10":       `unknown parameter \"bucket\"; accepted are buckets, columns`,
		"buckets=&page=1": `unknown parameter \"page\"; accepted are buckets, columns`,
	} {
		for _, path := range []string{"/api/deadlines", "/api/queues/%2F/q/deadlines"} {
			if got := r.do(400, "GET", path+"?"+query, ""); !strings.Contains(got, want) {
				t.Errorf("%s?%s: got %s, want %s", path, query, got, want)
			}
		}
	}
	r.do(404, "GET", "/api/queues/%2F/none/deadlines", "")
	r.do(404, "GET", "/api/deadlines/none", "")
}

// Sorting by an instant puts queues without one last in both directions, and a page of a hundred queues makes a hundred objects.
func TestQueuesByInstant(t *testing.T) {
	r := newRigWith(t, []chain.Named{{Name: "keeper", Plugin: keeper{}}})
	const queues, due = 300, 30
	for i := range queues {
		arguments := ""
		if i%10 == 3 {
			arguments = fmt.Sprintf(`"x-message-ttl":%d,"x-expires":%[1]d`, 1_000_000+i*7919%1000*1000)
		}
		name := "q" + strconv.Itoa(i)
		r.do(201, "PUT", "/api/queues/%2F/"+name, `{"arguments":{`+arguments+`}}`)
		if arguments != "" {
			r.send(name, 0)
		}
	}
	for _, member := range []string{"next_deadline", "lease_expires_at"} {
		for _, reverse := range []bool{false, true} {
			query := fmt.Sprintf("sort=%s&sort_reverse=%t&page=1&page_size=100&columns=name,%[1]s", member, reverse)
			c := &request{caller: caller{api: r.api, w: httptest.NewRecorder(), r: r.request(guest, "GET", "/api/queues?"+query, "")}}
			must(t, c.authenticate())
			var err error
			c.query, err = r.api.parseQuery(query)
			must(t, err)
			all, made := r.api.queues.listing(c), 0
			describe := all.object
			all.object = func(q queueRef) object { made++; return describe(q) }
			must(t, list(c, all))
			if made != 100 {
				t.Errorf("%s: %d objects were made", query, made)
			}
			var page struct{ Items []map[string]any }
			must(t, json.Unmarshal(c.w.(*httptest.ResponseRecorder).Body.Bytes(), &page))
			var instants []float64
			for i, it := range page.Items {
				at, _ := it[member].(float64)
				if (at != 0) != (i < due) {
					t.Fatalf("%s: item %d is %v", query, i, it)
				}
				if at != 0 {
					instants = append(instants, at)
				}
			}
			if reverse {
				slices.Reverse(instants)
			}
			if !slices.IsSorted(instants) {
				t.Errorf("%s: got %v", query, instants)
			}
		}
	}
	var first []struct{ Name string }
	r.into("/api/queues?sort=policy&sort_reverse=true&columns=name", &first)
	if first[0].Name != "q99" { // RabbitMQ also reverses queues without the member
		t.Errorf("the first without a policy is %s", first[0].Name)
	}
}
