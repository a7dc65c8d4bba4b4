package app

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/curfewmq/curfew/core/broker"
	"github.com/curfewmq/curfew/core/config"
)

// fake is a broker without clients.
type fake struct {
	options  broker.Options // that it was made from
	alarms   []string
	start    func(ctx context.Context) error // called by Start; nil = Start does nothing
	failed   chan error
	emptied  chan struct{}
	reloaded chan *config.Config
	shutdown chan struct{} // closed when Shutdown is called
	release  chan struct{} // Shutdown waits for it to be closed
}

var _ runner = (*fake)(nil)

func newFake() *fake {
	return &fake{
		failed: make(chan error, 1), emptied: make(chan struct{}), reloaded: make(chan *config.Config, 4), shutdown: make(chan struct{}), release: make(chan struct{}),
	}
}

func (f *fake) make(o broker.Options) runner {
	f.options = o
	return f
}

func (f *fake) Start(ctx context.Context) error {
	if f.start == nil {
		return nil
	}
	return f.start(ctx)
}

func (f *fake) Alarms() []string           { return f.alarms }
func (f *fake) Failed() <-chan error       { return f.failed }
func (f *fake) Emptied() <-chan struct{}   { return f.emptied }
func (f *fake) Reload(next *config.Config) { f.reloaded <- next }

func (f *fake) PageAddress() string {
	if f.options.Config.Listen.Management == "" {
		return ""
	}
	return "http://" + f.options.Config.Listen.Management + "/"
}

