package config

import (
	"log/slog"
	"net/netip"
	"time"
)

// The sections of the configuration. The tags of a field name its key, its meaning and the accepted values; [bind] makes a setting of every
// tagged field, in this order.

// Listen holds the addresses to listen on, "host:port"; "" means off.
type Listen struct {
	AMQP          string `koanf:"amqp" kind:"address" doc:"Where to listen for AMQP 0-9-1; off = do not."`
	AMQPS         string `koanf:"amqps" kind:"address" doc:"Where to listen for AMQP 0-9-1 over TLS, usually :5671; needs tls.cert and tls.key."`
	Management    string `koanf:"management" kind:"address" doc:"Where to listen for the management HTTP API; off = do not."`
	ManagementTLS string `koanf:"management-tls" kind:"address" doc:"Where to listen for the management HTTP API over TLS, usually :15671; needs tls.cert and tls.key."`
	Metrics       string `koanf:"metrics" kind:"address" doc:"Where to listen for Prometheus, usually :15692; serves /metrics, /healthz and /readyz, and asks nobody for a login."`

	ProxyProtocol []netip.Prefix `koanf:"proxy-protocol" doc:"Where proxies connect from to listen.amqp and listen.amqps, who have to say by the PROXY protocol, version 1 or 2, for whom. Others connect directly. For guest-loopback-only, nobody who comes through a proxy is on this machine."`
}

// Management configures the management HTTP API.
type Management struct {
	OperatorPolicyChanges bool           `koanf:"operator-policy-changes" doc:"Let administrators set and clear operator policies over the management API; false = they can only be read."`
	RatesInterval         time.Duration  `koanf:"rates-interval" range:"1s..10m" doc:"The shortest time that the rates in the management API are of."`
	Hosts                 []string       `koanf:"hosts" kind:"hosts" doc:"Names that requests over HTTP may be for, those to /healthz included, besides addresses, localhost and the machine's own name; others get a 421. Empty = any."` // in lower case
	BodySize              Size           `koanf:"body-size" range:"64KiB..1GiB" doc:"Largest body of a request to the management API: a file of definitions, or a message."`
	Session               time.Duration  `koanf:"session" range:"1m..720h" doc:"How long a login to the management page lasts. Logging out, another password and a restart of the broker end it before."`
	ClientCertificates    string         `koanf:"client-certificates" oneof:"off optional required" doc:"Whether clients of listen.management-tls show a certificate signed by tls.ca; required = nobody else is connected. With auth.certificate-login it logs its user in."`
	ProxyProtocol         []netip.Prefix `koanf:"proxy-protocol" doc:"The same as listen.proxy-protocol for listen.management and listen.management-tls."`
	TraceURL              string         `koanf:"trace-url" kind:"trace-url" doc:"The address of a trace in your tracing, with {trace_id} where its id belongs; the management page links to it. Empty = no links."`
	Pprof                 bool           `koanf:"pprof" doc:"Let administrators have profiles of the process, as Go's tool pprof reads them, at /debug/pprof/ of the management API, with name and password; never on listen.metrics."`
}

// Data configures where the broker stores data that must survive a restart.
type Data struct {
	Dir    string `koanf:"dir" bytes:"1..4096" doc:"Folder for what survives a restart."`
	Shards int    `koanf:"shards" range:"1..64" doc:"Logs that new durable queues are spread over; each is written by one thread of work."` // each has a few open files
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
	Bodies Watermark `koanf:"bodies" doc:"Message bodies kept in memory; the others are read back from disk when they are next. A share of the machine's memory, or a size."`
}

