package telemetry

import (
	"context"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/instrumentation"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	core "github.com/curfewmq/curfew/core/metrics"
)

// producer converts collections for OpenTelemetry's exporters, each collection once. Any goroutine may use it.
type producer struct {
	collector *core.Collector

	mu    sync.Mutex // guards the fields below
	last  *core.Collection
	made  []metricdata.ScopeMetrics // made from last; read only
	known map[*core.Labels]attribute.Set
}

var _ sdkmetric.Producer = (*producer)(nil)

// Produce implements [sdkmetric.Producer].
func (p *producer) Produce(context.Context) ([]metricdata.ScopeMetrics, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.collector.Collect()
	if c == p.last {
		return p.made, nil
	}
	m := converter{known: p.known, used: make(map[*core.Labels]attribute.Set, len(p.known)), began: c.Started.Time(), at: c.At.Time()}
	all := make([]metricdata.Metrics, 0, len(c.Families))
	for _, f := range c.Families {
		if len(f.Points) > 0 {
			all = append(all, metricdata.Metrics{Name: f.Name, Description: f.Help, Data: m.aggregation(f)})
		}
	}
	p.last, p.known = c, m.used
	p.made = []metricdata.ScopeMetrics{{Scope: instrumentation.Scope{Name: scope}, Metrics: all}}
	return p.made, nil
}

// converter converts one collection to OpenTelemetry's types.
type converter struct {
	known, used map[*core.Labels]attribute.Set // points share labels, and collections the sets made from them
	began, at   time.Time
}

func (m *converter) aggregation(f *core.Family) metricdata.Aggregation {
	switch f.Kind {
	case core.Counter:
		return metricdata.Sum[float64]{DataPoints: m.points(f), Temporality: metricdata.CumulativeTemporality, IsMonotonic: true}
	case core.Histogram:
		return metricdata.Histogram[float64]{DataPoints: m.distributions(f), Temporality: metricdata.CumulativeTemporality}
	}
	return metricdata.Gauge[float64]{DataPoints: m.points(f)}
}

func (m *converter) points(f *core.Family) []metricdata.DataPoint[float64] {
	all := make([]metricdata.DataPoint[float64], len(f.Points))
	for i := range f.Points {
		all[i] = metricdata.DataPoint[float64]{Attributes: m.set(f.Points[i].Labels), Time: m.at, Value: f.Points[i].Value}
		if f.Kind == core.Counter {
			all[i].StartTime = m.began
		}
	}
	return all
}

func (m *converter) distributions(f *core.Family) []metricdata.HistogramDataPoint[float64] {
	all := make([]metricdata.HistogramDataPoint[float64], len(f.Points))
	for i := range f.Points {
		d := &f.Points[i].Distribution
		all[i] = metricdata.HistogramDataPoint[float64]{
			Attributes: m.set(f.Points[i].Labels), StartTime: m.began, Time: m.at,
			Count: d.Count, Sum: d.Sum, Bounds: d.Bounds, BucketCounts: d.Counts,
		}
	}
	return all
}

func (m *converter) set(l *core.Labels) attribute.Set {
	if l == nil {
		return *attribute.EmptySet()
	}
	if s, ok := m.used[l]; ok {
		return s
	}
	s, ok := m.known[l]
	if !ok {
		all := make([]attribute.KeyValue, len(l.Names))
		for i, name := range l.Names {
			all[i] = attribute.String(name, l.Values[i])
		}
		s = attribute.NewSet(all...)
	}
	m.used[l] = s
	return s
}
