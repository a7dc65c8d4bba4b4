package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// runScenario runs a command line against b and returns the JSON result.
func runScenario(t *testing.T, b *fakeBroker, line string) map[string]any {
	t.Helper()
	e, stdout, stderr := b.env(t)
	args := append(strings.Fields(line), "--json")
	if args[0] != "floor" {
		args = append(args, "--pid", "42")
	}
	if status := e.main(t.Context(), args); status != 0 {
		t.Fatalf("exit status %d: %s", status, stderr)
	}
	synctest.Wait()
	if left := b.left(); len(left) > 0 {
		t.Errorf("queues left behind: %v", left)
	}
	var result map[string]any
	if err := json.Unmarshal(stdout.Bytes(), &result); err != nil {
		t.Fatalf("%v in %s", err, stdout)
	}
	return result
}

// In the bubble the generator and the broker take no time, so every result is exact, unless a message expires at the very instant at
// which the generator acts: the order of the two is then undefined.
func TestScenarios(t *testing.T) {
	cases := []struct {
		name, line string
		late       time.Duration
		want       map[string]float64
	}{
		{
			name: "load by count", line: "--messages 5000 --size 64 --publishers 3 --consumers 2 --queues 2",
			want: map[string]float64{"published": 5000, "consumed": 5000, "latency_max_ms": 0, "broker_cpu_seconds": 0, "broker_rss_peak_bytes": 188608 << 10},
		},
		{
			name: "load by rate", line: "--rate 2500 --duration 2s --confirm 10 --prefetch 100 --ack-every 10",
			want: map[string]float64{"published": 5000, "consumed": 5000, "publish_rate": 2500, "latency_p99_ms": 0, "confirm_max_ms": 0, "nacked": 0, "schedule_delay_max_ms": 0},
		},
		{
			name: "more queues than publishers", line: "--messages 100 --queues 7 --consumers 7 --publishers 2 --ack-every 1 --persistent --durable",
			want: map[string]float64{"published": 100, "consumed": 100},
		},
		{
			name: "bodies without a stamp", line: "--messages 10 --size 0",
			want: map[string]float64{"published": 10, "consumed": 10, "latency_max_ms": -1},
		},
		{
			name: "bodies over several frames", line: "--messages 10 --size 100000",
			want: map[string]float64{"published": 10, "consumed": 10, "latency_max_ms": 0},
		},
		{
			name: "publish only", line: "--messages 10 --consumers 0",
			want: map[string]float64{"published": 10, "consumed": 0},
		},
		{
			name: "expired before they were consumed", line: "--messages 10 --queues 2 --consumers 1 --ttl 5",
			want: map[string]float64{"published": 10, "consumed": 5},
		},
		{
			name: "lateness of expirations", line: "lateness --rate 1000 --duration 1s --expiration 50..200", late: 3 * time.Millisecond,
			want: map[string]float64{"published": 1000, "arrived": 1000, "missing": 0, "lateness_p50_ms": 3, "earliest_ms": 3, "early": 0},
		},
		{
			name: "lateness of a queue's TTL, early", line: "lateness --rate 1000 --duration 1s --ttl 100", late: -5 * time.Millisecond,
			want: map[string]float64{"arrived": 1000, "lateness_p99_ms": -5, "earliest_ms": -5, "early": 1000},
		},
		{
			name: "lateness by default", line: "lateness --rate 100 --duration 100ms",
			want: map[string]float64{"arrived": 10, "lateness_max_ms": 0},
		},
		{
			name: "lateness of an exchange's releases", line: "lateness --by exchange --rate 1000 --duration 1s --expiration 50..200", late: 3 * time.Millisecond,
			want: map[string]float64{"published": 1000, "arrived": 1000, "missing": 0, "lateness_p50_ms": 3, "earliest_ms": 3, "early": 0},
		},
		{
			name: "lateness of holds, early", line: "lateness --by hold --rate 1000 --duration 1s", late: -5 * time.Millisecond,
			want: map[string]float64{"arrived": 1000, "lateness_p99_ms": -5, "earliest_ms": -5, "early": 1000},
		},
		{
			name: "backlog in an exchange", line: "backlog --by exchange --messages 3000 --publishers 2 --management http://127.0.0.1:15672",
			want: map[string]float64{"published": 3000, "drained": -1, "rss_per_message_bytes": 0, "nacked": 0, "schedule_id_max_ms": 0, "cancel_id_max_ms": 0, "list_max_ms": 0, "one_max_ms": 0, "cancel_max_ms": 0},
		},
		{
			name: "backlog that is held", line: "backlog --by hold --messages 3000 --expiration 60000..70000",
			want: map[string]float64{"published": 3000, "drained": -1, "rss_per_message_bytes": 0, "cancel_id_max_ms": -1, "list_max_ms": -1},
		},
		{
			name: "storm of releases", line: "storm --by exchange --messages 500 --delay 3s --every 10ms", late: time.Millisecond,
			want: map[string]float64{"messages": 500, "released": 500, "dead_lettered": -1, "storm_seconds": 0.01, "storm_deliver_max_ms": 0},
		},
		{
			name: "storm of holds", line: "storm --by hold --messages 500 --delay 3s --every 10ms",
			want: map[string]float64{"messages": 500, "released": 500, "storm_deliver_max_ms": 0},
		},
		{
			name: "redrive", line: "redrive --messages 500 --every 10ms --per-second 100",
			want: map[string]float64{"messages": 500, "redriven": 500, "redrive_seconds": 0, "answer_ms": 0, "redrive_deliver_max_ms": 0},
		},
		{
			name: "expire", line: "expire --messages 3000", late: 5 * time.Millisecond,
			want: map[string]float64{"published": 3000, "dead_lettered": 3000, "duration_seconds": 1.01},
		},
		{
			name: "expire to a consumer", line: "expire --messages 3000 --consumers 1 --expiration 20..20",
			want: map[string]float64{"published": 3000, "dead_lettered": 3000, "duration_seconds": 0.02},
		},
		{
			name: "backlog", line: "backlog --messages 3000 --publishers 2 --confirm 100",
			want: map[string]float64{"published": 3000, "drained": 3000, "rss_per_message_bytes": 0},
		},
		{
			name: "storm", line: "storm --messages 500 --delay 3s --every 10ms",
			want: map[string]float64{"messages": 500, "dead_lettered": 500, "quiet_deliver_max_ms": 0, "storm_deliver_max_ms": 0, "storm_declare_max_ms": 0, "storm_schedule_delay_max_ms": 0},
		},
		{
			name: "retries", line: "retries --messages 200 --rounds 4 --ttl 100 --prefetch 50", late: time.Millisecond,
			want: map[string]float64{"published": 200, "rejected": 800, "missing": 0, "duration_seconds": 0.404, "late_ms": 1, "broker_cpu_seconds": 0},
		},
		{
			name: "retries with several of each", line: "retries --messages 203 --rounds 2 --consumers 3 --publishers 2 --durable --persistent --confirm 10",
			want: map[string]float64{"published": 203, "rejected": 406, "missing": 0, "duration_seconds": 1},
		},
		{
			name: "fanout", line: "fanout --messages 50 --queues 20 --consumers 3 --batch 16 --confirm 8",
			want: map[string]float64{"published": 50, "consumed": 1000},
		},
		{
			name: "topic", line: "topic --messages 60 --queues 31 --matching 3",
			want: map[string]float64{"published": 60, "consumed": 180},
		},
		{
			name: "topic with more patterns", line: "topic --messages 60 --queues 40 --matching 4 --consumers 50 --prefetch 10",
			want: map[string]float64{"published": 60, "consumed": 240},
		},
		{
			name: "fanout without consumers", line: "fanout --messages 50 --queues 20 --consumers 0 --queue-args x-max-length=5",
			want: map[string]float64{"published": 50, "consumed": 0, "broker_cpu_seconds_per_million": 0},
		},
		{
			name: "direct", line: "direct --rate 1000 --duration 100ms --queues 7 --confirm 5",
			want: map[string]float64{"published": 100, "consumed": 100, "latency_max_ms": 0, "confirm_max_ms": 0},
		},
		{
			name: "direct with more keys than queues", line: "direct --messages 120 --queues 7 --keys 30",
			want: map[string]float64{"published": 120, "consumed": 120},
		},
		{
			name: "hash", line: "hash --weight 7 --messages 60 --queues 3 --keys 20",
			want: map[string]float64{"published": 60, "consumed": 60},
		},
		{
			name: "crowd", line: "crowd --connections 41 --duration 2s --every 100ms",
			want: map[string]float64{"connections": 41, "published": 400, "consumed": 400, "publish_rate": 200, "latency_max_ms": 0, "idle_cpu_percent": 0, "rss_per_connection_bytes": 0},
		},
		{
			name: "crowd at one queue", line: "crowd --connections 5 --queues 1 --idle 0s --duration 3s --size 10000",
			want: map[string]float64{"connections": 5, "published": 6, "consumed": 6, "idle_cpu_percent": -1},
		},
		{
			name: "one by one", line: "--rate 20000 --duration 100ms --batch 1",
			want: map[string]float64{"published": 2000, "consumed": 2000, "publish_rate": 20000},
		},
		{
			name: "floor", line: "floor --messages 5000 --size 200000 --batch 64",
			want: map[string]float64{"published": 5000, "consumed": 5000, "latency_max_ms": 0, "broker_cpu_seconds": 0},
		},
		{
			name: "floor by rate", line: "floor --rate 2000 --duration 1s",
			want: map[string]float64{"published": 2000, "consumed": 2000, "latency_max_ms": 0, "publish_rate": 2000},
		},
		{
			name: "leases", line: "leases --queues 300 --sample 30 --expires 5000", late: 6500 * time.Microsecond,
			want: map[string]float64{"queues": 300, "watched": 30, "remaining": 0, "lateness_p50_ms": 7, "earliest_ms": 7, "early": 0, "uncertainty_max_ms": 1, "rss_per_queue_bytes": 0},
		},
		{
			name: "leases all watched, early", line: "leases --queues 20 --sample 30 --window 1 --expires 5000", late: -10500 * time.Microsecond,
			want: map[string]float64{"queues": 20, "watched": 20, "earliest_ms": -10, "early": 20},
		},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newFakeBroker()
				b.late = c.late
				got := runScenario(t, b, c.line)
				for key, want := range c.want {
					v, ok := got[key].(float64)
					if want == -1 && !ok {
						continue // to be absent
					}
					if !ok || v < want-1e-6 || v > want+1e-6 {
						t.Errorf("%s = %v, want %v", key, got[key], want)
					}
				}
			})
		})
	}
}

