package mgmt

import (
	"bufio"
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/curfewmq/curfew/core/chain"
	"github.com/curfewmq/curfew/core/clock"
	"github.com/curfewmq/curfew/core/mgmt/events"
	"github.com/curfewmq/curfew/core/mgmt/jsonobj"
	"github.com/curfewmq/curfew/core/mgmt/pattern"
	"github.com/curfewmq/curfew/core/mgmt/streams"
	"github.com/curfewmq/curfew/core/store"
	"github.com/curfewmq/curfew/core/telemetry"
	"github.com/curfewmq/curfew/core/wlog/crashfs"
	"github.com/curfewmq/curfew/sdk/hook"
)

// The promises of core/mgmt/events to its readers.
const (
	heartbeat     = 15 * time.Second
	gather        = 20 * time.Millisecond
	streamTimeout = 30 * time.Second
	lastTime      = time.Second
)

// eventsBegan is when the broker of a test was started: its events are numbered from 1001 on.
const eventsBegan = hook.Instant(1_000_000)

// told makes something to tell things to.
func told(size int) *telemetry.Recorder {
	return telemetry.New(telemetry.Options{Events: size, Clock: func() hook.Instant { return eventsBegan }})
}

// everything tells of one thing of each kind.
func everything(r *telemetry.Recorder) {
	ref := &telemetry.QueueRef{VHost: "/", Queue: "orders", Strategy: "deadline"}
	at := hook.Instant(5_000_000_000)
	dlx := &hook.Target{Exchange: "dlx", Key: "dead", HasKey: true}
	r.Removed(ref, at, []telemetry.Removal{
		{
			Reason: hook.ReasonExpired, Outcome: telemetry.DeadLettered, Target: dlx, Exchange: []byte("x"), Key: []byte("new"),
			Props: propertiesWith("id-1"), Size: 7, Enqueued: at - 2_000_000_000, Deadline: at - 1_234_567, Digest: 0xabcdef,
			Entered: &telemetry.Entered{Names: []string{"dead", "copy"}},
		},
		{Reason: hook.ReasonRejected, Outcome: telemetry.DeadLettered, Target: &hook.Target{Exchange: "dlx"}, Entered: &telemetry.Entered{Names: []string{"dead"}, More: 3}},
		{Reason: hook.ReasonMaxLen, Outcome: telemetry.Dropped, Key: []byte(strings.Repeat("k", 200))},
		{Reason: hook.ReasonExpired, Outcome: telemetry.Cycle, Target: dlx, Deadline: at, Overstayed: true},
	})
	r.QueueExpired(&telemetry.QueueRef{VHost: "other", Queue: "reply", Strategy: "deadline"}, at, &telemetry.QueueEnd{
		LastUse: at - 60_000_000_000, Lease: at - 1_000_000, Messages: 3, DeadLettered: 2,
	})
	for _, n := range []telemetry.Notice{
		{Kind: telemetry.PolicyApplied, VHost: "other", Name: "p", Queues: 4},
		{Kind: telemetry.PolicyApplied, VHost: "/", Name: "o", Operator: true, Cleared: true},
		{Kind: telemetry.ModuleLoaded, Name: "m", Digest: "aa"},
		{Kind: telemetry.ModuleReloaded, Name: "m", Digest: "bb", Previous: "aa"},
		{Kind: telemetry.ModuleRolledBack, Name: "m", Digest: "aa", Previous: "bb"},
		{Kind: telemetry.BreakerOpened, Name: "m", Digest: "aa", Until: 9_000_000_000},
		{Kind: telemetry.BreakerClosed, Name: "m", Digest: "aa"},
		{Kind: telemetry.ModuleUnloaded, Name: "m", Digest: "aa", Beside: "deadline"},
		{Kind: telemetry.AlarmRaised, Name: "disk"},
		{Kind: telemetry.AlarmCleared, Name: "disk"},
	} {
		r.Notice(n)
	}
}

func propertiesWith(id string) []byte {
	return append([]byte{0, 0x80, byte(len(id))}, id...)
}

// over is a broker that tells of everything there was, and then ends the stream.
func over(tb testing.TB) *rig {
	tb.Helper()
	recorder := told(100)
	r := newRig(tb, func(o *Options) { o.Events = recorder.Events() })
	everything(recorder)
	r.api.EndStreams()
	return r
}

