package telemetry

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/metric/metricdata/metricdatatest"

	"github.com/curfewmq/curfew/core/config"
	core "github.com/curfewmq/curfew/core/metrics"
	"github.com/curfewmq/curfew/core/telemetry"
)

func TestFamiliesBecomeMetrics(t *testing.T) {
	began, at := time.Unix(1, 0), time.Unix(9, 0)
	labels := &core.Labels{Names: []string{"queue"}, Values: []string{"q"}}
	set := attribute.NewSet(attribute.String("queue", "q"))
	for _, tc := range []struct {
		name   string
		family core.Family
		want   metricdata.Aggregation
	}{
		{
			name:   "gauge",
			family: core.Family{Points: []core.Point{{Value: 2}, {Labels: labels, Value: 3}}},
			want: metricdata.Gauge[float64]{DataPoints: []metricdata.DataPoint[float64]{
				{Time: at, Value: 2}, {Attributes: set, Time: at, Value: 3},
			}},
		},
		{
			name:   "counter",
			family: core.Family{Kind: core.Counter, Points: []core.Point{{Labels: labels, Value: 3}}},
			want: metricdata.Sum[float64]{
				Temporality: metricdata.CumulativeTemporality, IsMonotonic: true,
				DataPoints: []metricdata.DataPoint[float64]{{Attributes: set, StartTime: began, Time: at, Value: 3}},
			},
		},
		{
			name: "histogram",
			family: core.Family{Kind: core.Histogram, Points: []core.Point{{Labels: labels, Distribution: telemetry.Distribution{
				Bounds: []float64{1}, Counts: []uint64{2, 1}, Count: 3, Sum: 7,
			}}}},
			want: metricdata.Histogram[float64]{
				Temporality: metricdata.CumulativeTemporality,
				DataPoints: []metricdata.HistogramDataPoint[float64]{{
					Attributes: set, StartTime: began, Time: at, Count: 3, Sum: 7, Bounds: []float64{1}, BucketCounts: []uint64{2, 1},
				}},
			},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m := converter{used: map[*core.Labels]attribute.Set{}, began: began, at: at}
			metricdatatest.AssertAggregationsEqual(t, tc.want, m.aggregation(&tc.family))
		})
	}
}

func TestLabelsAreMadeOnce(t *testing.T) {
	labels := &core.Labels{Names: []string{"queue"}, Values: []string{"q"}}
	first := converter{used: map[*core.Labels]attribute.Set{}}
	first.set(labels)
	second := converter{known: first.used, used: map[*core.Labels]attribute.Set{}}
	if a, b := first.used[labels], second.set(labels); a.Equivalent() != b.Equivalent() || len(second.used) != 1 {
		t.Error("they are not the same")
	}
}

func TestMetricsOnTheTerminal(t *testing.T) {
	var out bytes.Buffer
	e, err := newMetricExporter(t.Context(), export{to: config.ExportStdout}, Options{Stdout: &out})
	if err != nil {
		t.Fatal(err)
	}
	one := metricdata.Metrics{Name: "rabbitmq_queues", Data: metricdata.Gauge[float64]{DataPoints: []metricdata.DataPoint[float64]{{Value: 3}}}}
	err = e.Export(t.Context(), &metricdata.ResourceMetrics{ScopeMetrics: []metricdata.ScopeMetrics{{Metrics: []metricdata.Metrics{one}}}})
	if err != nil || !strings.Contains(out.String(), "rabbitmq_queues") {
		t.Errorf("printed %q, %v", out.String(), err)
	}
}
