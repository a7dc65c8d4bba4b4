package cluster

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/curfewmq/curfew/tests/process"
)

// The owner is killed under a publisher, where nodes show each other certificates. What was confirmed is there.
func TestOwnerIsKilledWhereNodesSpeakTLS(t *testing.T) {
	t.Parallel()
	s, urls := startSecure(t)
	client := StartSurvivor(t, "survivor", nil, urls)
	for range 2 { // the second one has been another node's follower
		AwaitProgress(t, client)
		s.c.AwaitSpare()
		owner := s.c.Owner("/")
		client.Killed()
		owner.Kill()
		AwaitProgress(t, client)
		owner.Launch()
		owner.AwaitReady()
	}
	for _, n := range s.c.Nodes {
		s.wantServed(t, n, s.now)
	}
	client.Stop()
	client.Finish()
}

// All certificates of nodes and their authority are replaced, as the page about clusters says, without a pause: SIGHUP has each node show the new
// certificate, as the one that dials and as the one that listens, on connections that are made afterwards.
func TestCertificatesOfNodesAreRenewed(t *testing.T) {
	t.Parallel()
	s, urls := startSecure(t)
	client := StartSurvivor(t, "survivor", nil, urls)
	AwaitProgress(t, client)
	former, next := s.now, newAuthority(t, "the next authority")
	step := func(change func(*Node)) {
		t.Helper()
		for _, n := range s.c.Nodes {
			change(n)
			reload(t, n)
			AwaitProgress(t, client)
		}
	}
	step(func(n *Node) { s.trust(t, n, former, next) })
	step(func(n *Node) { s.issue(t, n, next) })
	for _, n := range s.c.Nodes {
		s.wantServed(t, n, next)
	}
	step(func(n *Node) { s.trust(t, n, next) })
	for _, n := range s.c.Nodes { // so that they cannot go on with the old ones
		s.wantRefused(t, n, former, next)
	}

	s.c.AwaitSpare()
	before := s.awaitLinks(t, nil)
	s.c.Network.(*proxies).drop()
	s.awaitLinks(t, before)
	AwaitProgress(t, client)
	s.c.AwaitSpare()
	owner := s.c.Owner("/")
	client.Killed()
	owner.Kill() // the new connections serve for a take-over, too
	AwaitProgress(t, client)
	owner.Launch()
	owner.AwaitReady()
	s.c.AwaitSpare()
	client.Stop()
	client.Finish()
}

// secure is a cluster whose nodes speak TLS.
type secure struct {
	c      *Cluster
	dir    string // of certificates
	now    *authority
	serial int64 // of the last certificate
}

func startSecure(t *testing.T) (s *secure, urls []string) {
	t.Helper()
	s = &secure{c: New(t, "", t.TempDir()), dir: t.TempDir(), now: newAuthority(t, "an authority")}
	for _, n := range s.c.Nodes {
		s.trust(t, n, s.now)
		s.issue(t, n, s.now)
		n.section += fmt.Sprintf(", tls: {cert: %q, key: %q, ca: %q}", s.file(n, "pem"), s.file(n, "key"), s.file(n, "ca.pem"))
	}
	urls = s.c.FixURLs()
	s.c.StartAll()
	return s, urls
}

func (s *secure) file(n *Node, ending string) string {
	return filepath.Join(s.dir, fmt.Sprintf("node%d.%s", n.Number, ending))
}

// trust writes the file of the authorities whose nodes a node lets in.
func (s *secure) trust(t *testing.T, n *Node, all ...*authority) {
	t.Helper()
	var content []byte
	for _, a := range all {
		content = append(content, a.pem...)
	}
	write(t, s.file(n, "ca.pem"), content)
}

// issue writes a certificate of the node's, with a new key.
func (s *secure) issue(t *testing.T, n *Node, by *authority) {
	t.Helper()
	host, _, err := net.SplitHostPort(n.Address)
	if err != nil {
		t.Fatal(err)
	}
	s.serial++
	cert, key := by.issue(t, s.serial, fmt.Sprintf("node %d", n.Number), host)
	write(t, s.file(n, "pem"), cert)
	write(t, s.file(n, "key"), key)
}

