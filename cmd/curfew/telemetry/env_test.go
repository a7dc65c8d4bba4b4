package telemetry

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/curfewmq/curfew/core/config"
	"github.com/curfewmq/curfew/core/otlp"
	core "github.com/curfewmq/curfew/core/telemetry"
)

// environment replaces the OTEL_ variables of the process while a test runs.
func environment(t *testing.T, entries ...string) {
	t.Helper()
	for _, entry := range os.Environ() {
		if name, _, _ := strings.Cut(entry, "="); strings.HasPrefix(name, "OTEL_") {
			t.Setenv(name, "")
		}
	}
	for _, entry := range entries {
		name, value, _ := strings.Cut(entry, "=")
		t.Setenv(name, value)
	}
}

// standard is the configuration without any settings.
func standard() config.Telemetry {
	return config.Telemetry{
		Events: 16, OTLP: config.OTLP{Protocol: config.ProtocolAuto},
		Traces:  config.Traces{Exporter: config.ExportAuto, Expiries: config.ExpiriesSampled, Buffer: 64},
		Metrics: config.Metrics{Exporter: config.ExportAuto},
	}
}

func TestSettle(t *testing.T) {
	all := core.Sampling{Ratio: 1}
	local := export{to: config.ExportOTLP, protocol: config.ProtocolGRPC}
	none := export{to: config.ExportOff, protocol: config.ProtocolAuto}
	for _, tc := range []struct {
		name    string
		environ []string
		change  func(c *config.Telemetry)
		want    settings
	}{
		{name: "nothing is said", want: settings{traces: none, metrics: none}},
		{
			name: "variables name exporters", environ: []string{"OTEL_TRACES_EXPORTER=otlp", "OTEL_METRICS_EXPORTER=console", "OTEL_SERVICE_NAME=orders"},
			want: settings{
				service: "orders", traces: local, metrics: export{to: config.ExportStdout, protocol: config.ProtocolAuto},
				sampling: all, interval: time.Minute,
			},
		},
		{
			name: "a variable names a collector", environ: []string{"OTEL_EXPORTER_OTLP_ENDPOINT=http://c:4318", "OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf", "OTEL_METRIC_EXPORT_INTERVAL=500"},
			want: settings{
				traces:  export{to: config.ExportOTLP, protocol: config.ProtocolHTTP},
				metrics: export{to: config.ExportOTLP, protocol: config.ProtocolHTTP}, sampling: all, interval: 500 * time.Millisecond,
			},
		},
		{
			name: "a collector for traces alone", environ: []string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=http://c:4317"},
			want: settings{traces: local, metrics: none, sampling: all},
		},
		{
			name: "a variable for traces wins", environ: []string{
				"OTEL_EXPORTER_OTLP_ENDPOINT=http://c:4317", "OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL=grpc",
				"OTEL_METRICS_EXPORTER=prometheus",
			},
			want: settings{traces: local, metrics: none, sampling: all},
		},
		{
			name: "switched off", environ: []string{"OTEL_SDK_DISABLED=TRUE", "OTEL_TRACES_EXPORTER=otlp"},
			change: func(c *config.Telemetry) { c.Metrics.Exporter = config.ExportStdout },
			want:   settings{traces: none, metrics: none},
		},
		{
			name: "the configuration wins", environ: []string{"OTEL_TRACES_EXPORTER=otlp", "OTEL_SERVICE_NAME=orders", "OTEL_TRACES_SAMPLER=always_off", "OTEL_EXPORTER_OTLP_PROTOCOL=x"},
			change: func(c *config.Telemetry) {
				c.ServiceName = "bills"
				c.OTLP = config.OTLP{Endpoint: "c:1", Insecure: true, Protocol: config.ProtocolHTTP}
				c.Traces.Sample = config.Optional[float64]{Value: 0.25, Given: true}
				c.Metrics = config.Metrics{Exporter: config.ExportOTLP, Interval: config.Optional[time.Duration]{Value: time.Second, Given: true}}
			},
			want: settings{
				service:  "bills",
				traces:   export{to: config.ExportOTLP, protocol: config.ProtocolHTTP, endpoint: "c:1", insecure: true},
				metrics:  export{to: config.ExportOTLP, protocol: config.ProtocolHTTP, endpoint: "c:1", insecure: true},
				sampling: core.Sampling{Ratio: 0.25}, interval: time.Second,
			},
		},
		{
			name: "a collector in the configuration is enough", change: func(c *config.Telemetry) { c.OTLP.Endpoint = "c:1" },
			want: settings{
				traces:   export{to: config.ExportOTLP, protocol: config.ProtocolGRPC, endpoint: "c:1"},
				metrics:  export{to: config.ExportOTLP, protocol: config.ProtocolGRPC, endpoint: "c:1"},
				sampling: all, interval: time.Minute,
			},
		},
		{
			name: "nothing is looked at that is not used", environ: []string{"OTEL_TRACES_SAMPLER=x", "OTEL_EXPORTER_OTLP_PROTOCOL=x", "OTEL_BSP_MAX_QUEUE_SIZE=x"},
			want: settings{traces: none, metrics: none},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			environment(t, tc.environ...)
			c := standard()
			if tc.change != nil {
				tc.change(&c)
			}
			got, err := settle(&c)
			if err != nil {
				t.Fatal(err)
			}
			if tc.want.traces.to != config.ExportOff {
				tc.want.batches = otlp.Limits{Batch: 16, Waiting: 64, Delay: 5 * time.Second, Timeout: 30 * time.Second}
			}
			got.traces.endpoint, tc.want.traces.endpoint = shown(got.traces), shown(tc.want.traces)
			got.metrics.endpoint, tc.want.metrics.endpoint = shown(got.metrics), shown(tc.want.metrics)
			if got != tc.want {
				t.Errorf("got  %+v\nwant %+v", got, tc.want)
			}
		})
	}
}

