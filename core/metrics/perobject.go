package metrics

import (
	"bufio"
	"compress/gzip"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
)

// Paths for all queues, below the path for the busiest. Both are RabbitMQ's.
const (
	perObject = "/per-object" // everything
	detailed  = "/detailed"   // what the parameters family and vhost ask for, under names of their own
)

// detailedGroups maps the values of the parameter family to the families of queues that they select.
var detailedGroups = map[string][]string{
	"queue_coarse_metrics": {"rabbitmq_queue_messages_ready", "rabbitmq_queue_messages_unacked", "rabbitmq_queue_messages"},
	"queue_consumer_count": {"rabbitmq_queue_consumers"},
	"queue_metrics":        {"rabbitmq_queue_consumers", "rabbitmq_queue_messages_ready_bytes", "rabbitmq_queue_head_message_timestamp"},
	"queue_delivery_metrics": {
		"rabbitmq_queue_messages_delivered_ack_total", "rabbitmq_queue_messages_delivered_total",
		"rabbitmq_queue_messages_redelivered_total", "rabbitmq_queue_messages_acked_total",
	},
	"channel_queue_exchange_metrics": {"rabbitmq_queue_messages_published_total"},
	"curfew_queue_metrics": {
		"curfew_queue_messages_held", "curfew_queue_next_release_timestamp_seconds",
		"curfew_queue_next_deadline_timestamp_seconds", "curfew_queue_dead_letters_received_total",
		"curfew_queue_messages_expired_total", "curfew_queue_messages_dead_lettered_total", "curfew_queue_messages_dropped_total",
		"curfew_queue_messages_redriven_total", "curfew_queue_schedules_cancelled_total", "curfew_queue_delivery_leases_ended_total",
	},
}

// Objects answers requests for the metrics of all queues, one at a time: with a hundred thousand queues an answer has a hundred
// megabytes.
type Objects struct {
	collector *Collector
	busy      sync.Mutex
}

// NewObjects returns the handler for paths that end in /per-object and /detailed.
func NewObjects(c *Collector) *Objects { return &Objects{collector: c} }

// ServeHTTP implements [http.Handler].
func (o *Objects) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var s selection
	switch {
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		w.Header().Set("Allow", "HEAD, GET")
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	case strings.HasSuffix(r.URL.Path, perObject):
		s.everything = true
	case strings.HasSuffix(r.URL.Path, detailed):
		s = selectionOf(r)
	default:
		http.NotFound(w, r)
		return
	}
	if !o.busy.TryLock() {
		w.Header().Set("Retry-After", "5")
		http.Error(w, "another request for this is being answered", http.StatusServiceUnavailable)
		return
	}
	defer o.busy.Unlock()
	w.Header().Set("Content-Type", textType)
	if r.Method == http.MethodHead {
		return
	}
	out, end := compressed(w, r)
	defer end()
	t := &text{Writer: bufio.NewWriterSize(out, 64<<10)}
	o.collector.write(t, &s)
	_ = t.Flush() // if the client is gone, the server notices
}

// compressed returns a writer for the answer, in the encoding that the client accepts.
func compressed(w http.ResponseWriter, r *http.Request) (out io.Writer, end func()) {
	if !strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		return w, func() {}
	}
	w.Header().Set("Content-Encoding", "gzip")
	w.Header().Add("Vary", "Accept-Encoding")
	z, _ := gzip.NewWriterLevel(w, gzip.BestSpeed) // it fails only for invalid levels
	return z, func() { _ = z.Close() }             // the client may be gone
}

// selection holds the families and vhosts that a request selects.
type selection struct {
	everything bool
	families   []string
	vhosts     []string // nil = all
}

func selectionOf(r *http.Request) (s selection) {
	query := r.URL.Query()
	for _, group := range query["family"] {
		s.families = append(s.families, detailedGroups[group]...)
	}
	s.vhosts = query["vhost"]
	return s
}

func (s *selection) wants(family string) bool {
	return s.everything || slices.Contains(s.families, family)
}

func (s *selection) wantsVHost(name string) bool {
	return s.vhosts == nil || slices.Contains(s.vhosts, name)
}

func (s *selection) name(family string) string {
	if s.everything {
		return family
	}
	if rest, ok := strings.CutPrefix(family, "rabbitmq_"); ok {
		return "rabbitmq_detailed_" + rest
	}
	return family
}

// endpoint returns the value that the answer has in the broker's identity.
func (s *selection) endpoint() string {
	if s.everything {
		return byObject
	}
	return inDetail
}

// write writes the selected families, after the broker's identity.
func (c *Collector) write(t *text, s *selection) {
	var identity builder
	identity.identity(&c.Options, s.endpoint())
	for _, f := range identity.families {
		t.family(f)
	}
	if s.everything {
		for _, f := range c.Collect().Families {
			written := slices.ContainsFunc(identity.families, func(w *Family) bool { return w.Name == f.Name })
			if !written && !ofQueue(f.Name) {
				t.family(f)
			}
		}
	}
	if !s.everything && len(s.families) == 0 {
		return
	}
	samples := c.samples(s)
	for i := range queueFamilies {
		if s.wants(queueFamilies[i].name) {
			t.queueFamily(i, s.name(queueFamilies[i].name), samples)
		}
	}
	reasons := newReasonFamilies()
	for i := range samples {
		reasons.add(&samples[i])
	}
	for _, f := range reasons.all() {
		if s.wants(f.Name) {
			t.family(f)
		}
	}
}

// queueFamily writes the family with that index in queueFamilies, under the given name.
func (t *text) queueFamily(index int, name string, samples []queueSample) {
	f := &queueFamilies[index]
	t.begin(name, f.help, f.kind)
	names, values := []string{"vhost", "queue"}, make([]string, 2)
	for i := range samples {
		if v := f.value(&samples[i]); v != 0 || f.presence != unlessZero {
			values[0], values[1] = samples[i].config.VHost, samples[i].config.Name
			t.series(name, names, values, v)
		}
	}
}

// samples takes samples of all queues in the selected vhosts.
func (c *Collector) samples(s *selection) []queueSample {
	var all []queueSample
	sampler := newSampler()
	sampler.withHead = true
	for _, v := range c.Store.VHosts() {
		if !s.wantsVHost(v.Name()) {
			continue
		}
		for _, m := range v.Mailboxes() {
			if sampler.sample(m) {
				all = append(all, sampler.queueSample)
			}
		}
	}
	return all
}

// ofQueue reports whether a family's series belong to queues.
func ofQueue(family string) bool {
	return strings.HasPrefix(family, "rabbitmq_queue_") || strings.HasPrefix(family, "curfew_queue_") && family != "curfew_queue_leases"
}
