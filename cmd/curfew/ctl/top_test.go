package ctl

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

const topState = `{"at":1000000,"alarms":[{"name":"disk","text":"There is less."}],"counts":{"connections":2,"channels":3,"consumers":4},` +
	`"totals":{"ready":1234567,"unacked":5,"held":6},"queues":3,"page":1,"page_count":2,"lateness":{"p99":12.5},` +
	`"next":{"kind":"deadline","at":1004500},"node":{"memory":1500000,"memory_limit":3000000000,"disk_free":1,"disk_limit":0,"uptime_ms":200000},` +
	`"order":["/\u0000a","/\u0000b","v\u0000c"],"rows":{` +
	`"/\u0000a":{"vhost":"/","name":"a","ready":123456,"unacked":1,"held":0,"consumers":2,"bytes":2500000,"in":12.5,"out":0.4,"next_deadline":1300000,"oldest":400000,"strategy":"deadline"},` +
	`"/\u0000b":{"vhost":"/","name":"\u001b[2Jevil\u202e","ready":0,"in":0,"out":0,"next_release":999000},` +
	`"v\u0000c":{"vhost":"v","name":"注文の長い名前のキュー","ready":7}}}`

func newTop(t *testing.T, state string) *top {
	t.Helper()
	s, err := patched("state", nil, state)
	if err != nil {
		t.Fatal(err)
	}
	return &top{sort: "rate", broker: object{"product_name": encoded("Curfew"), "product_version": encoded("1.0"), "node": encoded("curfew@h")}, state: s}
}

func TestTopFrame(t *testing.T) {
	got := strings.Join(newTop(t, topState).frame(120, 0), "\n")
	for _, want := range []string{
		"Curfew 1.0  curfew@h  up 3m  00:16:40Z\n",
		"publish -  deliver -",
		"ready 1.23M  unacked 5  held 6  lateness p99 12ms  next deadline in 4.5s\n",
		"connections 2  channels 3  consumers 4  queues 3  memory 1.5 MB of 3 GB  disk 1 B free, limit 0 B\n",
		"ALARM disk: There is less.\n",
		"QUEUE ", " READY UNACKED    HELD    IN/S   OUT/S    DUE    LAG  CONS    BYTES     STRATEGY\n",
		"    123k       1       0      12     0.4     5m    10m     2   2.5 MB     deadline\n",
		`"\x1b[2Jevil\u202e"`, "    now      -",
		"注文の長い名前のキュー in v ",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("there is no %q in\n%s", want, got)
		}
	}
}

// On a screen of any size there are a header, a queue and the keys, and no line is wider than the screen.
func TestTopFits(t *testing.T) {
	for width := leastWidth; width < 140; width += 3 {
		for _, height := range []int{10, 11, 15, 24, 60} {
			for _, problem := range []string{"", "the connection was cut\x1b: connecting again"} {
				o := newTop(t, topState)
				o.problem = problem
				lines := o.frame(width, height)
				all := strings.Join(lines, "\n")
				if len(lines) > height || !strings.Contains(all, "QUEUE") || !strings.Contains(all, "\na ") || !strings.HasPrefix(lines[len(lines)-1], "by rate, page 1 of 2") {
					t.Fatalf("%dx%d: got %d lines\n%s", width, height, len(lines), all)
				}
				for _, line := range lines {
					if widthOf(line) > width || strings.Contains(line, "\x1b") {
						t.Fatalf("%dx%d: got %q", width, height, line)
					}
				}
			}
		}
	}
}

// A terminal below the least size once got a full frame: it scrolled, and lines wrapped.
func TestTopOnATinyTerminal(t *testing.T) {
	for _, size := range [][2]int{{20, 5}, {1, 1}, {39, 9}, {20, 60}, {200, 3}} {
		width, height := size[0], size[1]
		lines := cropped(newTop(t, topState).frame(max(width, leastWidth), max(height, leastHeight)), width, height)
		if len(lines) == 0 || len(lines) > height {
			t.Errorf("%dx%d: got %d lines", width, height, len(lines))
		}
		for _, line := range lines {
			if widthOf(line) > width {
				t.Errorf("%dx%d: got %q", width, height, line)
			}
		}
	}
}

