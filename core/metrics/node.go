package metrics

import (
	"maps"
	"runtime"
	"slices"
	"time"
)

// The values of the label rabbitmq_endpoint of rabbitmq_identity_info. A scraper that reads
// several paths of a broker can tell from them which series are duplicates.
const (
	aggregated = "aggregated"
	byObject   = "per-object"
	inDetail   = "detailed"
)

// identity adds the identity of the broker, and the path.
func (b *builder) identity(o *Options, endpoint string) {
	b.family(Gauge, "rabbitmq_build_info", "Version of the broker, and of the RabbitMQ that it is like").add(label(
		"rabbitmq_version", o.RabbitMQ, "prometheus_plugin_version", o.RabbitMQ, "product_name", "Curfew", "product_version", o.Version,
	), 1)
	b.family(Gauge, "rabbitmq_identity_info", "Name of the broker, and of the cluster that it would be in").add(label(
		"rabbitmq_node", o.Node, "rabbitmq_cluster", o.Cluster(), "rabbitmq_endpoint", endpoint,
	), 1)
}

func (b *builder) version(o *Options) {
	b.family(Gauge, "curfew_build_info", "Version of the broker, the commit that it was built from, and the version of Go").add(label(
		"version", o.Version, "commit", o.Commit, "goversion", runtime.Version(),
	), 1)
}

// machine adds the resources of the process with their limits, and the alarms.
func (b *builder) machine(o *Options, up time.Duration) {
	alarms := o.Alarms()
	b.gauge("rabbitmq_alarms_memory_used_watermark", "is 1 if VM memory watermark alarm is in effect", truth(slices.Contains(alarms, "memory")))
	b.gauge("rabbitmq_alarms_free_disk_space_watermark", "is 1 if free disk space watermark alarm is in effect", truth(slices.Contains(alarms, "disk")))
	b.gauge("rabbitmq_alarms_file_descriptor_limit", "is 1 if file descriptor limit alarm is in effect", 0)
	b.alarms(alarms)
	b.certificates(o)
	b.gauge("rabbitmq_erlang_uptime_seconds", "Node uptime", up.Seconds())
	if o.Machine == nil {
		return
	}
	m := o.Machine()
	b.gauge("rabbitmq_process_open_fds", "Open file descriptors", float64(m.Files))
	b.gauge("rabbitmq_process_max_fds", "Open file descriptors limit", float64(m.FilesLimit))
	b.gauge("rabbitmq_process_open_tcp_sockets", "Open TCP sockets", float64(o.AMQP.Connections()))
	b.gauge("rabbitmq_process_max_tcp_sockets", "Open TCP sockets limit", float64(m.FilesLimit))
	b.gauge("rabbitmq_process_resident_memory_bytes", "Memory used in bytes", float64(m.Memory))
	b.gauge("rabbitmq_resident_memory_limit_bytes", "Memory high watermark in bytes", float64(m.MemoryLimit))
	b.gauge("rabbitmq_disk_space_available_bytes", "Disk space available in bytes", float64(m.DiskFree))
	b.gauge("rabbitmq_disk_space_available_limit_bytes", "Free disk space low watermark in bytes", float64(m.DiskLimit))
}

// usualAlarms have a series even while they are not active. Failed logs have a series each, such as "shard 2".
var usualAlarms = []string{"disk", "memory"}

// alarms adds the usual alarms, and all active ones.
func (b *builder) alarms(raised []string) {
	all := b.family(Gauge, "curfew_alarms", "Whether there is an alarm, which makes publishers wait or says that a log failed")
	for _, name := range usualAlarms {
		all.add(label("alarm", name), truth(slices.Contains(raised, name)))
	}
	for _, name := range raised {
		if !slices.Contains(usualAlarms, name) {
			all.add(label("alarm", name), 1)
		}
	}
}

// certificates adds the expiry times of certificates.
func (b *builder) certificates(o *Options) {
	if o.Certificates == nil {
		return
	}
	all := b.family(Gauge, "curfew_certificate_expires_timestamp_seconds", "When the certificate that a listener presents expires")
	for _, c := range o.Certificates() {
		all.add(label("protocol", c.Protocol), float64(c.Expires.Unix()))
	}
}

// gatherTelemetry adds the recorder's histograms, and counters about the recorder itself.
func (c *Collector) gatherTelemetry(b *builder) {
	late := c.Recorder.Lateness().Read()
	f := b.family(Histogram, "curfew_expiry_lateness_seconds", "Time between the deadlines of messages and their expiry")
	for _, strategy := range slices.Sorted(maps.Keys(late)) {
		f.distribution(label("strategy", strategy), late[strategy])
	}
	overstays := c.Recorder.Lateness().Overstays()
	f = b.family(Histogram, "curfew_expiry_overstay_seconds", "Time between the deadlines of messages that consumers had past them, and their expiry")
	for _, strategy := range slices.Sorted(maps.Keys(overstays)) {
		f.distribution(label("strategy", strategy), overstays[strategy])
	}
	releases := c.Recorder.Lateness().Releases()
	f = b.family(Histogram, "curfew_release_lateness_seconds", "Time between the end of messages' holds and their release")
	for _, held := range slices.Sorted(maps.Keys(releases)) {
		f.distribution(label("held_by", held), releases[held])
	}
	if ring := c.Recorder.Events(); ring != nil {
		b.counter("curfew_events_total", "Events that the event stream had", ring.Last()-ring.First())
	}
	if spans := c.Recorder.Spans(); spans != nil {
		b.counter("curfew_trace_spans_total", "Spans that were made", spans.Made())
		b.counter("curfew_trace_spans_dropped_total", "Spans that were dropped, because the collector of spans did not keep up", spans.Dropped())
	}
	if c.Exported != nil {
		taken, lost := c.Exported()
		b.counter("curfew_trace_spans_exported_total", "Spans that the collector of spans has taken", taken)
		b.counter("curfew_trace_spans_lost_total", "Spans that the collector of spans has not taken", lost)
	}
}