func TestEveryDeliveryIsAcknowledged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newFakeBroker()
		runScenario(t, b, "--messages 1003 --prefetch 100 --ack-every 10")
		if b.acked != 1003 {
			t.Errorf("%d deliveries were acknowledged, want 1003: the incomplete last round too", b.acked)
		}
	})
}

func TestRefusedMessagesAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newFakeBroker()
		b.refuse = 4
		got := runScenario(t, b, "--messages 100 --confirm 5")
		if got["nacked"] != 4.0 || got["consumed"] != 96.0 {
			t.Errorf("nacked %v, consumed %v, want 4 and 96", got["nacked"], got["consumed"])
		}
	})
}

func TestLeasesThatNeverEndAreReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newFakeBroker()
		b.late = time.Minute
		e, stdout, _ := b.env(t)
		if status := e.main(t.Context(), strings.Fields("leases --queues 10 --sample 5 --expires 4000 --json")); status != 0 {
			t.Fatalf("exit status %d", status)
		}
		if !strings.Contains(stdout.String(), `"remaining":5`) {
			t.Errorf("result %s does not report the 5 watched queues", stdout)
		}
		time.Sleep(time.Minute)
	})
}

func TestFailuresAreTold(t *testing.T) {
	cases := []struct {
		name, line string
		change     func(*fakeBroker)
		want       string
	}{
		{name: "login", line: "--messages 1", change: func(b *fakeBroker) { b.password = "other" }, want: "handshake: connection.start-ok: broker closed the connection: 403 ACCESS_REFUSED"},
		{name: "no such process", line: "--messages 1 --pid 43", want: "--pid 43"},
		{
			name: "blocked for good", line: "--messages 50000 --consumers 0", change: func(b *fakeBroker) { b.jam = 100 },
			want: "publish: the broker took nothing for 30s: connection.blocked: low on memory",
		},
		{
			name: "storm that cannot be poured", line: "storm --messages 50000 --delay 2s", change: func(b *fakeBroker) { b.jam = 100 },
			want: "--delay 2s: the broker had not taken the messages when they fell due: raise it",
		},
		{
			name: "no redrive", line: "redrive --messages 5", change: func(b *fakeBroker) { b.broken = true },
			want: "--management: POST queues/%2F/bench-",
		},
		{name: "leases too short", line: "leases --queues 10 --expires 1000", want: "raise it above 2040"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newFakeBroker()
				if c.change != nil {
					c.change(b)
				}
				e, stdout, stderr := b.env(t)
				if status := e.main(t.Context(), strings.Fields(c.line)); status != 1 {
					t.Errorf("exit status %d, want 1", status)
				}
				if !strings.Contains(stderr.String(), c.want) || stdout.Len() > 0 {
					t.Errorf("stderr %q stdout %q, want nothing but %q", stderr, stdout, c.want)
				}
				time.Sleep(2 * time.Hour) // leases and jams of the fake end
			})
		})
	}
}