func TestEventsAsLines(t *testing.T) {
	r := over(t)
	want := []string{
		`{"id":1001,"kind":"message_expired","time":5000,"vhost":"/","queue":"orders","strategy":"deadline","reason":"expired","outcome":"dead_lettered","exchange":"x","routing_key":"new","message_id":"id-1","body_bytes":7,"enqueued":3000,"deadline":4998,"lateness_ms":1.235,"dead_letter_exchange":"dlx","dead_letter_routing_key":"dead","policy_digest":"0000000000abcdef","queues":["dead","copy"],"trace_id":null}`,
		`{"id":1002,"kind":"message_dead_lettered","time":5000,"vhost":"/","queue":"orders","strategy":"deadline","reason":"rejected","outcome":"dead_lettered","exchange":"","routing_key":"","message_id":null,"body_bytes":0,"enqueued":null,"deadline":null,"lateness_ms":null,"dead_letter_exchange":"dlx","dead_letter_routing_key":null,"policy_digest":null,"queues":["dead"],"more_queues":3,"trace_id":null}`,
		`{"id":1003,"kind":"message_dropped","time":5000,"vhost":"/","queue":"orders","strategy":"deadline","reason":"maxlen","outcome":"dropped","exchange":"","routing_key":"` + strings.Repeat("k", 112) + `","message_id":null,"body_bytes":0,"enqueued":null,"deadline":null,"lateness_ms":null,"dead_letter_exchange":null,"dead_letter_routing_key":null,"policy_digest":null,"queues":null,"trace_id":null,"cut":["routing_key"]}`,
		`{"id":1004,"kind":"message_cycle","time":5000,"vhost":"/","queue":"orders","strategy":"deadline","reason":"expired","outcome":"cycle","exchange":"","routing_key":"","message_id":null,"body_bytes":0,"enqueued":null,"deadline":5000,"lateness_ms":0.0,"dead_letter_exchange":"dlx","dead_letter_routing_key":"dead","policy_digest":null,"overstayed":true,"queues":null,"trace_id":null}`,
		`{"id":1005,"kind":"queue_expired","time":5000,"vhost":"other","queue":"reply","strategy":"deadline","reason":"queue_expired","last_use":-55000,"deadline":4999,"lateness_ms":1.0,"messages_dropped":3,"messages_dead_lettered":2}`,
		`{"id":1006,"kind":"policy_applied","time":1,"vhost":"other","policy":"p","operator":false,"action":"set","queues":4}`,
		`{"id":1007,"kind":"policy_applied","time":1,"vhost":"/","policy":"o","operator":true,"action":"cleared","queues":0}`,
		`{"id":1008,"kind":"module_loaded","time":1,"module":"m","digest":"aa","previous_digest":null,"beside":null}`,
		`{"id":1009,"kind":"module_reloaded","time":1,"module":"m","digest":"bb","previous_digest":"aa","beside":null}`,
		`{"id":1010,"kind":"module_rolled_back","time":1,"module":"m","digest":"aa","previous_digest":"bb","beside":null}`,
		`{"id":1011,"kind":"breaker_opened","time":1,"module":"m","digest":"aa","until":9000,"beside":null}`,
		`{"id":1012,"kind":"breaker_closed","time":1,"module":"m","digest":"aa","beside":null}`,
		`{"id":1013,"kind":"module_unloaded","time":1,"module":"m","digest":"aa","previous_digest":null,"beside":"deadline"}`,
		`{"id":1014,"kind":"alarm_raised","time":1,"alarm":"disk"}`,
		`{"id":1015,"kind":"alarm_cleared","time":1,"alarm":"disk"}`,
	}
	compare(t, r.do(200, "GET", "/api/events?format=ndjson&history=100", ""), strings.Join(want, "\n")+"\n")
}

