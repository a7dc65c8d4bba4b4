package wire

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/curfewmq/curfew/core/logtest"
)

func start(t *testing.T, change ...func(*Options)) *Server {
	t.Helper()
	s := newServer(t, change...)
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s
}

func connect(t *testing.T, address net.Addr) *client {
	t.Helper()
	socket, err := net.Dial("tcp", address.String())
	if err != nil {
		t.Fatal(err)
	}
	return newClient(t, socket)
}

func TestListen(t *testing.T) {
	for _, address := range []string{"127.0.0.1:0", "[::1]:0", ":0"} {
		t.Run(address, func(t *testing.T) {
			s := start(t, func(o *Options) { o.AMQP, o.Session.GuestLoopbackOnly = address, true })
			addresses := s.Addresses()
			if len(addresses) != 1 || strings.HasSuffix(addresses[0].String(), ":0") {
				t.Fatalf("got addresses %v", addresses)
			}
			connect(t, addresses[0]).open(60).close()
		})
	}
}

func TestAllInterfacesMeansBothProtocols(t *testing.T) {
	s := start(t, func(o *Options) { o.AMQP = ":0" })
	_, port, _ := net.SplitHostPort(s.Addresses()[0].String())
	for _, host := range []string{"127.0.0.1", "::1"} {
		socket, err := net.Dial("tcp", net.JoinHostPort(host, port))
		if err != nil {
			t.Fatal(err)
		}
		newClient(t, socket).open(0).close()
	}
}

// An address that stays in use is an error after some seconds.
func TestAddressInUse(t *testing.T) {
	taken := start(t, func(o *Options) { o.AMQP = "127.0.0.1:0" }).Addresses()[0].String()
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, func(o *Options) { o.AMQP = taken })
		wantElapsed(t, inUse, func() {
			err := s.Start(t.Context())
			if err == nil || !strings.HasPrefix(err.Error(), "listen.amqp: ") || !strings.Contains(err.Error(), taken) {
				t.Errorf("got error %v, want one that names the key and %s", err, taken)
			}
		})
	})
}

// After kill -9 of a broker with much memory the next one did not start: its addresses were in use for another second or two.
func TestAddressOfAKilledProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		killed, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(3*inUse/4, func() { killed.Close() })
		var log logtest.Log
		wantElapsed(t, 3*inUse/4+inUseRetry/2, func() {
			l, err := Listen(t.Context(), slog.New(slog.NewTextHandler(&log, nil)), "listen.amqp", killed.Addr().String(), 0)
			if err != nil {
				t.Fatal(err)
			}
			l.Close()
		})
		want := `"the address is in use: trying again" key=listen.amqp address=` + killed.Addr().String() + " at_most=5s"
		if got := log.Find("the address"); got != want || log.Count("") != 1 {
			t.Errorf("logged %s, want %s", log.String(), want)
		}
	})
}

// A broker that stops does not wait for an address to become free.
func TestStopWhileAnAddressIsInUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		taken, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer taken.Close()
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		wantElapsed(t, time.Second, func() {
			if _, err := Listen(ctx, slog.New(slog.DiscardHandler), "listen.amqp", taken.Addr().String(), 0); err == nil {
				t.Error("it listens")
			}
		})
	})
}

// poor is a listener that lacks file descriptors for some time.
type poor struct {
	net.Listener
	failures int
	sockets  chan net.Conn
}

func (p *poor) Accept() (net.Conn, error) {
	if p.failures > 0 {
		p.failures--
		return nil, syscall.EMFILE
	}
	socket, ok := <-p.sockets
	if !ok {
		return nil, net.ErrClosed
	}
	return socket, nil
}

func (p *poor) Addr() net.Addr { return &net.TCPAddr{} }

func (p *poor) Close() error {
	close(p.sockets)
	return nil
}

