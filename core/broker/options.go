package broker

import (
	"context"
	"log/slog"
	"net/http"

	"github.com/curfewmq/curfew/core/chain"
	"github.com/curfewmq/curfew/core/clock"
	"github.com/curfewmq/curfew/core/config"
	"github.com/curfewmq/curfew/core/metrics"
	"github.com/curfewmq/curfew/core/mgmt"
	"github.com/curfewmq/curfew/core/store"
	"github.com/curfewmq/curfew/core/telemetry"
)

// Options are the parts of a broker. Config, Chain, Log and Clock are required.
type Options struct {
	Config     *config.Config
	ConfigFile string       // file of Config, for the log and the management API; "" = none
	Chain      *chain.Chain // of Config's plugins
	Program    Program

	Log   *slog.Logger
	Level *slog.LevelVar // the level of Log, which the management API can change; nil = it cannot
	Clock clock.Clock

	Recorder *telemetry.Recorder // records expiries, spans and lateness; nil = nothing is recorded
	Exporter Exporter            // serves and sends metrics; nil = the broker has none

	Policies Policies // the chain's plugin for expiry policies; nil = it has none
	Lab      mgmt.Lab // lets the management API try plugins and policies out; nil = it cannot

	// Recovering is called at most once a second at the start, with how many bytes of a shard's log were read; nil = it is not called.
	Recovering func(shard uint32, done, total int64)
}

// Program describes the program that the broker is part of.
type Program struct {
	Version string // "0.1.0"
	Commit  string // of the source; "" = unknown
	// Revision is Commit for people: with its date, and whether the source was changed since.
	Revision string
	// Format is the latest format of a cluster's logs that the program reads; 0 = [cluster.Format].
	Format uint32
}

// Exporter serves the broker's metrics and sends them to a collector.
type Exporter interface {
	// Serve makes the exporter read a collector from now on, and returns the handler of requests for its metrics.
	Serve(ctx context.Context, c *metrics.Collector) (http.Handler, error)
	// Exported returns how many spans were exported, and how many were lost.
	Exported() (taken, lost uint64)
	// Collectors names the addresses to which spans and metrics are sent, without passwords; "off" = they are not sent.
	Collectors() (traces, metrics string)
}

// Policies is a plugin that runs expiry policies, which are loaded and unloaded while the broker runs.
type Policies interface {
	// Open loads the policies of the configuration and the policies that were loaded at run time. The broker calls it before it reads its
	// data, so that each queue finds its strategy. After an error nothing is open.
	Open(env PolicyEnv) error
	// Follow replaces the policies by those of the cluster's registry. It is called after
	// each change there. all are the registry's modules at the time of the call; the
	// registry may have changed again since.
	Follow(all []*store.Module)
	// Modules is the management API's access to the policies.
	Modules() mgmt.Modules
	// Measure describes the policies for metrics and the log.
	Measure() []metrics.Policy
	// Close ends the policies after the queues.
	Close() error
}

// PolicyEnv is the broker's environment for its [Policies].
type PolicyEnv struct {
	Log        *slog.Logger
	Recorder   *telemetry.Recorder
	Dir        string                            // keeps policies that were loaded at run time
	Clustered  bool                              // the registry of Store keeps these policies instead
	Store      func() (st *store.Store, ok bool) // ok is false until the data was read
	Strategies func() []string                   // names that a queue may choose now
	Plugins    []config.Plugin                   // the chain
}
