package bench

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"

	"github.com/curfewmq/curfew/core/amqp"
)

const (
	probes   = 200 // repetitions of each request
	pageSize = 100 // messages in a list
)

// lists measures requests about one of many held messages: scheduling one with an identity and cancelling it, as clients do, and listing
// some and cancelling one, as the management API does.
type lists struct {
	s     *session
	to    content
	place string // path of the lists in the management API

	schedule, cancel  histogram // publish to confirm
	page, one, remove histogram // request to answer
}

func (s *session) newLists(to content, queue string) *lists {
	l := &lists{s: s, to: to, place: "queues/" + s.vhost() + "/" + url.PathEscape(queue) + "/held"}
	if to.exchange != "" {
		l.place = "exchanges/" + s.vhost() + "/" + url.PathEscape(to.exchange) + "/scheduled"
	}
	return l
}

func (l *lists) measure(ctx context.Context) error {
	if l.to.exchange != "" {
		if err := l.reschedule(ctx); err != nil {
			return err
		}
	}
	if l.s.o.management.url == nil {
		return nil
	}
	return l.list(ctx)
}

// reschedule schedules and cancels messages with identities, one at a time.
func (l *lists) reschedule(ctx context.Context) error {
	c, err := l.s.open(ctx, l.s.o.broker)
	if err != nil {
		return err
	}
	l.s.cleanUp(c.close)
	stop := context.AfterFunc(ctx, func() { _ = c.nc.Close() })
	defer stop()
	if err := c.confirms(); err != nil {
		return err
	}
	middle := (l.to.expiration.lo + l.to.expiration.hi) / 2
	for _, step := range []struct {
		what string
		into *histogram
		more amqp.Field
	}{
		{"schedule", &l.schedule, amqp.Field{Key: l.to.wait, Value: middle}},
		{"cancel", &l.cancel, amqp.Field{Key: "x-schedule-cancel", Value: true}},
	} {
		for i := range probes {
			id := amqp.Field{Key: "x-schedule-id", Value: "bench-" + strconv.Itoa(i)}
			began := l.s.clock.now()
			if err := l.publish(c, amqp.Table{id, step.more}); err != nil {
				return fmt.Errorf("%s %v: %w", step.what, id.Value, err)
			}
			step.into.record(l.s.clock.now()-began, 1)
		}
	}
	return nil
}

// publish publishes a message and waits for its confirm.
func (l *lists) publish(c *conn, headers amqp.Table) error {
	p := amqp.Properties{Headers: headers, DeliveryMode: 2}
	p.Set(amqp.PropHeaders)
	if l.to.persistent {
		p.Set(amqp.PropDeliveryMode)
	}
	b := amqp.AppendMethod(nil, channel, &amqp.BasicPublish{Exchange: l.to.exchange, RoutingKey: l.to.keys[0], Mandatory: true})
	b = amqp.AppendContentHeader(b, channel, 0, p.Append(nil))
	if _, err := c.nc.Write(b); err != nil {
		return err
	}
	_, err := expect[*amqp.BasicAck](c.reply())
	return err
}

// list requests the first page and one of its messages, and cancels that one.
func (l *lists) list(ctx context.Context) error {
	for range probes {
		var page struct {
			Items []struct {
				ID string `json:"id"`
			} `json:"items"`
		}
		if err := l.timed(ctx, &l.page, http.MethodGet, fmt.Sprint("?count=", pageSize), &page); err != nil {
			return err
		}
		if len(page.Items) == 0 {
			return fmt.Errorf("%s: nothing is held", l.place)
		}
		id := "/" + page.Items[len(page.Items)/2].ID
		if err := l.timed(ctx, &l.one, http.MethodGet, id, nil); err != nil {
			return err
		}
		if err := l.timed(ctx, &l.remove, http.MethodDelete, id, nil); err != nil {
			return err
		}
	}
	return nil
}

func (l *lists) timed(ctx context.Context, into *histogram, method, path string, answer any) error {
	began := l.s.clock.now()
	if err := l.s.call(ctx, method, l.place+path, nil, answer); err != nil {
		return err
	}
	into.record(l.s.clock.now()-began, 1)
	return nil
}

func (l *lists) report(r *report) {
	r.quantiles("schedule_id", "publish with an identity, to confirm", &l.schedule)
	r.quantiles("cancel_id", "cancel by identity, to confirm", &l.cancel)
	r.quantiles("list", "first page of the list", &l.page)
	r.quantiles("one", "one of the list", &l.one)
	r.quantiles("cancel", "cancel one of the list", &l.remove)
}