func TestEventsAsServerSentEvents(t *testing.T) {
	r := over(t)
	w := r.serve(r.request(guest, "GET", "/api/events?history=2&columns=kind,alarm", ""))
	const want = "id: 1014\nevent: alarm_raised\ndata: {\"kind\":\"alarm_raised\",\"alarm\":\"disk\"}\n\n" +
		"id: 1015\nevent: alarm_cleared\ndata: {\"kind\":\"alarm_cleared\",\"alarm\":\"disk\"}\n\n"
	if w.Code != 200 || w.Body.String() != want || w.Header().Get("Content-Type") != "text/event-stream" {
		t.Errorf("got %d %v\n%s", w.Code, w.Header(), w.Body)
	}
	if w := r.serve(r.request(guest, "HEAD", "/api/events?history=2", "")); w.Code != 200 || w.Body.Len() > 0 {
		t.Errorf("HEAD: got %d %s", w.Code, w.Body)
	}
	q := r.request(guest, "GET", "/api/events?history=1", "")
	q.Header.Set("Accept", "application/x-ndjson")
	if w := r.serve(q); w.Body.String() != `{"id":1015,"kind":"alarm_cleared","time":1,"alarm":"disk"}`+"\n" || w.Header().Get("Content-Type") != "application/x-ndjson" {
		t.Errorf("asked for lines: got %v %s", w.Header(), w.Body)
	}
}

// ids lists the numbers of the events that are answered, less 1000, and how many were missed in between.
func ids(body string) string {
	var all []string
	for line := range strings.Lines(body) {
		v, err := jsonobj.Parse([]byte(line))
		if err != nil {
			return err.Error()
		}
		o, _ := jsonobj.FromParsed(v).(object)
		id, _ := o.Value("id")
		text := strconv.Itoa(int(count(id)) - 1000)
		if kind, _ := o.Value("kind"); kind == any("missed") {
			missed, _ := o.Value("count")
			restarted, _ := o.Value("restarted")
			text = "missed" + strconv.Itoa(int(count(missed)))
			if restarted == any(true) {
				text += "r"
			}
		}
		all = append(all, text)
	}
	return strings.Join(all, " ")
}

func TestEventFilters(t *testing.T) {
	r := over(t)
	r.do(201, "PUT", "/api/vhosts/other", "")
	for _, tt := range []struct{ query, want string }{
		{"", ""},
		{"history=0", ""},
		{"history=3", "13 14 15"},
		{"after=1012", "13 14 15"},
		{"after=1012&history=5&kind=alarm_raised", "14"},
		{"history=99&kind=message_expired,queue_expired", "1 5"},
		{"history=99&kind=message_expired&kind=queue_expired,", "1 5"},
		{"history=1&kind=message_expired,queue_expired", "5"},
		{"history=99&reason=expired", "1 4"},
		{"history=99&reason=queue_expired", "5"},
		{"history=99&outcome=dead_lettered", "1 2"},
		{"history=99&outcome=dropped", "3"},
		{"history=99&outcome=cycle,dropped&reason=expired", "4"},
		{"history=99&vhost=other", "5 6"},
		{"history=99&vhost=%2F&kind=policy_applied", "7"},
		{"history=99&queue=reply", "5"},
		{"history=99&queue=none", ""},
		{"history=99&queue_regex=^o.*s$", "1 2 3 4"},
		{"history=99&queue_regex=.*", "1 2 3 4 5"},
		{"history=99&message_id=id-1", "1"},
		{"history=99&message_id=id-1&reason=rejected", ""},
		{"history=99&message_id=id", ""},
		{"history=99&message_id=id-1x", ""},
		{"history=1&message_id=id-1", "1"},
		{"history=99&queue=&message_id=&queue_regex=&kind=&reason=&outcome=&format=ndjson", "1 2 3 4 5 6 7 8 9 10 11 12 13 14 15"},
	} {
		if got := ids(r.do(200, "GET", "/api/events?format=ndjson&"+tt.query, "")); got != tt.want {
			t.Errorf("%s: got %s, want %s", tt.query, got, tt.want)
		}
	}
}

