package telemetry

import (
	"log/slog"
	"testing"

	"github.com/curfewmq/curfew/core/clock"
	"github.com/curfewmq/curfew/core/config"
)

func TestCollectors(t *testing.T) {
	for _, tt := range []struct {
		name, variable, traces, metrics string
		otlp                            config.OTLP
		to                              config.Exporter
	}{
		{name: "none", to: config.ExportAuto, traces: "off", metrics: "off"},
		{name: "printed", to: config.ExportStdout, traces: "stdout", metrics: "stdout"},
		{name: "default", to: config.ExportOTLP, traces: "grpc localhost:4317", metrics: "grpc localhost:4317"},
		{name: "configured", to: config.ExportAuto, otlp: config.OTLP{Endpoint: "http://c:4318/x", Protocol: config.ProtocolHTTP}, traces: "http c:4318/x", metrics: "http c:4318/x"},
		{name: "variable", to: config.ExportAuto, variable: "https://user:s3cret@c:4317?key=s3cret", traces: "grpc https://c:4317", metrics: "grpc https://c:4317"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", tt.variable)
			if tt.otlp.Protocol == "" {
				tt.otlp.Protocol = config.ProtocolAuto
			}
			c := config.Telemetry{OTLP: tt.otlp, Traces: config.Traces{Exporter: tt.to, Expiries: config.ExpiriesSampled, Buffer: 64}, Metrics: config.Metrics{Exporter: tt.to}}
			s, err := settle(&c)
			if err != nil {
				t.Fatal(err)
			}
			o := &Telemetry{settings: s, options: Options{Clock: clock.New(), Log: slog.New(slog.DiscardHandler)}}
			if traces, metrics := o.Collectors(); traces != tt.traces || metrics != tt.metrics {
				t.Errorf("got %s, %s, want %s, %s", traces, metrics, tt.traces, tt.metrics)
			}
		})
	}
}
