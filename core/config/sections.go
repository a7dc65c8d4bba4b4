package config

import (
	"log/slog"
	"net/netip"
	"time"
)

// The sections of the configuration. The tags of a field name its key, its meaning and the
// accepted values; [bind] makes a setting of every tagged field, in this order.

// Listen holds the addresses to listen on, "host:port"; "" means off.
type Listen struct {
	AMQP          string `koanf:"amqp" kind:"address" doc:"Address to listen on for AMQP 0-9-1, or off."`
	AMQPS         string `koanf:"amqps" kind:"address" doc:"Address to listen on for AMQP 0-9-1 over TLS, usually :5671; requires tls.cert and tls.key."`
	Management    string `koanf:"management" kind:"address" doc:"Address to listen on for the management HTTP API, or off."`
	ManagementTLS string `koanf:"management-tls" kind:"address" doc:"Address to listen on for the management HTTP API over TLS, usually :15671; requires tls.cert and tls.key."`
	Metrics       string `koanf:"metrics" kind:"address" doc:"Address to listen on for Prometheus, usually :15692; serves /metrics, /healthz and /readyz without a login."`

	ProxyProtocol []netip.Prefix `koanf:"proxy-protocol" doc:"Addresses from which proxies connect to listen.amqp and listen.amqps. They must send the PROXY protocol, version 1 or 2; others connect directly. For guest-loopback-only, a client behind a proxy is never on this machine."`
}

// Management configures the management HTTP API.
type Management struct {
	OperatorPolicyChanges bool           `koanf:"operator-policy-changes" doc:"Let administrators set and clear operator policies over the management API; false = read only."`
	RatesInterval         time.Duration  `koanf:"rates-interval" range:"1s..10m" doc:"Shortest time over which the management API computes rates."`
	Hosts                 []string       `koanf:"hosts" kind:"hosts" doc:"Host names that HTTP requests may use, including those to /healthz, besides addresses, localhost and the machine's own name; others get a 421. Empty = any."` // in lower case
	BodySize              Size           `koanf:"body-size" range:"64KiB..1GiB" doc:"Largest body of a request to the management API: a file of definitions, or a message."`
	Session               time.Duration  `koanf:"session" range:"1m..720h" doc:"How long a login to the management page lasts. Logging out, another password and a restart of the broker end it before."`
	ClientCertificates    string         `koanf:"client-certificates" oneof:"off optional required" doc:"Client certificates, signed by tls.ca, on listen.management-tls; required = connections without one are refused. With auth.certificate-login they log their users in."`
	ProxyProtocol         []netip.Prefix `koanf:"proxy-protocol" doc:"Like listen.proxy-protocol, for listen.management and listen.management-tls."`
	TraceURL              string         `koanf:"trace-url" kind:"trace-url" doc:"URL of a trace in your trace viewer, with {trace_id} in place of the id; the management page links to it. Empty = no links."`
	Pprof                 bool           `koanf:"pprof" doc:"Offer profiles for Go's tool pprof at /debug/pprof/ of the management API, to administrators with name and password; never on listen.metrics."`
}

// Data configures where the broker stores data that must survive a restart.
type Data struct {
	Dir    string `koanf:"dir" bytes:"1..4096" doc:"Folder for all data that survives a restart."`
	Shards int    `koanf:"shards" range:"1..64" doc:"Number of logs over which new virtual hosts are spread; each is written sequentially."` // each has a few open files
}

// Durability says when an operation is durable.
type Durability string

// The durabilities.
const (
	Fsync Durability = "fsync" // survives power loss
	Flush Durability = "flush" // survives the end of the process
)

// Memory bounds the memory that messages take.
type Memory struct {
	Bodies Watermark `koanf:"bodies" doc:"Memory for message bodies: a share of the machine's memory, or a size. Further bodies are read back from the disk when they are next."`
}

// TLS configures the listeners listen.amqps and listen.management-tls.
type TLS struct {
	Cert       string `koanf:"cert" kind:"path" doc:"PEM file with the server's certificate and its chain."`
	Key        string `koanf:"key" kind:"path" doc:"PEM file with the certificate's private key."`
	CA         string `koanf:"ca" kind:"path" doc:"PEM file with the authorities that sign client certificates."`
	VerifyPeer bool   `koanf:"verify-peer" doc:"Require a client certificate signed by tls.ca; only for AMQP."`
	MinVersion string `koanf:"min-version" oneof:"1.2 1.3" doc:"Oldest TLS version that clients may use."`
}

