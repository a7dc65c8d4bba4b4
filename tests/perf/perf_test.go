package main

import (
	"bytes"
	"io"
	"math"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/curfewmq/curfew/cmd/curfew-bench/bench"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Every command that a row stands for is one that curfew-bench takes.
func TestRowsAreCommands(t *testing.T) {
	names := make(map[string]bool)
	for _, r := range rows() {
		if names[r.name] {
			t.Errorf("%s: twice", r.name)
		}
		names[r.name] = true
		if r.client != nil || r.idle {
			continue
		}
		lines := [][]string{r.arguments("5s")}
		if r.floor {
			lines = append(lines, r.relay("5s"))
		}
		for _, args := range lines {
			var stderr bytes.Buffer
			if status := bench.Main(append(args, "--help"), io.Discard, &stderr); status != 0 { // comes last, so that all before it is read
				t.Errorf("%s: curfew-bench %v: %s", r.name, args, &stderr)
			}
		}
	}
}

// Rows that nothing matched made an empty table, and a wrong flag two lines and a page of help.
func TestComplaints(t *testing.T) {
	cases := []struct {
		args, want string
	}{
		{"--rows nothing", "--rows nothing: no scenario has such a name; --list prints them"},
		{"--rows (", "-rows: error parsing regexp"},
		{"--runs 0", "--runs 0: must be at least 1"},
		{"--duration -1s", "--duration -1s: must be longer than 0s"},
		{"--duration 1", `invalid value "1" for flag -duration`},
		{"--other foo", "must be NAME,URI,PID"},
		{"idle", `unexpected argument "idle"`},
		{"--frobnicate", "-frobnicate"},
	}
	for _, c := range cases {
		var stderr bytes.Buffer
		if _, err := parse(strings.Fields(c.args), &stderr); err == nil || !strings.Contains(err.Error(), c.want) || stderr.Len() > 0 {
			t.Errorf("%s: error %v, want %q; and said %q", c.args, err, c.want, &stderr)
		}
	}
}

func TestMissingBinaryIsToldAtOnce(t *testing.T) {
	o, err := parse([]string{"--curfew", "perf_test.go", "--before", "nowhere/curfew"}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if err := o.absolute(); err == nil || !strings.Contains(err.Error(), "nowhere/curfew") {
		t.Errorf("error %v, want one that names the file", err)
	}
}

// Rows without a rate showed a slash and two blanks.
func TestProgressShowsWhatThereIs(t *testing.T) {
	cases := []struct {
		name string
		row  row
		f    figures
		want string
	}{
		{name: "rate", row: row{rate: consumed}, f: figures{consumed: 400_000, cpuKey: 3}, want: "400,000 per s, 3.00 CPU-s/M"},
		{name: "latency", row: row{p50: "x", p99: "y"}, f: figures{cpuKey: 46, "x": 0.15, "y": 11.7}, want: "46.0 CPU-s/M, 0.15 ms p50, 11.7 ms p99"},
		{name: "idle", row: row{idle: true}, f: figures{rssKey: 12 << 20}, want: "12.0 MiB"},
	}
	for _, c := range cases {
		if got := c.row.outline(c.f); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

func TestRelayGetsTheSameBytes(t *testing.T) {
	r := row{bench: "--size 1048576 --durable --persistent --confirm 20 --duration D"}
	if got, want := strings.Join(r.relay("7s"), " "), "floor --size 1048576 --duration 7s"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestMedian(t *testing.T) {
	cases := []struct {
		name   string
		values []float64
		want   float64
	}{
		{name: "three", values: []float64{3, 1, 2}, want: 2},
		{name: "one outlier", values: []float64{2, 100, 1}, want: 2},
		{name: "two, where one run has failed", values: []float64{4, 2}, want: 3},
		{name: "one", values: []float64{7}, want: 7},
		{name: "none", want: math.NaN()},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			var s sample
			for _, v := range c.values {
				s.runs = append(s.runs, figures{"x": v})
			}
			if got := s.median("x"); got != c.want && !(math.IsNaN(got) && math.IsNaN(c.want)) {
				t.Errorf("got %v, want %v", got, c.want)
			}
			if got := s.median("absent"); !math.IsNaN(got) {
				t.Errorf("of what was not measured: %v", got)
			}
		})
	}
}

func TestNumbers(t *testing.T) {
	cases := []struct {
		in   float64
		want string
	}{
		{0.1234, "0.12"},
		{1.5, "1.50"},
		{12.34, "12.3"},
		{123.4, "123"},
		{1234, "1,230"},
		{511_123, "511,000"},
		{1_234_567, "1,230,000"},
		{0, "0.00"},
		{-0.5, "-0.50"},
		{math.NaN(), ""},
		{math.Inf(1), ""},
	}
	for _, c := range cases {
		if got := number(c.in); got != c.want {
			t.Errorf("%v: %q, want %q", c.in, got, c.want)
		}
	}
}

func TestTable(t *testing.T) {
	r := row{name: "100 B", rate: consumed, p50: "latency_p50_ms", floor: true, also: []detail{{"x_bytes", "KiB each", 1.0 / 1024}}}
	samples := []sample{
		{row: r, broker: "curfew", runs: []figures{
			{consumed: 400_000, cpuKey: 3, "latency_p50_ms": 0.5, rssKey: 32 << 20, "x_bytes": 2048},
			{consumed: 500_000, cpuKey: 1, "latency_p50_ms": 0.7, rssKey: 32 << 20},
			{consumed: 450_000, cpuKey: 2, "latency_p50_ms": 0.6, rssKey: 32 << 20},
		}},
		{row: r, broker: "rabbitmq", failed: []string{"no TLS"}},
		{row: r, broker: relayName, runs: []figures{{consumed: 1e6, cpuKey: 0.5, rssKey: 1 << 20}}},
	}
	var out bytes.Buffer
	if err := writeTable(&out, samples); err != nil {
		t.Fatal(err)
	}
	got := strings.Split(out.String(), "\n")
	want := []string{
		"| scenario | broker   |     per s | CPU-s/M |   from..to | x relay | p50 ms | p99 ms | RSS MiB |               |",
		"|----------|----------|----------:|--------:|-----------:|--------:|-------:|-------:|--------:|---------------|",
		"| 100 B    | curfew   |   450,000 |    2.00 | 1.00..3.00 |    4.00 |   0.60 |        |    32.0 | 2.00 KiB each |",
		"| 100 B    | rabbitmq |           |         |            |         |        |        |         | 1 of 1 FAILED |",
		"| 100 B    | relay    | 1,000,000 |    0.50 |            |         |        |        |         |               |",
		"",
		"100 B, rabbitmq: no TLS",
		"",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", out.String(), strings.Join(want, "\n"))
	}
}

func TestForeignBrokers(t *testing.T) {
	b, err := foreign("lavinmq,amqp://guest:guest@127.0.0.1:5673/,4711")
	if err != nil || b.name != "lavinmq" || b.uri != "amqp://guest:guest@127.0.0.1:5673/" || b.pid != 4711 || !b.running() {
		t.Errorf("got %+v, error %v", b, err)
	}
	for _, s := range []string{"", "a,b", "a,b,c", "a,b,1,2"} {
		if _, err := foreign(s); err == nil {
			t.Errorf("%q: no error", s)
		}
	}
}
