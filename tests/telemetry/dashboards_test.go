package telemetry

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rabbitmq/amqp091-go"

	"github.com/curfewmq/curfew/tests/process"
)

// overview are the families that RabbitMQ's Overview dashboards ask for, those for 3.8 and those for 4.1, by the labels that they
// have here.
var overview = map[string]string{
	"rabbitmq_cluster,rabbitmq_endpoint,rabbitmq_node":                        `rabbitmq_identity_info`,
	"product_name,product_version,prometheus_plugin_version,rabbitmq_version": `rabbitmq_build_info`,
	"": `rabbitmq_connections rabbitmq_connections_opened_total rabbitmq_connections_closed_total
		rabbitmq_channels rabbitmq_channels_opened_total rabbitmq_channels_closed_total
		rabbitmq_queues rabbitmq_queues_declared_total rabbitmq_queues_created_total rabbitmq_queues_deleted_total
		rabbitmq_erlang_uptime_seconds rabbitmq_disk_space_available_bytes
		rabbitmq_process_resident_memory_bytes rabbitmq_resident_memory_limit_bytes
		rabbitmq_process_open_fds rabbitmq_process_max_fds rabbitmq_process_open_tcp_sockets rabbitmq_process_max_tcp_sockets
		rabbitmq_channel_consumers rabbitmq_channel_messages_unconfirmed
		rabbitmq_channel_messages_published_total rabbitmq_channel_messages_confirmed_total
		rabbitmq_channel_messages_unroutable_dropped_total rabbitmq_channel_messages_unroutable_returned_total
		rabbitmq_channel_messages_delivered_total rabbitmq_channel_messages_delivered_ack_total
		rabbitmq_channel_messages_redelivered_total rabbitmq_channel_messages_acked_total
		rabbitmq_channel_get_total rabbitmq_channel_get_ack_total rabbitmq_channel_get_empty_total`,
	"protocol": `rabbitmq_global_publishers rabbitmq_global_consumers
		rabbitmq_global_messages_received_total rabbitmq_global_messages_received_confirm_total
		rabbitmq_global_messages_routed_total rabbitmq_global_messages_confirmed_total
		rabbitmq_global_messages_unroutable_dropped_total rabbitmq_global_messages_unroutable_returned_total`,
	"protocol,queue_type": `rabbitmq_global_messages_delivered_total
		rabbitmq_global_messages_delivered_consume_auto_ack_total rabbitmq_global_messages_delivered_consume_manual_ack_total
		rabbitmq_global_messages_delivered_get_auto_ack_total rabbitmq_global_messages_delivered_get_manual_ack_total
		rabbitmq_global_messages_redelivered_total rabbitmq_global_messages_acknowledged_total
		rabbitmq_global_messages_get_empty_total`,
	"queue,vhost": `rabbitmq_queue_messages_ready rabbitmq_queue_messages_unacked rabbitmq_queue_messages_published_total`,
}

// fleeting are families that may well be at 0.
var fleeting = []string{"rabbitmq_channel_messages_unconfirmed"}

// showcase has something happen for each panel of the dashboards.
func (b *broker) showcase() {
	b.t.Helper()
	b.work()
	must(b.t, b.consume("waiting").Ack(false))
	must(b.t, b.consume("waiting").Nack(false, true))
	for _, noAck := range []bool{true, false} { // the first for the second time; the second stays unacknowledged
		if _, ok, err := b.ch.Get("waiting", noAck); !ok || err != nil {
			b.t.Fatal("nothing to get", err)
		}
	}
	deliveries, err := b.ch.Consume("dead", "", true, false, false, false, nil)
	must(b.t, err)
	if _, open, inTime := process.Receive(deliveries); !open || !inTime {
		b.t.Fatal("nothing was delivered")
	}
	b.declare("empty", nil)
	if _, ok, err := b.ch.Get("empty", true); ok || err != nil {
		b.t.Fatal("an empty queue had a message", err)
	}
	_, err = b.ch.QueueDelete("empty", false, false, false)
	must(b.t, err)
	b.send("", "nowhere", amqp091.Publishing{})
	must(b.t, b.ch.PublishWithContext(b.t.Context(), "", "nowhere", true, false, amqp091.Publishing{}))
	conn, err := process.Dial(b.URL())
	must(b.t, err)
	_, err = conn.Channel()
	must(b.t, err)
	must(b.t, conn.Close())
}

// family is the values of a family's series by their labels.
type family map[string]float64

func families(t *testing.T, page string) map[string]family {
	t.Helper()
	all := map[string]family{}
	for text, v := range series(t, page) {
		name, labels, _ := strings.Cut(text, "{")
		if all[name] == nil {
			all[name] = family{}
		}
		all[name][labels] = v
	}
	return all
}

var labelName = regexp.MustCompile(`(\w+)="`)

// labels are the names of the labels that the series have, sorted, with commas between; of all kinds that there are.
func (f family) labels() string {
	kinds := map[string]bool{}
	for text := range f {
		var names []string
		for _, match := range labelName.FindAllStringSubmatch(text, -1) {
			names = append(names, match[1])
		}
		slices.Sort(names)
		kinds[strings.Join(names, ",")] = true
	}
	return strings.Join(slices.Sorted(maps.Keys(kinds)), " or ")
}

// idle lists what the dashboards would show nothing of but zeros.
func idle(all map[string]family) (names []string) {
	for _, list := range overview {
		for name := range strings.FieldsSeq(list) {
			sum := 0.0
			for _, v := range all[name] {
				sum += v
			}
			if sum <= 0 && !slices.Contains(fleeting, name) {
				names = append(names, name)
			}
		}
	}
	return names
}

// TestOverviewDashboards looks for what RabbitMQ's dashboards ask for, with the labels by which they put it together: families that
// have the same labels have the same series, since some of them are added up series by series; and there is one identity to join
// all of them with.
func TestOverviewDashboards(t *testing.T) {
	t.Parallel()
	b := start(t, "")
	b.showcase()
	var all map[string]family
	if !process.Poll(func() bool {
		_, page := fetch(t, b.Management, "/metrics")
		all = families(t, page)
		return len(idle(all)) == 0
	}) {
		t.Errorf("something has happened, but nothing of %v", idle(all))
	}
	for labels, list := range overview {
		names := strings.Fields(list)
		for _, name := range names {
			if got := all[name].labels(); got != labels {
				t.Errorf("%s has the labels %q, want %q", name, got, labels)
			}
			first, this := fmt.Sprint(slices.Sorted(maps.Keys(all[names[0]]))), fmt.Sprint(slices.Sorted(maps.Keys(all[name])))
			if this != first {
				t.Errorf("%s has the series %s, %s those: %s", name, this, names[0], first)
			}
		}
	}
	for _, name := range []string{"rabbitmq_identity_info", "rabbitmq_build_info"} {
		if n := len(all[name]); n != 1 {
			t.Errorf("%d series of %s, want 1", n, name)
		}
	}
}
