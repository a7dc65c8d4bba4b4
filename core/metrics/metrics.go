// Package metrics gathers the broker's counts into families, in the form of Prometheus and OpenTelemetry. A family that RabbitMQ
// also has gets RabbitMQ's name, type and labels, so that dashboards and alerts made for RabbitMQ work. The names of all others
// begin with "curfew_".
//
// Counters never go down while the broker runs: counts of a vhost or a connection remain after it has been deleted
// or closed. Counters with the label queue are the exception: they end with their queue.
package metrics

import (
	"bufio"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/curfewmq/curfew/core/chain"
	"github.com/curfewmq/curfew/core/clock"
	"github.com/curfewmq/curfew/core/replicas"
	"github.com/curfewmq/curfew/core/store"
	"github.com/curfewmq/curfew/core/telemetry"
	"github.com/curfewmq/curfew/core/wire"
	"github.com/curfewmq/curfew/sdk/hook"
)

// Kind is the type of a family.
type Kind uint8

// The kinds.
const (
	Gauge     Kind = iota
	Counter        // never goes down
	Histogram      // points have a distribution and no value
)

// String returns Prometheus' name for the kind.
func (k Kind) String() string { return [...]string{"gauge", "counter", "histogram"}[k] }

// Family is all series of one name.
type Family struct {
	Name, Help string
	Kind       Kind
	Points     []Point
}

// Point is one series of a family at one moment.
type Point struct {
	Labels       *Labels // nil = none
	Value        float64
	Distribution telemetry.Distribution
}

// Labels are the labels of a series. They never change: series with the same labels share them.
type Labels struct{ Names, Values []string }

// label returns labels, given as alternating names and values.
func label(pairs ...string) *Labels {
	n := len(pairs) / 2
	l := &Labels{Names: make([]string, n), Values: make([]string, n)}
	for i := range n {
		l.Names[i], l.Values[i] = pairs[2*i], pairs[2*i+1]
	}
	return l
}

// Collection holds all families at one moment. It never changes.
type Collection struct {
	Started, At hook.Instant
	Families    []*Family
}

// Options configure a [Collector].
type Options struct {
	Version  string // of the broker
	Commit   string // that the broker was built from; "" = unknown
	RabbitMQ string // version of RabbitMQ whose behaviour the broker has
	Node     string // the broker's name
	Cluster  func() string
	Store    *store.Store
	AMQP     *wire.Server
	Recorder *telemetry.Recorder
	Clock    clock.Clock
	// Alarms returns the active alarms.
	Alarms func() []string
	// Certificates returns the certificates that listeners present, in a stable order; nil = there are none.
	Certificates func() []Certificate
	// Machine describes the machine and the process; nil = unknown.
	Machine func() Machine
	// Policies describes the policies in WebAssembly; nil = there are none.
	Policies func() []Policy
	// Faults returns the plugins' faults; nil = unknown.
	Faults func() []chain.Fault
	// Filtered returns, by plugin, how many messages its filters kept out of exchanges; nil = unknown.
	Filtered func() map[string]uint64
	// Exported returns how many spans were accepted by the collector they are sent to, and how many were lost; nil = unknown.
	Exported func() (taken, lost uint64)
	// Replicas returns what the node knows about its cluster; nil = it is a single broker.
	Replicas func() replicas.View
	// Queues is how many queues have series of their own, the busiest ones.
	Queues int
}

// Machine describes the process and its machine.
type Machine struct {
	Memory, MemoryLimit uint64 // bytes that the process uses, and above which publishers wait
	DiskFree, DiskLimit uint64 // bytes that are free, and below which publishers wait
	Files, FilesLimit   int    // open descriptors, and the limit on them
}

// Certificate is the certificate of a listener.
type Certificate struct {
	Protocol string // of the listener, in RabbitMQ's terms: "amqp/ssl", "https"
	Expires  time.Time
}

// Collector gathers metrics. Any goroutine may use it; one at a time gathers.
type Collector struct {
	Options
	started hook.Instant

	mu       sync.Mutex // guards the fields below; held while a goroutine gathers
	last     *Collection
	totals   monotonicTotals
	removals removalTotals
	policies map[policyKey]*policyCounts
	selector seriesSelector
}

// New returns a Collector. Its counters start now.
func New(o Options) *Collector {
	return &Collector{
		Options: o, started: o.Clock(), removals: newRemovalTotals(),
		policies: map[policyKey]*policyCounts{}, selector: seriesSelector{limit: o.Queues},
	}
}

// freshness is how long a collection is reused, so that several scrapers at the same time cost one collection.
const freshness = time.Second

// Collect returns all metrics, at most a moment old.
func (c *Collector) Collect() *Collection {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.Clock()
	if c.last == nil || now.Sub(c.last.At) >= freshness {
		c.last = &Collection{Started: c.started, At: now, Families: c.gather(now)}
	}
	return c.last
}

