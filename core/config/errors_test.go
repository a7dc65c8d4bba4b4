package config

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/curfewmq/curfew/sdk/hook"
)

func TestErrors(t *testing.T) {
	for _, tt := range []struct {
		name, file string
		environ    []string
		flags      []Flag
		want       []string
	}{
		{
			name: "out of range", file: "limits:\n  frame-max: 1KiB\n",
			want: []string{`limits.frame-max: "1KiB" is out of range; accepted: 4KiB to 16MiB (file curfew.yaml:2)`},
		},
		{
			name: "message size above the hard limit", environ: []string{"CURFEW_LIMITS__MESSAGE_SIZE=513MiB"},
			want: []string{`limits.message-size: "513MiB" is out of range; accepted: 1 to 512MiB (env CURFEW_LIMITS__MESSAGE_SIZE)`},
		},
		{
			name: "not a number", flags: []Flag{{"--channels", "limits.channels", "many"}},
			want: []string{`limits.channels: "many" is not a whole number; accepted: 1 to 65535 (flag --channels)`},
		},
		{
			name: "number too large for any type", file: "limits: {channels: 99999999999999999999, frame-max: 99999999TiB, message-size: 9999999999.5TiB}",
			want: []string{
				`limits.channels: "99999999999999999999" is out of range; accepted: 1 to 65535 (file curfew.yaml:1)`,
				`limits.frame-max: "99999999TiB" is out of range; accepted: 4KiB to 16MiB (file curfew.yaml:1)`,
				`limits.message-size: "9999999999.5TiB" is out of range; accepted: 1 to 512MiB (file curfew.yaml:1)`,
			},
		},
		{
			name: "node names", file: "node: {name: a b@c}\n", environ: []string{"CURFEW_NODE__NAME=rabbit@"},
			want: []string{
				`node.name: "a b@c" has a character that no name has; accepted: a name such as rabbit, or rabbit@host, of up to 255 bytes without spaces (file curfew.yaml:1)`,
				`node.name: "rabbit@" lacks a part; accepted: a name such as rabbit, or rabbit@host, of up to 255 bytes without spaces (env CURFEW_NODE__NAME)`,
			},
		},
		{
			name: "not a size", file: "limits:\n  message-size: 16 megs\n",
			want: []string{`limits.message-size: "16 megs" is not a byte size such as 64MiB, 128KB or 4096; accepted: 1 to 512MiB (file curfew.yaml:2)`},
		},
		{
			name: "fraction of a byte", file: "limits:\n  message-size: 0.0001KB\n",
			want: []string{`limits.message-size: "0.0001KB" is not a byte size such as 64MiB, 128KB or 4096; accepted: 1 to 512MiB (file curfew.yaml:2)`},
		},
		{
			name: "duration without a unit", file: "limits:\n  handshake-timeout: 10\n",
			want: []string{`limits.handshake-timeout: "10" is a duration without a unit (10s, 10ms, 10m, 10h or 10d?); accepted: 100ms to 10m (file curfew.yaml:2)`},
		},
		{
			name: "not a duration", file: "limits:\n  handshake-timeout: soon\n",
			want: []string{`limits.handshake-timeout: "soon" is not a duration such as 10s, 500ms, 1h30m or 7d; accepted: 100ms to 10m (file curfew.yaml:2)`},
		},
		{
			name: "half a second of heartbeat", file: "limits:\n  heartbeat: 1500ms\n",
			want: []string{`limits.heartbeat: "1500ms" is not in whole seconds; accepted: 0s to 18h12m15s (file curfew.yaml:2)`},
		},
		{
			name: "watermark", file: "limits:\n  memory-watermark: 130%\n",
			want: []string{`limits.memory-watermark: "130%" is out of range; accepted: above 0 and up to 1 (a share of the machine's memory, also as 60%), or a size from 16MiB (file curfew.yaml:2)`},
		},
		{
			name: "watermark of nothing", file: "limits:\n  memory-watermark: 0\n",
			want: []string{`limits.memory-watermark: "0" is out of range; accepted: above 0 and up to 1 (a share of the machine's memory, also as 60%), or a size from 16MiB (file curfew.yaml:2)`},
		},
		{
			name: "choices", file: "log:\n  level: loud\n  format: xml\n",
			want: []string{
				`log.level: "loud" is not a log level; accepted: debug, info, warn, error (file curfew.yaml:2)`,
				`log.format: "xml" is not a choice; accepted: auto, text, json (file curfew.yaml:3)`,
			},
		},
		{
			name: "truth", file: "auth:\n  guest-loopback-only: yes\n",
			want: []string{`auth.guest-loopback-only: "yes" is not a truth value; accepted: true or false (file curfew.yaml:2)`},
		},
		{
			name: "empty text", file: "data:\n  dir: \"\"\n",
			want: []string{`data.dir: "" is empty; accepted: 1 to 4096 bytes (file curfew.yaml:2)`},
		},
		{
			name: "addresses", file: "listen:\n  amqp: 5672\n  amqps: ::1:5671\n  management: localhost\n",
			want: []string{
				`listen.amqp: "5672" is a port without its colon (:5672?); accepted: host:port, :port for all interfaces, or off (file curfew.yaml:2)`,
				`listen.amqps: "::1:5671" is not an address: an IPv6 host needs brackets, as in [::1]:5672; accepted: host:port, :port for all interfaces, or off (file curfew.yaml:3)`,
				`listen.management: "localhost" is not an address such as :5672 or 127.0.0.1:5672; accepted: host:port, :port for all interfaces, or off (file curfew.yaml:4)`,
			},
		},
		{
			name: "telemetry", file: "telemetry:\n  traces:\n    sample: 101%\n    expiries: never\n    buffer: 1\n  metrics:\n    interval: 10ms\n    exporter: prometheus\n",
			want: []string{
				`telemetry.traces.sample: "101%" is out of range; accepted: auto, or 0 to 1 (a share, also as 1%) (file curfew.yaml:3)`,
				`telemetry.traces.expiries: "never" is not a choice; accepted: sampled, always (file curfew.yaml:4)`,
				`telemetry.traces.buffer: "1" is out of range; accepted: 64 to 1048576 (file curfew.yaml:5)`,
				`telemetry.metrics.interval: "10ms" is out of range; accepted: auto, or 1s to 1h (file curfew.yaml:7)`,
				`telemetry.metrics.exporter: "prometheus" is not a choice; accepted: auto, off, otlp, stdout (file curfew.yaml:8)`,
			},
		},
		{
			name: "not a share", file: "telemetry: {traces: {sample: NaN}}",
			want: []string{`telemetry.traces.sample: "NaN" is not a share such as 0.01 or 1%; accepted: auto, or 0 to 1 (a share, also as 1%) (file curfew.yaml:1)`},
		},
		{
			name: "collector", environ: []string{"CURFEW_TELEMETRY__OTLP__ENDPOINT=:4317"},
			want: []string{`telemetry.otlp.endpoint: ":4317" has no host; accepted: host:port, or a URL such as http://collector:4318 (env CURFEW_TELEMETRY__OTLP__ENDPOINT)`},
		},
		{
			name: "collector's URL", environ: []string{"CURFEW_TELEMETRY__OTLP__ENDPOINT=grpc://collector:4317"},
			want: []string{`telemetry.otlp.endpoint: "grpc://collector:4317" is a URL of scheme "grpc", not http or https; accepted: host:port, or a URL such as http://collector:4318 (env CURFEW_TELEMETRY__OTLP__ENDPOINT)`},
		},
		{
			name: "secret in a URL", environ: []string{"CURFEW_TELEMETRY__OTLP__ENDPOINT=https://me:secret@collector"},
			want: []string{`telemetry.otlp.endpoint: "https://***@collector" has more than host, port and path; credentials go into OTEL_EXPORTER_OTLP_HEADERS; accepted: host:port, or a URL such as http://collector:4318 (env CURFEW_TELEMETRY__OTLP__ENDPOINT)`},
		},
		{
			name: "port", file: "listen:\n  amqp: localhost:70000\n",
			want: []string{`listen.amqp: "localhost:70000" has the port "70000", which is not 0 to 65535; accepted: host:port, :port for all interfaces, or off (file curfew.yaml:2)`},
		},
		{
			name: "unknown keys", file: "limit:\n  frame-max: 8KiB\nframe-max: 8KiB\nlimits:\n  frame: 8KiB\n  frame_max: 8KiB\n  zzz: 1\n",
			want: []string{
				`limit.frame-max: unknown key; did you mean limits.frame-max? (file curfew.yaml:2)`,
				`frame-max: unknown key; did you mean limits.frame-max? (file curfew.yaml:3)`,
				`limits.frame: unknown key; did you mean limits.frame-max? (file curfew.yaml:5)`,
				`limits.frame_max: unknown key; did you mean limits.frame-max? (file curfew.yaml:6)`,
				`limits.zzz: unknown key (file curfew.yaml:7)`,
			},
		},
		{
			name: "unknown variables", environ: []string{"CURFEW_LISTEN_AMQP=:1", "CURFEW_limits__channels=1", "CURFEW_PORT=5672", "CURFEW_X__Y="},
			want: []string{
				`CURFEW_LISTEN_AMQP: unknown variable; did you mean CURFEW_LISTEN__AMQP? (env CURFEW_LISTEN_AMQP)`,
				`CURFEW_PORT: unknown variable (env CURFEW_PORT)`,
				`CURFEW_X__Y: unknown variable (env CURFEW_X__Y)`,
				`CURFEW_limits__channels: unknown variable; did you mean CURFEW_LIMITS__CHANNELS? (env CURFEW_limits__channels)`,
			},
		},
		{
			name: "sections and values confused", file: "limits: 5\nlog: [a]\nlisten:\n  amqp:\n    port: 1\n  amqps: [a, b]\n  management:\n",
			want: []string{
				`limits: is a section; it has the keys limits.connections, limits.handshakes, limits.management-connections, limits.channels, limits.consumers, limits.bindings, limits.frame-max, limits.message-size, limits.handshake-timeout, limits.heartbeat, limits.memory-watermark, limits.disk-free, limits.consumer-timeout (file curfew.yaml:1)`,
				`log: is a section; it has the keys log.level, log.format (file curfew.yaml:2)`,
				`listen.amqp: is a single value, not a section; accepted: host:port, :port for all interfaces, or off (file curfew.yaml:4)`,
				`listen.amqps: is a single value, not a list; accepted: host:port, :port for all interfaces, or off (file curfew.yaml:6)`,
				`listen.management: has no value; leave the key out for its default; accepted: host:port, :port for all interfaces, or off (file curfew.yaml:7)`,
			},
		},
		{
			name: "variable for a section", environ: []string{"CURFEW_LOG=5", "CURFEW_LOG__LEVEL__MAX=5"},
			want: []string{
				`CURFEW_LOG: is a section; it has the variables CURFEW_LOG__LEVEL, CURFEW_LOG__FORMAT (env CURFEW_LOG)`,
				`CURFEW_LOG__LEVEL__MAX: unknown variable; did you mean CURFEW_LOG__LEVEL? (env CURFEW_LOG__LEVEL__MAX)`,
			},
		},
		{
			name: "faults of form", file: "limits:\n  channels: 5\n  channels: 6\nlimits.channels: 7\nlog: &x {level: info}\ntls: *x\nplugins:\n  chain: [[ttl]]\n",
			want: []string{
				`limits.channels: is given twice, on line 2 too (file curfew.yaml:3)`,
				`limits.channels: is given twice, on line 2 too (file curfew.yaml:4)`,
				`tls: is a YAML alias, which is not supported (file curfew.yaml:6)`,
				`plugins.chain: is a list that contains something other than words (file curfew.yaml:8)`,
			},
		},
		{
			name: "not YAML", file: "limits:\n\tchannels: 5\n", environ: []string{"CURFEW_LIMITS__CHANNELS=0"},
			want: []string{
				`"curfew.yaml" is not valid YAML: line 2: found character that cannot start any token (file curfew.yaml)`,
				`limits.channels: "0" is out of range; accepted: 1 to 65535 (env CURFEW_LIMITS__CHANNELS)`,
			},
		},
		{
			name: "not a mapping", file: "- limits\n",
			want: []string{`"curfew.yaml" is not a YAML mapping of sections, such as limits and plugins (file curfew.yaml)`},
		},
		{
			name: "two documents", file: "limits: {}\n---\nlimits: {}\n",
			want: []string{`"curfew.yaml" holds more than one YAML document (file curfew.yaml)`},
		},
		{
			name: "unknown plugin in the chain", file: "plugins:\n  chain: [tll, ttl, zzz, ttl]\n  tll:\n    max: 1s\n",
			want: []string{
				`plugins.chain: names the unknown plugin tll; did you mean ttl? (file curfew.yaml:2)`,
				`plugins.chain: names the unknown plugin zzz; known plugins: ttl, wasm, maxlength, deadletter, expires, audit-log (file curfew.yaml:2)`,
				`plugins.chain: names ttl twice (file curfew.yaml:2)`,
			},
		},
		{
			name:    "sections without their plugin",
			file:    "plugins:\n  chain: [ttl]\n  expires:\n    a: 1\n    b: 2\n  audit-log:\n  tttl: {max: 1s}\n  zebra: 5\n",
			environ: []string{"CURFEW_PLUGINS__AUDIT_LOG__MAX=1s", "CURFEW_PLUGINS__TTTL__MAX=1s"},
			want: []string{
				`plugins.expires: is a section for a plugin that is not in plugins.chain [ttl]; add it there or remove the section (file curfew.yaml:4)`,
				`plugins.audit-log: is a section for a plugin that is not in plugins.chain [ttl]; add it there or remove the section (file curfew.yaml:6)`,
				`plugins.tttl: unknown plugin; did you mean ttl? (file curfew.yaml:7)`,
				`plugins.zebra: unknown plugin; known plugins: ttl, wasm, maxlength, deadletter, expires, audit-log (file curfew.yaml:8)`,
				`CURFEW_PLUGINS__AUDIT_LOG: is a section for a plugin that is not in plugins.chain [ttl]; add it there or remove the section (env CURFEW_PLUGINS__AUDIT_LOG__MAX)`,
				`CURFEW_PLUGINS__TTTL: unknown plugin; did you mean TTL? (env CURFEW_PLUGINS__TTTL__MAX)`,
			},
		},
		{
			name: "item of the chain", environ: []string{"CURFEW_PLUGINS__CHAIN=ttl,,expires"},
			want: []string{`plugins.chain: "ttl,,expires" has an empty item; accepted: a list such as [a, b], or a,b (env CURFEW_PLUGINS__CHAIN)`},
		},
		{
			name: "sessions", file: "management: {session: 30s}\n", environ: []string{"CURFEW_MANAGEMENT__SESSION=31d"},
			want: []string{
				`management.session: "30s" is out of range; accepted: 1m to 30d (file curfew.yaml:1)`,
				`management.session: "31d" is out of range; accepted: 1m to 30d (env CURFEW_MANAGEMENT__SESSION)`,
			},
		},
		{
			name: "no trace's id", file: "management: {trace-url: 'https://t.example/trace'}\n", environ: []string{"CURFEW_MANAGEMENT__TRACE_URL=javascript:alert('{trace_id}')"},
			want: []string{
				`management.trace-url: "https://t.example/trace" has no {trace_id}; accepted: an http or https URL with {trace_id} in its path, query or fragment, such as https://tracing.example.com/trace/{trace_id}, of up to 2048 bytes (file curfew.yaml:1)`,
				`management.trace-url: "javascript:alert('{trace_id}')" is not a URL; accepted: an http or https URL with {trace_id} in its path, query or fragment, such as https://tracing.example.com/trace/{trace_id}, of up to 2048 bytes (env CURFEW_MANAGEMENT__TRACE_URL)`,
			},
		},
		{
			name: "whose trace", file: "management: {trace-url: 'https://{trace_id}.example/'}\n", environ: []string{"CURFEW_MANAGEMENT__TRACE_URL=https://me:secret@t.example/{trace_id}"},
			want: []string{
				`management.trace-url: "https://{trace_id}.example/" is not a URL; accepted: an http or https URL with {trace_id} in its path, query or fragment, such as https://tracing.example.com/trace/{trace_id}, of up to 2048 bytes (file curfew.yaml:1)`,
				`management.trace-url: "https://***@t.example/{trace_id}" has credentials, which all users of the page would see; accepted: an http or https URL with {trace_id} in its path, query or fragment, such as https://tracing.example.com/trace/{trace_id}, of up to 2048 bytes (env CURFEW_MANAGEMENT__TRACE_URL)`,
			},
		},
		{
			name: "another scheme", file: "management: {trace-url: 'data://x/{trace_id}'}\n",
			want: []string{
				`management.trace-url: "data://x/{trace_id}" is a URL of scheme "data", not http or https; accepted: an http or https URL with {trace_id} in its path, query or fragment, such as https://tracing.example.com/trace/{trace_id}, of up to 2048 bytes (file curfew.yaml:1)`,
			},
		},
		{
			name: "hosts", file: "management: {hosts: [ok.example.com, 'https://broker.example.com']}\n", environ: []string{"CURFEW_MANAGEMENT__HOSTS=broker:15672"},
			want: []string{
				`management.hosts: "ok.example.com, https://broker.example.com" has "https://broker.example.com", which is not the name of a host without scheme and port; accepted: a list such as [broker.example.com], or a.example.com,b.example.com (file curfew.yaml:1)`,
				`management.hosts: "broker:15672" has "broker:15672", which is not the name of a host without scheme and port; accepted: a list such as [broker.example.com], or a.example.com,b.example.com (env CURFEW_MANAGEMENT__HOSTS)`,
			},
		},
		{
			name:    "a plugin's own keys",
			file:    "plugins:\n  ttl:\n    strategy: lazy\n    max: -1s\n    batch-size: 300\n    ratio: x\n    mx: 1s\n    idle: 5\n    since: later\n",
			environ: []string{"CURFEW_PLUGINS__TTL__IDLE__CHECK=never"},
			want: []string{
				`plugins.ttl.strategy: "lazy" is not one of deadline, rabbitmq (file curfew.yaml:3)`,
				`plugins.ttl.max: -1s is negative; accepted: 0s and above (file curfew.yaml:4)`,
				`plugins.ttl.batch-size: "300" is out of range; accepted: 0 to 255 (file curfew.yaml:5)`,
				`plugins.ttl.ratio: "x" is not a number; accepted: a number (file curfew.yaml:6)`,
				`plugins.ttl.mx: unknown key; did you mean plugins.ttl.max? (file curfew.yaml:7)`,
				`plugins.ttl.idle: is a section; it has the keys plugins.ttl.idle.check (file curfew.yaml:8)`,
				`plugins.ttl.since: "later" is not understood: parsing time "later" as "2006-01-02T15:04:05Z07:00": cannot parse "later" as "2006" (file curfew.yaml:9)`,
				`plugins.ttl.idle.check: "never" is not a duration such as 10s, 500ms, 1h30m or 7d; accepted: a duration such as 90s, 1h30m or 7d (env CURFEW_PLUGINS__TTL__IDLE__CHECK)`,
			},
		},
		{
			name: "a plugin's error without a key", file: "plugins: {ttl: {ratio: 10}}",
			want: []string{`plugins.ttl: the ratio does not add up`},
		},
		{
			name: "nobody could connect", file: "listen: {amqp: off}",
			want: []string{`listen.amqp: is off, and so is listen.amqps: no client could connect (file curfew.yaml:1)`},
		},
		{
			name: "TLS without its files", file: "listen:\n  amqps: :5671\ntls:\n  verify-peer: true\n",
			want: []string{
				`tls.cert: is missing: listen.amqps is on (file curfew.yaml:2)`,
				`tls.key: is missing: listen.amqps is on (file curfew.yaml:2)`,
				`tls.ca: is missing: tls.verify-peer is true (file curfew.yaml:4)`,
			},
		},
		{
			name: "certificates that nobody signs", file: "auth:\n  certificate-login: common-name\n",
			want: []string{`tls.ca: is missing: auth.certificate-login is on (file curfew.yaml:2)`},
		},
		{
			name: "certificates of HTTP's clients", file: "management: {client-certificates: required}",
			want: []string{`tls.ca: is missing: management.client-certificates is required (file curfew.yaml:1)`},
		},
		{
			name: "another certificate login", file: "auth: {certificate-login: dn, certificate-san-index: -1}",
			want: []string{
				`auth.certificate-login: "dn" is not a choice; accepted: off, distinguished-name, common-name, san-dns, san-email, san-uri, san-ip, san-other (file curfew.yaml:1)`,
				`auth.certificate-san-index: "-1" is out of range; accepted: 0 to 1000 (file curfew.yaml:1)`,
			},
		},
		{
			name: "proxies", file: "listen: {proxy-protocol: [10.0.0.1/8]}\nmanagement: {proxy-protocol: [haproxy]}\n", environ: []string{"CURFEW_LISTEN__PROXY_PROTOCOL=fe80::1%eth0"},
			want: []string{
				`listen.proxy-protocol: "10.0.0.1/8" has "10.0.0.1/8", which has more bits than its 8 (10.0.0.0/8?); accepted: a list of addresses and networks such as [10.0.0.7, 192.0.2.0/24, 2001:db8::/32] (file curfew.yaml:1)`,
				`management.proxy-protocol: "haproxy" has "haproxy", which is not an address or a network; accepted: a list of addresses and networks such as [10.0.0.7, 192.0.2.0/24, 2001:db8::/32] (file curfew.yaml:2)`,
				`listen.proxy-protocol: "fe80::1%eth0" has "fe80::1%eth0", which has a zone: leave it out; accepted: a list of addresses and networks such as [10.0.0.7, 192.0.2.0/24, 2001:db8::/32] (env CURFEW_LISTEN__PROXY_PROTOCOL)`,
			},
		},
		{
			name: "every source at once", file: "log:\n  format: xml\nlimits:\n  channels: 0\n", environ: []string{"CURFEW_LIMITS__CHANNELS=-1"},
			flags: []Flag{{"--amqp", "listen.amqp", "x"}},
			want: []string{
				`log.format: "xml" is not a choice; accepted: auto, text, json (file curfew.yaml:2)`,
				`limits.channels: "0" is out of range; accepted: 1 to 65535 (file curfew.yaml:4)`,
				`limits.channels: "-1" is out of range; accepted: 1 to 65535 (env CURFEW_LIMITS__CHANNELS)`,
				`listen.amqp: "x" is not an address such as :5672 or 127.0.0.1:5672; accepted: host:port, :port for all interfaces, or off (flag --amqp)`,
			},
		},
	} {
		t.Run(tt.name, func(t *testing.T) { wantErrors(t, input(t, tt.file, tt.environ, tt.flags...), tt.want) })
	}
}

