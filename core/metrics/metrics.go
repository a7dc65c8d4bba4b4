// Package metrics gathers what the broker counts into families as Prometheus and OpenTelemetry have them. Where a thing is the
// same as in RabbitMQ it has RabbitMQ's name, type and labels, so that dashboards and alerts made for it work; what RabbitMQ
// does not have begins with "curfew_".
//
// Counters never go down while the broker runs: what is counted in a vhost, or on a connection, stays counted when that is gone.
// Those with the label queue are the exception that labels are: they end with their queue.
package metrics

import (
	"sync"
	"time"

	"github.com/curfewmq/curfew/core/chain"
	"github.com/curfewmq/curfew/core/clock"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/core/store"
	"github.com/curfewmq/curfew/core/telemetry"
	"github.com/curfewmq/curfew/core/wire"
	"github.com/curfewmq/curfew/sdk/hook"
)

// Kind is how the values of a family behave.
type Kind uint8

// The kinds.
const (
	Gauge     Kind = iota
	Counter        // only goes up
	Histogram      // points have a distribution and no value
)

// String returns the kind as Prometheus calls it.
func (k Kind) String() string { return [...]string{"gauge", "counter", "histogram"}[k] }

// Family is everything of one name.
type Family struct {
	Name, Help string
	Kind       Kind
	Points     []Point
}

// Point is one series of a family at one moment.
type Point struct {
	Labels       *Labels // nil: none
	Value        float64
	Distribution telemetry.Distribution
}

// Labels are the labels of a series. They never change, and series that have the same ones share them.
type Labels struct{ Names, Values []string }

// label returns labels, given as name and value by turns.
func label(pairs ...string) *Labels {
	n := len(pairs) / 2
	l := &Labels{Names: make([]string, n), Values: make([]string, n)}
	for i := range n {
		l.Names[i], l.Values[i] = pairs[2*i], pairs[2*i+1]
	}
	return l
}

// Collection is everything at one moment. It never changes.
type Collection struct {
	Started, At hook.Instant
	Families    []*Family
}

// Options are what is gathered from.
type Options struct {
	Version  string // of the broker
	Speaks   string // version of RabbitMQ that it is like
	Node     string // the broker's name
	Cluster  func() string
	Store    *store.Store
	AMQP     *wire.Server
	Recorder *telemetry.Recorder // nil: nothing is told of what only it knows
	Clock    clock.Clock
	// Alarms names what keeps the broker from taking messages.
	Alarms func() []string
	// Machine describes the machine and the process; nil = nobody knows.
	Machine func() Machine
	// Policies describes the policies in WebAssembly; nil = there are none.
	Policies func() []Policy
	// Faults counts what plugins did wrong; nil = nobody knows.
	Faults func() []chain.Fault
	// Exported returns how many spans a collector of spans has taken, and how many it has not; nil = nobody knows.
	Exported func() (taken, lost uint64)
	// Queues is how many queues have series of their own: the busiest.
	Queues int
}

// Machine is what the operating system says.
type Machine struct {
	Memory, MemoryLimit uint64 // bytes that the process has, and above which publishers wait
	DiskFree, DiskLimit uint64 // bytes, and below which publishers wait
	Files, FilesLimit   int    // descriptors that are open, and may be
}

// Collector gathers. Any goroutine may use it; one gathers at a time.
type Collector struct {
	Options
	started hook.Instant
	survey  *queue.DueSampler

	mu       sync.Mutex // guards what follows; held while somebody gathers
	last     *Collection
	counted  monotonicTotals
	left     exits
	policies map[policyKey]policyCounts
	queues   seriesSelector
}

// New returns a Collector, which is to be closed. Its counters begin now.
func New(o Options) *Collector {
	return &Collector{
		Options: o, started: o.Clock(), survey: queue.NewDueSampler(o.Clock), left: newExits(),
		policies: map[policyKey]policyCounts{}, queues: seriesSelector{limit: o.Queues},
	}
}

// Close ends what goes on between collections.
func (c *Collector) Close() { c.survey.Close() }

// freshness is for how long a collection is good: so that several who look at the same time cost one.
const freshness = time.Second

// Collect returns everything as it is now, or was a moment ago.
func (c *Collector) Collect() *Collection {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.Clock()
	if c.last == nil || now.Sub(c.last.At) >= freshness {
		c.last = &Collection{Started: c.started, At: now, Families: c.gather(now)}
	}
	return c.last
}

// gather looks at everything. The caller holds mu.
func (c *Collector) gather(now hook.Instant) []*Family {
	var b builder
	b.identity(&c.Options, aggregated)
	b.version(&c.Options)
	b.machine(&c.Options, now.Sub(c.started))
	c.gatherTraffic(&b)
	c.gatherQueues(&b, now)
	c.gatherExpiry(&b)
	c.gatherLogs(&b)
	c.gatherPolicies(&b)
	c.gatherPlugins(&b)
	c.gatherTelemetry(&b)
	return b.families
}

// builder puts families together.
type builder struct{ families []*Family }

func (b *builder) family(k Kind, name, help string) *Family {
	f := &Family{Name: name, Help: help, Kind: k}
	b.families = append(b.families, f)
	return f
}

// gauge adds a family of one value.
func (b *builder) gauge(name, help string, value float64) {
	b.family(Gauge, name, help).add(nil, value)
}

// counter adds a family of one count.
func (b *builder) counter(name, help string, value uint64) {
	b.family(Counter, name, help).add(nil, float64(value))
}

func (f *Family) add(l *Labels, value float64) {
	f.Points = append(f.Points, Point{Labels: l, Value: value})
}

func (f *Family) distribution(l *Labels, d telemetry.Distribution) {
	f.Points = append(f.Points, Point{Labels: l, Distribution: d})
}

// truth is 1 or 0.
func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// seconds is an instant as Prometheus has it.
func seconds(t hook.Instant) float64 { return float64(t) / float64(time.Second) }
