// Package broker assembles a broker from a configuration: the data directory, the AMQP
// server, the management API and, in a cluster, the links to the other nodes. It starts
// them, stops them and applies a changed configuration. Command lines, signals and service
// managers are in cmd/curfew/app.
package broker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/curfewmq/curfew/core/certfile"
	"github.com/curfewmq/curfew/core/chain"
	"github.com/curfewmq/curfew/core/clock"
	"github.com/curfewmq/curfew/core/config"
	"github.com/curfewmq/curfew/core/metrics"
	"github.com/curfewmq/curfew/core/mgmt"
	"github.com/curfewmq/curfew/core/mgmt/drain"
	"github.com/curfewmq/curfew/core/mgmt/probe"
	"github.com/curfewmq/curfew/core/store"
	"github.com/curfewmq/curfew/core/telemetry"
)

// Broker is a broker: its data, its listeners and its management API.
//
// [Broker.Start] is called once, and then [Broker.Shutdown] once. All other methods may be
// called from any goroutine in between.
type Broker struct {
	o       Options
	running *config.Config // the configuration at the start
	log     *slog.Logger
	clock   clock.Clock
	open    func(context.Context, setup) (server, error) // see openNode; tests replace it

	server     server
	management *management
	total      uint64        // the machine's memory in bytes; 0 = unknown
	limit      uint64        // bytes of memory above which publishers wait, as of the start; 0 = no limit
	drainer    *drain.Drain  // nil = the broker cannot be drained; set before the API answers
	emptied    chan struct{} // closed when a drain that is to stop the broker has ended
	draining   atomic.Bool

	background context.CancelFunc // ends the goroutines of aside
	aside      sync.WaitGroup

	reloading sync.Mutex
	followed  config.Limits // limits of the configuration read last; guarded by reloading
}

// server serves AMQP. It is a [node], except in tests.
type server interface {
	// Start listens on listen.amqp and listen.amqps, and serves.
	Start(ctx context.Context) error
	// Addresses returns the listeners' addresses: AMQP, then AMQP over TLS, without listeners that are off.
	Addresses() []net.Addr
	// Listening reports whether it accepts clients. A drained server does not.
	Listening() bool
	// NodeListener returns the listener for other nodes of a cluster; ok is false without a cluster.
	NodeListener() (l mgmt.Listener, ok bool)
	// CertificateFiles returns the certificates that the server presents to clients.
	CertificateFiles() []certfile.File
	// Management returns the server's part of the management API's options, which has at least its alarms.
	Management() mgmt.Options
	// Opened is called when the management API answers.
	Opened(api *mgmt.API)
	// ReloadTLS reads the certificate files for clients again. After an error the old certificates stay in use.
	ReloadTLS() error
	// ReloadNodeTLS reads the certificate files for other nodes of a cluster again. It does nothing without such files.
	ReloadNodeTLS() error

	MemoryLimit() int64
	SetMemoryLimit(bytes int64)
	DiskLimit() int64
	SetDiskLimit(bytes int64)

	// Shutdown stops accepting, closes every connection with 320 CONNECTION_FORCED, and
	// returns when all are closed and everything is flushed. When ctx ends, it cuts off the
	// remaining connections and returns an error.
	Shutdown(ctx context.Context) error
}

// New returns a broker that is not started yet.
func New(o Options) *Broker {
	if o.Recorder == nil {
		o.Recorder = telemetry.New(telemetry.Options{Clock: o.Clock})
	}
	return &Broker{o: o, running: o.Config, log: o.Log, clock: o.Clock, open: openNode, followed: o.Config.Limits, emptied: make(chan struct{})}
}

// undoTime is how long a failed start may take to close what it has opened.
const undoTime = 20 * time.Second