func wantErrors(t *testing.T, in Input, want []string) {
	t.Helper()
	c, err := Load(in)
	if err == nil {
		t.Fatalf("Load = %+v, want errors", c)
	}
	if got, want := err.Error(), strings.Join(want, "\n"); got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}

func TestUnreadableFile(t *testing.T) {
	dir := t.TempDir()
	missing := filepath.Join(dir, "no.yaml")
	wantErrors(t, Input{File: missing, Plugins: factories()}, []string{
		`"` + missing + `" cannot be read: no such file or directory (file ` + missing + `)`,
	})
	wantErrors(t, Input{File: dir, Plugins: factories()}, []string{
		`"` + dir + `" cannot be read: is a directory (file ` + dir + `)`,
	})
}

// A struct that cannot be a configuration is the plugin author's mistake, and the error says which field it is.
func TestUnusableStructs(t *testing.T) {
	type untagged struct{ Max int }
	type odd struct {
		Call func() `koanf:"call"`
	}
	for _, tt := range []struct {
		name    string
		factory hook.Factory
		want    string
	}{
		{"untagged", hook.NewFactory("x", untagged{}, nil), "plugins.x: field config.untagged.Max has no koanf tag"},
		{"func", hook.NewFactory("x", odd{}, nil), "plugins.x: field config.odd.Call: func() is not a type that a configuration may have"},
		{"scalar", hook.NewFactory("x", 5, nil), "plugins.x: configuration is a *int, not a pointer to a struct"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			in := Input{Plugins: []hook.Factory{tt.factory}, Environ: []string{"CURFEW_PLUGINS__CHAIN=x"}}
			wantErrors(t, in, []string{tt.want})
		})
	}
}

