package metrics

import (
	"slices"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/curfewmq/curfew/core/chain"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/core/telemetry"
	"github.com/curfewmq/curfew/core/vhost"
	"github.com/curfewmq/curfew/sdk/hook"
)

// publish publishes the given number of messages with confirms, and waits until the broker has them.
func publish(t *testing.T, ch *amqp.Channel, key string, n int) {
	t.Helper()
	must(t, ch.Confirm(false))
	for range n {
		c, err := ch.PublishWithDeferredConfirmWithContext(t.Context(), "", key, false, false, amqp.Publishing{Body: []byte("four")})
		must(t, err)
		if !c.Wait() {
			t.Fatal("a message was refused")
		}
	}
}

func declare(t *testing.T, ch *amqp.Channel, name string, args amqp.Table) {
	t.Helper()
	_, err := ch.QueueDeclare(name, false, false, false, false, args)
	must(t, err)
}

func TestTraffic(t *testing.T) {
	r := newRig(t, 10)
	ch, done := r.dial("/")
	declare(t, ch, "q", nil)
	publish(t, ch, "q", 3)
	publish(t, ch, "nowhere", 2)
	if _, ok, err := ch.Get("q", false); !ok || err != nil {
		t.Fatal("nothing to get", err)
	}
	_, err := ch.QueueDeclare("safe", true, false, false, false, amqp.Table{"x-queue-type": "quorum"})
	must(t, err)
	publish(t, ch, "safe", 1)
	d, _, err := ch.Get("safe", false)
	must(t, err)
	must(t, d.Ack(false))
	if _, there, err := ch.Get("safe", true); there || err != nil { // the acknowledgement is complete
		t.Fatal("a message was there", err)
	}
	c := r.collect()
	for series, n := range map[string]float64{
		"rabbitmq_connections":                                                  1,
		"rabbitmq_channels":                                                     1,
		"rabbitmq_queues":                                                       2,
		"rabbitmq_queues_created_total":                                         2,
		"rabbitmq_channel_messages_published_total":                             6,
		"rabbitmq_channel_messages_unacked":                                     1,
		"rabbitmq_channel_messages_acked_total":                                 1,
		"rabbitmq_channel_get_ack_total":                                        2,
		`rabbitmq_global_publishers{protocol="amqp091"}`:                        1,
		`rabbitmq_global_messages_received_total{protocol="amqp091"}`:           6,
		`rabbitmq_global_messages_received_confirm_total{protocol="amqp091"}`:   6,
		`rabbitmq_global_messages_confirmed_total{protocol="amqp091"}`:          6,
		`rabbitmq_global_messages_routed_total{protocol="amqp091"}`:             4,
		`rabbitmq_global_messages_unroutable_dropped_total{protocol="amqp091"}`: 2,
		fromClassic("delivered_get_manual_ack"):                                 1,
		fromQuorum("delivered_get_manual_ack"):                                  1,
		fromClassic("delivered"):                                                1,
		fromQuorum("delivered"):                                                 1,
		fromClassic("acknowledged"):                                             0,
		fromQuorum("acknowledged"):                                              1,
		fromClassic("get_empty"):                                                0,
		fromQuorum("get_empty"):                                                 1,
		`rabbitmq_queue_messages_ready{vhost="/",queue="q"}`:                    2,
		`rabbitmq_queue_messages_ready_bytes{vhost="/",queue="q"}`:              8,
		`rabbitmq_queue_messages_unacked{vhost="/",queue="q"}`:                  1,
		`rabbitmq_queue_messages{vhost="/",queue="q"}`:                          3,
		`rabbitmq_queue_messages_published_total{vhost="/",queue="q"}`:          3,
		`rabbitmq_queue_messages_delivered_ack_total{vhost="/",queue="q"}`:      1,
		`rabbitmq_identity_info{rabbitmq_node="curfew@test",rabbitmq_cluster="tests",rabbitmq_endpoint="aggregated"}`: 1,
	} {
		want(t, c, series, n)
	}
	done()
	c = r.collect()
	want(t, c, "rabbitmq_connections", 0)
	want(t, c, "rabbitmq_channels_closed_total", 1)
	want(t, c, `rabbitmq_global_messages_received_total{protocol="amqp091"}`, 6)
	want(t, c, fromQuorum("acknowledged"), 1)
}