func TestEventsRefused(t *testing.T) {
	r := over(t)
	for _, tt := range []struct {
		status      int
		query, want string
	}{
		{400, "kind=alarm", `kind: \"alarm\" is unknown; there are message_expired, message_dead_lettered, message_dropped, message_cycle, message_released, message_redriven, schedule_cancelled, queue_expired, exchange_deleted, policy_applied, module_loaded, module_reloaded, module_rolled_back, module_unloaded, breaker_opened, breaker_closed, alarm_raised, alarm_cleared, redrive_finished, vhost_moved`},
		{400, "reason=expired,old", `reason: \"old\" is unknown; there are expired, rejected, maxlen, delivery_limit, queue_expired, duplicate, released, redriven, cancelled, too_large`},
		{400, "outcome=lost", `outcome: \"lost\" is unknown; there are dropped, dead_lettered, unroutable, no_exchange, cycle, filtered`},
		{400, "history=-1", `history: \"-1\" is not a number of events from 0 to 2147483647`},
		{400, "after=yesterday", `after: \"yesterday\" is not the id of an event`},
		{400, "after=-1&history=1", `after: \"-1\" is not the id of an event`},
		{400, "history=x", `history: \"x\" is not a number`},
		{400, "history=99999999999999999999", "is not a number of events"},
		{400, "per_second=0", `per_second: \"0\" is not a number of events from 1 to 1000`},
		{400, "per_second=1001", `per_second: \"1001\" is not a number of events from 1 to 1000`},
		{400, "per_second=many", `per_second: \"many\" is not a number of events from 1 to 1000`},
		{400, "format=xml", `format: \"xml\" is unknown; there are sse, ndjson`},
		{400, "queue_regex=((", "queue_regex: missing closing )"},
		{400, "queue_regex=" + strings.Repeat("a", 1025), "queue_regex has 1025 bytes: at most 1024 are allowed"},
		{400, "message_id=" + strings.Repeat("a", 256), "message_id has 256 bytes: at most 255 are allowed"},
		{400, "queue=a&queue_regex=b", "queue and queue_regex exclude each other"},
		{404, "vhost=none", "Not Found"},
	} {
		if got := r.do(tt.status, "GET", "/api/events?"+tt.query, ""); !strings.Contains(got, tt.want) {
			t.Errorf("%s: got %s, want %s", tt.query, got, tt.want)
		}
	}
	q := r.request(guest, "GET", "/api/events", "")
	q.Header.Set("Last-Event-ID", "yesterday")
	if w := r.serve(q); w.Code != 400 || !strings.Contains(w.Body.String(), `Last-Event-ID: \"yesterday\" is not the id of an event`) {
		t.Errorf("got %d %s", w.Code, w.Body)
	}
	for i := range streams.Most {
		must(t, r.api.events.streams.Open("user"+strconv.Itoa(i)))
	}
	if got := r.do(503, "GET", "/api/events", ""); got != `{"error":"too_many_streams","reason":"there are 64 event streams already"}` {
		t.Errorf("got %s", got)
	}
	if got := newRig(t).do(404, "GET", "/api/events", ""); !strings.Contains(got, "telemetry.events is 0") {
		t.Errorf("no events: got %s", got)
	}
}

func TestEventPermissions(t *testing.T) {
	r := over(t)
	for _, u := range [][2]string{{"m", "monitoring"}, {"p", "policymaker"}, {"o", "management"}, {"none", ""}} {
		r.do(201, "PUT", "/api/users/"+u[0], `{"password":"`+u[0]+`","tags":"`+u[1]+`"}`)
	}
	r.do(201, "PUT", "/api/vhosts/other", "")
	r.do(201, "PUT", "/api/permissions/other/o", `{"configure":"","write":"","read":""}`)
	const all = "1 2 3 4 5 6 7 8 9 10 11 12 13 14 15"
	for _, tt := range []struct {
		user, query string
		status      int
		want        string
	}{
		{"m:m", "", 200, all},
		{"m:m", "&vhost=other", 200, "5 6"},
		{"o:o", "", 200, "5 6 14 15"},
		{"o:o", "&vhost=other", 200, "5 6"},
		{"o:o", "&vhost=%2F", 401, ""},
		{"p:p", "", 200, "14 15"},
		{"p:p", "&history=3", 200, "14 15"},
		{"none:none", "", 401, ""},
		{"-", "", 401, ""},
	} {
		w := r.serve(r.request(tt.user, "GET", "/api/events?format=ndjson&history=99"+tt.query, ""))
		if w.Code != tt.status || w.Code == 200 && ids(w.Body.String()) != tt.want {
			t.Errorf("%s %s: got %d %s, want %d %s", tt.user, tt.query, w.Code, w.Body, tt.status, tt.want)
		}
	}
}

