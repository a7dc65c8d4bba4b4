package metrics

import (
	"bufio"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/curfewmq/curfew/core/chain"
)

// recorded is one of RabbitMQ's families.
type recorded struct {
	kind                string
	together, perObject string // labels at /metrics and /metrics/per-object, sorted, with commas between; "-" = absent
}

func rabbitmq(t *testing.T) map[string]recorded {
	t.Helper()
	f, err := os.Open("testdata/rabbitmq-3.10.8.tsv")
	must(t, err)
	defer f.Close()
	all := map[string]recorded{}
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if cells := strings.Split(lines.Text(), "\t"); len(cells) == 4 {
			all[cells[0]] = recorded{cells[1], cells[2], cells[3]}
		}
	}
	return all
}

// absent maps prefixes of RabbitMQ's families that we lack to the reason.
var absent = map[string]string{
	"rabbitmq_auth_attempts_detailed":        "addresses would be series without end; failed logins are in the log",
	"rabbitmq_channel_acks_uncommitted":      "what a transaction holds is not counted",
	"rabbitmq_channel_messages_uncommitted":  "what a transaction holds is not counted",
	"rabbitmq_channel_process_reductions":    "there are no processes of Erlang",
	"rabbitmq_connection_process_reductions": "there are no processes of Erlang",
	"rabbitmq_connection_pending_packets":    "output that waits is counted in bytes",
	"rabbitmq_erlang_gc":                     "go_gc_duration_seconds is the same of Go",
	"rabbitmq_erlang_net_ticktime":           "there are no other nodes",
	"rabbitmq_erlang_processes":              "go_goroutines is the same of Go",
	"rabbitmq_erlang_scheduler":              "go_sched_latencies_seconds is the same of Go",
	"rabbitmq_io_":                           "curfew_log_append_seconds, curfew_log_sync_seconds and curfew_log_appended_bytes_total are the same of our log",
	"rabbitmq_msg_store":                     "there is no message store but the log",
	"rabbitmq_queue_index":                   "there is no index",
	"rabbitmq_queue_consumer_capacity":       "how long consumers wait is not measured",
	"rabbitmq_queue_consumer_utilisation":    "how long consumers wait is not measured",
	"rabbitmq_queue_disk":                    "queues do not read and write by themselves",
	"rabbitmq_queue_messages_bytes":          "the bytes of unacknowledged messages are not counted",
	"rabbitmq_queue_messages_unacked_bytes":  "the bytes of unacknowledged messages are not counted",
	"rabbitmq_queue_messages_paged_out":      "bodies that are on disk are not counted by queue",
	"rabbitmq_queue_messages_persistent":     "only the API shows how many messages are persistent",
	"rabbitmq_queue_messages_ram":            "only the API shows how many messages are in memory",
	"rabbitmq_queue_messages_ready_ram":      "messages in memory are not counted by their state",
	"rabbitmq_queue_messages_unacked_ram":    "messages in memory are not counted by their state",
	"rabbitmq_queue_process":                 "there are no processes of Erlang",
	"rabbitmq_raft":                          "quorum queues have one copy, in the log",
	"rabbitmq_schema_db":                     "there is no schema database",
}

// otherwise maps families whose labels differ from RabbitMQ's to the reason.
var otherwise = map[string]string{
	"rabbitmq_build_info":                     "there is no Erlang; newer versions have product_name and product_version, too",
	"rabbitmq_identity_info":                  "there is no permanent identity of a cluster; newer versions have rabbitmq_endpoint, too",
	"rabbitmq_queue_messages_published_total": "RabbitMQ has it by queue from 4.0 on",
}

// later are families that newer versions of RabbitMQ have.
var later = []string{
	"rabbitmq_queue_messages_acked_total", "rabbitmq_queue_messages_delivered_ack_total", "rabbitmq_queue_messages_delivered_total",
	"rabbitmq_queue_messages_redelivered_total",
}

func labelNames(f *Family) string {
	if len(f.Points) == 0 || f.Points[0].Labels == nil {
		return ""
	}
	return strings.Join(slices.Sorted(slices.Values(f.Points[0].Labels.Names)), ",")
}

func TestNamesTypesAndLabelsAreRabbitMQs(t *testing.T) {
	r := newRig(t, 10)
	ch, done := r.dial("/")
	defer done()
	declare(t, ch, "q", nil)
	must(t, ch.PublishWithContext(t.Context(), "", "q", false, false, amqp.Publishing{Timestamp: r.collector.started.Time()}))
	publish(t, ch, "q", 1)
	theirs, excused := rabbitmq(t), map[string]bool{}
	for _, f := range r.collect().Families {
		is, known := theirs[f.Name]
		delete(theirs, f.Name)
		switch {
		case !strings.HasPrefix(f.Name, "rabbitmq_") || slices.Contains(later, f.Name):
		case !known:
			t.Errorf("RabbitMQ has no %s", f.Name)
		case f.Kind.String() != is.kind && (f.Kind != Gauge || is.kind != "untyped"):
			t.Errorf("%s is a %v, RabbitMQ's a %s", f.Name, f.Kind, is.kind)
		case labelNames(f) != is.together && labelNames(f) != is.perObject:
			if excused[f.Name] = true; otherwise[f.Name] == "" {
				t.Errorf("%s has the labels %q, RabbitMQ's %q, or %q per object", f.Name, labelNames(f), is.together, is.perObject)
			}
		}
	}
	for name := range theirs {
		i := slices.IndexFunc(slices.Collect(maps.Keys(absent)), func(beginning string) bool { return strings.HasPrefix(name, beginning) })
		if i < 0 {
			t.Errorf("we have no %s", name)
		}
	}
	for name := range otherwise {
		if !excused[name] {
			t.Errorf("%s is as RabbitMQ's", name)
		}
	}
	for beginning := range absent {
		if !slices.ContainsFunc(slices.Collect(maps.Keys(theirs)), func(name string) bool { return strings.HasPrefix(name, beginning) }) {
			t.Errorf("no family that we do not have begins with %s", beginning)
		}
	}
}

func TestFamiliesAreWellFormed(t *testing.T) {
	r := newRig(t, 10)
	r.alarms = []string{"memory", "shard 1"}
	r.certificates = []Certificate{{Protocol: "https"}}
	r.policies = []Policy{{Name: "p", Digest: "d", Failures: map[string]uint64{"trap": 2}, Shadow: true}}
	r.faults = []chain.Fault{{Plugin: "ttl", Point: "OnHead", Panics: 1, Verdicts: 1}}
	seen := map[string]bool{}
	for _, f := range r.collect().Families {
		switch {
		case seen[f.Name]:
			t.Errorf("%s is there twice", f.Name)
		case f.Help == "" || strings.HasSuffix(f.Help, "."):
			t.Errorf("%s: its help is %q", f.Name, f.Help)
		case strings.HasSuffix(f.Name, "_total") != (f.Kind == Counter):
			t.Errorf("%s is a %v", f.Name, f.Kind)
		}
		seen[f.Name] = true
		series := map[string]bool{}
		for i := range f.Points {
			l := f.Points[i].Labels
			if l == nil {
				l = &Labels{}
			}
			key := string(appendLabels(nil, l.Names, l.Values))
			if series[key] || labelNames(f) != strings.Join(slices.Sorted(slices.Values(l.Names)), ",") {
				t.Errorf("%s%s is there twice, or has other labels than the others", f.Name, key)
			}
			series[key] = true
		}
	}
}
