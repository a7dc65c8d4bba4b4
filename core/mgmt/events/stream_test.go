package events

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/curfewmq/curfew/core/clock"
	"github.com/curfewmq/curfew/core/mgmt/pattern"
	"github.com/curfewmq/curfew/core/mgmt/streams"
	"github.com/curfewmq/curfew/core/telemetry"
	"github.com/curfewmq/curfew/sdk/hook"
)

// slow is a reader that may see everything. Each check takes twenty microseconds.
type slow struct{ last time.Time }

func (*slow) Renew() bool { return true }

func (s *slow) MaySee(*telemetry.Event) bool {
	time.Sleep(20 * time.Microsecond)
	s.last = time.Now()
	return true
}

// Ten pages that followed the events of a storm took both processors, so that the storm lasted eleven seconds instead of a quarter of one.
func TestStreamsLeaveTheProcessorToQueues(t *testing.T) {
	const batches = 10
	for open, want := range map[int]time.Duration{ // a batch takes 1280 µs; each stream rests after it
		1: (10 + 9) * 1280 * time.Microsecond,
		5: (10 + 9*9) * 1280 * time.Microsecond,
	} {
		synctest.Test(t, func(t *testing.T) {
			now, reader := clock.New(), &slow{}
			recorder := telemetry.New(telemetry.Options{Events: 1000, Clock: now})
			all := streams.New("event streams")
			for i := range open {
				if err := all.Open(strconv.Itoa(i)); err != nil {
					t.Fatal(err)
				}
			}
			filter, err := ParseFilter(nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/api/events", http.NoBody)
			s, err := New(httptest.NewRecorder(), r, Options{Ring: recorder.Events(), Filter: filter, Reader: reader, Clock: now, Streams: all})
			if err != nil {
				t.Fatal(err)
			}
			recorder.Removed(&telemetry.QueueRef{VHost: "/", Queue: "q"}, now(), make([]telemetry.Removal, batches*atOnce))
			began := time.Now()
			go s.Run()
			time.Sleep(time.Second)
			cancel()
			synctest.Wait()
			if took := reader.last.Sub(began); took != want {
				t.Errorf("%d streams: the last event was sent after %v, want %v", open, took, want)
			}
		})
	}
}

// blind is a reader that may see nothing.
type blind struct{}

func (blind) Renew() bool { return true }

func (blind) MaySee(*telemetry.Event) bool { return false }

// A reader could find out by the time of a comparison which queues other users' vhosts have.
func TestExpressionsAreComparedOnlyWithWhatTheReaderMaySee(t *testing.T) {
	now := clock.New()
	recorder := telemetry.New(telemetry.Options{Events: 1000, Clock: now})
	recorder.Removed(&telemetry.QueueRef{VHost: "/", Queue: strings.Repeat("a", 300)}, now(), make([]telemetry.Removal, 500))
	turns := 0
	filter, err := ParseFilter(pattern.NewTurns(func() hook.Instant { turns++; return 0 }), url.Values{"queue_regex": {strings.Repeat("b", 1000)}, "history": {"100"}})
	if err != nil {
		t.Fatal(err)
	}
	for reader, most := range map[Reader]int{blind{}: 2, sees{}: 2000} {
		turns = 0
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/api/events", http.NoBody)
		if _, err := New(httptest.NewRecorder(), r, Options{Ring: recorder.Events(), Filter: filter, Reader: reader, Clock: now, Streams: streams.New("event streams")}); err != nil {
			t.Fatal(err)
		}
		if _, isBlind := reader.(blind); turns > most || !isBlind && turns < 500 {
			t.Errorf("%T: the clock was asked %d times", reader, turns)
		}
	}
}