// gather gathers all families. The caller holds mu.
func (c *Collector) gather(now hook.Instant) []*Family {
	var b builder
	b.identity(&c.Options, aggregated)
	b.version(&c.Options)
	b.machine(&c.Options, now.Sub(c.started))
	c.gatherTraffic(&b)
	c.gatherQueues(&b, now)
	c.gatherRemovals(&b)
	c.gatherLogs(&b)
	c.gatherCluster(&b)
	c.gatherPolicies(&b)
	c.gatherPlugins(&b)
	c.gatherTelemetry(&b)
	return b.families
}

// builder collects families.
type builder struct{ families []*Family }

func (b *builder) family(k Kind, name, help string) *Family {
	f := &Family{Name: name, Help: help, Kind: k}
	b.families = append(b.families, f)
	return f
}

// gauge adds a gauge without labels.
func (b *builder) gauge(name, help string, value float64) {
	b.family(Gauge, name, help).add(nil, value)
}

// counter adds a counter without labels.
func (b *builder) counter(name, help string, value uint64) {
	b.family(Counter, name, help).add(nil, float64(value))
}

func (f *Family) add(l *Labels, value float64) {
	f.Points = append(f.Points, Point{Labels: l, Value: value})
}

func (f *Family) distribution(l *Labels, d telemetry.Distribution) {
	f.Points = append(f.Points, Point{Labels: l, Distribution: d})
}

// truth returns 1 for true, and 0 for false.
func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// seconds returns an instant in seconds, Prometheus' unit.
func seconds(t hook.Instant) float64 { return float64(t) / float64(time.Second) }

// textType is the media type of the text format.
const textType = "text/plain; version=0.0.4; charset=utf-8"

// text writes families in Prometheus' text format 0.0.4, a line at a time.
type text struct {
	*bufio.Writer
	line []byte
}

func (t *text) begin(name, help string, k Kind) {
	t.line = append(append(append(t.line[:0], "# HELP "...), name...), ' ')
	t.line = append(append(t.line, helpEscapes.Replace(help)...), "\n# TYPE "...)
	t.line = append(append(append(append(t.line, name...), ' '), k.String()...), '\n')
	t.flush()
}

// series writes the value of a series; names and values are its labels.
func (t *text) series(name string, names, values []string, value float64) {
	t.line = append(t.line[:0], name...)
	t.line = appendLabels(t.line, names, values)
	t.line = append(appendNumber(append(t.line, ' '), value), '\n')
	t.flush()
}

// flush writes the line. An error shows up when the writer is flushed at the end.
func (t *text) flush() { _, _ = t.Write(t.line) }

// family writes a whole family.
func (t *text) family(f *Family) {
	if len(f.Points) == 0 {
		return
	}
	t.begin(f.Name, f.Help, f.Kind)
	for i := range f.Points {
		p := &f.Points[i]
		l := p.Labels
		if l == nil {
			l = &Labels{}
		}
		if f.Kind == Histogram {
			t.histogram(f.Name, l, p)
			continue
		}
		t.series(f.Name, l.Names, l.Values, p.Value)
	}
}

func (t *text) histogram(name string, l *Labels, p *Point) {
	d, sum := &p.Distribution, uint64(0)
	names := append(slices.Clip(l.Names), "le")
	for i, n := range d.Counts {
		sum += n
		bound := math.Inf(1)
		if i < len(d.Bounds) {
			bound = d.Bounds[i]
		}
		le := string(appendNumber(nil, bound))
		t.series(name+"_bucket", names, append(slices.Clip(l.Values), le), float64(sum))
	}
	t.series(name+"_sum", l.Names, l.Values, d.Sum)
	t.series(name+"_count", l.Names, l.Values, float64(d.Count))
}

func appendLabels(b []byte, names, values []string) []byte {
	if len(names) == 0 {
		return b
	}
	for i, name := range names {
		sep := byte(',')
		if i == 0 {
			sep = '{'
		}
		b = append(append(append(b, sep), name...), '=', '"')
		b = append(append(b, labelEscapes.Replace(values[i])...), '"')
	}
	return append(b, '}')
}

// Replacers have no state.
var (
	labelEscapes = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`)
	helpEscapes  = strings.NewReplacer(`\`, `\\`, "\n", `\n`)
)

func appendNumber(b []byte, v float64) []byte {
	if math.IsInf(v, 1) {
		return append(b, "+Inf"...)
	}
	if v == math.Trunc(v) && math.Abs(v) < 1<<53 {
		return strconv.AppendInt(b, int64(v), 10)
	}
	return strconv.AppendFloat(b, v, 'g', -1, 64)
}