// While file descriptors are lacking, the server waits longer and longer, and continues when there are some.
func TestAcceptBacksOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		l := &poor{failures: 10, sockets: make(chan net.Conn)}
		s.listeners = append(s.listeners, l)
		s.running.Go(func() { s.accept(l) })
		near, far := net.Pipe()
		wantElapsed(t, (5+10+20+40+80+160+320+640+1000+1000)*time.Millisecond, func() { l.sockets <- far })
		newClient(t, near).open(0).close()
	})
}

func TestShutdownFreesTheAddress(t *testing.T) {
	s := start(t, func(o *Options) { o.AMQP = "127.0.0.1:0" })
	address := s.Addresses()[0].String()
	if err := s.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	start(t, func(o *Options) { o.AMQP = address })
}

// authority signs certificates for tests.
type authority struct {
	t    testing.TB
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(tb testing.TB) *authority {
	tb.Helper()
	a := &authority{t: tb, dir: tb.TempDir()}
	a.cert, a.key = a.issue("ca", nil, nil)
	return a
}

// issue writes NAME.pem and NAME.key, signed by parent or self-signed.
func (a *authority) issue(name string, parent *x509.Certificate, signer *ecdsa.PrivateKey, change ...func(*x509.Certificate)) (*x509.Certificate, *ecdsa.PrivateKey) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	serial, _ := rand.Int(rand.Reader, big.NewInt(1<<62))
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA:        parent == nil, BasicConstraintsValid: true,
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	for _, f := range change {
		f(template)
	}
	if parent == nil {
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		a.t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	a.write(name+".pem", "CERTIFICATE", der)
	a.write(name+".key", "PRIVATE KEY", secret)
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		a.t.Fatal(err)
	}
	return cert, key
}

func (a *authority) write(name, kind string, der []byte) {
	a.t.Helper()
	if err := os.WriteFile(a.path(name), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		a.t.Fatal(err)
	}
}

func (a *authority) path(name string) string { return filepath.Join(a.dir, name) }

func (a *authority) server(name string) TLS {
	a.issue(name, a.cert, a.key)
	return TLS{Cert: a.path(name + ".pem"), Key: a.path(name + ".key")}
}

// client returns the configuration of a client, with a certificate of its own if name is not empty.
func (a *authority) client(name string, change ...func(*x509.Certificate)) *tls.Config {
	a.t.Helper()
	c := &tls.Config{RootCAs: x509.NewCertPool(), MinVersion: tls.VersionTLS12}
	c.RootCAs.AddCert(a.cert)
	if name == "" {
		return c
	}
	a.issue(name, a.cert, a.key, change...)
	pair, err := tls.LoadX509KeyPair(a.path(name+".pem"), a.path(name+".key"))
	if err != nil {
		a.t.Fatal(err)
	}
	c.Certificates = []tls.Certificate{pair}
	return c
}

func TestTLS(t *testing.T) {
	a := newAuthority(t)
	s := start(t, func(o *Options) { o.AMQPS, o.TLS = "127.0.0.1:0", a.server("broker") })
	socket, err := tls.Dial("tcp", s.Addresses()[0].String(), a.client(""))
	if err != nil {
		t.Fatal(err)
	}
	newClient(t, socket).open(60).close()
}

// lines collects log lines.
type lines chan string

func (l lines) Write(b []byte) (int, error) {
	select {
	case l <- string(b):
	default: // nobody reads so many
	}
	return len(b), nil
}

