package metrics

import (
	"github.com/curfewmq/curfew/core/store"
	"github.com/curfewmq/curfew/core/telemetry"
)

// logs is the state of several logs together.
type logs struct {
	latency, group, size, syncs telemetry.Distribution
	appended                    uint64
	pending, live, entries      int64
	files, spares               int64 // bytes
	reclaims                    uint64
	stuck                       int // logs that have no room
}

func (l *logs) add(s *store.LogStats) {
	merge(&l.latency, &s.Latency)
	merge(&l.group, &s.Group)
	merge(&l.size, &s.Size)
	merge(&l.syncs, &s.Disk.Syncs)
	l.appended += s.Stats.Bytes
	l.pending += s.Pending
	l.live += s.Live
	l.entries += s.LogBytes
	l.files += s.Disk.Bytes
	l.spares += s.Disk.SpareBytes
	l.reclaims += s.Reclaims
	if s.Full {
		l.stuck++
	}
}

// merge adds a distribution in the same buckets, or one that is empty.
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

// logKinds are the labels of the log of definitions, and of those of messages.
var logKinds = [...]*Labels{label("log", "definitions"), label("log", "messages")}

// gatherLogs tells of what is written to disk.
func (c *Collector) gatherLogs(b *builder) {
	var kinds [len(logKinds)]logs
	all := c.Store.Logs()
	for i := range all {
		kind := &kinds[1]
		if all[i].Shard == 0 {
			kind = &kinds[0]
		}
		kind.add(&all[i])
	}
	b.logDistributions(&kinds)
	for _, f := range [...]struct {
		kind       Kind
		name, help string
		value      func(*logs) float64
	}{
		{Counter, "curfew_log_appended_bytes_total", "Bytes that were appended to the logs", func(l *logs) float64 { return float64(l.appended) }},
		{Counter, "curfew_log_reclaims_total", "Requests to write again what is needed of old parts of the logs", func(l *logs) float64 { return float64(l.reclaims) }},
		{Gauge, "curfew_log_pending_bytes", "Bytes that wait to become durable", func(l *logs) float64 { return float64(l.pending) }},
		{Gauge, "curfew_log_live_bytes", "Bytes of the logs that are needed", func(l *logs) float64 { return float64(l.live) }},
		{Gauge, "curfew_log_bytes", "Bytes of the logs that were not dropped yet", func(l *logs) float64 { return float64(l.entries) }},
		{Gauge, "curfew_log_file_bytes", "Bytes of the files that hold the logs", func(l *logs) float64 { return float64(l.files) }},
		{Gauge, "curfew_log_spare_file_bytes", "Bytes of the files that are to hold the logs next", func(l *logs) float64 { return float64(l.spares) }},
		{Gauge, "curfew_logs_full", "Logs that there is no room for on the disk", func(l *logs) float64 { return float64(l.stuck) }},
	} {
		family := b.family(f.kind, f.name, f.help)
		for i := range kinds {
			family.add(logKinds[i], f.value(&kinds[i]))
		}
	}
}

func (b *builder) logDistributions(kinds *[len(logKinds)]logs) {
	for _, f := range [...]struct {
		name, help string
		value      func(*logs) *telemetry.Distribution
	}{
		{"curfew_log_append_seconds", "Time that entries of the log took to become durable", func(l *logs) *telemetry.Distribution { return &l.latency }},
		{"curfew_log_sync_seconds", "Time that the disk took to make what was written durable", func(l *logs) *telemetry.Distribution { return &l.syncs }},
		{"curfew_log_group_commit_size", "Commits of queues that were written as one entry", func(l *logs) *telemetry.Distribution { return &l.group }},
		{"curfew_log_entry_bytes", "Size of entries of the log", func(l *logs) *telemetry.Distribution { return &l.size }},
	} {
		family := b.family(Histogram, f.name, f.help)
		for i := range kinds {
			family.distribution(logKinds[i], *f.value(&kinds[i]))
		}
	}
}
