package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/curfewmq/curfew/cmd/curfew/telemetry"
	"github.com/curfewmq/curfew/core/broker"
	"github.com/curfewmq/curfew/core/clock"
	"github.com/curfewmq/curfew/core/config"
	"github.com/curfewmq/curfew/sdk/hook"
)

// drainTime is how long connections may take to close; orchestrators kill after 30 s.
const drainTime = 20 * time.Second

// runner is a [broker.Broker], or a fake in tests.
type runner interface {
	Start(ctx context.Context) error
	Alarms() []string
	Failed() <-chan error
	Emptied() <-chan struct{}
	PageAddress() string
	Reload(next *config.Config)
	Shutdown(ctx context.Context) error
}

func newBroker(o broker.Options) runner { return broker.New(o) }

// service runs a broker under the control of signals, the configuration file and the service manager. It belongs to the goroutine that calls run.
type service struct {
	plugins   []hook.Factory // of this binary
	running   configuration
	load      func() (configuration, error)
	level     *slog.LevelVar
	log       *slog.Logger
	stdout    io.Writer // for the exporters called stdout
	newBroker func(broker.Options) runner

	telemetry *telemetry.Telemetry // nil before start
	broker    runner
	draining  atomic.Bool
	notifier  *notifier // nil: there is no service manager to notify
	again     bool      // reload the configuration once the broker runs
}

// startUnless calls start, which may take long if there is much to recover. A signal that ends the broker interrupts it, if that is
// still possible, and is returned.
func (s *service) startUnless(signals <-chan os.Signal) (end os.Signal, err error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	started := make(chan error, 1)
	go func() { started <- s.start(ctx) }()
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

func (s *service) start(ctx context.Context) error {
	s.notifier.show("starting")
	o, err := s.options(ctx)
	if err != nil {
		return err
	}
	s.broker = s.newBroker(o)
	if err := s.broker.Start(ctx); err != nil {
		return s.hinted(err)
	}
	s.logPlugins()
	s.log.Info("ready", "version", version)
	s.notifier.show(statusOf(s.broker.Alarms()), "READY=1")
	return nil
}

// options returns the options for the broker.
func (s *service) options(ctx context.Context) (o broker.Options, err error) {
	var d description
	d.readCommit()
	now := clock.New()
	s.telemetry, err = telemetry.Open(ctx, telemetry.Options{
		Config: s.running.Telemetry, Clock: now, Stdout: s.stdout, Log: s.log, Version: version, Node: broker.NodeName(s.running.Config),
	})
	if err != nil {
		return o, err
	}
	format, err := readsFormat()
	if err != nil {
		return o, err
	}
	host := hostOf(s.running.Plugins)
	o = broker.Options{
		Config: s.running.Config, ConfigFile: s.running.file, Chain: s.running.chain,
		Program: broker.Program{Version: version, Commit: d.Commit, Revision: d.revision(), Format: format},
		Log:     s.log, Level: s.level, Clock: now,
		Recorder: s.telemetry.Recorder, Exporter: s.telemetry,
		Lab:        lab{s.running.chain, host},
		Recovering: s.notifier.recovering,
	}
	if host != nil {
		o.Policies = &policyHost{host: host}
	}
	return o, nil
}

// latestFormat is the latest format of logs that this program claims to read, "" = the one in its source. Tests of upgrades build programs with
// -ldflags "-X github.com/curfewmq/curfew/cmd/curfew/app.latestFormat=2".
var latestFormat string

// readsFormat returns the latest format of logs that this program reads; 0 = the one in its source.
func readsFormat() (uint32, error) {
	if latestFormat == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(latestFormat, 10, 32)
	if err != nil {
		return 0, fmt.Errorf("this program was built wrongly: latestFormat: %w", err)
	}
	return uint32(n), nil
}

// hinted adds advice to an error for its most frequent cause.
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

// logPlugins logs the chain, and the sources of plugins from outside the repository.
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

// run serves until a signal ends it or the API fails, and returns the exit status.
func (s *service) run(signals <-chan os.Signal) int {
	if s.again {
		s.reload()
	}
	running, cancel := context.WithCancel(context.Background())
	defer cancel()
	go s.notify(running)
	for {
		select {
		case sig := <-signals:
			if sig == syscall.SIGHUP {
				s.reload()
				continue
			}
			return s.stop(sig, signals)
		case <-s.broker.Emptied():
			s.log.Info("closing connections", "drained", true)
			return s.drain(signals, exitOK)
		case err := <-s.broker.Failed():
			s.log.Error("the management API failed", "error", err)
			return s.drain(signals, exitFailure)
		}
	}
}

// stop ends the broker because of a signal.
func (s *service) stop(sig os.Signal, signals <-chan os.Signal) int {
	s.log.Info("closing connections", "signal", sig.String())
	return s.drain(signals, exitOK)
}

// drain ends the broker. A second signal cuts it short. code is the exit status on success.
func (s *service) drain(signals <-chan os.Signal, code int) int {
	s.draining.Store(true)
	s.notifier.show("closing connections", "STOPPING=1")
	ctx, cancel := context.WithTimeout(context.Background(), drainTime)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- s.broker.Shutdown(ctx) }()
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

// reload reads the configuration again and applies the changes that a running broker can adopt.
func (s *service) reload() {
	s.notifier.reloading()
	defer func() { s.notifier.show(statusOf(s.broker.Alarms()), "READY=1") }()
	next, err := s.load()
	if err != nil {
		for line := range strings.SplitSeq(err.Error(), "\n") {
			s.log.Error("the configuration was not reloaded", "error", line)
		}
		return
	}
	s.level.Set(next.Log.Level)
	s.broker.Reload(next.Config)
	s.log.Info("configuration reloaded", "log_level", next.Log.Level.String())
}
