package config

import (
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/curfewmq/curfew/sdk/hook"
)

// timer stands for the plugins of the default chain. Its section has a field
// of every type a plugin may use.
type timer struct {
	Strategy string        `koanf:"strategy"`
	Max      time.Duration `koanf:"max" doc:"The longest a message may wait; 0s = any time."`
	Batch    uint8         `koanf:"batch-size"`
	Ratio    float64       `koanf:"ratio"`
	Strict   bool          `koanf:"strict"`
	Names    []string      `koanf:"names"`
	Since    time.Time     `koanf:"since"`
	Idle     struct {
		Check time.Duration `koanf:"check"`
	} `koanf:"idle"`
	_    int
	Note string `koanf:"-"`
}

type built struct {
	hook.Plugin
	config timer
}

func newTimer(c timer) (hook.Plugin, error) {
	var errs []error
	if c.Strategy != "deadline" && c.Strategy != "rabbitmq" {
		errs = append(errs, fmt.Errorf("strategy: %q is not one of deadline, rabbitmq", c.Strategy))
	}
	if c.Max < 0 {
		errs = append(errs, fmt.Errorf("max: %v is negative; accepted: 0s and above", c.Max))
	}
	if c.Ratio > 9 {
		errs = append(errs, errors.New("the ratio does not add up"))
	}
	return &built{config: c}, errors.Join(errs...)
}

func factories() []hook.Factory {
	standard := timer{Strategy: "deadline", Max: time.Hour, Batch: 200, Since: time.Unix(0, 0).UTC()}
	none := func(struct{}) (hook.Plugin, error) { return &built{}, nil }
	return []hook.Factory{
		hook.NewFactory("ttl", standard, newTimer),
		hook.NewFactory("wasm", struct{}{}, none),
		hook.NewFactory("maxlength", struct{}{}, none),
		hook.NewFactory("deadletter", struct{}{}, none),
		hook.NewFactory("expires", struct{}{}, none),
		hook.NewFactory("audit-log", standard, newTimer),
	}
}

// input returns an Input whose file "curfew.yaml" lies in the working directory
// and holds yaml; no yaml, no file.
func input(t *testing.T, yaml string, environ []string, flags ...Flag) Input {
	t.Helper()
	in := Input{Environ: environ, Flags: flags, Plugins: factories()}
	if yaml == "" {
		return in
	}
	t.Chdir(t.TempDir())
	in.File = "curfew.yaml"
	if err := os.WriteFile(in.File, []byte(yaml), 0o600); err != nil {
		t.Fatal(err)
	}
	return in
}

func load(t *testing.T, in Input) *Config {
	t.Helper()
	c, err := Load(in)
	if err != nil {
		t.Fatalf("Load: %v", err)
	}
	return c
}

func TestDefaults(t *testing.T) {
	c := load(t, input(t, "", nil))
	want := Limits{
		Connections: 0, Handshakes: 1000, Management: 1000, Channels: 2047, Consumers: 10_000, Bindings: 1_000_000, FrameMax: 131072, MessageSize: 16 << 20,
		HandshakeTimeout: 10 * time.Second, Heartbeat: time.Minute,
		MemoryWatermark: Watermark{Fraction: 0.6}, DiskFree: Reserve{Auto: true}, ConsumerTimeout: 30 * time.Minute,
	}
	if c.Limits != want {
		t.Errorf("Limits = %+v, want %+v", c.Limits, want)
	}
	if want := (Listen{AMQP: ":5672", Management: ":15672"}); !reflect.DeepEqual(c.Listen, want) {
		t.Errorf("Listen = %+v, want %+v", c.Listen, want)
	}
	if want := (Compat{Product: "RabbitMQ", Version: "3.13.7"}); c.Compat != want {
		t.Errorf("Compat = %+v, want %+v", c.Compat, want)
	}
	if !c.Auth.GuestLoopbackOnly || c.Data != (Data{Dir: "./curfew-data", Shards: 1}) || c.Log.Level != slog.LevelInfo {
		t.Errorf("Auth, Data, Log = %+v, %+v, %+v", c.Auth, c.Data, c.Log)
	}
	if c.Durability != Fsync || c.Memory.Bodies != (Watermark{Fraction: 0.25}) {
		t.Errorf("Durability, Memory = %v, %+v", c.Durability, c.Memory)
	}
	wantTelemetry := Telemetry{
		Events: 4096, OTLP: OTLP{Protocol: ProtocolAuto},
		Traces:  Traces{Exporter: ExportAuto, Expiries: ExpiriesSampled, Buffer: 8192},
		Metrics: Metrics{Exporter: ExportAuto, Queues: 500},
	}
	if c.Telemetry != wantTelemetry {
		t.Errorf("Telemetry = %+v, want %+v", c.Telemetry, wantTelemetry)
	}
	var chain []string
	for _, p := range c.Plugins {
		chain = append(chain, p.Name)
	}
	if got, want := strings.Join(chain, " "), "ttl wasm maxlength deadletter expires audit-log"; got != want {
		t.Errorf("chain = %s, want %s", got, want)
	}
}

