package metrics

import (
	"github.com/curfewmq/curfew/core/store"
	"github.com/curfewmq/curfew/core/telemetry"
)

// logKinds are the labels of the log of definitions, and of the logs of messages.
var logKinds = [...]*Labels{label("log", "definitions"), label("log", "messages")}

var logDistributions = [...]struct {
	name, help string
	value      func(*store.LogStats) *telemetry.Distribution
}{
	{"curfew_log_append_seconds", "Time that entries of the log took to become durable", func(l *store.LogStats) *telemetry.Distribution { return &l.Latency }},
	{
		"curfew_log_sync_seconds", "Time that the disk took to make written entries durable",
		func(l *store.LogStats) *telemetry.Distribution { return &l.Disk.Syncs },
	},
	{"curfew_log_group_commit_size", "Commits of queues that were written as one entry", func(l *store.LogStats) *telemetry.Distribution { return &l.Group }},
	{"curfew_log_entry_bytes", "Size of entries of the log", func(l *store.LogStats) *telemetry.Distribution { return &l.Size }},
}

// logValues are the other families of logs.
var logValues = [...]struct {
	kind       Kind
	name, help string
	value      func(*store.LogStats) float64
}{
	{Counter, "curfew_log_appended_bytes_total", "Bytes that were appended to the logs", func(l *store.LogStats) float64 { return float64(l.Stats.Bytes) }},
	{
		Counter, "curfew_log_reclaims_total", "Requests to write the live records of old parts of the logs again",
		func(l *store.LogStats) float64 { return float64(l.Reclaims) },
	},
	{Gauge, "curfew_log_pending_bytes", "Bytes that wait to become durable", func(l *store.LogStats) float64 { return float64(l.Pending) }},
	{Gauge, "curfew_log_live_bytes", "Bytes of the logs that are needed", func(l *store.LogStats) float64 { return float64(l.Live) }},
	{Gauge, "curfew_log_bytes", "Bytes of the logs that were not dropped yet", func(l *store.LogStats) float64 { return float64(l.LogBytes) }},
	{Gauge, "curfew_log_file_bytes", "Bytes of the files that hold the logs", func(l *store.LogStats) float64 { return float64(l.Disk.Bytes) }},
	{
		Gauge, "curfew_log_spare_file_bytes", "Bytes of the files that are to hold the logs next",
		func(l *store.LogStats) float64 { return float64(l.Disk.SpareBytes) },
	},
	{
		Gauge, "curfew_log_pinned_file_bytes", "Bytes of files that the logs have done with, and that a backup holds",
		func(l *store.LogStats) float64 { return float64(l.Disk.PinnedBytes) },
	},
	{Gauge, "curfew_logs_full", "Logs that there is no room for on the disk", func(l *store.LogStats) float64 { return truth(l.Full) }},
}

// gatherLogs adds the families of logs.
func (c *Collector) gatherLogs(b *builder) {
	all := c.Store.Logs()
	first := 0 // index of the first shard of messages: a node of a cluster may not own the one of definitions, which comes before
	for first < len(all) && all[first].Shard == 0 {
		first++
	}
	kinds := [len(logKinds)][]store.LogStats{all[:first], all[first:]}
	for _, f := range logDistributions {
		family := b.family(Histogram, f.name, f.help)
		for i, logs := range kinds {
			var sum telemetry.Distribution
			for j := range logs {
				merge(&sum, f.value(&logs[j]))
			}
			family.distribution(logKinds[i], sum)
		}
	}
	for _, f := range logValues {
		family := b.family(f.kind, f.name, f.help)
		for i, logs := range kinds {
			sum := 0.0
			for j := range logs {
				sum += f.value(&logs[j])
			}
			family.add(logKinds[i], sum)
		}
	}
}

// merge adds a distribution that has the same buckets or is empty.
func merge(d, more *telemetry.Distribution) {
	if more.Count == 0 && len(d.Counts) > 0 {
		return
	}
	if len(d.Counts) != len(more.Counts) {
		d.Bounds, d.Counts = more.Bounds, make([]uint64, len(more.Counts))
	}
	for i, n := range more.Counts {
		d.Counts[i] += n
	}
	d.Count += more.Count
	d.Sum += more.Sum
}