func TestKeysOf(t *testing.T) {
	for typed, want := range map[string][]string{
		"":               nil,
		"q":              {"q"},
		"nnq":            {"n", "n", "q"},
		"\x03\x03":       {"\x03", "\x03"},
		"\x1b[B\x1b[6~q": {"\x1b[B", "\x1b[6~", "q"},
		"\x1b[1;5Cq":     {"\x1b[1;5C", "q"},
		"\x1bq":          {"\x1b", "q"},
		"\x1b[":          {"\x1b["},
		"\x1b[6":         {"\x1b[6"},
		"ß":              {"\xc3", "\x9f"},
	} {
		if got := keysOf(typed); !slices.Equal(got, want) {
			t.Errorf("%q: got %q, want %q", typed, got, want)
		}
	}
}

func TestTopOfNothing(t *testing.T) {
	for _, state := range []string{"{}", `{"rows":[],"order":{},"node":1,"alarms":{},"at":"x","rates":[]}`, `{"order":["x",1,null],"rows":{"x":1}}`} {
		if got := newTop(t, state).frame(80, 24); len(got) < 5 {
			t.Errorf("%s: got %q", state, got)
		}
	}
}

func TestCompact(t *testing.T) {
	for n, want := range map[float64]string{0: "0", 0.5: "0.5", 9.9: "9.9", 12.5: "12", 99999: "99999", 100000: "100k", 1234567: "1.23M", 1e18: "1E", 5e9: "5G"} {
		if got := compact(n); got != want {
			t.Errorf("%v: got %s, want %s", n, got, want)
		}
	}
	for d, want := range map[time.Duration]string{
		0: "0ms", 250 * time.Millisecond: "250ms", 3200 * time.Millisecond: "3.2s", 90 * time.Second: "90s", 45 * time.Minute: "45m", 30 * time.Hour: "30h", 1000 * time.Hour: "41d",
	} {
		if got := brief(d); got != want {
			t.Errorf("%v: got %s, want %s", d, got, want)
		}
	}
}

func TestMerge(t *testing.T) {
	s, err := patched("state", nil, `{"a":{"b":1,"c":{"d":2}},"e":[1,2],"f":3}`)
	if err != nil {
		t.Fatal(err)
	}
	if s, err = patched("change", s, `{"a":{"b":null,"c":{"d":5,"x":6}},"e":[3],"g":{"h":7},"f":null}`); err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(s); got != "map[a:map[c:map[d:5 x:6]] e:[3] g:map[h:7]]" {
		t.Errorf("got %s", got)
	}
	for _, bad := range [][2]string{{"change", "{}"}, {"state", "null"}, {"other", "{}"}, {"state", "[]"}, {"state", "{"}} {
		if _, err := patched(bad[0], nil, bad[1]); err == nil {
			t.Errorf("%v is accepted", bad)
		}
	}
}

// viewing is a broker with a live view that sends one state a second; its streams end after a number of states.
type viewing struct {
	asked  []string
	states int // of each stream; 0 = it goes on
	refuse int
	kind   string
}

