package repo

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// dependencies says where each module that is not ours may be imported, and why it is there at all.
// A new one goes here and, with its reason, into CONTRIBUTING.md.
var dependencies = []struct {
	module  string
	folders []string // nil: test files only
	why     string
}{
	{"github.com/knadh/koanf", []string{"core/config"}, "everything else gets decoded values from core/config"},
	{"go.yaml.in/yaml/v3", []string{"core/config", "tests"}, "everything else gets decoded values from core/config"},
	{"github.com/netresearch/go-cron", []string{"plugins/delay"}, "cron expressions are one plugin's business"},
	{"github.com/tetratelabs/wazero", []string{"plugins/wasm"}, "WebAssembly is one plugin's business"},
	{"go.opentelemetry.io/otel/sdk", []string{"core/otlp", "cmd"}, "the core records through the OTel API; core/otlp exports, and cmd chooses the exporters"},
	{"go.opentelemetry.io/otel/exporters", []string{"core/otlp", "cmd"}, "core/otlp exports, and cmd chooses the exporters"},
	{"go.opentelemetry.io/proto/otlp", []string{"core/otlp", "tests"}, "core/otlp encodes spans and metrics"},
	{"go.opentelemetry.io/otel", []string{"core", "cmd", "tests"}, "sdk and plugins stay free of telemetry"},
	{"github.com/go-logr/logr", []string{"cmd"}, "OpenTelemetry's SDK logs through it; cmd redirects it to our log"},
	{"github.com/prometheus/client_golang", []string{"cmd"}, "core/metrics has the counters; cmd chooses the formats"},
	{"google.golang.org/grpc", []string{"core/otlp", "tests"}, "exporters use it; core/otlp sets how soon they connect again"},
	{"google.golang.org/protobuf", []string{"core/otlp", "core/wlog/quorum", "tests"}, "core/otlp encodes spans, and core/wlog/quorum the messages of Raft"},
	{"go.etcd.io/raft/v3", []string{"core/wlog/quorum"}, "the rest of the core sees logs that have an owner"},
	{"golang.org/x/sys", []string{"core/wire", "cmd/curfew/app"}, "system calls belong behind the package that is about them"},
	{"golang.org/x/term", []string{"cmd"}, "only commands speak to terminals"},
	{"github.com/rabbitmq/amqp091-go", nil, "it is the client of the tests; the broker has core/amqp"},
	{"github.com/anishathalye/porcupine", nil, "it checks that answers of several nodes are those of one"},
	{"go.uber.org/goleak", nil, "it checks tests for leaked goroutines"},
}

// layers lists the folders of ours that each part may import; the first that holds the importing folder counts.
// "." stands for the importing plugin's own folder.
var layers = []struct {
	folder  string
	imports []string
	why     string
}{
	{"sdk", []string{"sdk"}, "sdk is a leaf: the broker passes it everything through sdk/hook"},
	{"plugins", []string{"sdk", "."}, "a plugin sees sdk and the standard library, never the core and never another plugin"},
	{"policies", []string{"policies", "sdk"}, "policies is a leaf: core calls it; plugins' keys are passed to it"},
	{"core", []string{"core", "sdk", "policies"}, "core knows plugins through sdk/hook; cmd/curfew hands them in"},
	{"cmd", []string{"cmd", "core", "sdk", "policies", "plugins"}, "the binary does not depend on the tests"},
	{"wasm-examples", []string{"wasm-examples", "sdk", "plugins"}, "an example imports only packages that its reader has: the SDKs, and the host in its test"},
	{"tests", []string{"tests", "cmd", "core", "sdk", "policies", "plugins"}, ""},
}

// complaint returns the rule that forbids a file in dir to import pkg; "" means that pkg is allowed.
func complaint(dir, pkg string, test bool) string {
	if ours, ok := strings.CutPrefix(pkg, module+"/"); ok {
		if test && dir == "policies" && under(ours, "plugins") {
			return "" // RabbitMQ's texts and merge rules are tested with the keys that plugins declare
		}
		return layerComplaint(dir, ours)
	}
	if first, _, _ := strings.Cut(pkg, "/"); !strings.Contains(first, ".") {
		return "" // standard library
	}
	return dependencyComplaint(dir, pkg, test)
}

func layerComplaint(dir, ours string) string {
	for _, layer := range layers {
		if !under(dir, layer.folder) {
			continue
		}
		allowed := slices.ContainsFunc(layer.imports, func(folder string) bool {
			return under(ours, folder) || folder == "." && under(ours, pluginFolder(dir))
		})
		if allowed {
			return ""
		}
		return fmt.Sprintf("%s must not import %s: %s", dir, ours, layer.why)
	}
	return dir + " is in no layer: add its folder to layers"
}

// pluginFolder is plugins/x for everything inside plugins/x.
func pluginFolder(dir string) string {
	parts := strings.SplitN(dir, "/", 3)
	return strings.Join(parts[:min(2, len(parts))], "/")
}

