package broker

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/chain"
	"github.com/curfewmq/curfew/core/clock"
	"github.com/curfewmq/curfew/core/parts"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/core/store"
	"github.com/curfewmq/curfew/core/vhost"
	"github.com/curfewmq/curfew/core/wlog/crashfs"
	"github.com/curfewmq/curfew/core/wlog/vfs"
	"github.com/curfewmq/curfew/plugins/delay"
	"github.com/curfewmq/curfew/sdk/hook"
	"github.com/curfewmq/curfew/sdk/hooktest"
)

// calendar is a broker without sockets, in simulated time.
type calendar struct {
	t     *testing.T
	store *store.Store
	vhost *vhost.VHost
	clock clock.Clock
}

// openCalendar opens a broker whose clock is off by so much. plugins.delay has the section.
func openCalendar(t *testing.T, dir vfs.FS, off time.Duration, section hooktest.Section) *calendar {
	t.Helper()
	plugin := hooktest.New(t, delay.Factory, section)
	c, err := chain.New([]chain.Named{{Name: "delay", Plugin: plugin}}, chain.Options{})
	if err != nil {
		t.Fatal(err)
	}
	running := clock.New()
	shifted := func() hook.Instant { return running().Add(off) }
	s, err := store.Open(t.Context(), store.Options{Dir: dir, SegmentSize: 1 << 20, Shards: 1, Chain: c, Clock: shifted, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	v, _ := s.VHost(store.DefaultVHost)
	return &calendar{t, s, v, shifted}
}

func (c *calendar) close() {
	c.t.Helper()
	if err := c.store.Close(context.Background()); err != nil {
		c.t.Error(err)
	}
}

// confirmed is closed when a batch is.
type confirmed chan error

func (c confirmed) Confirmed(*queue.Batch)           { c <- nil }
func (c confirmed) Failed(_ *queue.Batch, err error) { c <- err }

// begin declares a delayed exchange that leads to the queue "q", and publishes a message with headers to it.
func (c *calendar) begin(headers amqp.Table) {
	c.t.Helper()
	args := amqp.Table{{Key: "x-delayed-type", Value: "fanout"}}
	_, err := c.vhost.DeclareQueue(vhost.QueueDeclare{Name: "q", Durable: true})
	for _, err := range []error{
		err, c.vhost.DeclareExchange(vhost.Exchange{Name: "x", Type: "x-delayed-message", Durable: true, Args: args}, nil),
		c.vhost.Bind(vhost.Binding{Source: "x", Destination: "q"}, 0),
	} {
		if err != nil {
			c.t.Fatal(err)
		}
	}
	c.publish(headers)
}

// publish publishes a message to the exchange, and waits for its confirm.
func (c *calendar) publish(headers amqp.Table) {
	c.t.Helper()
	p := amqp.Properties{Headers: headers}
	p.Set(amqp.PropHeaders)
	raw := p.Append(nil)
	to, _, err := c.vhost.Route("x", &parts.Message{Props: raw}, nil)
	if err != nil || len(to) != 1 {
		c.t.Fatalf("routed to %d, error %v", len(to), err)
	}
	done := make(confirmed, 1)
	b := queue.NewBatch()
	b.Messages = append(b.Messages, queue.Message{
		Routing: &queue.RoutingInfo{Exchange: "x"}, Props: raw, Seq: 1, Flags: queue.Persistent | queue.HasHeaders,
	})
	b.Publisher = done
	to[0].Publish(b)
	if err := <-done; err != nil {
		c.t.Fatal(err)
	}
}

// arrivals lets time pass up to an instant, and returns when messages arrived, to ten minutes.
func (c *calendar) arrivals(until time.Time) (times []string) {
	c.t.Helper()
	q, err := c.vhost.Queue("q", 0)
	if err != nil {
		c.t.Fatal(err)
	}
	const step = 10 * time.Minute
	for before := c.ready(q); c.clock().Time().Before(until); {
		now := c.clock().Time()
		time.Sleep(now.Truncate(step).Add(step + time.Millisecond).Sub(now))
		after := c.ready(q)
		for range after - before {
			times = append(times, c.clock().Time().Truncate(step).Format("01-02T15:04"))
		}
		before = after
	}
	return times
}

func (c *calendar) ready(q *queue.Mailbox) (n int) {
	c.t.Helper()
	if err := q.Do(func(q *queue.Queue, _ hook.Instant) { n = q.Stats().Ready }); err != nil {
		c.t.Fatal(err)
	}
	return n
}

// Each day has one release, whatever the clock of the zone does, and while the broker is down.
func TestCronThroughSummerTimeAndRestarts(t *testing.T) {
	for _, tc := range []struct {
		name           string
		from, down, up time.Time // UTC
		missed         string
		want           string
	}{
		{
			"the clock is set forward", date(2026, 3, 28, 0), date(2026, 3, 29, 12), date(2026, 3, 29, 12), "once",
			"03-28T01:30 03-29T01:00 03-30T00:30 03-31T00:30",
		},
		{
			"and the broker is down meanwhile", date(2026, 3, 28, 0), date(2026, 3, 29, 0), date(2026, 3, 29, 9), "once",
			"03-28T01:30 up 03-30T00:30 03-31T00:30",
		},
		{
			"the clock is set back", date(2026, 10, 24, 0), date(2026, 10, 25, 12), date(2026, 10, 25, 12), "once",
			"10-24T00:30 10-25T00:30 10-26T01:30 10-27T01:30",
		},
		{
			"the broker starts while it reads an hour again", date(2026, 10, 24, 0), date(2026, 10, 25, 0), date(2026, 10, 25, 1), "once",
			"10-24T00:30 up 10-26T01:30 10-27T01:30",
		},
		{
			"what was missed is skipped", date(2026, 10, 24, 0), date(2026, 10, 25, 0), date(2026, 10, 26, 12), "skip",
			"10-24T00:30 10-27T01:30",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				disk := crashfs.New(1)
				off := time.Until(tc.from)
				c := openCalendar(t, disk, off, nil)
				c.begin(amqp.Table{
					{Key: "x-schedule-id", Value: "a"},
					{Key: "x-schedule-cron", Value: "30 2 * * *"},
					{Key: "x-schedule-zone", Value: "Europe/Berlin"},
					{Key: "x-schedule-missed", Value: tc.missed},
				})
				got := c.arrivals(tc.down)
				c.close()
				after := disk.LosePower()
				time.Sleep(tc.up.Sub(c.clock().Time()))

				had := len(got)
				c = openCalendar(t, after, off, nil)
				time.Sleep(time.Millisecond)
				q, err := c.vhost.Queue("q", 0)
				if err != nil {
					t.Fatal(err)
				}
				for range c.ready(q) - had {
					got = append(got, "up")
				}
				got = append(got, c.arrivals(tc.from.AddDate(0, 0, 4).Add(-time.Hour))...)
				c.close()
				if got := strings.Join(got, " "); got != tc.want {
					t.Errorf("\n got %s\nwant %s", got, tc.want)
				}
			})
		})
	}
}

func date(year int, month time.Month, day, hour int) time.Time {
	return time.Date(year, month, day, hour, 0, 0, 0, time.UTC)
}

// A message that waits can be cancelled after limits were lowered, under which it would be refused.
func TestCancelUnderALowerLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := crashfs.New(1)
		c := openCalendar(t, disk, 0, nil)
		id := amqp.Field{Key: "x-schedule-id", Value: "a"}
		c.begin(amqp.Table{id, {Key: "x-delay", Value: int32(7_200_000)}})
		c.close()
		c = openCalendar(t, disk.LosePower(), 0, hooktest.Section{"max": "1h"})
		defer c.close()
		x, err := c.vhost.Schedule("x")
		if err != nil {
			t.Fatal(err)
		}
		held := func() (n int) {
			if err := x.Do(func(q *queue.Queue, _ hook.Instant) { n = q.Stats().Held }); err != nil {
				t.Fatal(err)
			}
			return n
		}
		before := held()
		c.publish(amqp.Table{id, {Key: "x-schedule-cancel", Value: true}})
		if after := held(); before != 1 || after != 0 {
			t.Errorf("held %d, and %d after the cancellation, want 1 and 0", before, after)
		}
	})
}