// Failed TLS handshakes used to be logged at level debug only; a mere check whether the port is open still is.
func TestFailedTLSIsLogged(t *testing.T) {
	a := newAuthority(t)
	strict := func(o *Options) { o.TLS.CA, o.TLS.VerifyPeer = a.path("ca.pem"), true }
	friend := a.client("")
	friend.ServerName = "127.0.0.1"
	for _, tt := range []struct {
		name    string
		options func(*Options)
		talk    func(net.Conn)
		want    string
	}{
		{"no certificate", strict, func(c net.Conn) { _ = tls.Client(c, friend).Handshake() }, `level=WARN msg="TLS handshake failed" connection=`},
		{"a stranger's certificate", nil, func(c net.Conn) { _ = tls.Client(c, &tls.Config{ServerName: "localhost"}).Handshake() }, "remote error: tls: "},
		{"no TLS", nil, func(c net.Conn) { _, _ = c.Write([]byte("AMQP\x00\x00\x09\x01")) }, "does not look like a TLS handshake"},
		{"a look", nil, func(c net.Conn) { c.Close() }, `level=DEBUG msg="closed before the handshake"`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			told := make(lines, 100)
			s := start(t, func(o *Options) {
				o.AMQPS, o.TLS = "127.0.0.1:0", a.server("broker")
				o.Session.Log = slog.New(slog.NewTextHandler(told, &slog.HandlerOptions{Level: slog.LevelDebug}))
				if tt.options != nil {
					tt.options(o)
				}
			})
			socket, err := net.Dial("tcp", s.Addresses()[0].String())
			if err != nil {
				t.Fatal(err)
			}
			defer socket.Close()
			tt.talk(socket)
			for deadline := time.After(time.Minute); ; {
				select {
				case line := <-told:
					if strings.Contains(line, tt.want) {
						return
					}
					t.Log(line)
				case <-deadline:
					t.Fatalf("nothing with %q was logged", tt.want)
				}
			}
		})
	}
}

func TestBothListeners(t *testing.T) {
	a := newAuthority(t)
	s := start(t, func(o *Options) {
		o.AMQP, o.AMQPS, o.TLS = "127.0.0.1:0", "127.0.0.1:0", a.server("broker")
	})
	connect(t, s.Addresses()[0]).open(60).close()
	socket, err := tls.Dial("tcp", s.Addresses()[1].String(), a.client(""))
	if err != nil {
		t.Fatal(err)
	}
	newClient(t, socket).open(60).close()
}

func TestClientCertificates(t *testing.T) {
	a, other := newAuthority(t), newAuthority(t)
	tests := []struct {
		name   string
		verify bool
		client *tls.Config
		ok     bool
	}{
		{"demanded and good", true, a.client("app"), true},
		{"demanded and missing", true, a.client(""), false},
		{"welcome and missing", false, a.client(""), true},
		{"welcome and good", false, a.client("app2"), true},
	}
	stranger := other.client("stranger")
	stranger.RootCAs = a.client("").RootCAs
	tests = append(tests, struct {
		name   string
		verify bool
		client *tls.Config
		ok     bool
	}{"from elsewhere", true, stranger, false})
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := start(t, func(o *Options) {
				o.AMQPS, o.TLS = "127.0.0.1:0", a.server("broker")
				o.TLS.CA, o.TLS.VerifyPeer = a.path("ca.pem"), tt.verify
			})
			socket, err := tls.Dial("tcp", s.Addresses()[0].String(), tt.client)
			if err != nil {
				t.Fatal(err)
			}
			c := newClient(t, socket)
			if tt.ok {
				c.open(60).close()
				return
			}
			c.ended() // with TLS 1.3 the client notices after its own part of the handshake
		})
	}
}

func TestReloadTLS(t *testing.T) {
	a := newAuthority(t)
	s := start(t, func(o *Options) { o.AMQPS, o.TLS = "127.0.0.1:0", a.server("broker") })
	serial := func() *big.Int {
		socket, err := tls.Dial("tcp", s.Addresses()[0].String(), a.client(""))
		if err != nil {
			t.Fatal(err)
		}
		defer socket.Close()
		return socket.ConnectionState().PeerCertificates[0].SerialNumber
	}
	before := serial()
	a.issue("broker", a.cert, a.key)
	if serial().Cmp(before) != 0 {
		t.Error("the certificate changed before it was reloaded")
	}
	if err := s.ReloadTLS(); err != nil {
		t.Fatal(err)
	}
	renewed := serial()
	if renewed.Cmp(before) == 0 {
		t.Error("the certificate did not change")
	}
	a.write("broker.pem", "CERTIFICATE", []byte("garbage"))
	if err := s.ReloadTLS(); err == nil || !strings.Contains(err.Error(), "tls.cert") {
		t.Errorf("got error %v, want one that names tls.cert", err)
	}
	if serial().Cmp(renewed) != 0 {
		t.Error("a bad file replaced a good certificate")
	}
}

