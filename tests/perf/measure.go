package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// figures are the results of one run of a row.
type figures map[string]float64

const (
	cpuKey  = "broker_cpu_seconds_per_million"
	rssKey  = "broker_rss_after_bytes"
	peakKey = "broker_rss_peak_bytes"

	settled = 3 * time.Second // after the start: idle
)

// generator is curfew-bench.
type generator struct {
	binary   string
	duration time.Duration
}

// measure runs a row against a broker.
func (g *generator) measure(ctx context.Context, r row, b *broker) (figures, error) {
	if r.secure && b.secure == "" {
		return nil, errors.New("no TLS")
	}
	if err := b.prepare(ctx, r.fresh); err != nil {
		return nil, err
	}
	switch {
	case r.idle:
		return idle(b)
	case r.client != nil:
		return g.drive(ctx, r.client, b)
	}
	uri := b.uri
	if r.secure {
		uri = b.secure
	}
	args := append(r.arguments(g.duration.String()), "--uri", uri, "--pid", strconv.Itoa(b.pid))
	if r.secure {
		args = append(args, "--tls-insecure")
	}
	return g.bench(ctx, args)
}

// prepare starts the broker if it is not running, or again if the row needs a new one.
func (b *broker) prepare(ctx context.Context, fresh bool) error {
	if fresh && b.launch != nil {
		b.stop()
	}
	if b.running() {
		return nil
	}
	return b.start(ctx)
}

func (g *generator) bench(ctx context.Context, args []string) (figures, error) {
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, g.binary, append([]string{"--json"}, args...)...)
	if args[0][0] != '-' { // the scenario comes first
		cmd = exec.CommandContext(ctx, g.binary, append([]string{args[0], "--json"}, args[1:]...)...)
	}
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("curfew-bench %s: %w: %s", strings.Join(args, " "), err, complaint(stderr.String()))
	}
	var all map[string]any
	if err := json.Unmarshal(stdout.Bytes(), &all); err != nil {
		return nil, fmt.Errorf("curfew-bench %s: %w", strings.Join(args, " "), err)
	}
	f := figures{}
	for key, v := range all {
		if n, ok := v.(float64); ok {
			f[key] = n
		}
	}
	return f, nil
}

// complaint returns the line that is not about progress.
func complaint(stderr string) string {
	for line := range strings.Lines(stderr) {
		if rest, ok := strings.CutPrefix(line, "curfew-bench: "); ok {
			return strings.TrimSpace(rest)
		}
	}
	return ""
}

// drive runs Go's client library in this process.
func (g *generator) drive(ctx context.Context, c *client, b *broker) (figures, error) {
	before, err := cpuSeconds(b.pid)
	if err != nil {
		return nil, err
	}
	n, rate, err := c.load(ctx, b.uri, g.duration)
	if err != nil {
		return nil, fmt.Errorf("amqp091-go: %w", err)
	}
	after, err := cpuSeconds(b.pid)
	if err != nil {
		return nil, err
	}
	f, err := idle(b)
	if err != nil {
		return nil, err
	}
	f[consumed], f[cpuKey] = rate, (after-before)/float64(n)*1e6
	return f, nil
}

// idle measures the memory of an idle broker.
func idle(b *broker) (figures, error) {
	time.Sleep(settled)
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", b.pid))
	if err != nil {
		return nil, err
	}
	f := figures{}
	for key, line := range map[string]string{rssKey: "VmRSS:", peakKey: "VmHWM:"} {
		_, rest, _ := strings.Cut(string(text), line)
		number, _, _ := strings.Cut(strings.TrimSpace(rest), " ")
		kb, err := strconv.ParseFloat(number, 64)
		if err != nil {
			return nil, fmt.Errorf("process %d: %s %w", b.pid, line, err)
		}
		f[key] = kb * 1024
	}
	return f, nil
}

// cpuSeconds returns the CPU time of a process, of all its threads: fields 14 and 15 of proc_pid_stat(5), in hundredths of a second.
func cpuSeconds(pid int) (float64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:])) // fields[0] is the third
	if len(fields) < 13 {
		return 0, fmt.Errorf("process %d: stat of %d fields", pid, len(fields))
	}
	user, err1 := strconv.ParseFloat(fields[11], 64)
	system, err2 := strconv.ParseFloat(fields[12], 64)
	return (user + system) / 100, errors.Join(err1, err2)
}
