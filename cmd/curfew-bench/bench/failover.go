package bench

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/curfewmq/curfew/core/amqp"
)

// targets are the addresses of a cluster's nodes. A client uses one that answers.
type targets []target

func (t *targets) String() string {
	if t == nil {
		return ""
	}
	all := make([]string, len(*t))
	for i := range *t {
		all[i] = (*t)[i].String()
	}
	return strings.Join(all, ",")
}

// Set reads URIs separated by commas.
func (t *targets) Set(s string) error {
	*t = nil
	for word := range strings.SplitSeq(s, ",") {
		var one target
		if err := one.Set(strings.TrimSpace(word)); err != nil {
			return fmt.Errorf("%q %w", word, err)
		}
		*t = append(*t, one)
	}
	return nil
}

func failoverFlags(f flags) {
	o := f.o
	f.Var(&o.urls, "urls", "the nodes' `URIs`, separated by commas, instead of --uri; a client whose connection ends connects to the next one at once")
	f.StringVar(&o.fault, "fault", "", "`command` for sh that makes a node fail, and usually brings it back; it gets FAULT (1, 2, ...), QUEUE, PUBLISHER and CONSUMER (where these are connected); without it others make the faults")
	f.whole(&o.faults, "faults", 10, 1, 100_000, "how many `faults` to make, or periods to watch")
	f.period(&o.every, "every", 15*time.Second, time.Second, time.Hour, "`time` between the starts of two faults; longer if the command or the recovery takes longer")
	f.period(&o.giveUp, "give-up", 5*time.Second, 100*time.Millisecond, time.Minute, "connect to the next address if an answer is overdue and the broker has been silent for this `time`")
	f.StringVar(&o.queueType, "queue-type", "", "x-queue-type of the queue, such as `quorum`")
	f.sized(1024, stampSize)
	f.batched(1)
	f.paced()
	f.confirming(100, 1)
	f.whole(&o.prefetch, "prefetch", 1000, 1, 65535, "unacknowledged `messages` of the consumer")
	for _, name := range []string{"durable", "persistent"} { // anything else would be lost with its node
		if err := f.Set(name, "true"); err != nil {
			panic(err)
		}
		f.Lookup(name).DefValue = "true"
	}
}

// several sets the broker, for the connection that declares the queue, to the first of --urls.
func (o *options) several(given map[string]bool) error {
	if len(o.urls) == 0 {
		return nil
	}
	if given["uri"] {
		return errors.New("--uri, --urls: only one of them")
	}
	o.broker = o.urls[0]
	for i := range o.urls {
		if o.urls[i].secure != o.broker.secure {
			return errors.New("--urls: all of them with TLS (amqps), or none")
		}
	}
	return nil
}

// nodes returns the addresses to connect to.
func (o *options) nodes() targets {
	if len(o.urls) == 0 {
		return targets{o.broker}
	}
	for i := range o.urls {
		if o.broker.tls == nil {
			break
		}
		config := o.broker.tls.Clone()
		config.ServerName, _, _ = net.SplitHostPort(o.urls[i].addr)
		o.urls[i].tls = config
	}
	return o.urls
}

// failover publishes with confirms and consumes while nodes fail. A client that loses its connection connects to the next address at
// once. Messages without a confirm are in doubt, and are not published again.
type failover struct {
	*load

	queue     string
	ledger    ledger
	confirms  pauses
	delivered pauses
	publisher *client
	consumer  *client

	ofConfirms, ofDeliveries []float64 // the longest pause of each fault, in milliseconds
	h, d                     histogram // the same as distributions
}

func startFailover(l *load) measurement { return &failover{load: l} }

const (
	resumed   = 500 * time.Millisecond // messages flow if the latest confirm and delivery are not older
	hopeless  = 2 * time.Minute        // how long messages may stop before the run fails
	retryRest = 10 * time.Millisecond  // the pause after no address has answered
)

func (f *failover) run(ctx context.Context) (err error) {
	if f.queue, err = f.declareOne(); err != nil {
		return err
	}
	f.publisher = f.client(0, f.publish)
	f.consumer = f.client(len(f.publisher.nodes)-1, f.consume) // another node, so that a fault need not affect both clients
	publishing, stop := context.WithCancel(context.WithoutCancel(ctx))
	consuming, end := context.WithCancel(context.WithoutCancel(ctx))
	f.sample(&f.from)
	f.began = f.clock.now()
	f.confirms.begin(f.began)
	f.delivered.begin(f.began)
	go f.publisher.run(publishing)
	go f.consumer.run(consuming)
	err = f.suffer(ctx)
	stop()
	<-f.publisher.ended
	if err == nil {
		f.settle(ctx)
	}
	end()
	<-f.consumer.ended
	f.sample(&f.to)
	return errors.Join(err, f.reconnect(context.WithoutCancel(ctx)))
}

func (f *failover) declareOne() (string, error) {
	if f.o.queueType == "" {
		return f.session.queue("0")
	}
	return f.session.queue("0", amqp.Field{Key: "x-queue-type", Value: f.o.queueType})
}