// Start reads the data, which may take long, opens every listener and serves. It opens the
// management API first, which answers that the broker is starting until the data was read.
// An error joins the errors of all listeners. After an error everything is closed again,
// and Shutdown must not be called. When ctx ends, Start gives up if it still can. The
// broker does not need ctx afterwards.
func (b *Broker) Start(ctx context.Context) error {
	b.logStart()
	var listenErr error // of the API's listeners
	if b.management, listenErr = listenManagement(ctx, b.running, b.log); listenErr == nil {
		b.management.serve(b.log)
		b.logManagement()
	}
	b.total = machineMemory(os.DirFS("/"))
	b.limit = b.watermark(b.total)
	disk := b.running.Limits.DiskFree.Of(b.total, diskSize(b.running.Data.Dir))
	b.logLimits(disk)
	var err error
	b.server, err = b.open(ctx, setup{
		Config: b.running, o: &b.o, watermark: b.limit, diskLimit: disk, bodies: b.running.Memory.Bodies.Of(b.total),
	})
	if err == nil {
		err = b.server.Start(ctx)
	}
	if err := errors.Join(err, listenErr); err != nil {
		return errors.Join(err, b.undo(ctx))
	}
	api, err := b.manage(ctx)
	if err != nil {
		return errors.Join(err, b.undo(ctx))
	}
	b.management.open(api)
	b.server.Opened(api)
	b.logAddresses()
	b.logExpiring()
	b.logPolicies()
	releaseProgram()
	b.attend(ctx)
	return nil
}

// attend starts the goroutines that run beside the servers until Shutdown.
func (b *Broker) attend(ctx context.Context) {
	ctx, b.background = context.WithCancel(context.WithoutCancel(ctx))
	b.aside.Go(func() { releaseWhenIdle(ctx) })
	b.aside.Go(func() { b.followDrain(ctx) })
}

// undo closes what Start opened before an error.
func (b *Broker) undo(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTime)
	defer cancel()
	var err error
	if b.server != nil {
		err = b.server.Shutdown(ctx)
	}
	if b.management != nil {
		b.management.shutdown(ctx)
	}
	return err
}

// Failed receives the error of a listener of the management API that ended by itself. The
// broker should be shut down then.
func (b *Broker) Failed() <-chan error { return b.management.failed }

// Emptied is closed when an operator has drained the broker in order to stop it. It should be shut down then.
func (b *Broker) Emptied() <-chan struct{} { return b.emptied }

func (b *Broker) logAddresses() {
	names := b.amqpListeners()
	for i, addr := range b.server.Addresses() {
		b.log.Info("listening", "key", names[i].key, "address", addr.String())
	}
}

func (b *Broker) logManagement() {
	for _, l := range b.management.listeners {
		b.log.Info("listening", "key", l.key, "address", l.Addr().String())
	}
}

// watermark returns limits.memory-watermark in bytes on a machine with total bytes of memory; 0 = unknown.
func (b *Broker) watermark(total uint64) uint64 {
	w := b.running.Limits.MemoryWatermark
	if total == 0 && w.Bytes == 0 {
		b.log.Warn("the machine's memory is unknown: publishers are never blocked; set limits.memory-watermark to a size")
	}
	return w.Of(total)
}

// Alarms names the broker's problems, and reports a drain under way. The management API's
// health checks show the same alarms.
func (b *Broker) Alarms() []string {
	alarms := b.server.Management().Alarms()
	if b.drainsNow() {
		alarms = append(slices.Clip(alarms), probe.Draining)
	}
	return alarms
}

// PageAddress returns the address of the management page on this machine, preferably
// without TLS; "" = there is no page.
func (b *Broker) PageAddress() string { return b.management.pageAddress() }

// Reload applies the keys of a configuration that a running broker can change, and logs
// changed keys that need a restart. The caller applies log.level.
func (b *Broker) Reload(next *config.Config) {
	b.reloading.Lock()
	defer b.reloading.Unlock()
	b.reloadTLS()
	b.followLimits(next)
	for _, c := range b.running.Changes(next) {
		if !c.Live {
			b.log.Warn("a changed key needs a restart", "key", c.Key, "running", c.Old, "configured", c.New)
		}
	}
}

