package live

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/curfewmq/curfew/core/chain"
	"github.com/curfewmq/curfew/core/clock"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/core/store"
	"github.com/curfewmq/curfew/core/vhost"
	"github.com/curfewmq/curfew/core/wlog/crashfs"
	"github.com/curfewmq/curfew/sdk/hook"
)

// newSurvey returns a survey of a broker without queues.
func newSurvey(t *testing.T) (*Survey, *store.Store) {
	t.Helper()
	c, err := chain.New(nil, chain.Options{})
	if err != nil {
		t.Fatal(err)
	}
	kept, err := store.Open(t.Context(), store.Options{
		Dir: crashfs.New(1), SegmentSize: 1 << 20, Shards: 1, Chain: c, Clock: clock.New(), Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = kept.Close(context.WithoutCancel(t.Context())) })
	return NewSurvey(kept.VHosts, clock.New()), kept
}

// A survey looks at queues that have changed, and at no others; it notices queues that come and go.
func TestSurveyLooksAtWhatHasChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, kept := newSurvey(t)
		v, _ := kept.VHost("/")
		counted := func() map[string]hook.Instant {
			time.Sleep(period)
			all := map[string]hook.Instant{}
			s.Read(func(r *Reading) {
				for _, e := range r.Tenants[0].Entries {
					all[e.Config.Name] = e.counted
				}
			})
			return all
		}
		for _, name := range []string{"a", "b"} {
			if _, err := v.DeclareQueue(vhost.QueueDeclare{Name: name}); err != nil {
				t.Fatal(err)
			}
		}
		first := counted()
		_ = v.Mailbox("b").Do(func(*queue.Queue, hook.Instant) {})
		second := counted()
		if len(first) != 2 || second["a"] != first["a"] || second["b"] == first["b"] {
			t.Errorf("at first %v, then %v: only b has changed", first, second)
		}
		if _, err := v.DeleteQueue("a", 0, false, false); err != nil {
			t.Fatal(err)
		}
		if third := counted(); len(third) != 1 {
			t.Errorf("a is deleted: got %v", third)
		}
	})
}

// Where queues came and went in each second, or a vhost had none, each collection began with the first queue: if there was no time for
// all of them, the last ones were never counted.
func TestSurveyGoesOnWhereItWas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, kept := newSurvey(t)
		if _, err := kept.AddVHost("empty", vhost.Metadata{}); err != nil {
			t.Fatal(err)
		}
		v, _ := kept.VHost("/")
		declare := func(name string) {
			if _, err := v.DeclareQueue(vhost.QueueDeclare{Name: name}); err != nil {
				t.Fatal(err)
			}
		}
		for _, name := range []string{"a", "b", "c"} {
			declare(name)
		}
		list := func() {
			s.number++ // as the end of a collection does
			s.list()
		}
		list()
		s.from = 1
		set := s.set
		if list(); s.set != set || s.from != 1 {
			t.Errorf("nothing came or went: set %d after %d, from %d", s.set, set, s.from)
		}
		declare("aa")
		if list(); s.set == set || s.all[s.from].Config.Name != "b" {
			t.Errorf("set %d after %d, from %d of %d", s.set, set, s.from, len(s.all))
		}
		if _, err := v.DeleteQueue("b", 0, false, false); err != nil {
			t.Fatal(err)
		}
		if list(); s.from != 0 || len(s.all) != 3 {
			t.Errorf("from %d of %d", s.from, len(s.all))
		}
	})
}

// Entering and leaving messages are counted from one collection to the next, and not before the second one.
func TestEntryFlow(t *testing.T) {
	e, now := &Entry{}, hook.Instant(time.Hour)
	was := queue.Counters{}
	e.Stats.Published = 1000
	if e.flow(now, &was); e.In != 0 || e.Out != 0 {
		t.Errorf("first: got %v in, %v out", e.In, e.Out)
	}
	was, now = e.Stats.Counters, now.Add(2*time.Second)
	e.Stats.Published, e.Stats.Delivered, e.Stats.DeliveredNoAck = 1010, 3, 4
	if e.flow(now, &was); e.In != 5 || e.Out != 3.5 {
		t.Errorf("second: got %v in, %v out, want 5 and 3.5", e.In, e.Out)
	}
	was, now = e.Stats.Counters, now.Add(time.Second)
	e.Stats.Counters = queue.Counters{} // as of a queue that has stopped
	if e.flow(now, &was); e.In != 0 || e.Out != 0 {
		t.Errorf("counts that are gone: got %v in, %v out", e.In, e.Out)
	}
}
