// Package config loads the broker's configuration: defaults, then a YAML file, then CURFEW_ environment variables, then flags. A
// later source overrides an earlier one. The package is strict: an unknown key, a wrong type or a value out of range is an error
// that names the key, the value, its source and the accepted values. All errors are reported at once.
//
// A key is a tagged field of a struct: of [Config], or of a plugin's configuration. Every value has the same textual form in
// a file, in a variable and on the command line, so that one parser serves all three.
package config

import (
	"reflect"
	"time"

	"github.com/curfewmq/curfew/core/rabbit"
	"github.com/curfewmq/curfew/sdk/hook"
)

// Input holds the sources of a configuration. A source with the zero value is absent.
type Input struct {
	File    string   // path of the YAML file
	Environ []string // as os.Environ returns it
	Flags   []Flag
	Plugins []hook.Factory // every plugin that plugins.chain may name; by default the chain consists of all of them in this order
	// Check, if set, checks the plugins of the chain together. Its errors read "plugins.NAME: KEY: problem".
	Check func([]Plugin) error
}

// Flag is a command-line flag that sets a key.
type Flag struct {
	Name  string // as the user wrote it, "--amqp"
	Key   string // "listen.amqp"
	Value string
}

// Config is a configuration that passed every check. It is not changed after [Load].
type Config struct {
	Listen     Listen     `koanf:"listen"`
	Management Management `koanf:"management"`
	Data       Data       `koanf:"data"`
	Node       Node       `koanf:"node"`
	Cluster    Cluster    `koanf:"cluster"`
	Durability Durability `koanf:"durability" oneof:"fsync flush" doc:"When a persistent message is confirmed: fsync = when it is on the disk, flush = when the operating system has it."`
	Memory     Memory     `koanf:"memory"`
	TLS        TLS        `koanf:"tls"`
	Auth       Auth       `koanf:"auth"`
	Limits     Limits     `koanf:"limits"`
	Log        Log        `koanf:"log"`
	Telemetry  Telemetry  `koanf:"telemetry"`
	Compat     Compat     `koanf:"compat"`
	// Plugins is the configured chain, in its order.
	Plugins []Plugin `koanf:"-"`

	chain    []string
	settings []*setting
	shown    []*setting // including examples
}

// Plugin is one plugin of the chain.
type Plugin struct {
	Name   string
	Plugin hook.Plugin
}

// Load reads the sources of in. Its error joins one [*Error] per problem, in the order of the sources and, within the file, of
// the lines.
func Load(in Input) (*Config, error) {
	c := defaults()
	for _, f := range in.Plugins {
		c.chain = append(c.chain, f.Name)
	}
	l := loader{in: in, cfg: c}
	l.read()
	all, err := bind("", c, l.entries)
	if err != nil {
		return nil, err
	}
	c.add(all...)
	c.add(&setting{key: "plugins.chain", value: variable(reflect.ValueOf(&c.chain).Elem(), ""), doc: "Plugins in the order they are asked."})
	l.assign(c.settings)
	l.checkTogether()
	l.checkCluster()
	l.checkUsers()
	l.loadPlugins()
	l.checkChain()
	l.refuseUnknown()
	if err := l.err(); err != nil {
		return nil, err
	}
	return c, nil
}

func (c *Config) add(all ...*setting) {
	c.shown = append(c.shown, all...)
	c.settings = append(c.settings, only(all)...)
}

func defaults() *Config {
	c := &Config{
		Listen: Listen{AMQP: ":5672", Management: ":15672"},
		Management: Management{
			OperatorPolicyChanges: true,
			RatesInterval:         5 * time.Second,
			BodySize:              32 * miB,
			Session:               8 * time.Hour,
			ClientCertificates:    "off",
		},
		Data:    Data{Dir: "./curfew-data", Shards: 1},
		Cluster: Cluster{Name: "curfew", Election: time.Second, DiskStall: 5 * time.Second, Shards: 3},
		TLS:     TLS{MinVersion: "1.2"},

		Durability: Fsync,
		Memory:     Memory{Bodies: Watermark{Fraction: 0.25}},

		Auth: Auth{GuestLoopbackOnly: true, PasswordHashing: PBKDF2, CertificateLogin: CertificateLoginOff},
		Limits: Limits{
			Handshakes:       1000,
			Management:       1000,
			Channels:         2047,
			Consumers:        10_000,
			Bindings:         1_000_000,
			FrameMax:         128 * kiB,
			MessageSize:      16 * miB,
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
		Compat: Compat{Product: rabbit.Product, Version: rabbit.Version},
	}
	return c
}