func (f *fake) Shutdown(ctx context.Context) error {
	close(f.shutdown)
	select {
	case <-f.release:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// record is a line of the JSON log.
type record map[string]any

// process is "curfew serve" running inside the test, with a fake broker.
type process struct {
	t       *testing.T
	fake    *fake
	signals chan os.Signal
	lines   chan record
	exited  chan int
	dir     string
	addr    map[string]string // by key, as the log has them
	printed bytes.Buffer      // output that was not JSON; read it after exit
}

// Write receives the log; slog writes line by line.
func (p *process) Write(b []byte) (int, error) {
	r := record{}
	if json.Unmarshal(b, &r) != nil {
		return p.printed.Write(b)
	}
	p.lines <- r
	return len(b), nil
}

// launch starts the process with the configuration file yaml.
func launch(t *testing.T, f *fake, yaml string, args ...string) *process {
	t.Helper()
	return launchWith(t, f, func(*app) {}, yaml, args...)
}

// launchWith is launch with a modified environment of the program.
func launchWith(t *testing.T, f *fake, change func(*app), yaml string, args ...string) *process {
	t.Helper()
	p := &process{
		t: t, fake: f, signals: make(chan os.Signal, 4), lines: make(chan record, 1000),
		exited: make(chan int, 1), dir: t.TempDir(), addr: map[string]string{},
	}
	writeFile(t, p.file(), yaml)
	a := &app{plugins: allPlugins(nil), stdout: io.Discard, stderr: p, signals: p.signals, newBroker: f.make}
	change(a)
	args = append([]string{"serve", "--config", p.file()}, args...)
	go func() {
		defer close(p.lines)
		p.exited <- a.run(args)
	}()
	return p
}

func (p *process) file() string { return filepath.Join(p.dir, "curfew.yaml") }

// wait reads the log up to the message msg and returns its record.
func (p *process) wait(msg string) record {
	p.t.Helper()
	for r := range p.lines {
		if r["msg"] == "listening" {
			p.addr[r["key"].(string)] = r["address"].(string)
		}
		if r["msg"] == msg {
			return r
		}
		p.t.Log(r)
	}
	p.t.Fatalf("the log ended without %q; printed: %s", msg, &p.printed)
	return nil
}

func (p *process) wantExit(want int) {
	p.t.Helper()
	if got := <-p.exited; got != want {
		p.t.Errorf("exit status %d, want %d; printed: %s", got, want, &p.printed)
	}
}

// stop ends a process that a test no longer needs.
func (p *process) stop() {
	p.t.Helper()
	close(p.fake.release)
	p.signals <- syscall.SIGTERM
	p.wantExit(exitOK)
}

const local = "listen: {amqp: \"127.0.0.1:0\", management: \"127.0.0.1:0\"}\n"

// From start to SIGTERM.
func TestServe(t *testing.T) {
	p := launch(t, newFake(), local+"limits: {channels: 7}\n", "--log-level", "debug")
	if r := p.wait("plugins"); !strings.HasPrefix(r["chain"].(string), "ttl, ") {
		t.Errorf("got %v", r)
	}
	p.wait("ready")
	o := p.fake.options
	if o.Config.Limits.Channels != 7 || o.ConfigFile != p.file() || o.Chain.DefaultStrategy() != "deadline" || o.Policies == nil || o.Program.Version != version || o.Program.Revision == "" {
		t.Errorf("the broker got %+v", o)
	}
	if err := syscall.Kill(os.Getpid(), syscall.SIGTERM); err != nil { // a real signal, once
		t.Fatal(err)
	}
	p.wait("closing connections")
	<-p.fake.shutdown
	close(p.fake.release)
	p.wait("stopped")
	p.wantExit(exitOK)
}

// A broker that an operator has drained ends. A broker whose management API has ended by itself also ends, as a failure.
func TestServeEndsByItself(t *testing.T) {
	f := newFake()
	close(f.release)
	p := launch(t, f, local)
	p.wait("ready")
	close(f.emptied)
	p.wait("stopped")
	p.wantExit(exitOK)

	f = newFake()
	close(f.release)
	p = launch(t, f, local)
	p.wait("ready")
	f.failed <- errors.New("accept: too many open files")
	if r := p.wait("the management API failed"); r["error"] != "accept: too many open files" {
		t.Errorf("got %v", r)
	}
	p.wantExit(exitFailure)
}

// A second signal does not wait for connections that do not close.
func TestSecondSignal(t *testing.T) {
	p := launch(t, newFake(), local)
	p.wait("ready")
	p.signals <- os.Interrupt
	<-p.fake.shutdown
	p.signals <- syscall.SIGHUP // is no hurry
	p.signals <- os.Interrupt
	p.wait("not everything was closed in time")
	p.wantExit(exitFailure)
}

// If a start fails because an address is in use, the error names the flags for choosing another one. In a cluster the address may be the one for
// other nodes, so their flags are named, too.
func TestAddressesInUse(t *testing.T) {
	for _, tt := range []struct {
		args []string
		want string
	}{
		{nil, "another broker may run already: stop it, or choose other addresses with --amqp and --management"},
		{
			[]string{"--cluster", "127.0.0.1:1,127.0.0.1:2,127.0.0.1:3", "--cluster-advertise", "127.0.0.1:1"},
			"another broker may run already: stop it, or choose other addresses with --amqp, --management and, the same on all nodes, --cluster and --cluster-advertise",
		},
	} {
		f := newFake()
		f.start = func(context.Context) error { return fmt.Errorf("listen.amqp: %w", syscall.EADDRINUSE) }
		p := launch(t, f, "", tt.args...)
		for _, want := range []string{"listen.amqp: address already in use", tt.want} {
			if r := p.wait("the broker cannot start"); r["error"] != want {
				t.Errorf("error = %v\nwant %s", r["error"], want)
			}
		}
		p.wantExit(exitFailure)
	}
}

func TestBrokerCannotStart(t *testing.T) {
	f := newFake()
	f.start = func(context.Context) error { return errors.New("no") }
	p := launch(t, f, local)
	if r := p.wait("the broker cannot start"); r["error"] != "no" {
		t.Errorf("got %v", r)
	}
	p.wantExit(exitFailure)
}

// If the data directory could not be made, the error was about the "cache of compiled modules", which the user had not configured.
func TestDataDirectoryCannotBeMade(t *testing.T) {
	p := launch(t, newFake(), local)
	p.stop()
	a := &app{plugins: allPlugins(nil), stdout: io.Discard, stderr: p, signals: make(chan os.Signal, 1), newBroker: newBroker}
	p.lines = make(chan record, 100)
	dir := filepath.Join(p.file(), "data") // the parent is a file, not a folder
	if code := a.run([]string{"serve", "--config", p.file(), "--data", dir}); code != exitFailure {
		t.Errorf("exit status %d, want %d", code, exitFailure)
	}
	if r := p.wait("the broker cannot start"); !strings.HasPrefix(fmt.Sprint(r["error"]), "data.dir "+dir+": ") {
		t.Errorf("got %v", r)
	}
}

// SIGHUP reloads the configuration, and a broken file does no harm.
func TestReload(t *testing.T) {
	p := launch(t, newFake(), local)
	p.wait("ready")
	log := p.fake.options.Log
	log.Debug("not seen")

	writeFile(t, p.file(), local+"log: {level: debug}\nlimits: {channels: 9}\n")
	p.signals <- syscall.SIGHUP
	if c := <-p.fake.reloaded; c.Limits.Channels != 9 {
		t.Errorf("the broker got %+v", c.Limits)
	}
	if r := p.wait("configuration reloaded"); r["log_level"] != "DEBUG" {
		t.Errorf("got %v", r)
	}
	log.Debug("seen")
	p.wait("seen")

	writeFile(t, p.file(), "log: {level: loud}\nlimits: {channels: 0}\n")
	p.signals <- syscall.SIGHUP
	for _, want := range []string{`log.level: "loud" is not a log level`, `limits.channels: "0" is out of range`} {
		if r := p.wait("the configuration was not reloaded"); !strings.HasPrefix(r["error"].(string), want) {
			t.Errorf("error = %v, want %s…", r["error"], want)
		}
	}
	log.Debug("still seen")
	p.wait("still seen")
	p.stop()
}

// A plugin that panics with every batch does not fill the disk.
func TestPanicLog(t *testing.T) {
	p := &panicLog{}
	at, other := panicSpot{"ttl", "OnHead"}, panicSpot{"ttl", "OnIdle"}
	now := time.Unix(0, 0)
	for i, tt := range []struct {
		at       panicSpot
		after    time.Duration
		unlogged int
		ok       bool
	}{
		{at, 0, 0, true},
		{at, time.Second, 0, false},
		{other, 0, 0, true},
		{at, panicPause - 2*time.Second, 0, false},
		{at, time.Second, 2, true},
		{at, panicPause, 0, true},
	} {
		now = now.Add(tt.after)
		if n, ok := p.due(tt.at, now); n != tt.unlogged || ok != tt.ok {
			t.Errorf("%d: due = %d, %v, want %d, %v", i, n, ok, tt.unlogged, tt.ok)
		}
	}
}

// A signal during the recovery interrupts it, which is not a failure.
func TestSignalWhileStarting(t *testing.T) {
	p := &process{t: t, lines: make(chan record, 100), dir: t.TempDir(), addr: map[string]string{}}
	writeFile(t, p.file(), local)
	starting := make(chan struct{})
	f := newFake()
	f.start = func(ctx context.Context) error {
		close(starting)
		<-ctx.Done()
		return ctx.Err()
	}
	a := &app{plugins: allPlugins(nil), stdout: io.Discard, stderr: p, signals: make(chan os.Signal, 4), newBroker: f.make}
	go func() {
		<-starting
		a.signals <- syscall.SIGHUP
		a.signals <- os.Interrupt
	}()
	if code := a.run([]string{"serve", "--config", p.file()}); code != exitOK {
		t.Errorf("exit status %d", code)
	}
	if r := p.wait("stopped before it was ready"); r["signal"] != "interrupt" {
		t.Errorf("got %v", r)
	}
}
