package app

import (
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/curfewmq/curfew/cmd/curfew/telemetry"
	"github.com/curfewmq/curfew/core/clock"
	"github.com/curfewmq/curfew/core/config"
	"github.com/curfewmq/curfew/core/mgmt"
	"github.com/curfewmq/curfew/core/mgmt/drain"
	"github.com/curfewmq/curfew/core/mgmt/probe"
	"github.com/curfewmq/curfew/sdk/hook"
)

// drainTime is how long connections get to close; orchestrators kill after 30 s.
const drainTime = 20 * time.Second

// service is a running broker and its management API. It belongs to the goroutine that calls run.
type service struct {
	plugins []hook.Factory // of this binary
	running configuration
	load    func() (configuration, error)
	level   *slog.LevelVar
	log     *slog.Logger
	stdout  io.Writer // for the exporters called stdout

	clock      clock.Clock
	telemetry  *telemetry.Telemetry // nil until start has begun
	broker     broker
	management *management
	total      uint64        // bytes of memory that the machine has; 0 = unknown
	limit      uint64        // bytes of memory above which publishers wait when the broker starts; 0 = none
	followed   config.Limits // of the configuration that was read last
	draining   atomic.Bool
	drainer    *drain.Drain  // nil if the broker cannot be drained; set before the API answers
	emptied    chan struct{} // capacity 1: has a value when the broker was drained, and is to stop
	notifier   *notifier     // nil: nobody wants to be told
	again      bool          // reload the configuration once the broker runs
}

// startUnless calls start, which may take long if there is much to recover. A signal that ends the broker interrupts it, if it is
// not too late, and is returned.
func (s *service) startUnless(signals <-chan os.Signal, newBroker func(context.Context, setup) (broker, error)) (end os.Signal, err error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	started := make(chan error, 1)
	go func() { started <- s.start(ctx, newBroker) }()
	for {
		select {
		case err := <-started:
			return end, err
		case sig := <-signals:
			if sig == syscall.SIGHUP {
				s.again = true // the configuration may have been read already
				continue
			}
			end = sig
			s.notifier.show("stopping", "STOPPING=1")
			cancel()
		}
	}
}

// start opens every listener, or none. The error joins those of all listeners. The management API comes first: until there is a
// broker, it answers that the broker is starting.
func (s *service) start(ctx context.Context, newBroker func(context.Context, setup) (broker, error)) error {
	var err error
	s.notifier.show("starting")
	s.logStart()
	s.clock = clock.New()
	s.telemetry, err = telemetry.Open(ctx, telemetry.Options{
		Config: s.running.Telemetry, Clock: s.clock, Stdout: s.stdout, Log: s.log, Version: version, Node: nodeName(s.running.Config),
	})
	if err != nil {
		return err
	}
	var listenErr error // of the API's listeners
	if s.management, listenErr = listenManagement(ctx, s.running, s.log); listenErr == nil {
		s.management.serve(s.log)
		s.logManagement()
	}
	s.total = machineMemory(os.DirFS("/"))
	s.limit, s.followed = s.watermark(s.total), s.running.Limits
	disk := s.running.Limits.DiskFree.Of(s.total, diskSize(s.running.Data.Dir))
	s.logLimits(disk)
	s.broker, err = newBroker(ctx, setup{
		configuration: s.running, watermark: s.limit, diskLimit: disk, bodies: s.running.Memory.Bodies.Of(s.total), log: s.log,
		clock: s.clock, telemetry: s.telemetry.Recorder, progress: s.notifier.recovering,
	})
	if err == nil {
		err = s.broker.Start(ctx)
	}
	if err := errors.Join(err, listenErr); err != nil {
		return errors.Join(s.hinted(err), s.undo(ctx))
	}
	api, err := s.manage(ctx)
	if err != nil {
		return errors.Join(err, s.undo(ctx))
	}
	s.management.open(api)
	if b, ok := s.broker.(interface{ Opened(api *mgmt.API) }); ok {
		b.Opened(api)
	}
	s.logAddresses()
	s.logExpiring()
	s.logPlugins()
	s.logPolicies()
	s.log.Info("ready", "version", version)
	s.notifier.show(statusOf(s.alarms()), "READY=1")
	releaseProgram()
	return nil
}

// undo closes what start opened before an error.
func (s *service) undo(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainTime)
	defer cancel()
	var err error
	if s.broker != nil {
		err = s.broker.Shutdown(ctx)
	}
	if s.management != nil {
		s.management.shutdown(ctx)
	}
	return err
}

// hinted adds what usually helps to an error.
func (s *service) hinted(err error) error {
	if !errors.Is(err, syscall.EADDRINUSE) {
		return err
	}
	flags := "--amqp and --management"
	if s.running.Cluster.On() {
		flags = "--amqp, --management and, the same on all nodes, --cluster and --cluster-advertise"
	}
	return errors.Join(err, errors.New("another broker may run already: stop it, or choose other addresses with "+flags))
}

func (s *service) logAddresses() {
	names := s.amqpListeners()
	for i, addr := range s.broker.Addresses() {
		s.log.Info("listening", "key", names[i].key, "address", addr.String())
	}
}

// logPlugins names the chain, and the sources of plugins that are not of the repository.
func (s *service) logPlugins() {
	names := make([]string, len(s.running.Plugins))
	for i, p := range s.running.Plugins {
		names[i] = p.Name
		f := s.factory(p.Name)
		if m := builtFrom(f.Package); m.path != module {
			s.log.Info("plugin", "name", f.Name, "package", f.Package, "version", cmp.Or(m.folder, m.version))
		}
	}
	s.log.Info("plugins", "chain", strings.Join(names, ", "))
	if late, better := undeadlettered(names, s.plugins); len(late) > 0 {
		s.log.Warn("plugins come after deadletter: messages that they drop are lost instead of dead-lettered",
			"plugins", strings.Join(late, ", "), "use", "plugins.chain: ["+strings.Join(better, ", ")+"]")
	}
}

