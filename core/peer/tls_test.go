package peer

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/curfewmq/curfew/core/clock"
	"github.com/curfewmq/curfew/core/logtest"
	"github.com/curfewmq/curfew/core/wlog"
)

// authority signs certificates of nodes.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{key: newKey(t)}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &a.key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	a.pem = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return a
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// issue writes the files of a node whose certificate is for a host, and that trusts some authority.
func (a *authority) issue(t *testing.T, host string, trusted *authority) TLSFiles {
	t.Helper()
	return a.issueFor(t, host, trusted, x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth)
}

// issueFor is issue for some uses.
func (a *authority) issueFor(t *testing.T, host string, trusted *authority, uses ...x509.ExtKeyUsage) TLSFiles {
	t.Helper()
	key := newKey(t)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "node"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: uses,
	}
	if ip := net.ParseIP(host); ip != nil {
		template.IPAddresses = []net.IP{ip}
	} else {
		template.DNSNames = []string{host}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	f := TLSFiles{Cert: filepath.Join(dir, "cert.pem"), Key: filepath.Join(dir, "key.pem"), CA: filepath.Join(dir, "ca.pem")}
	write(t, f.Cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	write(t, f.Key, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: private}))
	write(t, f.CA, trusted.pem)
	return f
}

func write(t *testing.T, path string, content []byte) {
	t.Helper()
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
}