func TestEventsResume(t *testing.T) {
	recorder := told(5)
	r := newRig(t, func(o *Options) { o.Events = recorder.Events() })
	ref := &telemetry.QueueRef{VHost: "/", Queue: "q"}
	recorder.Notice(telemetry.Notice{Kind: telemetry.AlarmRaised})  // 1
	recorder.Removed(ref, 1, make([]telemetry.Removal, 10))         // 2 to 11
	recorder.Notice(telemetry.Notice{Kind: telemetry.AlarmCleared}) // 12
	r.api.EndStreams()
	for _, tt := range []struct{ id, query, want string }{
		{"", "history=99", "1 7 8 9 10 11 12"}, // a reader that was not there does not miss forgotten events
		{"1001", "", "missed5 7 8 9 10 11 12"},
		{"1004", "history=1", "missed2 7 8 9 10 11 12"},
		{"1006", "", "7 8 9 10 11 12"},
		{"1009", "", "10 11 12"},
		{"1000", "kind=alarm_raised", "1 missed5"},
		{"1001", "kind=alarm_cleared", "missed5 12"},
		{"1012", "", ""},
		{"5", "", "missed0r 1 missed5 7 8 9 10 11 12"}, // of a life before
		{"2000", "kind=alarm_raised", "missed0r 1 missed5"},
	} {
		q := r.request(guest, "GET", "/api/events?format=ndjson&"+tt.query, "")
		q.Header.Set("Last-Event-ID", tt.id)
		if w := r.serve(q); w.Code != 200 || ids(w.Body.String()) != tt.want {
			t.Errorf("%s %s: got %d %s, want %s", tt.id, tt.query, w.Code, ids(w.Body.String()), tt.want)
		}
	}
}

// stream is a reader of events.
type stream struct {
	t      *testing.T
	answer *http.Response
	lines  *bufio.Scanner
}

// serving returns a broker whose API has a listener.
func serving(t *testing.T, recorder *telemetry.Recorder) (*rig, *httptest.Server) {
	t.Helper()
	r := newRig(t, func(o *Options) { o.Events = recorder.Events() })
	s := httptest.NewUnstartedServer(nil)
	s.Config = Server(r.api, slog.New(slog.DiscardHandler), 0)
	s.Config.RegisterOnShutdown(r.api.EndStreams)
	s.Start()
	t.Cleanup(s.Close)
	return r, s
}

func follow(ctx context.Context, t *testing.T, c *http.Client, address, user string) *stream {
	t.Helper()
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	must(t, err)
	name, password, _ := strings.Cut(user, ":")
	q.SetBasicAuth(name, password)
	answer, err := c.Do(q)
	must(t, err)
	t.Cleanup(func() { _ = answer.Body.Close() })
	if answer.StatusCode != 200 {
		t.Fatalf("got %s", answer.Status)
	}
	return &stream{t, answer, bufio.NewScanner(answer.Body)}
}

// next returns the next line, "" when the stream has ended.
func (s *stream) next() string {
	if !s.lines.Scan() {
		return ""
	}
	return s.lines.Text()
}

func TestEventsAsTheyHappen(t *testing.T) {
	recorder := told(100)
	r, server := serving(t, recorder)
	ctx, hangUp := context.WithCancel(t.Context())
	s := follow(ctx, t, server.Client(), server.URL+"/api/events?format=ndjson&columns=alarm", guest)
	for i := range 100 {
		name := "a" + strconv.Itoa(i)
		recorder.Notice(telemetry.Notice{Kind: telemetry.AlarmRaised, Name: name})
		if i%10 > 0 {
			continue // comes together with the next
		}
		for got := s.next(); !strings.Contains(got, `"`+name+`"`); got = s.next() {
			if got == "" {
				t.Fatal("the stream ended")
			}
		}
	}
	hangUp()
	server.Close()                // waits for requests
	for i := range streams.Most { // there are none left: neither in all, nor of the user
		user := "guest"
		if i >= streams.MostOfUser {
			user = strconv.Itoa(i)
		}
		if err := r.api.events.streams.Open(user); err != nil {
			t.Fatalf("stream %d of %s: %v", i, user, err)
		}
	}
}

// One user with the least of tags could open all streams there may be, and then no other user saw any event.
func TestOneUserLeavesStreamsToOthers(t *testing.T) {
	r, server := serving(t, told(100))
	r.do(201, "PUT", "/api/users/clerk", `{"password": "clerk", "tags": "management"}`)
	ctx, hangUp := context.WithCancel(t.Context())
	defer hangUp()
	address := server.URL + "/api/events"
	for range streams.MostOfUser - 1 {
		follow(ctx, t, server.Client(), address, "clerk:clerk")
	}
	ctxOfOne, hangUpOne := context.WithCancel(ctx)
	defer hangUpOne()
	follow(ctxOfOne, t, server.Client(), address, "clerk:clerk")
	w := r.serve(r.request("clerk:clerk", "GET", "/api/events", ""))
	if w.Code != 503 || w.Body.String() != `{"error":"too_many_streams","reason":"user 'clerk' has 16 event streams already"}` {
		t.Errorf("got %d %s", w.Code, w.Body)
	}
	follow(ctx, t, server.Client(), address, guest)
	hangUpOne()
	for r.api.events.streams.Open("clerk") != nil { // until the broker has noticed
		runtime.Gosched()
	}
}