func (s *service) factory(name string) (f hook.Factory) {
	if i := slices.IndexFunc(s.plugins, func(o hook.Factory) bool { return o.Name == name }); i >= 0 {
		f = s.plugins[i]
	}
	return f
}

func (s *service) logManagement() {
	for _, l := range s.management.listeners {
		s.log.Info("listening", "key", l.key, "address", l.Addr().String())
	}
}

// watermark returns limits.memory-watermark in bytes on a machine with total bytes of memory, 0 if that is unknown.
func (s *service) watermark(total uint64) uint64 {
	w := s.running.Limits.MemoryWatermark
	if total == 0 && w.Bytes == 0 {
		s.log.Warn("the machine does not tell how much memory it has: publishers are never blocked; set limits.memory-watermark to a size")
	}
	return w.Of(total)
}

func (s *service) alarms() []string {
	alarms := s.broker.Management().Alarms()
	if s.drainsNow() {
		alarms = append(slices.Clip(alarms), probe.Draining)
	}
	return alarms
}

// run serves until a signal ends it or the API fails, and returns the exit status.
func (s *service) run(signals <-chan os.Signal) int {
	if s.again {
		s.reload()
	}
	idle, cancel := context.WithCancel(context.Background())
	defer cancel()
	go releaseWhenIdle(idle)
	go s.followDrain(idle)
	go s.notify(idle)
	for {
		select {
		case sig := <-signals:
			if sig == syscall.SIGHUP {
				s.reload()
				continue
			}
			return s.stop(sig, signals)
		case <-s.emptied:
			s.log.Info("closing connections", "drained", true)
			return s.drain(signals, exitOK)
		case err := <-s.management.ended:
			s.log.Error("the management API failed", "error", err)
			s.management.ended <- err // shutdown waits for it
			return s.drain(signals, exitFailure)
		}
	}
}

// stop ends the broker because of a signal.
func (s *service) stop(sig os.Signal, signals <-chan os.Signal) int {
	s.log.Info("closing connections", "signal", sig.String())
	return s.drain(signals, exitOK)
}

// drain ends the broker and then the management API, so that /health answers as long as there are connections. A second signal
// cuts it short. code is the exit status if all goes well.
func (s *service) drain(signals <-chan os.Signal, code int) int {
	s.draining.Store(true)
	if s.drainer != nil {
		s.drainer.Overtaken()
	}
	s.notifier.show("closing connections", "STOPPING=1")
	ctx, cancel := context.WithTimeout(context.Background(), drainTime)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- s.shutdown(ctx) }()
	for {
		select {
		case err := <-done:
			if err != nil {
				s.log.Error("not everything was closed in time", "error", err)
				return exitFailure
			}
			s.log.Info("stopped")
			return code
		case sig := <-signals:
			if sig != syscall.SIGHUP {
				cancel()
			}
		}
	}
}

func (s *service) shutdown(ctx context.Context) error {
	err := s.broker.Shutdown(ctx)
	s.management.shutdown(ctx)
	return err
}

// telemetryTime bounds sending the last spans and metrics, after everything else has ended.
const telemetryTime = 2 * time.Second

// closeTelemetry sends the last spans and metrics.
func (s *service) closeTelemetry() {
	if s.telemetry == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), telemetryTime)
	defer cancel()
	if err := s.telemetry.Close(ctx); err != nil {
		s.log.Warn("not all spans and metrics were sent", "error", err)
	}
}

// reloadTLS reads the certificates again. All listeners have the same files: if they are wrong for one, all keep the old ones.
func (s *service) reloadTLS() error {
	if err := s.broker.ReloadTLS(); err != nil {
		return err
	}
	if err := s.management.reloadTLS(); err != nil {
		return err
	}
	s.logExpiring()
	return nil
}

// reload reads the configuration again and applies what a running broker can change.
func (s *service) reload() {
	s.notifier.reloading()
	defer func() { s.notifier.show(statusOf(s.alarms()), "READY=1") }()
	next, err := s.load()
	if err != nil {
		for line := range strings.SplitSeq(err.Error(), "\n") {
			s.log.Error("the configuration was not reloaded", "error", line)
		}
		return
	}
	s.level.Set(next.Log.Level)
	if err := s.reloadTLS(); err != nil {
		s.log.Error("the files for TLS were not reloaded", "error", err) // which names the key
	}
	s.followLimits(next)
	for _, c := range s.running.Changes(next.Config) {
		if !c.Live {
			s.log.Warn("a changed key needs a restart", "key", c.Key, "running", c.Old, "configured", c.New)
		}
	}
	s.log.Info("configuration reloaded", "log_level", next.Log.Level.String())
}

// followLimits applies the limits for memory and disk that have changed in the configuration since it was read last. The others
// keep the value that they were given while the broker ran.
func (s *service) followLimits(next configuration) {
	was, is := s.followed, next.Limits
	s.followed = is
	b, ok := s.broker.(limited)
	if !ok {
		return
	}
	if of := is.MemoryWatermark.Of(s.total); is.MemoryWatermark != was.MemoryWatermark && of > 0 {
		b.SetMemoryLimit(int64(min(of, 1<<62)))
	}
	if is.DiskFree != was.DiskFree {
		b.SetDiskLimit(is.DiskFree.Of(s.total, diskSize(s.running.Data.Dir)))
	}
}