// TLS configures the listeners listen.amqps and listen.management-tls.
type TLS struct {
	Cert       string `koanf:"cert" kind:"path" doc:"PEM file with the server's certificate and the chain above it."`
	Key        string `koanf:"key" kind:"path" doc:"PEM file with the certificate's private key."`
	CA         string `koanf:"ca" kind:"path" doc:"PEM file with the authorities that sign client certificates."`
	VerifyPeer bool   `koanf:"verify-peer" doc:"Demand a client certificate signed by tls.ca; for AMQP alone."`
	MinVersion string `koanf:"min-version" oneof:"1.2 1.3" doc:"The oldest TLS version that clients may speak."`
}

// Auth says who may log in.
type Auth struct {
	GuestLoopbackOnly bool    `koanf:"guest-loopback-only" doc:"Let the user guest in from this machine only; over HTTP, not through a proxy on it either."`
	PasswordHashing   Hashing `koanf:"password-hashing" oneof:"pbkdf2 sha512" doc:"How new passwords are kept: pbkdf2 = hard to guess even from a stolen data directory, sha512 = in RabbitMQ's format, so that exported users can log in there."`

	CertificateLogin    CertificateLogin `koanf:"certificate-login" oneof:"off distinguished-name common-name san-dns san-email san-uri san-ip san-other" doc:"What of a client's certificate is the name of the user whom it logs in, over AMQP by the mechanism EXTERNAL; needs tls.ca, which has to have signed it. san = subject alternative name."`
	CertificateSANIndex int              `koanf:"certificate-san-index" range:"0..1000" doc:"Which one of the subject alternative names of that type, from 0."`

	Users map[string]*User `koanf:"users" entry:"NAME" doc:"Users that the broker adds when it starts, before it is ready, beside guest. A user that exists is left as it is, the password too; one that was deleted is added again at the next start. In a variable, a name is that of a section in the file which is spelt like it, or else in lower case with - for _; the key name has any other."` // by section
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

// Limits bounds what clients may use.
type Limits struct {
	Connections      int           `koanf:"connections" range:"0..10000000" doc:"Connections at a time; 0 = no limit."`
	Handshakes       int           `koanf:"handshakes" range:"0..10000000" doc:"AMQP connections at a time that have not got to connection.open; the next one takes the place of the oldest of the address with the most. 0 = no limit."`
	Management       int           `koanf:"management-connections" range:"0..10000000" doc:"Connections at a time to each listener for HTTP; the next one takes the place of the one that is idle for longest, else of one of the address with the most, or is refused. 0 = no limit."`
	Channels         int           `koanf:"channels" range:"1..65535" doc:"Channels per connection (channel-max)."`
	Consumers        int           `koanf:"consumers" range:"0..10000000" doc:"Consumers per channel; 0 = no limit."`
	Bindings         int           `koanf:"bindings" range:"0..100000000" doc:"Bindings per virtual host; 0 = no limit."`
	FrameMax         Size          `koanf:"frame-max" range:"4KiB..16MiB" doc:"Largest frame; clients may ask for less."`
	MessageSize      Size          `koanf:"message-size" range:"1..512MiB" doc:"Largest message body."`
	HandshakeTimeout time.Duration `koanf:"handshake-timeout" range:"100ms..10m" doc:"How long a client may take from connecting to connection.open, without the time that its login waits for its turn, which is a minute at most."`
	Heartbeat        time.Duration `koanf:"heartbeat" range:"0..65535s" kind:"seconds" doc:"Heartbeat interval proposed to clients, whole seconds; 0s = off."`
	MemoryWatermark  Watermark     `koanf:"memory-watermark" live:"true" doc:"Memory in use (messages, unsent output and the rest of the heap, without garbage and the program itself) above which publishers are blocked: a share of the machine's memory, or a size."`
	DiskFree         Reserve       `koanf:"disk-free" live:"true" doc:"Free space on the disk of data.dir below which publishers are blocked: a size, or so many times the machine's memory; 0 = they are blocked when a log has no space."`
	ConsumerTimeout  time.Duration `koanf:"consumer-timeout" range:"0..8760h" doc:"How long a consumer may keep a message unacknowledged; 0s = for ever."`
}

// Log configures the log.
type Log struct {
	Level  slog.Level `koanf:"level" live:"true" doc:"Least severe level that is logged."`
	Format string     `koanf:"format" oneof:"auto text json" doc:"Log format; auto = text on a terminal, text with priorities and without the time for systemd's journal, JSON otherwise."`
}

// Telemetry configures events, spans and metrics. The environment's OTEL_ variables apply to settings that are left open here.
type Telemetry struct {
	ServiceName string  `koanf:"service-name" bytes:"0..255" doc:"What traces and metrics call the broker (service.name); empty = what OTEL_SERVICE_NAME says, or curfew."`
	Events      int     `koanf:"events" range:"0..1048576" doc:"How many of the latest events are remembered, in 400 bytes each; 0 = there is no event stream."`
	OTLP        OTLP    `koanf:"otlp"`
	Traces      Traces  `koanf:"traces"`
	Metrics     Metrics `koanf:"metrics"`
}

// OTLP is the collector that spans and metrics are sent to.
type OTLP struct {
	Endpoint string       `koanf:"endpoint" kind:"endpoint" doc:"The collector; empty = what OTEL_EXPORTER_OTLP_ENDPOINT says, or this machine."` // host:port or URL
	Protocol OTLPProtocol `koanf:"protocol" oneof:"auto grpc http" doc:"How the collector is spoken to; auto = what OTEL_EXPORTER_OTLP_PROTOCOL says, or grpc."`
	Insecure bool         `koanf:"insecure" doc:"Speak to the collector without TLS; for an endpoint without http:// or https:// before it."`
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
	Exporter Exporter          `koanf:"exporter" oneof:"auto off otlp stdout" doc:"Where spans go; auto = what OTEL_TRACES_EXPORTER says, otlp if a collector is named, off otherwise."`
	Sample   Optional[float64] `koanf:"sample" range:"0..1" accepts:"auto, or 0 to 1 (a share, also as 1%)" doc:"Share of the messages without a trace context that are given one; those with one are traced if it says so. auto = what OTEL_TRACES_SAMPLER says, or all."`
	Expiries Expiries          `koanf:"expiries" oneof:"sampled always" doc:"Which expiries have spans: sampled = those of messages that are traced, always = all."`
	Buffer   int               `koanf:"buffer" range:"64..1048576" doc:"Spans that may wait for a slow exporter; what is beyond is dropped and counted."`
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
	Exporter Exporter                `koanf:"exporter" oneof:"auto off otlp stdout" doc:"Where metrics are sent, besides /metrics; auto = what OTEL_METRICS_EXPORTER says, otlp if a collector is named, off otherwise."`
	Interval Optional[time.Duration] `koanf:"interval" range:"1s..1h" doc:"How often metrics are sent; auto = what OTEL_METRIC_EXPORT_INTERVAL says, or every minute."`
	Queues   int                     `koanf:"queues" range:"0..100000" doc:"How many queues have series of their own, the busiest ones; 0 = none."`
}

// Optional is a value that may be left open.
type Optional[T any] struct {
	Value T
	Given bool
}

// Compat is the identity that the broker announces to AMQP clients, besides its own name and version.
type Compat struct {
	Product string `koanf:"product" bytes:"1..255" doc:"Product announced to AMQP clients. Some, such as Celery, use what RabbitMQ added to the protocol only if this is RabbitMQ."`
	Version string `koanf:"version" bytes:"1..255" doc:"Version announced to AMQP clients, which some compare with versions of RabbitMQ; curfew_version announces the broker's own."`
}

// Node identifies this broker among others.
type Node struct {
	Name string `koanf:"name" kind:"node-name" doc:"The broker's name in the management API, metrics and logs, such as rabbit@host, which some tools ask for; without an @, that of the machine follows. Empty = curfew@ and the machine's name. In a cluster, nodes are named after their addresses."`
}