// fromClassic and fromQuorum are series of deliveries from queues of a type.
func fromClassic(what string) string {
	return "rabbitmq_global_messages_" + what + `_total{protocol="amqp091",queue_type="rabbit_classic_queue"}`
}

func fromQuorum(what string) string {
	return "rabbitmq_global_messages_" + what + `_total{protocol="amqp091",queue_type="rabbit_quorum_queue"}`
}

// A dead letter that arrives in a queue does not count as published there.
func TestDeadLettersAreNotPublished(t *testing.T) {
	r := newRig(t, 10)
	v, _ := r.store.VHost("/")
	ch, done := r.dial("/")
	mailbox := r.declare(v, "q")
	publish(t, ch, "q", 3)
	if _, ok := value(r.collect(), `curfew_queue_dead_letters_received_total{vhost="/",queue="q"}`); ok {
		t.Error("a queue that has had no dead letters has a series for them")
	}
	letter := queue.Message{Routing: &queue.RoutingInfo{}, Props: []byte{0, 0}, Flags: queue.HasDeathHistory}
	b := queue.NewBatch()
	b.Messages = append(b.Messages, letter, letter)
	mailbox.PublishAsync(b)
	c := r.collect()
	for series, n := range map[string]float64{
		`rabbitmq_queue_messages{vhost="/",queue="q"}`:                  5,
		`rabbitmq_queue_messages_published_total{vhost="/",queue="q"}`:  3,
		`curfew_queue_dead_letters_received_total{vhost="/",queue="q"}`: 2,
		`rabbitmq_global_messages_routed_total{protocol="amqp091"}`:     3,
	} {
		want(t, c, series, n)
	}
	done()
}

// counters are the counters without the labels queue and vhost, which disappear with their objects.
func counters(c *Collection) map[string]float64 {
	all := map[string]float64{}
	for _, f := range c.Families {
		for i := range f.Points {
			l := f.Points[i].Labels
			if l == nil {
				l = &Labels{}
			}
			if f.Kind == Counter && !slices.Contains(l.Names, "queue") && !slices.Contains(l.Names, "vhost") {
				all[f.Name+string(appendLabels(nil, l.Names, l.Values))] = f.Points[i].Value
			}
		}
	}
	return all
}

func TestCountersStayWhenAllElseGoes(t *testing.T) {
	r := newRig(t, 10)
	r.policies = []Policy{{Name: "p", Digest: "d", Calls: 10, Failures: map[string]uint64{"trap": 2}}}
	r.vhost("v")
	ch, done := r.dial("v")
	declare(t, ch, "q", nil)
	publish(t, ch, "q", 7)
	before := counters(r.collect())

	if before[`rabbitmq_global_messages_received_total{protocol="amqp091"}`] != 7 || before["rabbitmq_connection_incoming_bytes_total"] == 0 {
		t.Fatalf("nothing to compare: %v", before)
	}
	_, err := ch.QueueDelete("q", false, false, false)
	must(t, err)
	done()
	_, err = r.store.DeleteVHost("v")
	must(t, err)
	r.server.Sessions().ForgetVHost("v")
	r.policies = []Policy{{Name: "p", Digest: "d", Calls: 1}}
	r.collect()
	r.vhost("v") // another one
	after := counters(r.collect())
	for name, n := range before {
		if after[name] < n {
			t.Errorf("%s went from %v to %v", name, n, after[name])
		}
	}
	if n := after[`curfew_wasm_calls_total{policy="p",digest="d"}`]; n != 11 {
		t.Errorf("%v calls of a policy that was loaded twice, want 11", n)
	}
}

// The policies' own counters used to be missing from all metrics endpoints.
func TestPoliciesCountThemselves(t *testing.T) {
	r := newRig(t, 10)
	r.policies = []Policy{{Name: "p", Digest: "d", Own: map[string]int64{"seen": 7, "a \"name\"": 1}}, {Name: "none"}}
	got := counters(r.collect())
	for series, want := range map[string]float64{`{policy="p",name="seen"}`: 7, `{policy="p",name="a \"name\""}`: 1} {
		if n := got["curfew_policy_metric_total"+series]; n != want {
			t.Errorf("%s: %v, want %v", series, n, want)
		}
	}
}