func TestPrecedence(t *testing.T) {
	const file = "limits:\n  channels: 10\n  frame-max: 8KiB\nlisten:\n  amqp: :1\n"
	environ := []string{"CURFEW_LIMITS__FRAME_MAX=16KiB", "CURFEW_LISTEN__AMQP=:2", "HOME=/root"}
	c := load(t, input(t, file, environ, Flag{Name: "--amqp", Key: "listen.amqp", Value: ":3"}))

	for _, tt := range []struct{ key, value, source string }{
		{"limits.connections", "0", "default"},
		{"limits.channels", "10", "file curfew.yaml:2"},
		{"limits.frame-max", "16KiB", "env CURFEW_LIMITS__FRAME_MAX"},
		{"listen.amqp", ":3", "flag --amqp"},
	} {
		s := c.setting(tt.key)
		if s.value.String() != tt.value || s.source.String() != tt.source {
			t.Errorf("%s = %s from %s, want %s from %s", tt.key, s.value, s.source, tt.value, tt.source)
		}
	}
	if c.Listen.AMQP != ":3" || c.Limits.Channels != 10 {
		t.Errorf("got %+v, %+v", c.Listen, c.Limits)
	}
}

func TestPluginSection(t *testing.T) {
	const file = `
plugins:
  chain: [audit-log, ttl]
  ttl:
    strategy: rabbitmq
    names: [a, b]
    idle: {check: 250ms}
    strict: true
  audit-log:
    ratio: 0.5
    since: 2024-01-02T03:04:05Z
`
	environ := []string{"CURFEW_PLUGINS__TTL__MAX=1h30m", "CURFEW_PLUGINS__AUDIT_LOG__BATCH_SIZE=7"}
	c := load(t, input(t, file, environ))

	audit, ttl := c.Plugins[0].Plugin.(*built).config, c.Plugins[1].Plugin.(*built).config
	if ttl.Strategy != "rabbitmq" || ttl.Max != 90*time.Minute || !ttl.Strict || ttl.Idle.Check != 250*time.Millisecond {
		t.Errorf("ttl = %+v", ttl)
	}
	if got := strings.Join(ttl.Names, "|"); got != "a|b" {
		t.Errorf("ttl.names = %s, want a|b", got)
	}
	if audit.Batch != 7 || audit.Ratio != 0.5 || audit.Since.Year() != 2024 || audit.Max != time.Hour {
		t.Errorf("audit-log = %+v", audit)
	}
}

func TestHosts(t *testing.T) {
	for text, want := range map[string]string{"Broker.Example.com, b": "broker.example.com,b", "[a.example.com]": "a.example.com", "": ""} {
		c := load(t, input(t, "", []string{"CURFEW_MANAGEMENT__HOSTS=" + text}))
		if got := strings.Join(c.Management.Hosts, ","); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}

func TestListsAndEmptyChain(t *testing.T) {
	for _, tt := range []struct{ name, env, want string }{
		{"commas", "ttl, expires", "ttl,expires"},
		{"as in a file", "[ttl, expires]", "ttl,expires"},
		{"empty as in a file", "[ ]", ""},
		{"empty", "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := load(t, input(t, "", []string{"CURFEW_PLUGINS__CHAIN=" + tt.env}))
			if got := c.setting("plugins.chain").value.String(); got != tt.want {
				t.Errorf("chain = %q, want %q", got, tt.want)
			}
		})
	}
}