func dependencyComplaint(dir, pkg string, test bool) string {
	for _, d := range dependencies {
		if !under(pkg, d.module) {
			continue
		}
		if d.folders == nil && (test || under(dir, "tests")) {
			return ""
		}
		if slices.ContainsFunc(d.folders, func(folder string) bool { return under(dir, folder) }) {
			return ""
		}
		where := "in test files"
		if d.folders != nil {
			where = "in " + strings.Join(d.folders, " and ")
		}
		return fmt.Sprintf("%s must not import %s, which is allowed only %s: %s", dir, pkg, where, d.why)
	}
	return fmt.Sprintf("%s imports %s, which is not a dependency of this project: do without, or add it to dependencies and CONTRIBUTING.md", dir, pkg)
}

func TestImports(t *testing.T) {
	for _, s := range sources(t) {
		for _, spec := range s.ast.Imports {
			pkg, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				t.Fatal(err)
			}
			if c := complaint(s.dir(), pkg, s.isTest()); c != "" {
				t.Errorf("%s: %s", s.at(spec.Pos()), c)
			}
		}
	}
}

func TestImportRules(t *testing.T) {
	for _, tc := range []struct {
		dir, pkg string
		test     bool
		want     string // part of the complaint; empty: allowed
	}{
		{dir: "core/queue", pkg: "time"},
		{dir: "core/queue", pkg: module + "/core/deadline"},
		{dir: "core/queue", pkg: module + "/sdk/hook"},
		{dir: "core/queue", pkg: module + "/plugins/ttl", want: "cmd/curfew hands them in"},
		{dir: "core/queue", pkg: module + "/plugins/ttl", test: true, want: "cmd/curfew hands them in"},
		{dir: "core/queue", pkg: module + "/cmd/curfew-bench/bench", want: "must not import cmd/curfew-bench/bench"},
		{dir: "core/config", pkg: "github.com/knadh/koanf/v2"},
		{dir: "core/mgmt", pkg: "go.yaml.in/yaml/v3", want: "only in core/config and tests"},
		{dir: "core/configs", pkg: "github.com/knadh/koanf/v2", want: "only in core/config"},
		{dir: "cmd/curfew", pkg: "github.com/knadh/koanf/v2", want: "only in core/config"},
		{dir: "cmd/curfew", pkg: module + "/plugins/ttl"},
		{dir: "cmd/curfew", pkg: "go.opentelemetry.io/otel/sdk/metric"},
		{dir: "core/telemetry", pkg: "go.opentelemetry.io/otel/metric"},
		{dir: "core/telemetry", pkg: "go.opentelemetry.io/otel/sdk/metric", want: "only in core/otlp and cmd"},
		{dir: "core/otlp", pkg: "go.opentelemetry.io/otel/exporters/otlp/otlptrace"},
		{dir: "core/metrics", pkg: "github.com/prometheus/client_golang/prometheus", want: "core/metrics"},
		{dir: "core/telemetry", pkg: "google.golang.org/grpc", want: "only in core/otlp and tests"},
		{dir: "sdk/hook", pkg: "go.opentelemetry.io/otel/metric", want: "only in core and cmd and tests"},
		{dir: "sdk/hooktest", pkg: module + "/sdk/hook"},
		{dir: "sdk/hook", pkg: module + "/core/amqp", want: "sdk is a leaf"},
		{dir: "plugins/ttl", pkg: module + "/sdk/hook"},
		{dir: "plugins/ttl", pkg: module + "/core/amqp", want: "never the core"},
		{dir: "plugins/ttl", pkg: module + "/plugins/expires", want: "never another plugin"},
		{dir: "plugins/ttl", pkg: "github.com/tetratelabs/wazero", want: "only in plugins/wasm"},
		{dir: "plugins/wasm", pkg: "github.com/tetratelabs/wazero/api"},
		{dir: "plugins/wasm", pkg: module + "/plugins/wasm/meter"},
		{dir: "plugins/wasm/meter", pkg: module + "/plugins/wasm/leb"},
		{dir: "policies", pkg: module + "/core/queue", want: "policies is a leaf"},
		{dir: "policies", pkg: module + "/plugins/ttl", want: "policies is a leaf"},
		{dir: "policies", pkg: module + "/plugins/ttl", test: true},
		{dir: "core/wire", pkg: "github.com/rabbitmq/amqp091-go", want: "only in test files"},
		{dir: "core/wire", pkg: "github.com/rabbitmq/amqp091-go", test: true},
		{dir: "tests/flows", pkg: "github.com/rabbitmq/amqp091-go"},
		{dir: "tests/flows", pkg: module + "/plugins/ttl"},
		{dir: "wasm-examples/size-ttl", pkg: module + "/plugins/wasm", test: true},
		{dir: "wasm-examples/business-hours", pkg: module + "/core/queue", want: "an example imports only packages that its reader has"},
		{dir: "core/wire", pkg: "example.com/framework", want: "not a dependency"},
		{dir: "internal/x", pkg: module + "/core/wire", want: "in no layer"},
	} {
		got := complaint(tc.dir, tc.pkg, tc.test)
		if (got == "") != (tc.want == "") || !strings.Contains(got, tc.want) {
			t.Errorf("%s importing %s (test file: %t): got %q, want %q", tc.dir, tc.pkg, tc.test, got, tc.want)
		}
	}
}
