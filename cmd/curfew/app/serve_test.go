package app

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/curfewmq/curfew/core/clock"
	"github.com/curfewmq/curfew/core/mgmt"
	"github.com/curfewmq/curfew/core/wire"
)

// fake is a broker that listens and lets connections wait.
type fake struct {
	setup     setup
	alarms    []string
	recovered chan struct{} // there is no broker until it is closed; nil: at once
	tls       error         // what ReloadTLS returns
	shutdown  chan struct{} // closed when Shutdown is called
	release   chan struct{} // Shutdown waits for it to be closed

	listeners []net.Listener
}

var _ broker = (*fake)(nil)

func newFake() *fake { return &fake{shutdown: make(chan struct{}), release: make(chan struct{})} }

func (f *fake) open(_ context.Context, s setup) (broker, error) {
	f.setup = s
	if f.recovered != nil {
		<-f.recovered
	}
	return f, nil
}

func (f *fake) Start(context.Context) error {
	for _, addr := range []string{f.setup.Listen.AMQP, f.setup.Listen.AMQPS} {
		if addr == "" {
			continue
		}
		ln, err := net.Listen("tcp", addr)
		if err != nil {
			close(f.release)
			return err
		}
		f.listeners = append(f.listeners, ln)
	}
	return nil
}

func (f *fake) Addresses() []net.Addr {
	var addrs []net.Addr
	for _, ln := range f.listeners {
		addrs = append(addrs, ln.Addr())
	}
	return addrs
}