// Auth says who may log in.
type Auth struct {
	GuestLoopbackOnly bool    `koanf:"guest-loopback-only" doc:"Let the user guest log in only from this machine, and over HTTP not through a proxy."`
	PasswordHashing   Hashing `koanf:"password-hashing" oneof:"pbkdf2 sha512" doc:"Hash of new passwords: pbkdf2 = hard to guess even from a stolen data directory, sha512 = RabbitMQ's format, so that exported users can log in there."`

	CertificateLogin    CertificateLogin `koanf:"certificate-login" oneof:"off distinguished-name common-name san-dns san-email san-uri san-ip san-other" doc:"Part of a client's certificate that is the user's name when it logs in, over AMQP with the mechanism EXTERNAL. Requires tls.ca, which must have signed the certificate. san = subject alternative name."`
	CertificateSANIndex int              `koanf:"certificate-san-index" range:"0..1000" doc:"Index of the subject alternative name of that type, from 0."`

	Users map[string]*User `koanf:"users" entry:"NAME" doc:"Users that the broker adds when it starts, before it is ready, besides guest. Existing users, and their passwords, stay as they are; a deleted user is added again at the next start. A name in a variable means the section in the file that is spelt like it, or else the name in lower case with - for _; for any other name, set the key name."` // by section
}

// CertificateLogin names the field of a client's certificate that holds the user's name.
type CertificateLogin string

// CertificateLoginOff means that certificates log no users in.
const CertificateLoginOff CertificateLogin = "off"

// Hashing is the algorithm for new passwords.
type Hashing string

// The hashings.
const (
	PBKDF2 Hashing = "pbkdf2"
	SHA512 Hashing = "sha512"
)

// Limits bounds the resources that clients may use.
type Limits struct {
	Connections      int           `koanf:"connections" range:"0..10000000" doc:"Connections at a time; 0 = no limit."`
	Handshakes       int           `koanf:"handshakes" range:"0..10000000" doc:"AMQP connections at a time that have not reached connection.open; a further one replaces the oldest of the address with the most. 0 = no limit."`
	Management       int           `koanf:"management-connections" range:"0..10000000" doc:"Connections at a time to each HTTP listener; a further one replaces the one idle for longest, or else one of the address with the most, or is refused. 0 = no limit."`
	Channels         int           `koanf:"channels" range:"1..65535" doc:"Channels per connection (channel-max)."`
	Consumers        int           `koanf:"consumers" range:"0..10000000" doc:"Consumers per channel; 0 = no limit."`
	Bindings         int           `koanf:"bindings" range:"0..100000000" doc:"Bindings per virtual host; 0 = no limit."`
	FrameMax         Size          `koanf:"frame-max" range:"4KiB..16MiB" doc:"Largest frame; clients may ask for less."`
	MessageSize      Size          `koanf:"message-size" range:"1..512MiB" doc:"Largest message body."`
	HandshakeTimeout time.Duration `koanf:"handshake-timeout" range:"100ms..10m" doc:"How long a client may take from connecting to connection.open. Time that its login waits in a queue, at most a minute, does not count."`
	Heartbeat        time.Duration `koanf:"heartbeat" range:"0..65535s" kind:"seconds" doc:"Heartbeat interval proposed to clients, whole seconds; 0s = off."`
	MemoryWatermark  Watermark     `koanf:"memory-watermark" live:"true" doc:"Memory in use above which publishers are blocked: a share of the machine's memory, or a size. Counts messages, unsent output and the rest of the heap, without garbage and the program itself."`
	DiskFree         Reserve       `koanf:"disk-free" live:"true" doc:"Free space on the disk of data.dir below which publishers are blocked: a size, or a multiple of the machine's memory; 0 = only when a log has no space."`
	ConsumerTimeout  time.Duration `koanf:"consumer-timeout" range:"0..8760h" doc:"How long a consumer may keep a message unacknowledged; 0s = for ever."`
}

// Log configures the log.
type Log struct {
	Level  slog.Level `koanf:"level" live:"true" doc:"Lowest level that is logged."`
	Format string     `koanf:"format" oneof:"auto text json" doc:"Log format; auto = text on a terminal, text with priorities and without time in systemd's journal, otherwise JSON."`
}