func TestInterruptEndsARunInOrder(t *testing.T) {
	for _, line := range []string{
		"--rate 100 --duration 0s", "--rate 1 --publishers 20 --duration 1h --confirm 1", "--messages 100 --publishers 0 --duration 0s",
		"fanout --rate 100 --duration 0s", "retries --messages 100 --rounds 1000", "crowd --connections 10 --idle 0s --duration 1h",
	} {
		t.Run(line, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second+time.Microsecond)
				defer cancel()
				b := newFakeBroker()
				e, stdout, stderr := b.env(t)
				if status := e.main(ctx, strings.Fields(line)); status != 0 {
					t.Fatalf("exit status %d: %s", status, stderr)
				}
				if !strings.Contains(stdout.String(), "published") || len(b.left()) > 0 {
					t.Errorf("result %q, queues left %v; want a result and none", stdout, b.left())
				}
			})
		})
	}
}

// The asker's connection was once closed while it waited for an answer, so the storm failed with an unexpected answer.
func TestAStormMayEndBeforeTheLastAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newFakeBroker()
		b.lag = 3 * time.Second
		e, stdout, stderr := b.env(t)
		if status := e.main(t.Context(), strings.Fields("storm --messages 10 --delay 10s")); status != 0 {
			t.Errorf("exit status %d: %s", status, stderr)
		}
		if !strings.Contains(stdout.String(), "dead-lettered") || len(b.left()) > 0 {
			t.Errorf("result %q, queues left %v; want a result and none", stdout, b.left())
		}
		time.Sleep(time.Minute)
	})
}

func TestProgressIsShownEachSecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newFakeBroker()
		e, _, stderr := b.env(t)
		if status := e.main(t.Context(), strings.Fields("--rate 2000 --duration 3500ms --pid 42")); status != 0 {
			t.Fatalf("exit status %d: %s", status, stderr)
		}
		lines := strings.Split(strings.TrimSpace(stderr.String()), "\n")
		if len(lines) != 3 || !strings.HasPrefix(lines[2], "   3s  published 6,0") || !strings.HasSuffix(lines[2], "latency p50 0.00 p99 0.00 ms  broker CPU 0 % RSS 125.9 MiB") {
			t.Errorf("got %q, want three lines with rates, latency, CPU and memory", lines)
		}
	})
}

func TestReportForPeople(t *testing.T) {
	r := &report{}
	r.add("a", "whole", int64(-1234567), "messages")
	r.add("b", "large", 123456.7, "per s")
	r.add("c", "small", 0.01234, "ms")
	r.add("e", "bare", int64(5), "") // a blank followed
	r.quantiles("d", "nothing measured", &histogram{})
	var b bytes.Buffer
	if err := r.writeText(&b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{" -1,234,567 messages\n", " 123,457 per s\n", " 0.012 ms\n", " 5\n"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("report lacks %q:\n%s", want, b.String())
		}
	}
	if strings.Contains(b.String(), "nothing") {
		t.Errorf("report shows an empty distribution:\n%s", b.String())
	}
}

func TestListsAreAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newFakeBroker()
		runScenario(t, b, "backlog --by exchange --messages 3 --management http://u:p@broker:15672/")
		want := []string{"GET scheduled?count=100", "GET scheduled/7?", "DELETE scheduled/7?"}
		if got := b.asked[:min(3, len(b.asked))]; !slices.Equal(got, want) || len(b.asked) != 3*probes {
			t.Errorf("asked %d times, first for %v; want %d times, first %v", len(b.asked), got, 3*probes, want)
		}
	})
}