// Sections may be empty or dotted, and a value keeps the digits with which it was written.
func TestFileForms(t *testing.T) {
	for _, tt := range []struct{ name, file, key, want string }{
		{"comments only", "# nothing\n", "limits.channels", "2047"},
		{"null document", "~\n", "limits.channels", "2047"},
		{"empty section", "limits:\nlisten: {}\n", "limits.channels", "2047"},
		{"dotted key", "limits.channels: 5\nlimits:\n  connections: 6\n", "limits.channels", "5"},
		{"unquoted version", "compat:\n  version: 4.10\n", "compat.version", "4.10"},
		{"quoted number", "limits:\n  channels: \"12\"\n", "limits.channels", "12"},
		{"off", "listen:\n  management: off\n", "listen.management", "off"},
		{"empty text is off", "listen:\n  management: \"\"\n", "listen.management", "off"},
		{"IPv6", "listen:\n  amqp: \"[::1]:5672\"\n", "listen.amqp", "[::1]:5672"},
		{"plain bytes", "limits:\n  frame-max: 131072\n", "limits.frame-max", "128KiB"},
		{"decimal units", "limits:\n  frame-max: 128 kb\n", "limits.frame-max", "128KB"},
		{"percentage", "limits:\n  memory-watermark: 40%\n", "limits.memory-watermark", "0.4"},
		{"absolute watermark", "limits:\n  memory-watermark: 2GiB\n", "limits.memory-watermark", "2GiB"},
		{"long duration", "limits:\n  consumer-timeout: 90m\n", "limits.consumer-timeout", "1h30m"},
		{"share in percent", "telemetry:\n  traces:\n    sample: 1%\n", "telemetry.traces.sample", "0.01"},
		{"share left open", "telemetry:\n  traces:\n    sample: auto\n", "telemetry.traces.sample", "auto"},
		{"share of nothing", "telemetry:\n  traces:\n    sample: 0\n", "telemetry.traces.sample", "0"},
		{"interval", "telemetry:\n  metrics:\n    interval: 90s\n", "telemetry.metrics.interval", "1m30s"},
		{"no collector", "telemetry:\n  otlp:\n    endpoint: \"\"\n", "telemetry.otlp.endpoint", ""},
		{"collector", "telemetry:\n  otlp:\n    endpoint: collector:4317\n", "telemetry.otlp.endpoint", "collector:4317"},
		{"collector's URL", "telemetry:\n  otlp:\n    endpoint: http://[::1]:4318/v1\n", "telemetry.otlp.endpoint", "http://[::1]:4318/v1"},
		{"no timeout", "limits:\n  consumer-timeout: 0\n", "limits.consumer-timeout", "0s"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := load(t, input(t, tt.file, nil))
			if got := c.setting(tt.key).value.String(); got != tt.want {
				t.Errorf("%s = %q, want %q", tt.key, got, tt.want)
			}
		})
	}
}

// Kubernetes' service variables are not ours, whatever the name of the service, and those of curfew ctl are not the broker's:
// with CURFEW_CTL_URL set, curfew serve used to refuse to start.
func TestForeignVariables(t *testing.T) {
	load(t, input(t, "", []string{
		"CURFEW_SERVICE_HOST=10.0.0.1", "CURFEW_SERVICE_PORT=5672", "CURFEW_SERVICE_PORT_AMQP=5672",
		"CURFEW_PORT=tcp://10.0.0.1:5672", "CURFEW_PORT_5672_TCP=tcp://10.0.0.1:5672",
		"CURFEW_PORT_5672_TCP_PROTO=tcp", "CURFEW_PORT_5672_TCP_PORT=5672", "CURFEW_PORT_5672_TCP_ADDR=10.0.0.1",
		"CURFEW_AMQP_SERVICE_HOST=10.0.0.2", "CURFEW_CONFIG=x.yaml", "CURFEWX=1",
		"CURFEW_CTL_URL=http://localhost:15672", "CURFEW_CTL_PASSWORD=secret",
	}))
}