// suffer runs the faults, or waits as long without them, and records the pauses. If ctx ends, it returns without an error.
func (f *failover) suffer(ctx context.Context) error {
	if err := f.flowing(ctx, "no messages flow"); err != nil || !f.sleep(ctx, time.Second) {
		return err
	}
	for n := range f.o.faults {
		began := f.clock.now()
		f.confirms.take(began)
		f.delivered.take(began)
		if err := f.make(ctx, n+1); err != nil {
			return err
		}
		f.sleep(ctx, f.o.every-time.Duration(f.clock.now()-began))
		if err := f.flowing(ctx, fmt.Sprintf("fault %d: messages have not resumed", n+1)); err != nil {
			return err
		}
		if ctx.Err() != nil {
			return nil
		}
		f.note(n + 1)
	}
	return nil
}

func (f *failover) note(n int64) {
	now := f.clock.now()
	c, d := f.confirms.take(now), f.delivered.take(now)
	f.h.record(c, 1)
	f.d.record(d, 1)
	f.ofConfirms = append(f.ofConfirms, millis(c))
	f.ofDeliveries = append(f.ofDeliveries, millis(d))
	fmt.Fprintf(f.stderr, "fault %d: longest pause of confirms %.0f ms, of deliveries %.0f ms; %s confirmed so far\n", n, millis(c), millis(d), grouped(f.ledger.count(confirmed)))
}

// make runs the fault's command. The command's output goes to standard error.
func (f *failover) make(ctx context.Context, n int64) error {
	if f.o.fault == "" {
		return nil
	}
	cmd := exec.CommandContext(ctx, "sh", "-c", f.o.fault)
	cmd.Env = append(os.Environ(), "FAULT="+strconv.FormatInt(n, 10), "QUEUE="+f.queue, "PUBLISHER="+f.publisher.where(), "CONSUMER="+f.consumer.where())
	cmd.Stdout, cmd.Stderr = f.stderr, f.stderr
	if err := cmd.Run(); err != nil && ctx.Err() == nil {
		return fmt.Errorf("--fault, number %d: %w", n, err)
	}
	return nil
}

// sleep returns false if ctx has ended.
func (f *failover) sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// flowing waits until messages are confirmed and delivered again, or ctx ends.
func (f *failover) flowing(ctx context.Context, problem string) error {
	for began := f.clock.now(); ; {
		now := f.clock.now()
		if f.confirms.since(now) < resumed && f.delivered.since(now) < resumed && f.ledger.count(came) > 0 {
			return nil
		}
		if now-began > int64(hopeless) {
			return fmt.Errorf("%s, for %v: publisher: %s; consumer: %s", problem, hopeless, f.publisher.last(), f.consumer.last())
		}
		if !f.sleep(ctx, poll) {
			return nil
		}
	}
}

// settle waits until all confirmed messages were delivered, or none was for longer than patience.
func (f *failover) settle(ctx context.Context) {
	for f.ledger.missing() > 0 && f.delivered.since(f.clock.now()) < patience {
		if !f.sleep(ctx, poll) {
			return
		}
	}
}

// reconnect replaces the connection that declares and deletes, because its node may have failed.
func (f *failover) reconnect(ctx context.Context) error {
	_ = f.admin.nc.Close()
	var err error
	for began := f.clock.now(); f.clock.now()-began < int64(hopeless); time.Sleep(retryRest) {
		for _, t := range f.o.nodes() {
			var c *conn
			if c, err = f.openWithin(ctx, t, readSize, f.o.giveUp); err == nil {
				f.admin = c
				return nil
			}
		}
	}
	return err
}

func (f *failover) report(r *report) {
	r.add("faults", "faults", int64(len(f.ofConfirms)), "")
	r.add("published", "published", f.ledger.sent(), "messages")
	r.add("confirmed", "confirmed", f.ledger.count(confirmed), "messages")
	r.add("nacked", "refused by the broker", f.ledger.count(refused), "messages")
	r.add("in_doubt", "in doubt, their connection ended", f.ledger.doubtful(), "messages")
	r.add("consumed", "consumed", f.ledger.count(came), "messages")
	r.add("duplicates", "delivered again", f.ledger.repeated(), "messages")
	r.add("lost", "lost: confirmed, never delivered", f.ledger.missing(), "messages")
	r.add("publisher_connections", "connections of the publisher", f.publisher.connections.Load(), "")
	r.add("consumer_connections", "connections of the consumer", f.consumer.connections.Load(), "")
	r.quantiles("confirm_pause", "longest pause of confirms", &f.h)
	r.quantiles("delivery_pause", "longest pause of deliveries", &f.d)
	r.add("confirm_pauses_ms", "pauses of confirms, by fault", f.ofConfirms, "ms")
	r.add("delivery_pauses_ms", "pauses of deliveries, by fault", f.ofDeliveries, "ms")
	r.cost(f.session, f.ledger.count(confirmed), f.from, f.to)
}
