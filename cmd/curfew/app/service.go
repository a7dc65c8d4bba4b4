package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/curfewmq/curfew/cmd/curfew/telemetry"
	"github.com/curfewmq/curfew/cmd/curfew/usage"
	"github.com/curfewmq/curfew/core/broker"
	"github.com/curfewmq/curfew/core/chain"
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

// service runs a broker under the control of signals, the configuration file and the
// service manager. It belongs to the goroutine that calls run.
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

// latestFormat is the latest format of logs that this program claims to read, "" = the one
// in its source. Tests of upgrades build programs with -ldflags "-X
// github.com/curfewmq/curfew/cmd/curfew/app.latestFormat=2".
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

func (a *app) serve(args []string) int {
	f := newFlags("serve", "Runs the broker until SIGTERM or Ctrl-C.")
	f.more = configHelp + serveHelp
	read := configFlags(f)
	open := f.Bool("open", false, "open the management page in the browser once the broker is ready")
	if code, done := a.parse(f, args); done {
		return code
	}
	file, set := read()
	panics := &panicLog{}
	load := func() (configuration, error) { return a.load(file, set, chain.Options{OnPanic: panics.report}) }
	c, err := load()
	if err != nil {
		return a.refuseConfig("serve", err)
	}
	level := new(slog.LevelVar)
	level.Set(c.Log.Level)
	log := newLogger(a.stderr, c.Log.Format, level, usage.Variables(a.environ)[journalStream])
	panics.log = log

	// From here on a signal ends the broker in good order, however early it comes.
	signal.Notify(a.signals, syscall.SIGTERM, os.Interrupt, syscall.SIGHUP)
	defer signal.Stop(a.signals)
	// The process that reads the log or the spans may end. The broker continues.
	signal.Ignore(syscall.SIGPIPE)

	notifier := openNotifier(a.environ, log)
	defer notifier.close()
	s := &service{
		plugins: a.plugins, running: c, load: load, level: level, log: log, stdout: a.stdout, newBroker: a.newBroker, notifier: notifier,
	}
	defer s.closeTelemetry()
	sig, err := s.startUnless(a.signals)
	switch {
	case err != nil && sig != nil:
		log.Info("stopped before it was ready", "signal", sig.String(), "error", err)
		return exitOK
	case err != nil:
		for line := range strings.SplitSeq(err.Error(), "\n") {
			log.Error("the broker cannot start", "error", line)
		}
		notifier.show("cannot start: " + err.Error())
		return exitFailure
	case sig != nil:
		return s.stop(sig, a.signals)
	}
	if *open {
		s.openPage(a.browse)
	}
	return s.run(a.signals)
}

const serveHelp = `"curfew config --explain" lists every key.

SIGTERM and Ctrl-C close connections properly and exit; a second one exits at
once. SIGHUP reads the configuration again: log.level, limits.memory-watermark,
limits.disk-free and the contents of the files that tls.cert, tls.key, tls.ca
and those of cluster.tls name take effect at once; the log names the changes
that wait for a restart.
`

// browse opens an address in the browser of the user that started the broker. If that fails later, failed is called from another goroutine.
func browse(address string, failed func(error)) error {
	name, args := opener(runtime.GOOS)
	path, err := exec.LookPath(name)
	if err != nil {
		return fmt.Errorf("%s: %w", name, errors.Unwrap(err))
	}
	c := exec.Command(path, append(args, address)...) //nolint:noctx // it must outlive the broker
	if err := c.Start(); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	go func() {
		if err := c.Wait(); err != nil {
			failed(fmt.Errorf("%s: %w", name, err))
		}
	}()
	return nil
}

// opener returns the program that opens addresses on an operating system, and its arguments before the address.
func opener(system string) (name string, args []string) {
	switch system {
	case "darwin":
		return "open", nil
	case "windows":
		return "rundll32", []string{"url.dll,FileProtocolHandler"}
	}
	return "xdg-open", nil
}

// openPage opens the management page. The broker also works without a browser, so failures are only warnings.
func (s *service) openPage(browse func(address string, failed func(error)) error) {
	address := s.broker.PageAddress()
	if address == "" {
		s.log.Warn("there is no page to open: listen.management is off")
		return
	}
	s.log.Info("opening the management page", "address", address)
	failed := func(err error) {
		s.log.Warn("the management page cannot be opened: open it yourself", "address", address, "error", err)
	}
	if err := browse(address, failed); err != nil {
		failed(err)
	}
}