// shown is the part of an endpoint that matters: nothing if the export is off.
func shown(e export) string {
	if e.to == config.ExportOff {
		return ""
	}
	return e.endpoint
}

func TestSampling(t *testing.T) {
	for _, tc := range []struct {
		sampler, arg string
		want         core.Sampling
	}{
		{"", "0.5", core.Sampling{Ratio: 1}},
		{"parentbased_always_on", "", core.Sampling{Ratio: 1}},
		{"parentbased_always_off", "", core.Sampling{}},
		{"parentbased_traceidratio", "0.25", core.Sampling{Ratio: 0.25}},
		{"parentbased_traceidratio", "", core.Sampling{Ratio: 1}},
		{"always_on", "", core.Sampling{Ratio: 1, ByRatio: true}},
		{"always_off", "", core.Sampling{ByRatio: true}},
		{"traceidratio", "0", core.Sampling{ByRatio: true}},
	} {
		t.Run(tc.sampler+" "+tc.arg, func(t *testing.T) {
			environment(t, "OTEL_TRACES_SAMPLER="+tc.sampler, "OTEL_TRACES_SAMPLER_ARG="+tc.arg)
			if got, err := sampling(config.Optional[float64]{}); err != nil || got != tc.want {
				t.Errorf("got %+v, %v; want %+v", got, err, tc.want)
			}
		})
	}
}