// wantServed: a node shows its latest certificate, which is an authority's, to a connection that is made now.
func (s *secure) wantServed(t *testing.T, n *Node, of *authority) {
	t.Helper()
	conn, err := s.dial(t, n, of, of)
	if err != nil {
		t.Fatalf("node %d: %v", n.Number, err)
	}
	defer conn.Close()
	latest, err := tls.LoadX509KeyPair(s.file(n, "pem"), s.file(n, "key"))
	if err != nil {
		t.Fatal(err)
	}
	if got := conn.ConnectionState().PeerCertificates[0]; !got.Equal(latest.Leaf) {
		t.Errorf("node %d shows a certificate of %s with the number %v, and its latest one is of %s with the number %v", n.Number, got.Issuer, got.SerialNumber, latest.Leaf.Issuer, latest.Leaf.SerialNumber)
	}
}

// wantRefused: a node, which shows a certificate of one authority, lets in no certificate of another one.
func (s *secure) wantRefused(t *testing.T, n *Node, of, shown *authority) {
	t.Helper()
	conn, err := s.dial(t, n, of, shown)
	if err == nil {
		_, err = conn.Read(make([]byte, 1)) // in TLS 1.3 the handshake is over before the answer to it
		_ = conn.Close()                    // it was refused
	}
	if err == nil || !strings.Contains(err.Error(), "unknown certificate authority") {
		t.Errorf("node %d: a node with a certificate of %s is refused with %v", n.Number, of.cert.Subject, err)
	}
}

// dial connects to a node as another one does that has a certificate of one authority, and trusts another.
func (s *secure) dial(t *testing.T, n *Node, of, trusted *authority) (*tls.Conn, error) {
	t.Helper()
	certPEM, keyPEM := of.issue(t, 1000, "another node", "127.0.0.1")
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(trusted.cert)
	return tls.DialWithDialer(&net.Dialer{Timeout: process.Patience}, "tcp", n.Address,
		&tls.Config{
			MinVersion: tls.VersionTLS12, RootCAs: pool, NextProtos: []string{"curfew-node"},
			// It is shown also to a node that has not named its authority, which [tls.Config.Certificates] are not.
			GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil },
		})
}

// awaitLinks waits until each node is linked to both others, since later than before.
func (s *secure) awaitLinks(t *testing.T, before map[[2]string]int64) (links map[[2]string]int64) {
	t.Helper()
	if !process.Poll(func() bool {
		links = s.links(t)
		anew := 0
		for link, since := range links {
			if since > before[link] {
				anew++
			}
		}
		return anew == size*(size-1)
	}) {
		t.Fatalf("nodes do not find one another: they were linked since %v, and are since %v", before, links)
	}
	return links
}

// links returns since when a node is linked to another one, for those that are.
func (s *secure) links(t *testing.T) map[[2]string]int64 {
	t.Helper()
	all := map[[2]string]int64{}
	for _, n := range s.c.Nodes {
		var got struct {
			Nodes []struct {
				Name  string
				Links []struct {
					To        string
					Connected bool
					Since     int64
				}
			}
		}
		if json.Unmarshal(n.Get("cluster"), &got) != nil {
			return nil
		}
		for _, from := range got.Nodes {
			if from.Name != "curfew@"+n.Address {
				continue // it has been asked itself, which needs no other one
			}
			for _, l := range from.Links {
				if l.Connected {
					all[[2]string{from.Name, l.To}] = l.Since
				}
			}
		}
	}
	return all
}

// reload has a node read its files again.
func reload(t *testing.T, n *Node) {
	t.Helper()
	const msg = "configuration reloaded"
	before := n.Times(msg)
	n.Signal(syscall.SIGHUP)
	if !process.Poll(func() bool { return n.Times(msg) > before }) {
		t.Fatalf("node %d does not reload", n.Number)
	}
}

// authority signs certificates of nodes.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

func newAuthority(t *testing.T, name string) *authority {
	t.Helper()
	a := &authority{key: newKey(t)}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
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

// issue returns a certificate for a node at an IP address, and its key.
func (a *authority) issue(t *testing.T, serial int64, name, ip string) (certPEM, keyPEM []byte) {
	t.Helper()
	key := newKey(t)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.ParseIP(ip)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8})
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func write(t *testing.T, path string, content []byte) {
	t.Helper()
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
}
