package bench

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"time"
)

func redriveFlags(f flags) {
	f.sized(100, 0)
	f.batched(64) // publishing is not measured
	f.counted(1_000_000, 1, "`messages` that died, and are moved back")
	f.period(&f.o.every, "every", time.Millisecond, 100*time.Microsecond, time.Second, "the `time` between two actions of a bystander")
	f.whole(&f.o.perSecond, "per-second", 0, 0, maxCount, "`messages` to move per second; 0 = as fast as the broker can")
	f.confirming(4096, 1)
	f.managed("http://guest:guest@127.0.0.1:15672")
	f.o.mortal = true
}

// redrive is a storm of dead-lettered messages that return to their queue.
type redrive struct {
	*storm

	asked, answered int64 // instants
}

func startRedrive(l *load) measurement { return &redrive{storm: &storm{load: l}} }

func (d *redrive) run(ctx context.Context) error {
	queue, dead, err := d.mortal()
	if err != nil {
		return err
	}
	own, err := d.bare("bystander")
	if err != nil {
		return err
	}
	d.by = d.newFleet(ctx)
	d.cleanUp(d.leave)
	if err := d.bury(queue, dead); err != nil {
		return err
	}
	if err := d.bystand(own); err != nil {
		return err
	}
	if err := d.watch(d.clock.now() + int64(calm)); err != nil {
		return err
	}
	d.collect(&d.quiet)
	d.sample(&d.from)
	if err := d.move(ctx, dead); err != nil {
		return err
	}
	if d.came, d.over, err = d.by.filled(queue, d.sent, patience); err != nil {
		return err
	}
	if err := d.watch(d.clock.now() + int64(aftermath)); err != nil {
		return err
	}
	if err := d.finish(); err != nil {
		return err
	}
	d.sample(&d.to)
	return nil
}

// bury publishes messages that expire at once, and waits until all are in the dead-letter queue.
func (d *redrive) bury(queue, dead string) error {
	c := d.content([]string{queue}, 0)
	c.expiration = span{lo: 1, hi: 1, set: true}
	p, err := d.f.publisher(c, d.o.confirm)
	if err != nil {
		return err
	}
	p.limit = d.o.messages
	if err := d.publish(); err != nil {
		return err
	}
	d.sent = d.f.sent()
	n, _, err := d.by.filled(dead, d.sent, patience)
	if err == nil && n < d.sent {
		return fmt.Errorf("%d of %d messages died", n, d.sent)
	}
	return err
}

// move requests a redrive to the messages' source.
func (d *redrive) move(ctx context.Context, dead string) error {
	body := map[string]any{"to": "source"}
	if d.o.perSecond > 0 {
		body["per_second"] = d.o.perSecond
	}
	d.asked = d.clock.now()
	err := d.call(ctx, http.MethodPost, "queues/"+d.vhost()+"/"+url.PathEscape(dead)+"/redrive", body, nil)
	d.answered = d.clock.now()
	return err
}

func (d *redrive) report(r *report) {
	r.add("messages", "died, and were to come back", d.sent, "messages")
	r.add("redriven", "came back", d.came, "messages")
	r.add("redrive_rate", "rate, from the request", rate(d.came, d.asked, d.over), "per s")
	r.add("redrive_seconds", "from the request to the last", float64(d.over-d.asked)/1e9, "s")
	r.add("answer_ms", "answer to the request", millis(d.answered-d.asked), "ms")
	r.quantiles("quiet_deliver", "before: publish to deliver", &d.quiet.deliver)
	r.quantiles("quiet_declare", "before: passive declare", &d.quiet.declare)
	r.quantiles("redrive_deliver", "meanwhile: publish to deliver", &d.loud.deliver)
	r.quantiles("redrive_declare", "meanwhile: passive declare", &d.loud.declare)
	r.quantiles("redrive_schedule_delay", "meanwhile: sent later than intended", &d.loud.delayed)
	r.cost(d.session, d.came, d.from, d.to)
}