// Telemetry configures events, spans and metrics. The environment's OTEL_ variables apply
// to settings that are left open here.
type Telemetry struct {
	ServiceName string  `koanf:"service-name" bytes:"0..255" doc:"Name of the broker in traces and metrics (service.name); empty = OTEL_SERVICE_NAME, or curfew."`
	Events      int     `koanf:"events" range:"0..1048576" doc:"Number of events remembered, at 400 bytes each; 0 = no event stream."`
	OTLP        OTLP    `koanf:"otlp"`
	Traces      Traces  `koanf:"traces"`
	Metrics     Metrics `koanf:"metrics"`
}

// OTLP is the collector that spans and metrics are sent to.
type OTLP struct {
	Endpoint string       `koanf:"endpoint" kind:"endpoint" doc:"The collector; empty = OTEL_EXPORTER_OTLP_ENDPOINT, or this machine."` // host:port or URL
	Protocol OTLPProtocol `koanf:"protocol" oneof:"auto grpc http" doc:"Protocol of the collector; auto = OTEL_EXPORTER_OTLP_PROTOCOL, or grpc."`
	Insecure bool         `koanf:"insecure" doc:"Connect to the collector without TLS; for an endpoint without http:// or https://."`
}

// OTLPProtocol is the protocol between broker and collector.
type OTLPProtocol string

// The protocols.
const (
	ProtocolAuto OTLPProtocol = "auto" // open
	ProtocolGRPC OTLPProtocol = "grpc"
	ProtocolHTTP OTLPProtocol = "http"
)

// Exporter is the destination of spans or metrics.
type Exporter string

// The exporters.
const (
	ExportAuto   Exporter = "auto" // open
	ExportOff    Exporter = "off"
	ExportOTLP   Exporter = "otlp"
	ExportStdout Exporter = "stdout"
)

// Traces selects the messages that are traced.
type Traces struct {
	Exporter Exporter          `koanf:"exporter" oneof:"auto off otlp stdout" doc:"Destination of spans; auto = OTEL_TRACES_EXPORTER, otlp if a collector is named, otherwise off."`
	Sample   Optional[float64] `koanf:"sample" range:"0..1" accepts:"auto, or 0 to 1 (a share, also as 1%)" doc:"Share of the messages without a trace context that get one. Messages with a context are traced if it says so. auto = OTEL_TRACES_SAMPLER, or all."`
	Expiries Expiries          `koanf:"expiries" oneof:"sampled always" doc:"Expiries with spans: sampled = those of traced messages, always = all."`
	Buffer   int               `koanf:"buffer" range:"64..1048576" doc:"Spans that may wait for a slow exporter; further ones are dropped and counted."`
}

// Expiries selects the expiries that have spans.
type Expiries string

// The choices.
const (
	ExpiriesSampled Expiries = "sampled" // those of traced messages
	ExpiriesAlways  Expiries = "always"  // all
)

// Metrics configures how often metrics are sent, and how many series there are.
type Metrics struct {
	Exporter Exporter                `koanf:"exporter" oneof:"auto off otlp stdout" doc:"Destination of metrics, besides /metrics; auto = OTEL_METRICS_EXPORTER, otlp if a collector is named, otherwise off."`
	Interval Optional[time.Duration] `koanf:"interval" range:"1s..1h" doc:"How often metrics are sent; auto = OTEL_METRIC_EXPORT_INTERVAL, or every minute."`
	Queues   int                     `koanf:"queues" range:"0..100000" doc:"Number of queues with series of their own, the busiest ones; 0 = none."`
}

// Optional is a value that may be left open.
type Optional[T any] struct {
	Value T
	Given bool
}

// Compat is the identity that the broker announces to AMQP clients, besides its own name and version.
type Compat struct {
	Product string `koanf:"product" bytes:"1..255" doc:"Product announced to AMQP clients. Some, such as Celery, use RabbitMQ's extensions of the protocol only if this is RabbitMQ."`
	Version string `koanf:"version" bytes:"1..255" doc:"Version announced to AMQP clients; some compare it with versions of RabbitMQ. The server property curfew_version has the broker's own."`
}

// Node identifies this broker among others.
type Node struct {
	Name string `koanf:"name" kind:"node-name" doc:"The broker's name in the management API, metrics and logs, such as rabbit@host, which some tools ask for. Without an @, the machine's name is added. Empty = curfew@ and the machine's name. In a cluster, nodes are named after their addresses."`
}