// reloadTLS reads the certificates again. Certificates for clients and for other nodes are
// renewed independently, because one broken file must not let the other certificates
// expire.
func (b *Broker) reloadTLS() {
	some := false
	for _, reload := range []func() error{b.reloadClientTLS, b.server.ReloadNodeTLS} {
		if err := reload(); err != nil {
			b.log.Error("the files for TLS were not reloaded", "error", err) // the error names the key
			continue
		}
		some = true
	}
	if some {
		b.logExpiring()
	}
}

// reloadClientTLS reads the files named by tls again. All listeners have the same files: if
// one listener cannot use them, all keep the old ones.
func (b *Broker) reloadClientTLS() error {
	if err := b.server.ReloadTLS(); err != nil {
		return err
	}
	return b.management.reloadTLS()
}

// followLimits applies the limits of memory and disk that differ from the configuration
// read before. Other limits keep the value that they were given while the broker ran. The
// caller holds reloading.
func (b *Broker) followLimits(next *config.Config) {
	was, is := b.followed, next.Limits
	b.followed = is
	if of := is.MemoryWatermark.Of(b.total); is.MemoryWatermark != was.MemoryWatermark && of > 0 {
		b.server.SetMemoryLimit(int64(min(of, 1<<62)))
	}
	if is.DiskFree != was.DiskFree {
		b.server.SetDiskLimit(is.DiskFree.Of(b.total, diskSize(b.running.Data.Dir)))
	}
}

// Shutdown closes the connections, then the data, and the management API last, so that
// health checks answer as long as there are connections. When ctx ends, it cuts off the
// remaining connections and returns an error.
func (b *Broker) Shutdown(ctx context.Context) error {
	b.draining.Store(true)
	if b.drainer != nil {
		b.drainer.Overtaken()
	}
	b.background()
	err := b.server.Shutdown(ctx)
	b.management.shutdown(ctx)
	b.aside.Wait()
	return err
}

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

// logStart logs the version, the configuration file and the data directory.
func (b *Broker) logStart() {
	b.log.Info("starting", "version", b.o.Program.Version, "commit", cmp.Or(b.o.Program.Revision, "unknown"), "go", runtime.Version(),
		"config", cmp.Or(absoluteFile(b.o.ConfigFile), "none"), "data", absolute(b.running.Data.Dir))
}

func absoluteFile(path string) string {
	if path == "" {
		return ""
	}
	return absolute(path)
}

// logLimits logs the limits at which publishers wait, and the addresses for spans and metrics.
func (b *Broker) logLimits(disk int64) {
	memory := "none"
	if b.limit > 0 {
		memory = config.Size(min(b.limit, 1<<62)).String()
	}
	b.log.Info("limits", "memory", memory, "disk_free", config.Size(disk).String())
	if b.o.Exporter != nil {
		traces, sent := b.o.Exporter.Collectors()
		b.log.Info("collector", "traces", traces, "metrics", sent)
	}
}

// logPolicies logs the names of expiry policies, loaded and failed.
func (b *Broker) logPolicies() {
	if b.o.Policies == nil {
		return
	}
	loaded, failed := namePolicies(b.o.Policies.Measure())
	if len(loaded) > 0 {
		b.log.Info("policies", "loaded", strings.Join(loaded, ", "))
	}
	if len(failed) > 0 {
		b.log.Warn("policies are not loaded, or not yet: until then on-error decides about the messages of their queues", "policies", strings.Join(failed, ", "))
	}
}

// namePolicies returns the names and digests of policies.
func namePolicies(all []metrics.Policy) (loaded, failed []string) {
	const digits = 12 // of a digest, like tools for containers
	for _, p := range all {
		name := p.Name
		if p.Digest != "" { // a node of a cluster knows the digest once it has compiled the module
			name = fmt.Sprintf("%s (%.*s)", p.Name, digits, p.Digest)
		}
		if !p.Loaded {
			failed = append(failed, name)
			continue
		}
		loaded = append(loaded, name)
	}
	return loaded, failed
}
