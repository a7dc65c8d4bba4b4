package metrics

import (
	"maps"
	"slices"
)

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