func load(t *testing.T, f TLSFiles) *TLS {
	t.Helper()
	c, err := LoadTLS(f)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// tcpNode is a node on a loopback address of this machine.
type tcpNode struct {
	*Links
	node Node
	log  *logtest.Log
	got  chan string
	gone chan wlog.NodeID
	news chan struct{} // has a token when the node has logged or heard something
}

func startReal(tb testing.TB, id wlog.NodeID, certificates *TLS) *tcpNode {
	tb.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	r := &tcpNode{node: Node{id, listener.Addr().String()}, got: make(chan string, 1000), gone: make(chan wlog.NodeID, 10), news: make(chan struct{}, 1)}
	r.log = &logtest.Log{Written: r.poke}
	r.Links = New(Options{
		Self:     func() Hello { return Hello{Format: Range{1, 1}, Node: id, Address: r.node.Address} },
		Check:    func(Hello) error { return nil },
		Listener: listener, TLS: certificates, Clock: clock.New(), Log: slog.New(slog.NewTextHandler(r.log, nil)),
		Received: func(_ wlog.NodeID, _ uint32, message []byte) {
			select {
			case r.got <- string(message):
			default: // nobody reads so many
			}
		},
		Gone:  func(id wlog.NodeID) { r.gone <- id },
		Heard: func(wlog.NodeID, []ShardTime, []uint32) { r.poke() },
	})
	tb.Cleanup(func() { r.Close() })
	return r
}

func (r *tcpNode) poke() {
	select {
	case r.news <- struct{}{}:
	default:
	}
}

// await waits until a condition holds at a node that is linked to others, which send something each second.
func (r *tcpNode) await(t *testing.T, so func() bool) {
	t.Helper()
	late := time.After(time.Minute)
	for !so() {
		select {
		case <-r.news:
		case <-late:
			t.Fatalf("it does not happen; the log of node %d:\n%s", r.node.ID, r.log)
		}
	}
}

// await waits until nodes are connected to one another.
func await(t *testing.T, nodes ...*tcpNode) {
	t.Helper()
	for _, n := range nodes {
		n.await(t, func() bool { return connected(n) })
	}
}

func connected(r *tcpNode) bool {
	for _, s := range r.Status() {
		if !s.Connected {
			return false
		}
	}
	return true
}

// exchange sends messages of all sizes from one node to another.
func exchange(t *testing.T, from, to *tcpNode) {
	t.Helper()
	for _, size := range []int{1, 1000, 100_000, 5_000_000} {
		want := strings.Repeat("x", size)
		sent := make(chan bool, 1)
		from.Send(to.node.ID, 1, true, []byte(want), func(ok bool) { sent <- ok })
		if got := <-to.got; got != want {
			t.Errorf("got %d bytes, want %d", len(got), size)
		}
		if !<-sent {
			t.Errorf("%d bytes arrived, but were reported as lost", size)
		}
	}
}

// Over TCP, with and without TLS, of either version, nodes exchange messages and streams.
func TestOverTCP(t *testing.T) {
	a := newAuthority(t)
	for _, tc := range []struct {
		name   string
		secure bool
		most   uint16
	}{{"plain", false, 0}, {"TLS 1.3", true, tls.VersionTLS13}, {"TLS 1.2", true, tls.VersionTLS12}} {
		t.Run(tc.name, func(t *testing.T) {
			var certificates [2]*TLS
			if tc.secure {
				for i := range certificates {
					certificates[i] = load(t, a.issue(t, "127.0.0.1", a))
				}
				certificates[1].current.Load().config.MaxVersion = tc.most
			}
			one, two := startReal(t, 1, certificates[0]), startReal(t, 2, certificates[1])
			one.Serve(HTTP, func(conn net.Conn, _ wlog.NodeID) {
				defer conn.Close()
				_, _ = conn.Write([]byte("served")) // its reader checks
			})
			one.Connect([]Node{two.node})
			two.Connect([]Node{one.node})
			await(t, one, two)
			if st := one.Status()[0]; st.Remote.String() != two.node.Address || st.Local.Addr() != st.Remote.Addr() || st.Local.Port() == 0 {
				t.Errorf("it is connected from %v to %v", st.Local, st.Remote)
			}
			exchange(t, one, two)
			exchange(t, two, one)
			conn, err := two.Dial(t.Context(), 1, HTTP)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			b := make([]byte, 6)
			if _, err := io.ReadFull(conn, b); err != nil || string(b) != "served" {
				t.Errorf("got %q, %v", b, err)
			}
			if secure, ok := conn.(*tls.Conn); ok != tc.secure || ok && secure.ConnectionState().Version != tc.most {
				t.Errorf("a %T", conn)
			}
			two.Close()
			if id := <-one.gone; id != 2 {
				t.Errorf("node %d is gone", id)
			}
		})
	}
}

// A node whose certificate is signed by another authority, is for another host, or is missing, is refused, and so is a node that it dials.
func TestCertificatesAreChecked(t *testing.T) {
	a, b := newAuthority(t), newAuthority(t)
	for _, tc := range []struct {
		name     string
		two      func(t *testing.T) *TLS
		one, end string // in the logs of node 1, and of node 2
	}{
		{
			"of another authority", func(t *testing.T) *TLS { t.Helper(); return load(t, b.issue(t, "127.0.0.1", a)) },
			"certificate signed by unknown authority", "unknown certificate authority",
		},
		{
			"trusts another authority", func(t *testing.T) *TLS { t.Helper(); return load(t, a.issue(t, "127.0.0.1", b)) },
			"bad certificate", "certificate signed by unknown authority",
		},
		{
			"for another host", func(t *testing.T) *TLS { t.Helper(); return load(t, a.issue(t, "other.example", a)) },
			"certificate", "its certificate is not for its cluster.advertise 127.0.0.1",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			one, two := startReal(t, 1, load(t, a.issue(t, "127.0.0.1", a))), startReal(t, 2, tc.two(t))
			two.Connect([]Node{one.node})
			one.Connect([]Node{two.node})
			for _, r := range []struct {
				node *tcpNode
				text string
			}{{one, tc.one}, {two, tc.end}} {
				r.node.await(t, func() bool { return strings.Contains(r.node.log.String(), r.text) })
			}
			if connected(one) || connected(two) {
				t.Error("they are connected")
			}
		})
	}
}

