package main

import "strings"

// row is one scenario, measured with every broker. Figures are named by their keys in the result of curfew-bench; "" is
// not shown.
type row struct {
	name   string
	bench  string  // the arguments of curfew-bench; D stands for the duration
	client *client // Go's client library instead of curfew-bench
	idle   bool    // only measures a newly started broker
	fresh  bool    // the broker is restarted, so that its memory is the row's
	secure bool    // over TLS
	floor  bool    // the relay is measured with the same bytes

	rate, p50, p99 string
	also           []detail
}

// detail is a figure for the last column.
type detail struct {
	key, label string
	scale      float64 // multiplies the value
}

const consumed = "consume_rate"

func (r row) arguments(duration string) []string {
	args := strings.Fields(r.bench)
	for i := range args {
		if args[i] == "D" {
			args[i] = duration
		}
	}
	return args
}

// relay returns the command that sends the same bytes through a relay.
func (r row) relay(duration string) []string {
	args := []string{"floor"}
	given := r.arguments(duration)
	for i := 0; i+1 < len(given); i++ {
		switch given[i] {
		case "--size", "--batch", "--duration", "--messages":
			args = append(args, given[i], given[i+1])
		}
	}
	return args
}

func rows() []row {
	confirmed := []detail{{"confirm_p50_ms", "ms to confirm p50", 1}, {"confirm_p99_ms", "p99", 1}}
	late := []detail{{"late_ms", "ms a round beyond the TTL", 1}}
	crowd := []detail{{"rss_per_connection_bytes", "KiB per connection", 1.0 / 1024}, {"idle_cpu_percent", "% CPU idle", 1}}
	return []row{
		{name: "100 B, one a write", bench: "--size 100 --duration D", rate: consumed, floor: true},
		{name: "1 KiB, one a write", bench: "--size 1024 --duration D", rate: consumed, floor: true},
		{name: "100 B, four a write", bench: "--size 100 --batch 4 --duration D", rate: consumed, floor: true},
		{name: "amqp091-go, 16 B", client: &client{size: 16}, rate: consumed},
		{name: "amqp091-go, 1 KiB, ack, prefetch 200", client: &client{size: 1024, prefetch: 200}, rate: consumed},
		{
			name:  "20 x 10 confirms, 1 KiB durable, 20 consumers",
			bench: "--publishers 20 --consumers 20 --queues 20 --confirm 10 --size 1024 --durable --persistent --duration D",
			rate:  consumed, also: confirmed,
		},
		{name: "100 B at 5,000/s", bench: "--size 100 --rate 5000 --duration D", p50: "latency_p50_ms", p99: "latency_p99_ms"},
		{name: "100 B at 20,000/s", bench: "--size 100 --rate 20000 --duration D", p50: "latency_p50_ms", p99: "latency_p99_ms"},

		{name: "16 B, 64 a write", bench: "--size 16 --batch 64 --duration D", rate: consumed, floor: true},
		{name: "1 KiB, 64 a write", bench: "--size 1024 --batch 64 --duration D", rate: consumed, floor: true},
		{name: "16 KiB, 64 a write", bench: "--size 16384 --batch 64 --duration D", rate: consumed, floor: true},
		{name: "1 KiB, 64 a write, ack, prefetch 200", bench: "--size 1024 --batch 64 --prefetch 200 --duration D", rate: consumed},
		{name: "1 KiB durable, 1,000 confirms", bench: "--size 1024 --batch 64 --durable --persistent --confirm 1000 --duration D", rate: consumed, also: confirmed},
		{name: "1 KiB durable, 100 confirms", bench: "--size 1024 --batch 64 --durable --persistent --confirm 100 --duration D", rate: consumed, also: confirmed},

		{name: "64 KiB", bench: "--size 65536 --duration D", rate: consumed, p50: "latency_p50_ms", floor: true, fresh: true},
		{name: "256 KiB", bench: "--size 262144 --duration D", rate: consumed, p50: "latency_p50_ms", floor: true, fresh: true},
		{name: "1 MiB", bench: "--size 1048576 --duration D", rate: consumed, p50: "latency_p50_ms", floor: true, fresh: true},
		{
			name: "1 MiB durable, 20 confirms", bench: "--size 1048576 --durable --persistent --confirm 20 --duration D",
			rate: consumed, p50: "latency_p50_ms", floor: true, fresh: true, also: confirmed,
		},
		{name: "16 MiB", bench: "--size 16777216 --messages 100", rate: consumed, p50: "latency_p50_ms", floor: true, fresh: true},
		{name: "128 MiB", bench: "--size 134217728 --messages 12", rate: consumed, p50: "latency_p50_ms", floor: true, fresh: true},

		{name: "retry loop", bench: "retries", rate: "retry_rate", also: late},
		{name: "retry loop, durable", bench: "retries --durable --persistent", rate: "retry_rate", also: late},

		{name: "TLS: 1 KiB, 64 a write", bench: "--size 1024 --batch 64 --duration D", rate: consumed, secure: true},
		{name: "TLS: 16 KiB, 64 a write", bench: "--size 16384 --batch 64 --duration D", rate: consumed, secure: true},
		{name: "TLS: 100 B, one a write", bench: "--size 100 --duration D", rate: consumed, secure: true},

		{name: "fanout to 100 queues", bench: "fanout --batch 16 --messages 30000", rate: consumed},
		{name: "topic, 3 of 300 match", bench: "topic --batch 16 --messages 300000", rate: consumed},
		{name: "direct, 300 queues", bench: "direct --batch 16 --messages 500000", rate: consumed},

		{name: "2,000 connections", bench: "crowd --connections 2000 --duration D", p50: "latency_p50_ms", p99: "latency_p99_ms", fresh: true, also: crowd},
		// 20,000 would be more than the files that a process may have open on many machines.
		{name: "19,900 connections", bench: "crowd --connections 19900 --duration D", p50: "latency_p50_ms", p99: "latency_p99_ms", fresh: true, also: crowd},

		{name: "a million expiries", bench: "expire --messages 1000000", rate: "expire_rate"},
		{name: "lateness at 5,000/s", bench: "lateness --duration D", p50: "lateness_p50_ms", p99: "lateness_p99_ms"},
		{name: "storm of 200,000, a bystander", bench: "storm", p50: "storm_deliver_p50_ms", p99: "storm_deliver_p99_ms"},

		{name: "idle", idle: true, fresh: true},
		{name: "a million dead-lettered, 100 B", bench: "expire --messages 1000000", fresh: true},
	}
}