func TestPluginFaults(t *testing.T) {
	r := newRig(t, 10)
	r.faults = []chain.Fault{{Plugin: "own", Point: "OnEnqueue", Panics: 2}, {Plugin: "own", Point: "OnHead", Verdicts: 3}}
	c := r.collect()
	want(t, c, `curfew_plugin_panics_total{plugin="own",hook="OnEnqueue"}`, 2)
	want(t, c, `curfew_plugin_invalid_verdicts_total{plugin="own",hook="OnHead"}`, 3)
	if _, ok := value(c, `curfew_plugin_panics_total{plugin="own",hook="OnHead"}`); ok {
		t.Error("a hook that never panicked has a series")
	}
}

func TestOneCollectionForAllWhoLookAtOnce(t *testing.T) {
	r := newRig(t, 10)
	first := r.collector.Collect()
	if r.now.Add(int64(freshness) - 1); r.collector.Collect() != first {
		t.Error("a collection that is fresh was made again")
	}
	if r.now.Add(1); r.collector.Collect() == first {
		t.Error("a collection that is old was not made again")
	}
}

func TestExpiry(t *testing.T) {
	r := newRig(t, 10)
	v := r.vhost("v")
	removals := []telemetry.Removal{
		{Reason: hook.ReasonExpired, Outcome: telemetry.DeadLettered, Target: &hook.Target{}, Deadline: hook.Instant(r.now.Load()) - 3e6},
		{Reason: hook.ReasonExpired},
		{Reason: hook.ReasonRejected, Outcome: telemetry.Cycle, Target: &hook.Target{}},
	}
	cfg := r.declare(v, "q").Config()
	v.QueueHost().Removed(cfg, hook.Instant(r.now.Load()), removals)
	v.QueueHost().Refused(cfg, 5)
	c := r.collect()
	for series, n := range map[string]float64{
		`curfew_messages_expired_total{vhost="v",strategy="` + cfg.Strategy + `"}`:                                                     2,
		`curfew_messages_dead_lettered_total{vhost="v",strategy="` + cfg.Strategy + `",reason="expired"}`:                              1,
		`curfew_messages_dropped_total{vhost="v",strategy="` + cfg.Strategy + `",reason="expired",outcome="dropped"}`:                  1,
		`curfew_messages_dropped_total{vhost="v",strategy="` + cfg.Strategy + `",reason="rejected",outcome="cycle"}`:                   1,
		`curfew_messages_refused_total{vhost="v"}`:                                                                                     5,
		`rabbitmq_global_messages_dead_lettered_expired_total{queue_type="rabbit_classic_queue",dead_letter_strategy="at_most_once"}`:  1,
		`rabbitmq_global_messages_dead_lettered_expired_total{queue_type="rabbit_classic_queue",dead_letter_strategy="disabled"}`:      1,
		`rabbitmq_global_messages_dead_lettered_rejected_total{queue_type="rabbit_classic_queue",dead_letter_strategy="at_most_once"}`: 1,
		`rabbitmq_global_messages_dead_lettered_rejected_total{queue_type="rabbit_quorum_queue",dead_letter_strategy="at_least_once"}`: 0,
		"curfew_events_total": 3,
	} {
		want(t, c, series, n)
	}
	late := c.Families[slices.IndexFunc(c.Families, func(f *Family) bool { return f.Name == "curfew_expiry_lateness_seconds" })]
	if len(late.Points) != 1 || late.Points[0].Distribution.Count != 1 || late.Points[0].Distribution.Sum != 0.003 {
		t.Errorf("lateness is %+v, want that of one message, 3 ms", late.Points)
	}
}

func TestVHostsBeyondTheLimitAreCountedTogether(t *testing.T) {
	r := newRig(t, 1)
	e, a := newRemovalTotals(), r.vhost("a")
	for range maxVHosts {
		e.named[new(vhost.VHost)] = struct{}{}
	}
	cfg := r.declare(a, "q").Config()
	removals := []telemetry.Removal{{Reason: hook.ReasonExpired}}
	a.QueueHost().Removed(cfg, 1, removals)
	if _, named := e.read(a); named {
		t.Fatal("a vhost beyond the limit has series of its own")
	}
	a.QueueHost().Removed(cfg, 1, removals)
	e.read(a)
	clear(e.named)
	e.forgetOthers(nil)
	if n := e.rest.Removals[cfg.Strategy][hook.ReasonExpired][telemetry.Dropped]; n != 2 || len(e.last) > 0 {
		t.Errorf("%d messages, want 2; %d vhosts are remembered", n, len(e.last))
	}
}
