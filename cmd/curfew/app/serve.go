package app

import (
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/curfewmq/curfew/cmd/curfew/usage"
	"github.com/curfewmq/curfew/core/chain"
)

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