// Errors of the chain about several plugins together name the key, too.
func TestChainCheck(t *testing.T) {
	in := input(t, "plugins:\n  ttl:\n    strategy: rabbitmq\n", nil)
	in.Check = func(ps []Plugin) error {
		return errors.Join(
			fmt.Errorf("plugins.%s: strategy: is not to my liking", ps[0].Name),
			errors.New("plugins.ttl: two of a kind: bad"),
			errors.New("plugins.expires: the argument x is taken"),
			errors.New("too long"),
		)
	}
	wantErrors(t, in, []string{
		"plugins.ttl: two of a kind: bad",
		"plugins.expires: the argument x is taken",
		"too long",
		"plugins.ttl.strategy: is not to my liking (file curfew.yaml:3)",
	})
	in.Environ = []string{"CURFEW_PLUGINS__TTL__MAX=x"}
	in.Check = func([]Plugin) error { t.Error("a broken configuration was checked as a whole"); return nil }
	if _, err := Load(in); err == nil {
		t.Error("Load succeeded")
	}
}

func FuzzFile(f *testing.F) {
	for _, s := range []string{"limits: {channels: 5}", "a: [b, {c: d}]", "? [x]\n: y", "<<: *a", "listen.amqp: :1\nlisten: 5", "plugins: {ttl: {max: 1s}}"} {
		f.Add(s)
	}
	path := filepath.Join(f.TempDir(), "fuzz.yaml")
	f.Fuzz(func(t *testing.T, s string) {
		if err := os.WriteFile(path, []byte(s), 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := Load(Input{File: path, Plugins: factories()})
		if (c == nil) != (err != nil) {
			t.Fatalf("Load = %v, %v", c, err)
		}
	})
}

// An error used to state the accepted values twice, in the words of the value's own parser and in those of the tag.
func TestAcceptedIsSaidOnce(t *testing.T) {
	var section struct {
		Since time.Time `accepts:"a time such as 2026-11-28T12:00:00Z"`
	}
	v := reflect.ValueOf(&section).Elem()
	val := variable(v.Field(0), v.Type().Field(0).Tag)
	if err := val.set("later"); err == nil || err.Error() != "is not understood" {
		t.Errorf("got %v", err)
	}
	if err := val.set("2026-11-28T12:00:00Z"); err != nil || section.Since.Year() != 2026 {
		t.Errorf("got %v, %v", err, section.Since)
	}
}