// A broker that ends does not wait for the readers of its events.
func TestShutdownEndsStreams(t *testing.T) {
	_, server := serving(t, told(100))
	var all []*stream
	for range 3 {
		all = append(all, follow(t.Context(), t, server.Client(), server.URL+"/api/events", guest))
	}
	must(t, server.Config.Shutdown(t.Context()))
	for _, s := range all {
		if got := s.next(); got != "" {
			t.Errorf("got %q after the end", got)
		}
	}
}

// A stream ends when its user loses the right to it.
func TestStreamsEndWithTheirUser(t *testing.T) {
	recorder := told(100)
	r, server := serving(t, recorder)
	r.do(201, "PUT", "/api/users/u", `{"password":"u","tags":"monitoring"}`)
	r.do(201, "PUT", "/api/users/v", `{"password":"v","tags":"monitoring"}`)
	u := follow(t.Context(), t, server.Client(), server.URL+"/api/events?format=ndjson", "u:u")
	v := follow(t.Context(), t, server.Client(), server.URL+"/api/events?format=ndjson", "v:v")
	r.do(204, "DELETE", "/api/users/u", "")
	account, _ := r.api.users().Lookup("v")
	account.Tags = []string{"management"}
	_, err := r.api.users().Set(account)
	must(t, err)
	recorder.Notice(telemetry.Notice{Kind: telemetry.ModuleLoaded, Name: "m"})
	recorder.Notice(telemetry.Notice{Kind: telemetry.AlarmRaised, Name: "disk"})
	if got := u.next(); got != "" {
		t.Errorf("a user who was deleted got %s", got)
	}
	if got := v.next(); !strings.Contains(got, "disk") {
		t.Errorf("a user who is no monitor any more got %s", got)
	}
}

// bubble is an API in a synctest bubble, behind a pipe.
func bubble(t *testing.T, recorder *telemetry.Recorder) (client net.Conn) {
	t.Helper()
	client, _ = bubbleOf(t, recorder)
	return client
}

// bubbleOf returns the server, too.
func bubbleOf(t *testing.T, recorder *telemetry.Recorder) (client net.Conn, server *http.Server) {
	t.Helper()
	c, err := chain.New(nil, chain.Options{})
	must(t, err)
	log := slog.New(slog.DiscardHandler)
	kept, err := store.Open(t.Context(), store.Options{Dir: crashfs.New(1), SegmentSize: 1 << 20, Shards: 1, Chain: c, Clock: clock.New(), Log: log})
	must(t, err)
	api := New(Options{
		Store: kept, Clock: clock.New(), Log: log, Events: recorder.Events(), Alarms: func() []string { return nil }, BodyMax: 1 << 20, Session: time.Minute,
	})
	server = Server(api, log, 0)
	server.RegisterOnShutdown(api.EndStreams)
	client, far := net.Pipe()
	l := &single{conn: make(chan net.Conn, 1), closed: make(chan struct{})}
	l.conn <- far
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(l) }()
	t.Cleanup(func() {
		must(t, client.Close())
		must(t, server.Close())
		<-ended
		synctest.Wait() // until the request is over
		must(t, kept.Close(context.WithoutCancel(t.Context())))
	})
	return client, server
}

// single is a listener with one connection.
type single struct {
	conn   chan net.Conn
	closed chan struct{}
}

func (l *single) Accept() (net.Conn, error) {
	select {
	case c := <-l.conn:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *single) Close() error   { close(l.closed); return nil }
func (l *single) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)} }

const asksForEvents = "GET /api/events HTTP/1.1\r\nHost: x\r\nAuthorization: Basic Z3Vlc3Q6Z3Vlc3Q=\r\n\r\n"