// The authorities of client certificates are reloaded like the certificate. They were not, in spite of the documentation: a client that
// had been accepted once was accepted until the next restart, even by a resumed session.
func TestReloadAuthorities(t *testing.T) {
	a, next := newAuthority(t), newAuthority(t)
	s := start(t, func(o *Options) {
		o.AMQPS, o.TLS = "127.0.0.1:0", a.server("broker")
		o.TLS.CA, o.TLS.VerifyPeer = a.path("ca.pem"), true
	})
	known, stranger := a.client("known"), next.client("stranger")
	stranger.RootCAs = known.RootCAs
	known.ClientSessionCache = tls.NewLRUClientSessionCache(1)
	welcome := func(c *tls.Config, want bool) {
		t.Helper()
		socket, err := tls.Dial("tcp", s.Addresses()[0].String(), c)
		if err != nil {
			t.Fatal(err)
		}
		if c := newClient(t, socket); want {
			c.open(60).close()
		} else {
			c.ended()
		}
	}
	welcome(known, true)
	welcome(stranger, false)
	theirs, err := os.ReadFile(next.path("ca.pem"))
	if err != nil {
		t.Fatal(err)
	}
	ours, err := os.ReadFile(a.path("ca.pem"))
	if err != nil {
		t.Fatal(err)
	}
	write := func(pem []byte) {
		t.Helper()
		if err := os.WriteFile(a.path("ca.pem"), pem, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(theirs)
	welcome(stranger, false)
	if err := s.ReloadTLS(); err != nil {
		t.Fatal(err)
	}
	welcome(known, false)
	welcome(stranger, true)
	write([]byte("garbage"))
	if err := s.ReloadTLS(); err == nil || !strings.Contains(err.Error(), "tls.ca: no certificate in") {
		t.Errorf("got error %v, want one that names tls.ca", err)
	}
	welcome(stranger, true)
	write(append(ours, theirs...))
	if err := s.ReloadTLS(); err != nil {
		t.Fatal(err)
	}
	welcome(known, true)
	welcome(stranger, true)
}

func TestTLSFiles(t *testing.T) {
	a := newAuthority(t)
	good := a.server("broker")
	a.write("empty.pem", "NOTHING", nil)
	a.write("half.pem", "CERTIFICATE", a.cert.Raw[:40])
	whole, _ := os.ReadFile(a.path("ca.pem"))
	half, _ := os.ReadFile(a.path("half.pem"))
	if err := os.WriteFile(a.path("half.pem"), append(whole, half...), 0o600); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name string
		tls  TLS
		want string
	}{
		{"nothing", TLS{}, "tls.cert and tls.key are needed"},
		{"no file", TLS{Cert: "/nonexistent", Key: good.Key}, "tls.cert: open /nonexistent"},
		{"another's key", TLS{Cert: good.Cert, Key: a.path("ca.key")}, "ca.key: tls: private key does not match"},
		{"no key", TLS{Cert: good.Cert, Key: "/nonexistent"}, "tls.key: open /nonexistent"},
		{"half an authority", TLS{Cert: good.Cert, Key: good.Key, CA: a.path("half.pem")}, "half.pem: certificate 2: x509: "},
		{"no authority", TLS{Cert: good.Cert, Key: good.Key, CA: "/nonexistent"}, "tls.ca: open /nonexistent"},
		{"not an authority", TLS{Cert: good.Cert, Key: good.Key, CA: a.path("empty.pem")}, "tls.ca: no certificate in"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := New(Options{AMQPS: ":0", TLS: tt.tls})
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got error %v, want %q in it", err, tt.want)
			}
		})
	}
}
