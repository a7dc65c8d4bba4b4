package broker

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"go.uber.org/goleak"

	"github.com/curfewmq/curfew/core/auth"
	"github.com/curfewmq/curfew/core/certfile"
	"github.com/curfewmq/curfew/core/chain"
	"github.com/curfewmq/curfew/core/clock"
	"github.com/curfewmq/curfew/core/config"
	"github.com/curfewmq/curfew/core/metrics"
	"github.com/curfewmq/curfew/core/mgmt"
	"github.com/curfewmq/curfew/core/peer"
	"github.com/curfewmq/curfew/core/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const local = "listen: {amqp: \"127.0.0.1:0\", management: \"127.0.0.1:0\"}\n"

// configured returns the options of a broker with the configuration file yaml and its data in a folder of the test. It has no plugins.
func configured(t *testing.T, yaml string) (Options, *journal) {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "curfew.yaml")
	if err := os.WriteFile(file, []byte(yaml), 0o600); err != nil {
		t.Fatal(err)
	}
	o := Options{ConfigFile: file, Clock: clock.New(), Level: new(slog.LevelVar), Program: Program{Version: "1.2.3"}}
	var err error
	o.Config, err = config.Load(config.Input{
		File: file, Flags: []config.Flag{{Name: "--data", Key: "data.dir", Value: filepath.Join(dir, "data")}},
		Check: func([]config.Plugin) error {
			var err error
			o.Chain, err = chain.New(nil, chain.Options{})
			return err
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	j := &journal{t: t}
	o.Log = slog.New(slog.NewTextHandler(j, nil))
	return o, j
}

// journal is the log of a broker.
type journal struct {
	t *testing.T

	mu   sync.Mutex
	text strings.Builder
}

func (j *journal) Write(b []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(b)
}

// want fails unless a line of the log has all of these parts.
func (j *journal) want(parts ...string) {
	j.t.Helper()
	j.mu.Lock()
	defer j.mu.Unlock()
	for line := range strings.Lines(j.text.String()) {
		if !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(line, part) }) {
			return
		}
	}
	j.t.Errorf("no line has %q:\n%s", parts, &j.text)
}

// running starts a broker, which is shut down with the test.
func running(t *testing.T, o Options) *Broker {
	t.Helper()
	return runningWith(t, o, openNode)
}

// runningWith is running with another server.
func runningWith(t *testing.T, o Options, open func(context.Context, setup) (server, error)) *Broker {
	t.Helper()
	b := New(o)
	b.open = open
	if err := b.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Shutdown(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	return b
}

var client = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

// get returns the status and the body of a path on a listener of the management API.
func get(t *testing.T, m *management, key, path string) string {
	t.Helper()
	i := slices.IndexFunc(m.listeners, func(l managementListener) bool { return l.key == key })
	r, err := client.Get("http://" + m.listeners[i].Addr().String() + path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint(r.StatusCode, " ", string(b))
}

func want(t *testing.T, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %s, want %s", what, got, want)
	}
}

// fake is a server without clients.
type fake struct {
	addresses []net.Addr
	alarms    []string
	tls       error         // what ReloadTLS returns
	limits    [2]int64      // of memory and disk
	shutdown  chan struct{} // closed when Shutdown is called
	release   chan struct{} // Shutdown waits for it to be closed
}

func newFake() *fake { return &fake{shutdown: make(chan struct{}), release: make(chan struct{})} }

func (f *fake) open(context.Context, setup) (server, error) { return f, nil }
func (f *fake) Start(context.Context) error                 { return nil }
func (f *fake) Addresses() []net.Addr                       { return f.addresses }
func (f *fake) Listening() bool                             { return true }
func (f *fake) NodeListener() (l mgmt.Listener, ok bool)    { return l, false }
func (f *fake) CertificateFiles() []certfile.File           { return nil }
func (f *fake) Opened(*mgmt.API)                            {}
func (f *fake) ReloadTLS() error                            { return f.tls }
func (f *fake) ReloadNodeTLS() error                        { return nil }
func (f *fake) SetMemoryLimit(bytes int64)                  { f.limits[0] = bytes }
func (f *fake) SetDiskLimit(bytes int64)                    { f.limits[1] = bytes }
func (f *fake) MemoryLimit() int64                          { return f.limits[0] }
func (f *fake) DiskLimit() int64                            { return f.limits[1] }

func (f *fake) Management() mgmt.Options {
	return mgmt.Options{Alarms: func() []string { return f.alarms }, Clock: clock.New()}
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

// Two brokers in one process, each with a client, share nothing. The second one continues after the first one has ended.
func TestTwoBrokers(t *testing.T) {
	var brokers [2]*Broker
	for i := range brokers {
		o, _ := configured(t, local)
		brokers[i] = New(o)
		if err := brokers[i].Start(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	publish := func(b *Broker, body string) {
		t.Helper()
		conn, err := amqp.Dial("amqp://" + b.server.Addresses()[0].String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		ch, err := conn.Channel()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := ch.QueueDeclare("q", true, false, false, false, nil); err != nil {
			t.Fatal(err)
		}
		if err := ch.PublishWithContext(t.Context(), "", "q", false, false, amqp.Publishing{Body: []byte(body)}); err != nil {
			t.Fatal(err)
		}
		if d, ok, err := ch.Get("q", true); err != nil || !ok || string(d.Body) != body {
			t.Errorf("got %q, %v, %v, want %s", d.Body, ok, err, body)
		}
	}
	publish(brokers[0], "first")
	publish(brokers[1], "second")
	if err := brokers[0].Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	publish(brokers[1], "third")
	if err := brokers[1].Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
}

// The answers to a load balancer's health checks, from the start to the end.
func TestHealth(t *testing.T) {
	o, log := configured(t, local+"limits: {memory-watermark: 64MiB, disk-free: 10MB}\n")
	f := newFake()
	b := New(o)
	b.open = f.open
	if err := b.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	log.want("msg=starting", "version=1.2.3", "commit=unknown", "config="+o.ConfigFile, "data="+o.Config.Data.Dir)
	log.want("msg=limits", "memory=64MiB", "disk_free=10MB")
	m := b.management
	want(t, "running", get(t, m, "listen.management", "/health"), `200 {"status":"ok"}`)
	want(t, "version", get(t, m, "listen.management", "/version"), `200 {"product":"Curfew","version":"1.2.3"}`)
	want(t, "unknown path", get(t, m, "listen.management", "/nothing"), `404 {"error":"Object Not Found","reason":"Not Found"}`)
	f.alarms = []string{"memory"}
	want(t, "alarm", get(t, m, "listen.management", "/health"), `503 {"status":"alarm","alarms":["memory"]}`)
	f.alarms = nil
	ended := make(chan error, 1)
	go func() { ended <- b.Shutdown(t.Context()) }()
	<-f.shutdown
	want(t, "ending", get(t, m, "listen.management", "/health"), `503 {"status":"alarm","alarms":["draining"]}`)
	address := b.PageAddress()
	close(f.release)
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if _, err := client.Get(address + "health"); err == nil {
		t.Error("the management API still answers")
	}
}

// While the data is read, which may take long, health checks report that the broker is alive and not ready.
func TestStartingIsSeen(t *testing.T) {
	o, _ := configured(t, "listen: {amqp: \"127.0.0.1:0\", management: \"127.0.0.1:0\", metrics: \"127.0.0.1:0\"}\n")
	f := newFake()
	close(f.release)
	var b *Broker
	keys := []string{"listen.management", "listen.metrics"}
	b = New(o)
	b.open = func(context.Context, setup) (server, error) {
		for _, key := range keys {
			want(t, key, get(t, b.management, key, "/healthz"), `200 {"status":"starting"}`)
			want(t, key, get(t, b.management, key, "/readyz"), `503 {"status":"starting"}`)
		}
		if got := get(t, b.management, "listen.management", "/api/overview"); !strings.HasPrefix(got, "503 ") {
			t.Errorf("the API answers %s", got)
		}
		return f, nil
	}
	if err := b.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, key := range keys {
		want(t, key, get(t, b.management, key, "/healthz"), `200 {"status":"ok","alarms":[]}`)
		want(t, key, get(t, b.management, key, "/readyz"), `200 {"status":"ok","alarms":[]}`)
	}
	if err := b.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestManagementOff(t *testing.T) {
	o, _ := configured(t, "listen: {amqp: \"127.0.0.1:0\", management: off}\n")
	b := running(t, o)
	if n := len(b.management.listeners); n > 0 || b.PageAddress() != "" {
		t.Errorf("there are %d listeners, and the page at %s", n, b.PageAddress())
	}
}

// If a listener of the API ends by itself, that is reported.
func TestAPIFails(t *testing.T) {
	o, _ := configured(t, local)
	b := running(t, o)
	b.management.closeListeners()
	if err := <-b.Failed(); err == nil {
		t.Error("it failed without an error")
	}
}

// The error names every address that is not available, and everything that was opened is closed.
func TestAddressesInUse(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	taken := ln.Addr().String()
	o, _ := configured(t, fmt.Sprintf("listen: {amqp: %q, management: %q}\n", taken, taken))
	synctest.Test(t, func(t *testing.T) { // each address is tried for five seconds
		o.Clock = clock.New()
		err := New(o).Start(t.Context())
		if err == nil {
			t.Fatal("it started")
		}
		for _, want := range []string{"listen.amqp: listen tcp " + taken + ": bind: address already in use", "listen.management: listen tcp " + taken + ": bind: address already in use"} {
			if !slices.Contains(strings.Split(err.Error(), "\n"), want) {
				t.Errorf("got %v\nwant a line %s", err, want)
			}
		}
	})
	if _, err := makeDataDir(o.Config.Data.Dir); err != nil {
		t.Errorf("the data is still in use: %v", err)
	}
}

// All listeners read the same files, so an error in these is logged once; it was logged twice.
func TestReloadTLSOnce(t *testing.T) {
	f := newFake()
	b := &Broker{server: f, management: &management{certificates: new(wire.Certificates)}} // without files
	f.tls = b.management.reloadTLS()
	if err := b.reloadClientTLS(); err == nil || err.Error() != f.tls.Error() {
		t.Errorf("got %v, want %v", err, f.tls)
	}
	f.tls = nil
	if err := b.reloadClientTLS(); err == nil {
		t.Error("what is wrong with the API's files alone was not said")
	}
}

// issue writes a self-signed certificate for localhost and its key over the files base.crt and base.key, and returns the certificate.
func issue(t *testing.T, base string) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: []string{"localhost"}, NotAfter: time.Now().Add(365 * 24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	cert, err := x509.CreateCertificate(rand.Reader, c, c, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for name, block := range map[string]*pem.Block{".crt": {Type: "CERTIFICATE", Bytes: cert}, ".key": {Type: "PRIVATE KEY", Bytes: der}} {
		if err := os.WriteFile(base+name, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return cert
}

// A broken file for one kind of connection kept the certificates of the other kind from being renewed, until they expired.
func TestReloadTLSIndependently(t *testing.T) {
	dir := t.TempDir()
	clients, nodes := filepath.Join(dir, "clients"), filepath.Join(dir, "nodes")
	issue(t, clients)
	issue(t, nodes)
	o, log := configured(t, local)
	b := New(o)
	m := &member{}
	var err error
	if m.tls, err = peer.LoadTLS(peer.TLSFiles{Cert: nodes + ".crt", Key: nodes + ".key", CA: nodes + ".crt", Address: "localhost:5680"}); err != nil {
		t.Fatal(err)
	}
	b.server, b.management = &node{Server: &wire.Server{}, part: m}, &management{}
	if b.management.certificates, err = wire.LoadCertificates(wire.TLS{Cert: clients + ".crt", Key: clients + ".key"}); err != nil {
		t.Fatal(err)
	}
	renews := func(renewed, broken string, shown func() []certfile.File) {
		t.Helper()
		cert := issue(t, renewed)
		if err := os.WriteFile(broken+".crt", nil, 0o600); err != nil {
			t.Fatal(err)
		}
		b.Reload(o.Config)
		log.want("the files for TLS were not reloaded", filepath.Base(broken)+".crt")
		if !bytes.Equal(shown()[0].Certificates[0].Raw, cert) {
			t.Errorf("%s.crt was not renewed", filepath.Base(renewed))
		}
	}
	renews(clients, nodes, b.management.certificates.Files)
	renews(nodes, clients, m.tls.Files)
}

// A reload applies the keys that can change, names those that cannot, and leaves a limit alone that an operator has set meanwhile.
func TestReload(t *testing.T) {
	o, log := configured(t, local+"limits: {memory-watermark: 64MiB, disk-free: 10MB}\n")
	f := newFake()
	close(f.release)
	b := runningWith(t, o, f.open)
	f.limits = [2]int64{7, 8}
	next, _ := configured(t, local+"limits: {memory-watermark: 64MiB, disk-free: 20MB, channels: 9}\n")
	f.tls = errors.New("tls.cert, tls.key: gone")
	b.Reload(next.Config)
	log.want("the files for TLS were not reloaded", "tls.cert, tls.key: gone")
	log.want("a changed key needs a restart", "key=limits.channels", "running=2047", "configured=9")
	if want := [2]int64{7, 20_000_000}; f.limits != want {
		t.Errorf("the limits are %v, want %v", f.limits, want)
	}
	b.Reload(next.Config)
	if want := [2]int64{7, 20_000_000}; f.limits != want {
		t.Errorf("the limits are %v, want %v", f.limits, want)
	}
}

// ctl status showed the data directory as it was configured, "./curfew-data", and no configuration file.
func TestPathsAreWhole(t *testing.T) {
	t.Chdir(t.TempDir())
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	b := New(Options{Config: &config.Config{Data: config.Data{Dir: "./data"}}, ConfigFile: "curfew.yaml"})
	b.server = newFake()
	m := b.machine()
	if m.DataDir != filepath.Join(here, "data") || !slices.Equal(m.ConfigFiles, []string{filepath.Join(here, "curfew.yaml")}) {
		t.Errorf("data in %s, configuration in %v", m.DataDir, m.ConfigFiles)
	}
	b.o.ConfigFile = ""
	if m := b.machine(); len(m.ConfigFiles) > 0 {
		t.Errorf("configuration in %v", m.ConfigFiles)
	}
}

func TestNamesOfPolicies(t *testing.T) {
	loaded, failed := namePolicies([]metrics.Policy{{Name: "a", Digest: "0123456789abcdef", Loaded: true}, {Name: "b", Digest: "ff"}, {Name: "c"}})
	if strings.Join(loaded, " ") != "a (0123456789ab)" || strings.Join(failed, " ") != "b (ff) c" {
		t.Errorf("got %v, %v", loaded, failed)
	}
}

func TestReachable(t *testing.T) {
	for listener, want := range map[string]string{
		"[::]:15672": "localhost:15672", "0.0.0.0:1": "localhost:1", "127.0.0.1:15672": "127.0.0.1:15672", "[::1]:2": "[::1]:2", "192.0.2.1:3": "192.0.2.1:3",
	} {
		if got := reachable(listener); got != want {
			t.Errorf("%s: got %s, want %s", listener, got, want)
		}
	}
}

// A broker whose last administrator is gone says so at its start, and names the way back, which works. It used to start without a word.
func TestNoAdministratorIsLeft(t *testing.T) {
	const users = "auth: {password-hashing: sha512, users: {rescue: {password: s3cret, tags: [administrator]}}}\n"
	o, _ := configured(t, local)
	folder := o.Config.Data.Dir
	for _, tt := range []struct {
		name, yaml string
		warns      bool
		before     func(users *auth.Store) error // the broker ends
	}{
		{"a new broker", local, false, func(users *auth.Store) error {
			_, err := users.Set(auth.Account{Name: auth.Guest, Tags: []string{"admin"}})
			return err
		}},
		{"no administrator", local, true, nil},
		{"no administrator, and no management API", "listen: {amqp: \"127.0.0.1:0\", management: off}\n", false, nil},
		{"guest is configured, but exists", local + "auth: {users: {guest: {password: guest, tags: [administrator]}}}\n", true, nil},
		{"a new name is configured", local + users, false, nil},
		{"it stays", local, false, nil},
	} {
		o, log := configured(t, tt.yaml)
		o.Config.Data.Dir = folder
		b := New(o)
		if err := b.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		if tt.before != nil {
			if err := tt.before(b.server.(*node).store.Users()); err != nil {
				t.Error(err)
			}
		}
		if err := b.Shutdown(t.Context()); err != nil {
			t.Fatal(err)
		}
		warned := strings.Contains(log.text.String(), "level=WARN msg=\"no user has the tag administrator;")
		if named := strings.Contains(log.text.String(), "CURFEW_AUTH__USERS__NAME__TAGS=administrator"); warned != tt.warns || named != tt.warns {
			t.Errorf("%s: warned %v, named the variables %v:\n%s", tt.name, warned, named, &log.text)
		}
	}
}