// A stream outlives the limits that other requests have, shows that it is alive, and pays nothing meanwhile.
func TestStreamsLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		recorder := told(100)
		client := bubble(t, recorder)
		_, err := client.Write([]byte(asksForEvents))
		must(t, err)
		answer, err := http.ReadResponse(bufio.NewReader(client), nil)
		must(t, err)
		defer answer.Body.Close() // reads to the end
		defer client.Close()      // which is here
		s := &stream{t, answer, bufio.NewScanner(answer.Body)}
		began := time.Now()
		for range 20 {
			if got := s.next() + s.next(); got != ":" {
				t.Fatalf("got %q after %v", got, time.Since(began))
			}
		}
		if got := time.Since(began); got != 20*heartbeat {
			t.Errorf("20 heartbeats took %v", got)
		}
		time.Sleep(heartbeat / 2)
		recorder.Notice(telemetry.Notice{Kind: telemetry.AlarmRaised, Name: "disk"})
		began = time.Now()
		if got := s.next(); got != "id: 1001" || time.Since(began) > gather {
			t.Errorf("got %q after %v", got, time.Since(began))
		}
	})
}

// A reader that does not read is cut off, and holds nothing up.
func TestDeadReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		recorder := told(100)
		client := bubble(t, recorder)
		_, err := client.Write([]byte(asksForEvents))
		must(t, err)
		_, err = http.ReadResponse(bufio.NewReaderSize(client, 16), nil) //nolint:bodyclose // not reading is the point
		must(t, err)
		for range 1000 {
			recorder.Removed(&telemetry.QueueRef{VHost: "/", Queue: "q"}, 1, make([]telemetry.Removal, 50))
		}
		time.Sleep(gather + streamTimeout + time.Second)
		rest := 0
		for err == nil { // bytes that the server could not send are lost
			var n int
			n, err = client.Read(make([]byte, 4096))
			rest += n
		}
		if rest > 64<<10 {
			t.Errorf("%d bytes were kept for it", rest)
		}
	})
}

// Nor does it hold up the end of the broker.
func TestDeadReaderAtTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		recorder := told(100)
		client, server := bubbleOf(t, recorder)
		_, err := client.Write([]byte(asksForEvents))
		must(t, err)
		_, err = http.ReadResponse(bufio.NewReaderSize(client, 16), nil) //nolint:bodyclose // not reading is the point
		must(t, err)
		recorder.Removed(&telemetry.QueueRef{VHost: "/", Queue: "q"}, 1, make([]telemetry.Removal, 100))
		time.Sleep(2 * gather) // now it is being written
		began := time.Now()
		if err := server.Shutdown(t.Context()); err != nil || time.Since(began) > 2*lastTime {
			t.Errorf("got %v after %v", err, time.Since(began))
		}
	})
}

// Any parameters are understood or refused.
func FuzzEventFilter(f *testing.F) {
	for _, s := range []string{
		"kind=message_expired,queue_expired&reason=expired&outcome=cycle&history=10&vhost=%2F", "queue=a&queue_regex=b", "queue_regex=(a|b)*$",
		"history=99999999999999999999", "kind=,,,&reason=&outcome=,", "kind=%ff&reason=%00", "vhost", "queue_regex=\\pN{1000}{1000}",
	} {
		f.Add(s)
	}
	recorder := told(100)
	everything(recorder)
	all := make([]telemetry.Event, 100)
	all = all[:recorder.Events().Read(recorder.Events().First(), all)]
	turns := pattern.NewTurns(clock.New())
	f.Fuzz(func(t *testing.T, raw string) {
		q, err := parseParameters(raw)
		if err != nil {
			return
		}
		filter, err := events.ParseFilter(turns, q.raw)
		if err != nil {
			if f := failureOf(err); f == nil || f.status != 400 {
				t.Errorf("%q: %v", raw, err)
			}
			return
		}
		run := filter.Begin(nil, 0)
		defer run.End()
		for i := range all {
			e := &all[i]
			if filter.Passes(e, run) && (filter.InVHost && e.VHost != filter.VHost || !chosen(q.raw["kind"], e.Kind.String())) {
				t.Errorf("%q: event %d passes", raw, e.Seq)
			}
		}
	})
}

// chosen reports whether a name is in lists of names that are not all empty.
func chosen(lists []string, name string) bool {
	all := strings.Split(strings.Join(lists, ","), ",")
	all = slices.DeleteFunc(all, func(s string) bool { return s == "" })
	return len(all) == 0 || slices.Contains(all, name)
}