// If one of two nodes has TLS and the other does not, each reports what the other does and which keys to set, both when it dials and when it
// listens. One of them used to report only EOF, and nothing when it listened.
func TestNodeWithoutTLSIsNamed(t *testing.T) {
	a := newAuthority(t)
	secure, plain := startReal(t, 1, load(t, a.issue(t, "127.0.0.1", a))), startReal(t, 2, nil)
	secure.Connect([]Node{plain.node})
	plain.Connect([]Node{secure.node})
	for _, n := range []struct {
		node *tcpNode
		want error
	}{{secure, errSpeaksPlain}, {plain, errSpeaksTLS}} {
		for _, msg := range []string{"node not reachable", "connection to the port for nodes refused"} {
			said := func() bool {
				for line := range strings.Lines(n.node.log.String()) {
					if strings.Contains(line, `msg="`+msg+`"`) && strings.Contains(line, n.want.Error()) {
						return true
					}
				}
				return false
			}
			n.node.await(t, said)
		}
	}
	for _, n := range []*tcpNode{secure, plain} { // which keep dialling one another
		other := map[*tcpNode]*tcpNode{secure: plain, plain: secure}[n]
		for range 20 {
			if _, err := n.Greet(t.Context(), other.node.Address); err == nil {
				t.Error("they are connected")
			}
		}
	}
	for _, n := range []*tcpNode{secure, plain} { // before one is closed, which may reset a connection
		if said := strings.Count(n.log.String(), "refused"); said != 1 {
			t.Errorf("node %d says %d times that it refuses a connection:\n%s", n.node.ID, said, n.log)
		}
		if strings.Contains(n.log.String(), "EOF") || strings.Contains(n.log.String(), "reset") {
			t.Errorf("node %d does not know what the other does:\n%s", n.node.ID, n.log)
		}
	}
}

// A node without TLS recognizes the refusal of a node with TLS by its first byte. It used to wait for twelve bytes, which the refusal does not
// have, until the other node closed the connection a second later.
func TestRefusalOfTLSIsReadAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		go func() { _, _ = io.WriteString(far, refusalTLS) }() // and does not close
		if _, err := readGreeting(near); !errors.Is(err, errSpeaksTLS) {
			t.Errorf("got %v", err)
		}
		near.Close()
	})
}

// A program that has a certificate but does not speak the protocol between nodes is refused.
func TestProtocolNameIsNeeded(t *testing.T) {
	a := newAuthority(t)
	one := startReal(t, 1, load(t, a.issue(t, "127.0.0.1", a)))
	config := load(t, a.issue(t, "127.0.0.1", a)).dialling(one.node.Address)
	config.NextProtos, config.VerifyConnection = nil, nil
	conn, err := tls.Dial("tcp", one.node.Address, config)
	if err == nil {
		_, err = conn.Read(make([]byte, 1))
		conn.Close()
	}
	if err == nil {
		t.Error("it was let in")
	}
}

// New files apply to connections after Reload. If they are unusable, the old ones stay.
func TestReload(t *testing.T) {
	a, b := newAuthority(t), newAuthority(t)
	files := a.issue(t, "127.0.0.1", a)
	certificates := load(t, files)
	one, two := startReal(t, 1, certificates), startReal(t, 2, load(t, b.issue(t, "127.0.0.1", b)))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := two.Greet(ctx, one.node.Address); err == nil {
		t.Fatal("it was let in too early")
	}
	write(t, files.CA, []byte("nonsense"))
	if err := certificates.Reload(); err == nil || !strings.Contains(err.Error(), "cluster.tls.ca: no certificate in "+files.CA) {
		t.Errorf("reload: %v", err)
	}
	again := b.issue(t, "127.0.0.1", b)
	for from, to := range map[string]string{again.Cert: files.Cert, again.Key: files.Key, again.CA: files.CA} {
		content, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		write(t, to, content)
	}
	if err := certificates.Reload(); err != nil {
		t.Fatal(err)
	}
	if h, err := two.Greet(ctx, one.node.Address); err != nil || h.Node != 1 {
		t.Errorf("after the reload: %v, %v", h, err)
	}
}

