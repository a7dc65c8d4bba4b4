package app

import (
	"context"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/curfewmq/curfew/cmd/curfew/usage"
	"github.com/curfewmq/curfew/core/chain"
	"github.com/curfewmq/curfew/core/clock"
	"github.com/curfewmq/curfew/core/mgmt"
	"github.com/curfewmq/curfew/core/telemetry"
)

// broker is the AMQP server as serve runs it.
type broker interface {
	// Start listens on listen.amqp and listen.amqps, and serves.
	Start(ctx context.Context) error
	// Addresses returns what it listens on: AMQP, then AMQP over TLS, without those that are off.
	Addresses() []net.Addr
	// Management returns the broker's part of the management API's options: its alarms at least.
	Management() mgmt.Options
	// ReloadTLS reads the certificate files again. On an error the old certificates stay in use.
	ReloadTLS() error
	// Shutdown stops accepting, closes every connection with 320 CONNECTION_FORCED, and returns when all are closed and everything is
	// flushed. When ctx ends, it cuts off the remaining connections and returns an error.
	Shutdown(ctx context.Context) error
}

// setup is what a broker is created from.
type setup struct {
	configuration
	watermark uint64 // bytes of memory above which publishers are blocked; 0 = never
	diskLimit int64  // bytes of free disk space below which publishers are blocked; 0 = none
	bodies    uint64 // bytes of memory above which message bodies go to disk; 0 = never
	log       *slog.Logger
	clock     clock.Clock
	telemetry *telemetry.Recorder
	progress  func(shard uint32, done, total int64) // reports at most once a second what was recovered; nil = nobody is told
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

	// From here on a signal ends the broker in order, however early it comes.
	signal.Notify(a.signals, syscall.SIGTERM, os.Interrupt, syscall.SIGHUP)
	defer signal.Stop(a.signals)
	// The process that reads the log or the spans may end. The broker goes on.
	signal.Ignore(syscall.SIGPIPE)

	notifier := openNotifier(a.environ, log)
	defer notifier.close()
	s := &service{notifier: notifier, plugins: a.plugins, running: c, load: load, level: level, log: log, stdout: a.stdout, emptied: make(chan struct{}, 1)}
	defer s.closeTelemetry()
	sig, err := s.startUnless(a.signals, a.newBroker)
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