func (b *viewing) answer(r *http.Request) (*http.Response, error) {
	b.asked = append(b.asked, r.URL.Path+"?"+r.URL.RawQuery)
	header := http.Header{"Content-Type": {"application/json"}}
	if strings.HasSuffix(r.URL.Path, "/overview") {
		return &http.Response{StatusCode: 200, Header: header, Body: io.NopCloser(strings.NewReader(`{"product_name":"Curfew","node":"n"}`)), Request: r}, nil
	}
	if b.refuse != 0 {
		return &http.Response{StatusCode: b.refuse, Status: strconv.Itoa(b.refuse), Header: header, Body: io.NopCloser(strings.NewReader(`{"reason":"Not Found"}`)), Request: r}, nil
	}
	from, to := io.Pipe()
	go func() {
		for i := 0; b.states == 0 || i < b.states; i++ {
			if i == 0 {
				fmt.Fprintf(to, "retry: 1000\n\nid: 1\nevent: state\ndata: %s\n\n", topState)
			} else {
				fmt.Fprintf(to, "event: change\ndata: {\"at\":%d,\"rates\":{\"publish\":%d}}\n\n", 1000000+i*1000, i)
			}
			select {
			case <-r.Context().Done():
				_ = to.CloseWithError(r.Context().Err())
				return
			case <-time.After(time.Second):
			}
		}
		_ = to.CloseWithError(io.ErrUnexpectedEOF)
	}()
	if header.Set("Content-Type", "text/event-stream"); b.kind != "" {
		header.Set("Content-Type", b.kind)
	}
	return &http.Response{StatusCode: http.StatusOK, Header: header, Body: from, Request: r}, nil
}

func TestTopWithoutTerminal(t *testing.T) {
	for _, tt := range []struct {
		args    string
		broker  viewing
		status  int
		printed int // blocks; -1 = any number
		took    time.Duration
		asked   string // the last path
		stderr  string
	}{
		{"top --once", viewing{}, 0, 1, time.Second, "/api/live?page=1&page_size=20&sort=rate&view=top", ""},
		{"top --count 3 -p v --sort due --rows 500", viewing{}, 0, 3, 3 * time.Second, "/api/live?page=1&page_size=500&sort=due&vhost=v&view=top", ""},
		{"top --count 3 --interval 10s", viewing{}, 0, 3, 21 * time.Second, "", ""},
		{"top --timeout 5", viewing{}, 0, -1, 5 * time.Second, "", ""},
		{"top --count 4", viewing{states: 3}, 0, 4, 5500 * time.Millisecond, "", "the connection was cut, by the broker or by a proxy in between: connecting again"},
		{"top", viewing{refuse: 404}, unavailable, 0, 0, "", "this broker has no live views: top needs Curfew"},
		{"top -p v", viewing{refuse: 404}, dataError, 0, 0, "", "Virtual host 'v' does not exist"},
		{"top", viewing{kind: "text/html"}, unavailable, 0, 0, "", "answers with text/html and not with a live view"},
		{"top --sort name", viewing{}, usageError, 0, 0, "", "--sort name: expected one of rate, due, lag, messages, bytes"},
		{"top --interval 100ms", viewing{}, usageError, 0, 0, "", "--interval 100ms: accepted are 1s to 1h"},
		{"top --count 0", viewing{}, usageError, 0, 0, "", "--count 0: accepted are 1 and more"},
		{"top --rows 501", viewing{}, usageError, 0, 0, "", "--rows 501: accepted are 1 to 500"},
		{"top --formatter csv", viewing{}, usageError, 0, 0, "", "top prints text, or JSON"},
	} {
		t.Run(tt.args, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var stdout, stderr strings.Builder
				p := &Program{Name: "curfew ctl", Stdout: &stdout, Stderr: &stderr, transport: transport(tt.broker.answer)}
				ctx, interrupt := context.WithTimeout(t.Context(), time.Hour)
				defer interrupt()
				began := time.Now()
				status := p.report(p.run(ctx, strings.Fields(tt.args)))
				took := time.Since(began)
				interrupt()
				time.Sleep(time.Second)
				synctest.Wait()
				if status != tt.status || took != tt.took || tt.printed >= 0 && strings.Count(stdout.String(), "QUEUE") != tt.printed || !strings.Contains(stderr.String(), tt.stderr) {
					t.Errorf("exit status %d after %v: %s%s", status, took, &stdout, &stderr)
				}
				if tt.asked != "" && tt.broker.asked[len(tt.broker.asked)-1] != tt.asked {
					t.Errorf("asked for %s", tt.broker.asked)
				}
				if tt.printed > 0 && (!strings.Contains(stdout.String(), "publish 1/s") || strings.Contains(stdout.String(), "\x1b")) {
					t.Errorf("got %q", &stdout)
				}
			})
		})
	}
}
