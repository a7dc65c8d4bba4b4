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

// Paths that tell of all queues, below the one that tells of the busiest. Both are RabbitMQ's.
const (
	perObject = "/per-object" // everything
	detailed  = "/detailed"   // what the parameters family and vhost ask for, under names of their own
)

// detailedGroups are what can be asked for in detail, and the families of queues that are in it.
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
		"curfew_queue_next_deadline_timestamp_seconds", "curfew_queue_dead_letters_received_total",
		"curfew_queue_messages_expired_total", "curfew_queue_messages_dead_lettered_total", "curfew_queue_messages_dropped_total",
	},
}

// Objects answers requests for what is known of all queues. With a hundred thousand of them that is a hundred megabytes, so that
// one request is answered at a time.
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
	_ = t.Flush() // the client may be gone; the server notices
}

// compressed returns what to write the answer to, in the encoding that the client wants.
func compressed(w http.ResponseWriter, r *http.Request) (out io.Writer, end func()) {
	if !strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		return w, func() {}
	}
	w.Header().Set("Content-Encoding", "gzip")
	w.Header().Add("Vary", "Accept-Encoding")
	z, _ := gzip.NewWriterLevel(w, gzip.BestSpeed) // it fails for levels that do not exist
	return z, func() { _ = z.Close() }             // the client may be gone
}

// selection is what is wanted of all that there is.
type selection struct {
	everything bool
	families   []string
	vhosts     []string // nil: all
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

// name is what a family is called in the answer.
func (s *selection) name(family string) string {
	if s.everything {
		return family
	}
	if rest, ok := strings.CutPrefix(family, "rabbitmq_"); ok {
		return "rabbitmq_detailed_" + rest
	}
	return family
}

// endpoint is what the answer is called in the broker's identity.
func (s *selection) endpoint() string {
	if s.everything {
		return byObject
	}
	return inDetail
}

// write writes what was selected, and whose it is.
func (c *Collector) write(t *text, s *selection) {
	var who builder
	who.identity(&c.Options, s.endpoint())
	for _, f := range who.families {
		t.family(f)
	}
	if s.everything {
		for _, f := range c.Collect().Families {
			told := slices.ContainsFunc(who.families, func(w *Family) bool { return w.Name == f.Name })
			if !told && !ofQueue(f.Name) {
				t.family(f)
			}
		}
	}
	if !s.everything && len(s.families) == 0 {
		return
	}
	rows := c.rows(s)
	for i := range queueGauges {
		g := &queueGauges[i]
		t.column(s, g.name, g.help, Gauge, rows, func(q *queueSample) (float64, bool) { return g.value(q), true })
	}
	for i := range queueCounters {
		n := &queueCounters[i]
		t.column(s, n.name, n.help, Counter, rows, func(q *queueSample) (float64, bool) { return float64(n.value(q)), true })
	}
	for i := range queueExtras {
		e := &queueExtras[i]
		t.column(s, e.name, e.help, e.kind, rows, e.value)
	}
	reasons := newReasonFamilies()
	for i := range rows {
		reasons.show(&rows[i])
	}
	for _, f := range reasons.all() {
		if s.wants(f.Name) {
			t.family(f)
		}
	}
}

// column writes one family of all queues that have a value.
func (t *text) column(s *selection, name, help string, k Kind, rows []queueSample, value func(*queueSample) (float64, bool)) {
	if !s.wants(name) {
		return
	}
	name = s.name(name)
	t.begin(name, help, k)
	names, values := []string{"vhost", "queue"}, make([]string, 2)
	for i := range rows {
		if v, ok := value(&rows[i]); ok {
			values[0], values[1] = rows[i].config.VHost, rows[i].config.Name
			t.series(name, names, values, v)
		}
	}
}

// rows looks at all queues of the vhosts that are wanted.
func (c *Collector) rows(s *selection) []queueSample {
	var all []queueSample
	w := newWatcher(nil)
	w.closely = true
	for _, v := range c.Store.VHosts() {
		if !s.wantsVHost(v.Name()) {
			continue
		}
		for _, shell := range v.Mailboxes() {
			if w.at(shell) {
				all = append(all, w.queueSample)
			}
		}
	}
	return all
}

// ofQueue reports whether the series of a family are of queues.
func ofQueue(family string) bool {
	return strings.HasPrefix(family, "rabbitmq_queue_") || strings.HasPrefix(family, "curfew_queue_") && family != "curfew_queue_leases"
}
