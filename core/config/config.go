// Package config loads the broker's configuration: defaults, then a YAML file,
// then CURFEW_ environment variables, then flags, a later source overriding an
// earlier one. It is strict: an unknown key, a wrong type or a value out of
// range is an error that names the key, the value, where it was said and what
// would be accepted, and all of them are reported at once.
//
// Every value has one textual form, the same in a file, in a variable and on
// the command line, so one parser serves the three.
package config

import (
	"log/slog"
	"time"

	"github.com/curfewmq/curfew/sdk/hook"
)

// Input is everything a configuration is made of. The zero value of a field
// means that this source says nothing.
type Input struct {
	File    string   // path of the YAML file
	Environ []string // as os.Environ returns it
	Flags   []Flag
	Plugins []hook.Factory // every plugin that plugins.chain may name
	Version string         // the broker's version, the default of compat.version
	// Check, when set, looks at the plugins of the chain together. Its errors
	// read "plugins.NAME: KEY: problem".
	Check func([]Plugin) error
}

// Flag is a command-line flag that sets a key.
type Flag struct {
	Name  string // as the user wrote it, "--amqp"
	Key   string // "listen.amqp"
	Value string
}

// Config is a configuration that passed every check. It is not changed after
// [Load].
type Config struct {
	Listen     Listen
	Management Management
	Data       Data
	// Durability is what it takes for a persistent message to be confirmed.
	Durability Durability
	Memory     Memory
	TLS        TLS
	Auth       Auth
	Limits     Limits
	Log        Log
	Telemetry  Telemetry
	Compat     Compat
	// Plugins is the chain, configured, in its order.
	Plugins []Plugin

	chain    []string
	settings []*setting
}

// Listen holds the addresses to listen on, "host:port"; "" is off.
type Listen struct{ AMQP, AMQPS, Management, ManagementTLS, Metrics string }

// Management is about the management HTTP API.
type Management struct {
	OperatorPolicyChanges bool // operator policies can be set and cleared over it
	RatesInterval         time.Duration
	BodySize              Size
	Hosts                 []string // names that requests may be for, in lower case; empty = any
}

// Data says where the broker keeps what must survive a restart.
type Data struct {
	Dir    string
	Shards int // logs that new durable queues are spread over
}

// Durability says when an operation counts as kept: after the disk has it, or
// after the operating system does.
type Durability string

// The durabilities.
const (
	Fsync Durability = "fsync" // survives power loss
	Flush Durability = "flush" // survives the end of the process
)

// Memory says what messages may take of it.
type Memory struct{ Bodies Watermark }

// TLS configures the listeners listen.amqps and listen.management-tls. The fields are paths of PEM files.
type TLS struct {
	Cert, Key, CA string
	VerifyPeer    bool   // AMQP: demand a client certificate that CA signed
	MinVersion    string // "1.2" or "1.3"
}

// Auth says who may log in.
type Auth struct {
	GuestLoopbackOnly bool
	PasswordHashing   Hashing
}

// Hashing is how new passwords are kept.
type Hashing string

// The hashings.
const (
	PBKDF2 Hashing = "pbkdf2"
	SHA512 Hashing = "sha512"
)

// Limits bounds what clients may use.
type Limits struct {
	Connections      int // 0 = as many as the machine takes
	Handshakes       int // connections that are not open yet; 0 = any number
	Management       int // connections of the management API and for metrics; 0 = any number
	Channels         int // per connection, announced as channel-max
	Consumers        int // per channel; 0 = any number
	Bindings         int // per virtual host; 0 = any number
	FrameMax         Size
	MessageSize      Size
	HandshakeTimeout time.Duration
	Heartbeat        time.Duration // whole seconds; 0 = off
	MemoryWatermark  Watermark
	DiskFree         Reserve
	ConsumerTimeout  time.Duration // 0 = off
}

// Log says what is logged, and how.
type Log struct {
	Level  slog.Level
	Format string // "auto", "text" or "json"
}

// Compat is what the broker calls itself towards clients.
type Compat struct{ Product, Version string }

// Plugin is one plugin of the chain.
type Plugin struct {
	Name   string
	Plugin hook.Plugin
}

// Load reads the sources of in. Its error joins one [*Error] per problem, in
// the order of the sources and, within the file, of the lines.
func Load(in Input) (*Config, error) {
	c := defaults(in.Version)
	l := loader{in: in, cfg: c}
	l.read()
	l.assign(c.settings)
	l.checkTogether()
	l.loadPlugins()
	l.checkChain()
	l.refuseUnknown()
	if err := l.err(); err != nil {
		return nil, err
	}
	return c, nil
}

func defaults(version string) *Config {
	c := &Config{
		Listen: Listen{AMQP: ":5672", Management: ":15672"},
		Management: Management{
			OperatorPolicyChanges: true,
			RatesInterval:         5 * time.Second,
			BodySize:              32 * MiB,
		},
		Data: Data{Dir: "./curfew-data", Shards: 1},
		TLS:  TLS{MinVersion: "1.2"},

		Durability: Fsync,
		Memory:     Memory{Bodies: Watermark{Fraction: 0.25}},

		Auth: Auth{GuestLoopbackOnly: true, PasswordHashing: PBKDF2},
		Limits: Limits{
			Handshakes:       1000,
			Management:       1000,
			Channels:         2047,
			Consumers:        10_000,
			Bindings:         1_000_000,
			FrameMax:         128 * KiB,
			MessageSize:      16 * MiB,
			HandshakeTimeout: 10 * time.Second,
			Heartbeat:        60 * time.Second,
			MemoryWatermark:  Watermark{Fraction: 0.6},
			DiskFree:         Reserve{Auto: true},
			ConsumerTimeout:  30 * time.Minute,
		},
		Log: Log{Format: "auto"},
		Telemetry: Telemetry{
			Events:  4096,
			OTLP:    OTLP{Protocol: ProtocolAuto},
			Traces:  Traces{Exporter: ExportAuto, Expiries: ExpiriesSampled, Buffer: 8192},
			Metrics: Metrics{Exporter: ExportAuto, Queues: 500},
		},
		Compat: Compat{Product: "Curfew", Version: version},
		chain:  []string{"ttl", "wasm", "maxlength", "deadletter", "expires"},
	}
	c.settings = coreSettings(c)
	return c
}