// Each wrong variable is named, with the accepted values.
func TestWrongVariables(t *testing.T) {
	missing, empty := filepath.Join(t.TempDir(), "ca.pem"), filepath.Join(t.TempDir(), "empty.pem")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	const headers = `OTEL_EXPORTER_OTLP_HEADERS: is not a list of headers; accepted: name=value, separated by commas, values percent-encoded`
	for _, tc := range []struct {
		environ string
		want    string
	}{
		{"OTEL_SDK_DISABLED=yes", `OTEL_SDK_DISABLED: "yes" is not a truth value; accepted: true or false`},
		{"OTEL_TRACES_EXPORTER=zipkin", `OTEL_TRACES_EXPORTER: "zipkin" is not an exporter that Curfew has; accepted: otlp, console, none`},
		{"OTEL_TRACES_EXPORTER=prometheus", `OTEL_TRACES_EXPORTER: "prometheus" is not an exporter that Curfew has; accepted: otlp, console, none`},
		{"OTEL_METRICS_EXPORTER=otlp,console", `OTEL_METRICS_EXPORTER: "otlp,console" is not an exporter that Curfew has; accepted: otlp, console, none`},
		{"OTEL_EXPORTER_OTLP_PROTOCOL=http/json", `OTEL_EXPORTER_OTLP_PROTOCOL: "http/json" is not a protocol that Curfew has; accepted: grpc, http/protobuf`},
		{"OTEL_EXPORTER_OTLP_ENDPOINT=collector:4317", `OTEL_EXPORTER_OTLP_ENDPOINT: "collector:4317" is not the URL of a collector; accepted: http://host:port or https://host:port`},
		{"OTEL_EXPORTER_OTLP_TRACES_INSECURE=1", `OTEL_EXPORTER_OTLP_TRACES_INSECURE: "1" is not a truth value; accepted: true or false`},
		{"OTEL_EXPORTER_OTLP_TIMEOUT=10s", `OTEL_EXPORTER_OTLP_TIMEOUT: "10s" is not such a number; accepted: a whole number from 1`},
		{"OTEL_EXPORTER_OTLP_COMPRESSION=zstd", `OTEL_EXPORTER_OTLP_COMPRESSION: "zstd" is not a compression; accepted: gzip, none`},
		{"OTEL_EXPORTER_OTLP_ENDPOINT=http://collector:65536", `OTEL_EXPORTER_OTLP_ENDPOINT: "http://collector:65536" is not the URL of a collector; accepted: http://host:port or https://host:port`},
		{"OTEL_EXPORTER_OTLP_TIMEOUT=99999999999999", `OTEL_EXPORTER_OTLP_TIMEOUT: "99999999999999" is too long; accepted: milliseconds up to 86400000`},
		{"OTEL_EXPORTER_OTLP_ENDPOINT=https://me:secret@collector:x", `OTEL_EXPORTER_OTLP_ENDPOINT: "https://***@collector:x" is not the URL of a collector; accepted: http://host:port or https://host:port`},
		{"OTEL_EXPORTER_OTLP_ENDPOINT=me:secret@collector:4317", `OTEL_EXPORTER_OTLP_ENDPOINT: "***@collector:4317" is not the URL of a collector; accepted: http://host:port or https://host:port`},
		{"OTEL_EXPORTER_OTLP_HEADERS=secret", headers},
		{"OTEL_EXPORTER_OTLP_HEADERS=a=secret,b c=secret", headers},
		{"OTEL_EXPORTER_OTLP_HEADERS=a=secret%0ab", headers},
		{"OTEL_EXPORTER_OTLP_HEADERS=a=secr\u00e9t", headers},
		{"OTEL_EXPORTER_OTLP_CERTIFICATE=" + missing, "OTEL_EXPORTER_OTLP_CERTIFICATE: open " + missing + ": no such file or directory"},
		{"OTEL_EXPORTER_OTLP_CERTIFICATE=" + empty, `OTEL_EXPORTER_OTLP_CERTIFICATE: "` + empty + `" has no certificate in it; accepted: a PEM file`},
		{"OTEL_EXPORTER_OTLP_CLIENT_KEY=" + empty, "OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE: is empty, and OTEL_EXPORTER_OTLP_CLIENT_KEY is not"},
		{"OTEL_TRACES_SAMPLER=jaeger_remote", `OTEL_TRACES_SAMPLER: "jaeger_remote" is not a sampler that Curfew has; accepted: always_on, always_off, traceidratio, and these with parentbased_ before them`},
		{"OTEL_TRACES_SAMPLER_ARG=1.5", `OTEL_TRACES_SAMPLER_ARG: "1.5" is not a share; accepted: 0 to 1`},
		{"OTEL_TRACES_SAMPLER_ARG=NaN", `OTEL_TRACES_SAMPLER_ARG: "NaN" is not a share; accepted: 0 to 1`},
		{"OTEL_BSP_MAX_QUEUE_SIZE=0", `OTEL_BSP_MAX_QUEUE_SIZE: "0" is not such a number; accepted: a whole number from 1`},
		{"OTEL_METRIC_EXPORT_INTERVAL=-1", `OTEL_METRIC_EXPORT_INTERVAL: "-1" is not such a number; accepted: a whole number from 1`},
		{"OTEL_METRIC_EXPORT_TIMEOUT=1s", `OTEL_METRIC_EXPORT_TIMEOUT: "1s" is not such a number; accepted: a whole number from 1`},
		{"OTEL_SERVICE_NAME=\xff", `OTEL_SERVICE_NAME: "\xff" is not a text; accepted: UTF-8`},
		{"OTEL_RESOURCE_ATTRIBUTES=a=b,c", `OTEL_RESOURCE_ATTRIBUTES: "a=b,c" is not a list of attributes; accepted: name=value, separated by commas, values percent-encoded`},
		{"OTEL_RESOURCE_ATTRIBUTES=a=%ff", `OTEL_RESOURCE_ATTRIBUTES: "a=%ff" is not a list of attributes; accepted: name=value, separated by commas, values percent-encoded`},
	} {
		t.Run(tc.environ, func(t *testing.T) {
			environment(t, "OTEL_TRACES_EXPORTER=otlp", "OTEL_METRICS_EXPORTER=otlp", "OTEL_TRACES_SAMPLER=traceidratio", tc.environ)
			c := standard()
			_, err := settle(&c)
			if err == nil || err.Error() != tc.want { // once, though both signals look at it
				t.Errorf("got  %v\nwant %s", err, tc.want)
			}
			if err != nil && strings.Contains(err.Error(), "secret") {
				t.Errorf("a header, which is secret, is repeated: %v", err)
			}
		})
	}
}

