package events

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/curfewmq/curfew/core/clock"
	"github.com/curfewmq/curfew/core/mgmt/streams"
	"github.com/curfewmq/curfew/core/telemetry"
)

// sees is a reader with all rights.
type sees struct{}

func (sees) Renew() bool { return true }

func (sees) MaySee(*telemetry.Event) bool { return true }

// line is a line that a stream has sent, with its time.
type line struct {
	ID, Count   uint64
	Kind, Queue string
	at          time.Duration // since the stream began
}

// lines are the lines of a stream.
type lines struct {
	*httptest.ResponseRecorder
	t     *testing.T
	began time.Time
	all   []line
}

func (l *lines) Write(b []byte) (int, error) {
	for text := range strings.Lines(string(b)) {
		if text == "\n" {
			continue
		}
		one := line{at: time.Since(l.began)}
		if err := json.Unmarshal([]byte(text), &one); err != nil {
			l.t.Errorf("%s: %v", text, err)
		}
		l.all = append(l.all, one)
	}
	return len(b), nil
}

// streamed returns what a stream with a query sends while play runs, and in the two seconds after it.
func streamed(t *testing.T, query string, size int, play func(recorder *telemetry.Recorder, begin func())) []line {
	t.Helper()
	var got []line
	synctest.Test(t, func(t *testing.T) {
		now := clock.New()
		recorder := telemetry.New(telemetry.Options{Events: size, Clock: now})
		ctx, cancel := context.WithCancel(t.Context())
		out := &lines{ResponseRecorder: httptest.NewRecorder(), t: t}
		play(recorder, func() {
			q, err := url.ParseQuery(query)
			if err != nil {
				t.Fatal(err)
			}
			filter, err := ParseFilter(nil, q)
			if err != nil {
				t.Fatal(err)
			}
			out.began = time.Now()
			r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/api/events?format=ndjson&"+query, http.NoBody)
			s, err := New(out, r, Options{Ring: recorder.Events(), Filter: filter, Reader: sees{}, Clock: now, Streams: streams.New("event streams")})
			if err != nil {
				t.Fatal(err)
			}
			go s.Run()
		})
		time.Sleep(2 * time.Second)
		cancel()
		synctest.Wait()
		got = out.all
	})
	return got
}

var orders, others = &telemetry.QueueRef{VHost: "/", Queue: "orders"}, &telemetry.QueueRef{VHost: "/", Queue: "others"}

// A storm of 20,000 expiries a second made the broker write 20,000 lines a second for each open page, which showed 24 of them.
func TestABoundStreamSendsSoManyASecond(t *testing.T) {
	for _, tt := range []struct {
		query     string
		perSecond int
	}{{"per_second=24", 24}, {"per_second=1", 1}, {"per_second=3", 3}, {"per_second=24&queue=orders", 24}} {
		const ticks, each = 100, 1000 // 5 s of 20,000 a second
		var alarms []uint64
		got := streamed(t, tt.query, 100_000, func(recorder *telemetry.Recorder, begin func()) {
			begin()
			for i := range ticks {
				recorder.Removed(orders, 1, make([]telemetry.Removal, each/2))
				recorder.Removed(others, 1, make([]telemetry.Removal, each/2))
				if i%10 == 0 {
					recorder.Notice(telemetry.Notice{Kind: telemetry.AlarmRaised, Name: "disk"})
					alarms = append(alarms, recorder.Events().Last())
				}
				time.Sleep(50 * time.Millisecond)
			}
		})
		total := ticks * each
		if strings.Contains(tt.query, "orders") {
			total, alarms = total/2, nil
		}
		sent, leftOut, last, lastTime := 0, 0, uint64(0), time.Duration(0)
		var at []time.Duration
		for _, l := range got {
			if l.ID < last {
				t.Fatalf("%s: event %d comes after %d", tt.query, l.ID, last)
			}
			last = l.ID
			switch l.Kind {
			case kindLeftOut:
				leftOut += int(l.Count)
			case kindMissed:
				t.Errorf("%s: %d are missed", tt.query, l.Count)
			case "alarm_raised":
				if len(alarms) == 0 || alarms[0] != l.ID {
					t.Fatalf("%s: got alarm %d, want %v", tt.query, l.ID, alarms)
				}
				alarms = alarms[1:]
			default:
				sent++
				at, lastTime = append(at, l.at), l.at
			}
		}
		if sent+leftOut != total || len(alarms) > 0 {
			t.Errorf("%s: %d events were sent, %d left out of %d; %d alarms are missing", tt.query, sent, leftOut, total, len(alarms))
		}
		for i := tt.perSecond; i < len(at); i++ {
			if in := at[i] - at[i-tt.perSecond]; in < time.Second {
				t.Fatalf("%s: %d events were sent in %v", tt.query, tt.perSecond+1, in)
			}
		}
		if sent < 4*tt.perSecond || lastTime > 7*time.Second {
			t.Errorf("%s: %d events were sent, the last after %v", tt.query, sent, lastTime)
		}
	}
}

// A few events are sent at once, and all of them.
func TestABoundStreamLeavesOutNothingOfAFew(t *testing.T) {
	const pause, few = 61 * time.Second, 10 // no multiple of a heartbeat
	got := streamed(t, "per_second=24", 1000, func(recorder *telemetry.Recorder, begin func()) {
		begin()
		time.Sleep(pause)
		for range 5 {
			recorder.Removed(orders, 1, make([]telemetry.Removal, few))
			time.Sleep(time.Second)
		}
	})
	if len(got) != 5*few {
		t.Fatalf("got %d events, want %d", len(got), 5*few)
	}
	for i, l := range got {
		if want := pause + time.Duration(i/few)*time.Second + gather; l.Kind == kindLeftOut || l.at != want {
			t.Errorf("%s %d came after %v, want %v", l.Kind, l.ID, l.at, want)
		}
	}
}

// Events that come together after a pause are sent together, however the stream reads them.
func TestABoundStreamSendsOnceWhatComesTogether(t *testing.T) {
	got := streamed(t, "per_second=24", 1000, func(recorder *telemetry.Recorder, begin func()) {
		begin()
		time.Sleep(61 * time.Second) // no multiple of a heartbeat
		recorder.Removed(orders, 1, make([]telemetry.Removal, 5*atOnce))
	})
	if len(got) != 13 || got[0].Kind != kindLeftOut || got[0].Count != 5*atOnce-12 {
		t.Errorf("got %v", got)
	}
}

// A reader that resumes gets the latest events since, as many as it would get of the history, and the number of earlier ones.
func TestABoundStreamGoesOn(t *testing.T) {
	for query, want := range map[string]struct{ leftOut, sent, missed uint64 }{
		"per_second=24&history=200": {300, 200, 0}, "per_second=24": {488, 12, 0}, "per_second=1000": {0, 500, 0},
		"per_second=24&size=100": {88, 12, 400},
	} {
		size := 1000
		if strings.Contains(query, "size") {
			size = 100
		}
		var leftOut, sent, missed uint64
		for _, l := range streamed(t, query+"&after=0", size, func(recorder *telemetry.Recorder, begin func()) {
			recorder.Removed(orders, 1, make([]telemetry.Removal, 500))
			begin()
		}) {
			switch l.Kind {
			case kindLeftOut:
				leftOut += l.Count
			case kindMissed:
				missed += l.Count
			default:
				sent++
			}
		}
		if leftOut != want.leftOut || sent != want.sent || missed != want.missed {
			t.Errorf("%s: %d left out, %d sent, %d missed; want %+v", query, leftOut, sent, missed, want)
		}
	}
}
