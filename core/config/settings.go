package config

import (
	"strings"
	"time"
)

// setting is one key: what it means, its value, and who said so last.
type setting struct {
	key    string
	value  value
	doc    string // to the operator, one sentence
	live   bool   // a reload applies it; the others need a restart
	source Source
}

// coreSettings lists every key but the plugins' own, in the order they are
// printed. The values point into c.
func coreSettings(c *Config) []*setting {
	l, t := &c.Limits, &c.Telemetry
	return []*setting{
		{key: "listen.amqp", value: address(&c.Listen.AMQP), doc: "Where to listen for AMQP 0-9-1; off = do not."},
		{key: "listen.amqps", value: address(&c.Listen.AMQPS), doc: "Where to listen for AMQP 0-9-1 over TLS, usually :5671; needs tls.cert and tls.key."},
		{key: "listen.management", value: address(&c.Listen.Management), doc: "Where to listen for the management HTTP API; off = do not."},
		{key: "listen.management-tls", value: address(&c.Listen.ManagementTLS), doc: "Where to listen for the management HTTP API over TLS, usually :15671; needs tls.cert and tls.key."},
		{key: "listen.metrics", value: address(&c.Listen.Metrics), doc: "Where to listen for Prometheus, usually :15692; serves /metrics, /healthz and /readyz, and asks nobody for a login."},

		{key: "management.operator-policy-changes", value: boolean(&c.Management.OperatorPolicyChanges), doc: "Let administrators set and clear operator policies over the management API; false = they can only be read."},
		{key: "management.rates-interval", value: duration(&c.Management.RatesInterval, time.Second, 10*time.Minute), doc: "The shortest time that the rates in the management API are of."},
		{key: "management.hosts", value: hosts{list{&c.Management.Hosts}}, doc: "Names that requests over HTTP may be for, those to /healthz included, besides addresses, localhost and the machine's own name; others get a 421. Empty = any."},
		{key: "management.body-size", value: size(&c.Management.BodySize, 64*KiB, GiB), doc: "Largest body of a request to the management API: a file of definitions, or a message."},

		{key: "data.dir", value: text(&c.Data.Dir, 4096), doc: "Folder for what survives a restart."},
		{key: "data.shards", value: whole(&c.Data.Shards, 1, maxShards), doc: "Logs that new durable queues are spread over; each is written by one thread of work."},

		{key: "durability", value: oneOf(&c.Durability, Fsync, Flush), doc: "When a persistent message is confirmed: fsync = the disk has it, flush = the operating system has it."},

		{key: "memory.bodies", value: watermark(&c.Memory.Bodies), doc: "Message bodies kept in memory; the others are read back from disk when they are due. A share of the machine's memory, or a size."},

		{key: "tls.cert", value: path(&c.TLS.Cert), doc: "PEM file with the server's certificate and the chain above it."},
		{key: "tls.key", value: path(&c.TLS.Key), doc: "PEM file with the certificate's private key."},
		{key: "tls.ca", value: path(&c.TLS.CA), doc: "PEM file with the authorities that sign client certificates."},
		{key: "tls.verify-peer", value: boolean(&c.TLS.VerifyPeer), doc: "Demand a client certificate signed by tls.ca; for AMQP alone."},
		{key: "tls.min-version", value: oneOf(&c.TLS.MinVersion, "1.2", "1.3"), doc: "The oldest TLS version that clients may speak."},

		{key: "auth.guest-loopback-only", value: boolean(&c.Auth.GuestLoopbackOnly), doc: "Let the user guest in from this machine only; over HTTP, not through a proxy on it either."},
		{key: "auth.password-hashing", value: oneOf(&c.Auth.PasswordHashing, PBKDF2, SHA512), doc: "How new passwords are kept: pbkdf2 = hard to guess even from a stolen data directory, sha512 = in RabbitMQ's format, so that exported users can log in there."},

		{key: "limits.connections", value: whole(&l.Connections, 0, 10_000_000), doc: "Connections at a time; 0 = no limit."},
		{key: "limits.handshakes", value: whole(&l.Handshakes, 0, 10_000_000), doc: "AMQP connections at a time that have not got to connection.open; the next one takes the place of the oldest of the address with the most. 0 = no limit."},
		{key: "limits.management-connections", value: whole(&l.Management, 0, 10_000_000), doc: "Connections at a time to each listener for HTTP; the next one takes the place of the one that is idle for longest, else of one of the address with the most, or is refused. 0 = no limit."},
		{key: "limits.channels", value: whole(&l.Channels, 1, 65535), doc: "Channels per connection (channel-max)."},
		{key: "limits.consumers", value: whole(&l.Consumers, 0, 10_000_000), doc: "Consumers per channel; 0 = no limit."},
		{key: "limits.bindings", value: whole(&l.Bindings, 0, 100_000_000), doc: "Bindings per virtual host; 0 = no limit."},
		{key: "limits.frame-max", value: size(&l.FrameMax, 4*KiB, 16*MiB), doc: "Largest frame; clients may ask for less."},
		{key: "limits.message-size", value: size(&l.MessageSize, 1, 512*MiB), doc: "Largest message body."},
		{key: "limits.handshake-timeout", value: duration(&l.HandshakeTimeout, 100*time.Millisecond, 10*time.Minute), doc: "How long a client may take from connecting to connection.open."},
		{key: "limits.heartbeat", value: seconds(&l.Heartbeat, 0, 65535*time.Second), doc: "Heartbeat interval proposed to clients, whole seconds; 0s = off."},
		{key: "limits.memory-watermark", value: watermark(&l.MemoryWatermark), live: true, doc: "Memory use above which publishers are blocked: a share of the machine's memory, or a size."},
		{key: "limits.disk-free", value: reserve(&l.DiskFree), live: true, doc: "Free space on the disk of data.dir below which publishers are blocked: a size, or so many times the machine's memory; 0 = they are blocked when a log has no space."},
		{key: "limits.consumer-timeout", value: duration(&l.ConsumerTimeout, 0, 8760*time.Hour), doc: "How long a consumer may keep a message unacknowledged; 0s = for ever."},

		{key: "log.level", value: level(&c.Log.Level), live: true, doc: "Least severe level that is logged."},
		{key: "log.format", value: oneOf(&c.Log.Format, "auto", "text", "json"), doc: "Log format; auto = text on a terminal, JSON otherwise."},

		{key: "telemetry.service-name", value: optionalText(&t.ServiceName, 255), doc: "What traces and metrics call the broker (service.name); empty = what OTEL_SERVICE_NAME says, or curfew."},
		{key: "telemetry.events", value: whole(&t.Events, 0, 1<<20), doc: "How many of the latest events are remembered, in 400 bytes each; 0 = there is no event stream."},
		{key: "telemetry.otlp.endpoint", value: endpoint(&t.OTLP.Endpoint), doc: "The collector; empty = what OTEL_EXPORTER_OTLP_ENDPOINT says, or this machine."},
		{key: "telemetry.otlp.protocol", value: oneOf(&t.OTLP.Protocol, ProtocolAuto, ProtocolGRPC, ProtocolHTTP), doc: "How the collector is spoken to; auto = what OTEL_EXPORTER_OTLP_PROTOCOL says, or grpc."},
		{key: "telemetry.otlp.insecure", value: boolean(&t.OTLP.Insecure), doc: "Speak to the collector without TLS; for an endpoint without http:// or https:// before it."},
		{key: "telemetry.traces.exporter", value: oneOf(&t.Traces.Exporter, ExportAuto, ExportOff, ExportOTLP, ExportStdout), doc: "Where spans go; auto = what OTEL_TRACES_EXPORTER says, otlp if a collector is named, off otherwise."},
		{key: "telemetry.traces.sample", value: share(&t.Traces.Sample), doc: "Share of the messages without a trace context that are given one; those with one are traced if it says so. auto = what OTEL_TRACES_SAMPLER says, or all."},
		{key: "telemetry.traces.expiries", value: oneOf(&t.Traces.Expiries, ExpiriesSampled, ExpiriesAlways), doc: "Which expiries have spans: sampled = those of messages that are traced, always = all."},
		{key: "telemetry.traces.buffer", value: whole(&t.Traces.Buffer, 64, 1<<20), doc: "Spans that may wait for a slow exporter; what is beyond is dropped and counted."},
		{key: "telemetry.metrics.exporter", value: oneOf(&t.Metrics.Exporter, ExportAuto, ExportOff, ExportOTLP, ExportStdout), doc: "Where metrics are sent, besides /metrics; auto = what OTEL_METRICS_EXPORTER says, otlp if a collector is named, off otherwise."},
		{key: "telemetry.metrics.interval", value: interval(&t.Metrics.Interval, time.Second, time.Hour), doc: "How often metrics are sent; auto = what OTEL_METRIC_EXPORT_INTERVAL says, or every minute."},
		{key: "telemetry.metrics.queues", value: whole(&t.Metrics.Queues, 0, 100_000), doc: "How many queues have series of their own, the busiest ones; 0 = none."},

		{key: "compat.product", value: text(&c.Compat.Product, 255), doc: "Product name announced to clients; some look for RabbitMQ."},
		{key: "compat.version", value: text(&c.Compat.Version, 255), doc: "Version announced to clients."},

		{key: "plugins.chain", value: list{&c.chain}, doc: "Plugins in the order they are asked."},
	}
}

// maxShards bounds the logs: each keeps a few files open.
const maxShards = 64

// envName returns the environment variable that sets key.
func envName(key string) string {
	return envPrefix + strings.ToUpper(strings.NewReplacer(".", "__", "-", "_").Replace(key))
}

const envPrefix = "CURFEW_"