func TestWrongServiceName(t *testing.T) {
	environment(t, "OTEL_TRACES_EXPORTER=otlp")
	c := standard()
	c.ServiceName = "\xff"
	const want = `telemetry.service-name: "\xff" is not a text; accepted: UTF-8`
	if _, err := settle(&c); err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}

func TestLimits(t *testing.T) {
	environment(t, "OTEL_BSP_SCHEDULE_DELAY=20", "OTEL_BSP_EXPORT_TIMEOUT=9000000000000", "OTEL_BSP_MAX_QUEUE_SIZE=100")
	want := otlp.Limits{Batch: 25, Waiting: 100, Delay: 20 * time.Millisecond, Timeout: time.Hour}
	if got, err := limits(8192); err != nil || got != want {
		t.Errorf("got %+v, %v; want %+v", got, err, want)
	}
	for _, tc := range []struct {
		environ        string
		waiting, spans int
	}{
		{"", 8192, 2048},
		{"", 1 << 20, 2048},
		{"OTEL_BSP_MAX_QUEUE_SIZE=1", 8192, 1},
		{"OTEL_BSP_MAX_EXPORT_BATCH_SIZE=100", 8192, 100},
		{"OTEL_BSP_MAX_EXPORT_BATCH_SIZE=2048 OTEL_BSP_MAX_QUEUE_SIZE=2048", 8192, 512},
	} {
		environment(t, strings.Fields(tc.environ)...)
		if got, err := limits(tc.waiting); err != nil || got.Batch != tc.spans {
			t.Errorf("%s, %d wait: got batches of %d, %v; want %d", tc.environ, tc.waiting, got.Batch, err, tc.spans)
		}
	}
}

func TestCollectorOf(t *testing.T) {
	for _, tc := range []struct {
		name, environ string
		e             export
		want          otlp.Collector
	}{
		{"this machine", "", export{protocol: config.ProtocolGRPC}, otlp.Collector{Host: "localhost:4317", Insecure: true}},
		{"this machine over HTTP", "", export{protocol: config.ProtocolHTTP}, otlp.Collector{Host: "localhost:4318", Insecure: true, HTTP: true}},
		{"variables speak", "http://c:1", export{}, otlp.Collector{}},
		{"host and port", "http://c:1", export{endpoint: "d:2"}, otlp.Collector{Host: "d:2"}},
		{"without TLS", "", export{endpoint: "d:2", insecure: true}, otlp.Collector{Host: "d:2", Insecure: true}},
		{"URL", "", export{endpoint: "http://d:2/base"}, otlp.Collector{Host: "d:2", Path: "/base", Insecure: true}},
		{"URL that says so itself", "", export{endpoint: "https://d:2", insecure: true}, otlp.Collector{Host: "d:2"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			environment(t, "OTEL_EXPORTER_OTLP_ENDPOINT="+tc.environ)
			if got := collectorOf("TRACES", tc.e); got != tc.want {
				t.Errorf("got %+v, want %+v", got, tc.want)
			}
		})
	}
}