func (f *fake) Shutdown(ctx context.Context) error {
	close(f.shutdown)
	for _, ln := range f.listeners {
		_ = ln.Close()
	}
	select {
	case <-f.release:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (f *fake) ReloadTLS() error { return f.tls }

func (f *fake) Management() mgmt.Options {
	return mgmt.Options{Alarms: func() []string { return f.alarms }, Clock: clock.New()}
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
	printed bytes.Buffer      // what was not JSON; read it after exit
}

// Write takes the log, line by line as slog writes it.
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

// launchWith is launch with a change of what the program uses of the process.
func launchWith(t *testing.T, f *fake, change func(*app), yaml string, args ...string) *process {
	t.Helper()
	p := &process{
		t: t, fake: f, signals: make(chan os.Signal, 4), lines: make(chan record, 1000),
		exited: make(chan int, 1), dir: t.TempDir(), addr: map[string]string{},
	}
	writeFile(t, p.file(), yaml)
	a := &app{plugins: allPlugins(nil), stdout: io.Discard, stderr: p, signals: p.signals, newBroker: f.open}
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

// stop ends a process that a test is through with.
func (p *process) stop() {
	p.t.Helper()
	close(p.fake.release)
	p.signals <- syscall.SIGTERM
	p.wantExit(exitOK)
}

var client = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

// get returns the status and body of a management path.
func (p *process) get(path string) (int, string) {
	p.t.Helper()
	return p.getFrom("listen.management", path)
}

// getFrom is get from another listener.
func (p *process) getFrom(key, path string) (int, string) {
	p.t.Helper()
	r, err := client.Get("http://" + p.addr[key] + path)
	if err != nil {
		p.t.Fatal(err)
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	return r.StatusCode, string(b)
}

func (p *process) wantGet(path string, status int, body string) {
	p.t.Helper()
	if s, b := p.get(path); s != status || b != body {
		p.t.Errorf("GET %s = %d %s, want %d %s", path, s, b, status, body)
	}
}

const local = "listen: {amqp: \"127.0.0.1:0\", management: \"127.0.0.1:0\"}\n"

// From start to SIGTERM, with what a load balancer sees.
func TestServe(t *testing.T) {
	p := launch(t, newFake(), local+"limits: {channels: 7, memory-watermark: 64MiB}\n", "--log-level", "debug")
	p.wait("ready")
	if c := p.fake.setup; c.Limits.Channels != 7 || c.watermark != 64<<20 || c.chain.DefaultStrategy() != "deadline" {
		t.Errorf("the broker got %+v", c)
	}
	p.wantGet("/health", 200, `{"status":"ok"}`)
	p.wantGet("/version", 200, `{"product":"Curfew","version":"`+version+`"}`)
	p.wantGet("/nothing", 404, `{"error":"Object Not Found","reason":"Not Found"}`)
	if err := syscall.Kill(os.Getpid(), syscall.SIGTERM); err != nil { // a real signal, once
		t.Fatal(err)
	}
	p.wait("closing connections")
	<-p.fake.shutdown
	p.wantGet("/health", 503, `{"status":"alarm","alarms":["draining"]}`)
	close(p.fake.release)
	p.wait("stopped")
	p.wantExit(exitOK)
	if _, err := client.Get("http://" + p.addr["listen.management"] + "/health"); err == nil {
		t.Error("the management API still answers")
	}
}

func TestAlarms(t *testing.T) {
	f := newFake()
	f.alarms = []string{"memory"}
	p := launch(t, f, local)
	p.wait("ready")
	p.wantGet("/health", 503, `{"status":"alarm","alarms":["memory"]}`)
	p.stop()
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

func TestManagementOff(t *testing.T) {
	p := launch(t, newFake(), "listen: {amqp: \"127.0.0.1:0\", management: off}\n")
	p.wait("ready")
	if got, ok := p.addr["listen.management"]; ok {
		t.Errorf("listening on %s", got)
	}
	p.stop()
}

// The API ends only when told to; if it does by itself, the broker ends too.
func TestAPIFails(t *testing.T) {
	f := newFake()
	close(f.release)
	lines := make(chan record, 100)
	m := &management{servers: []*http.Server{{}}, ended: make(chan error, 1)}
	s := &service{broker: f, log: newLogger(&process{lines: lines}, "json", nil, ""), management: m}
	m.ended <- errors.New("accept: too many open files")
	if code := s.run(nil); code != exitFailure {
		t.Errorf("exit status %d, want %d", code, exitFailure)
	}
	if r := <-lines; r["msg"] != "the management API failed" || r["error"] != "accept: too many open files" {
		t.Errorf("got %v", r)
	}
}

// All listeners read the same files: what is wrong with these was said twice.
func TestReloadTLSOnce(t *testing.T) {
	f := newFake()
	m := &management{certificates: new(wire.Certificates)} // without files
	s := &service{broker: f, management: m}
	f.tls = m.reloadTLS()
	if err := s.reloadTLS(); err == nil || err.Error() != f.tls.Error() {
		t.Errorf("got %v, want %v", err, f.tls)
	}
	f.tls = nil
	if err := s.reloadTLS(); err == nil {
		t.Error("what is wrong with the API's files alone was not said")
	}
}

func TestListenTLS(t *testing.T) {
	f := newFake()
	p := launch(t, f, "listen: {amqp: off, amqps: \"127.0.0.1:0\", management: off}\ntls: {cert: a, key: b}\n")
	p.wait("ready")
	if len(p.addr) != 1 || p.addr["listen.amqps"] == "" {
		t.Errorf("listening on %v, want listen.amqps only", p.addr)
	}
	p.stop()
}

// Every address that cannot be had is named, and what was opened is closed.
func TestAddressesInUse(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	taken := ln.Addr().String()
	f := newFake()
	p := launch(t, f, "", "--amqp", taken, "--management", taken)
	for _, want := range []string{
		"listen tcp " + taken + ": bind: address already in use",
		"listen.management: listen tcp " + taken + ": bind: address already in use",
		"another broker may run already: stop it, or choose other addresses with --amqp and --management",
	} {
		if r := p.wait("the broker cannot start"); r["error"] != want {
			t.Errorf("error = %v\nwant %s", r["error"], want)
		}
	}
	p.wantExit(exitFailure)
	<-f.shutdown
}

// The address that a node of a cluster cannot have may be the one for the other nodes: the advice names its flags, too.
func TestAddressesOfANodeInUse(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	f := newFake()
	p := launch(t, f, "", "--amqp", ln.Addr().String(), "--management", "127.0.0.1:0",
		"--cluster", "127.0.0.1:1,127.0.0.1:2,127.0.0.1:3", "--cluster-advertise", "127.0.0.1:1")
	p.wait("the broker cannot start") // the address
	const want = "another broker may run already: stop it, or choose other addresses with --amqp, --management and, the same on all nodes, --cluster and --cluster-advertise"
	if r := p.wait("the broker cannot start"); r["error"] != want {
		t.Errorf("error = %v\nwant %s", r["error"], want)
	}
	p.wantExit(exitFailure)
	<-f.shutdown
}

func TestBrokerCannotStart(t *testing.T) {
	p := launch(t, newFake(), local)
	p.stop()
	a := &app{plugins: allPlugins(nil), stdout: io.Discard, stderr: p, signals: make(chan os.Signal, 1), newBroker: func(context.Context, setup) (broker, error) { return nil, errors.New("no") }}
	p.lines = make(chan record, 100)
	if code := a.run([]string{"serve", "--config", p.file()}); code != exitFailure {
		t.Errorf("exit status %d, want %d", code, exitFailure)
	}
	if r := p.wait("the broker cannot start"); r["error"] != "no" {
		t.Errorf("got %v", r)
	}
}

// A data directory that cannot be made was an error of the "cache of compiled modules", which nobody had configured.
func TestDataDirectoryCannotBeMade(t *testing.T) {
	p := launch(t, newFake(), local)
	p.stop()
	a := &app{plugins: allPlugins(nil), stdout: io.Discard, stderr: p, signals: make(chan os.Signal, 1), newBroker: newBroker}
	p.lines = make(chan record, 100)
	dir := filepath.Join(p.file(), "data") // in what is a file
	if code := a.run([]string{"serve", "--config", p.file(), "--data", dir}); code != exitFailure {
		t.Errorf("exit status %d, want %d", code, exitFailure)
	}
	if r := p.wait("the broker cannot start"); !strings.HasPrefix(fmt.Sprint(r["error"]), "data.dir "+dir+": ") {
		t.Errorf("got %v", r)
	}
}

// SIGHUP takes over what can change, names what cannot, and survives a broken
// file.
func TestReload(t *testing.T) {
	p := launch(t, newFake(), local)
	p.wait("ready")
	p.fake.setup.log.Debug("not seen")

	writeFile(t, p.file(), local+"log: {level: debug}\nlimits: {channels: 9}\n")
	p.signals <- syscall.SIGHUP
	if r := p.wait("a changed key needs a restart"); r["key"] != "limits.channels" || r["running"] != "2047" || r["configured"] != "9" {
		t.Errorf("got %v", r)
	}
	if r := p.wait("configuration reloaded"); r["log_level"] != "DEBUG" {
		t.Errorf("got %v", r)
	}
	p.fake.setup.log.Debug("seen")
	p.wait("seen")
	for _, wrong := range []string{"tls.cert, tls.key: gone", "tls.ca: gone"} { // that was said of the certificate, too
		p.fake.tls = errors.New(wrong)
		p.signals <- syscall.SIGHUP
		if r := p.wait("the files for TLS were not reloaded"); r["error"] != wrong {
			t.Errorf("got %v, want %s", r, wrong)
		}
		p.wait("configuration reloaded")
	}

	writeFile(t, p.file(), "log: {level: loud}\nlimits: {channels: 0}\n")
	p.signals <- syscall.SIGHUP
	for _, want := range []string{`log.level: "loud" is not a log level`, `limits.channels: "0" is out of range`} {
		if r := p.wait("the configuration was not reloaded"); !strings.HasPrefix(r["error"].(string), want) {
			t.Errorf("error = %v, want %s…", r["error"], want)
		}
	}
	p.fake.setup.log.Debug("still seen")
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

// A signal while the broker recovers breaks that off, which is no failure.
func TestSignalWhileStarting(t *testing.T) {
	p := &process{t: t, lines: make(chan record, 100), dir: t.TempDir(), addr: map[string]string{}}
	writeFile(t, p.file(), local)
	starting := make(chan struct{})
	a := &app{plugins: allPlugins(nil), stdout: io.Discard, stderr: p, signals: make(chan os.Signal, 4), newBroker: func(ctx context.Context, _ setup) (broker, error) {
		close(starting)
		<-ctx.Done()
		return nil, ctx.Err()
	}}
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