// The content of the files is available, so that a certificate that expires soon can be reported.
func TestCertificatesAreKnown(t *testing.T) {
	a := newAuthority(t)
	f := a.issue(t, "127.0.0.1", a)
	f.Address = "127.0.0.1:5680"
	loaded, err := LoadTLS(f)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, file := range loaded.Files() {
		for _, cert := range file.Certificates {
			got = append(got, file.Key+" "+file.Path+" "+cert.Subject.CommonName)
		}
	}
	want := []string{"cluster.tls.cert " + f.Cert + " node", "cluster.tls.ca " + f.CA + " authority"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestTLSFilesAreNamed(t *testing.T) {
	a := newAuthority(t)
	for _, tc := range []struct {
		name   string
		change func(*testing.T, *TLSFiles)
		want   string
	}{
		{"no certificate", func(_ *testing.T, f *TLSFiles) { f.Cert = "" }, "cluster.tls.cert is missing"},
		{"no such key", func(_ *testing.T, f *TLSFiles) { f.Key += ".not" }, "cluster.tls.key: open "},
		{"no authorities", func(_ *testing.T, f *TLSFiles) { f.CA = "" }, "cluster.tls.ca is missing"},
		{"key of another", func(t *testing.T, f *TLSFiles) { t.Helper(); f.Key = a.issue(t, "x", a).Key }, "cluster.tls.key "},
		{"another host", func(_ *testing.T, f *TLSFiles) { f.Address = "127.0.0.2:5680" }, "it is not for cluster.advertise 127.0.0.2:5680: "},
		{"no certificate of clients", func(t *testing.T, f *TLSFiles) {
			t.Helper()
			*f = a.issueFor(t, "127.0.0.1", a, x509.ExtKeyUsageServerAuth)
			f.Address = "127.0.0.1:5680"
		}, "both serverAuth and clientAuth"},
		{"empty authorities", func(t *testing.T, f *TLSFiles) { t.Helper(); write(t, f.CA, nil) }, "cluster.tls.ca: no certificate in "},
		{"broken authority", func(t *testing.T, f *TLSFiles) {
			t.Helper()
			write(t, f.CA, append(a.pem, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte("x")})...))
		}, "certificate 2: "},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := a.issue(t, "127.0.0.1", a)
			tc.change(t, &f)
			if _, err := LoadTLS(f); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
}

// Close ends while other nodes dial, send and receive.
func TestCloseUnderLoad(t *testing.T) {
	one, two := startReal(t, 1, nil), startReal(t, 2, nil)
	one.Connect([]Node{two.node})
	two.Connect([]Node{one.node})
	await(t, one, two)
	var all sync.WaitGroup
	end := make(chan struct{})
	for _, n := range []*tcpNode{one, two} {
		to := 3 - n.node.ID
		all.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-end:
					return
				default:
					n.Send(to, 1, i%2 == 0, make([]byte, 1000), func(bool) {})
				}
			}
		})
		all.Go(func() {
			for {
				select {
				case <-end:
					return
				default:
					if conn, err := n.Dial(t.Context(), to, HTTP); err == nil {
						conn.Close()
					}
				}
			}
		})
	}
	for range 100 {
		select {
		case <-one.got:
		case <-two.got:
		}
	}
	if err := two.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
		t.Error(err)
	}
	close(end)
	all.Wait()
	if err := one.Close(); err != nil {
		t.Error(err)
	}
}

// A node that did not read held up the streams to all others: its own was closed with TLS's close notification, under the lock that they need.
func TestHangUpDoesNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAuthority(t) // its certificates are of the bubble's time
		files := a.issue(t, "127.0.0.1", a)
		f := &fabric{}
		n := f.node(t, 1)
		defer f.close()
		n.Connect([]Node{nodeOf(2)})
		n.register(incomingKey{2, Small}, unread(t, load(t, files)))
		began := time.Now()
		n.Connect(nil)
		if took := time.Since(began); took > 0 {
			t.Errorf("it took %v", took)
		}
	})
}

// unread returns a connection whose other side no longer reads.
func unread(t *testing.T, certificates *TLS) net.Conn {
	t.Helper()
	here, there := net.Pipe()
	t.Cleanup(func() { there.Close() })
	config := certificates.accepting()
	config.MaxVersion = tls.VersionTLS12
	conn, other := tls.Server(here, config), tls.Client(there, certificates.dialling("127.0.0.1:5680"))
	shaken := make(chan error, 1)
	go func() { shaken <- other.Handshake() }()
	if err := errors.Join(conn.Handshake(), <-shaken); err != nil {
		t.Fatal(err)
	}
	return conn
}