func TestChanges(t *testing.T) {
	before := load(t, input(t, "log: {level: info}\nlimits: {channels: 9}\n", nil))
	after := load(t, input(t, "log: {level: debug}\nlimits: {channels: 8}\nplugins: {ttl: {max: 1s}}\n", nil))
	var got []string
	for _, c := range before.Changes(after) {
		got = append(got, fmt.Sprintf("%s %s->%s live=%v", c.Key, c.Old, c.New, c.Live))
	}
	want := "limits.channels 9->8 live=false; log.level info->debug live=true; plugins.ttl.max 1h->1s live=false"
	if s := strings.Join(got, "; "); s != want {
		t.Errorf("got  %s\nwant %s", s, want)
	}
	if n := len(after.Changes(after)); n != 0 {
		t.Errorf("%d changes to itself, want 0", n)
	}
}

// What Print writes loads back as the same configuration, explained or not.
func TestPrintRoundTrip(t *testing.T) {
	file := `
listen: {amqp: "127.0.0.1:0", amqps: ":5671", management: off, metrics: ":15692"}
data: {dir: "/var/lib/curfew: the \"second\"", shards: 8}
durability: flush
memory: {bodies: 20%}
tls: {cert: a b.pem, key: "no", verify-peer: true, ca: ca.pem, min-version: 1.3}
limits: {memory-watermark: 3GB, heartbeat: 0s, message-size: 1000001}
telemetry:
  service-name: orders
  otlp: {endpoint: "https://collector:4318/x", protocol: http, insecure: true}
  traces: {exporter: otlp, sample: 1%, expiries: always, buffer: 100}
  metrics: {exporter: stdout, interval: 90s, queues: 0}
compat: {product: RabbitMQ, version: 4.10}
plugins: {chain: [ttl, audit-log], ttl: {names: [x, "yes", "a: b"], ratio: 1e-3, strategy: rabbitmq}, audit-log: {idle: {check: 1m}}}
`
	c := load(t, input(t, file, []string{"CURFEW_LOG__LEVEL=warn"}))
	for _, explain := range []bool{false, true} {
		t.Run(fmt.Sprintf("explain=%v", explain), func(t *testing.T) {
			var b strings.Builder
			if err := c.Print(&b, explain); err != nil {
				t.Fatal(err)
			}
			again := load(t, input(t, b.String(), nil))
			if changes := c.Changes(again); len(changes) > 0 {
				t.Errorf("changed: %+v\n%s", changes, b.String())
			}
			if again.Compat != c.Compat || again.TLS != c.TLS || again.Limits != c.Limits || again.Data != c.Data ||
				again.Durability != Flush || again.Memory != c.Memory || again.Telemetry != c.Telemetry {
				t.Errorf("got %+v\nwant %+v", again, c)
			}
		})
	}
}

func TestPrintText(t *testing.T) {
	const file = "limits:\n  channels: 5\nplugins:\n  chain: [ttl]\n  ttl:\n    idle: {check: 1s}\n"
	c := load(t, input(t, file, []string{"CURFEW_LOG__LEVEL=warn"}, Flag{Name: "--amqp", Key: "listen.amqp", Value: ":1"}))
	var b strings.Builder
	if err := c.Print(&b, false); err != nil {
		t.Fatal(err)
	}
	golden(t, "testdata/print.yaml", b.String())
	b.Reset()
	if err := c.Print(&b, true); err != nil {
		t.Fatal(err)
	}
	golden(t, "testdata/explain.yaml", b.String())
}

// packageDir is the directory in which the tests start; some change the working directory.
var packageDir, _ = os.Getwd()

var rewrite = flag.Bool("rewrite", false, "make what the tests got the new content of testdata")

// golden compares got with a file.
func golden(t *testing.T, name, got string) {
	t.Helper()
	name = filepath.Join(packageDir, name)
	if *rewrite {
		if err := os.WriteFile(name, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs; got:\n%s", filepath.Base(name), got)
	}
}
