package peer

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"github.com/curfewmq/curfew/core/certfile"
)

// TLSFiles are the paths of PEM files.
type TLSFiles struct {
	Cert string // the node's certificate, for a server and a client, and the chain above it
	Key  string // its private key
	CA   string // authorities that sign only certificates of nodes

	Address string // address at which others reach the node; the certificate must name its host; "" = do not check
}

// TLS holds the certificate of a node and the authorities of the others. Any goroutine may reload it; later connections
// use the new files.
type TLS struct {
	files   TLSFiles
	current atomic.Pointer[loaded]
}

// loaded is the content of the files as last read.
type loaded struct {
	config       *tls.Config
	certificates []certfile.File
}

// alpn is the protocol's name in TLS.
const alpn = "curfew-node"

// LoadTLS reads the files. Errors name the configuration key and the file.
func LoadTLS(f TLSFiles) (*TLS, error) {
	t := &TLS{files: f}
	if err := t.Reload(); err != nil {
		return nil, err
	}
	return t, nil
}

// Reload reads the files again. If it fails, all of the old ones stay in use.
func (t *TLS) Reload() error {
	cert, err := readKeyFile("cluster.tls.cert", t.files.Cert)
	if err != nil {
		return err
	}
	key, err := readKeyFile("cluster.tls.key", t.files.Key)
	if err != nil {
		return err
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return fmt.Errorf("cluster.tls.cert %s, cluster.tls.key %s: %w", t.files.Cert, t.files.Key, err)
	}
	own, err := certfile.Parse("cluster.tls.cert", t.files.Cert, cert)
	if err != nil {
		return err
	}
	if err := t.files.checkOwn(own.Certificates[0]); err != nil {
		return fmt.Errorf("cluster.tls.cert %s: %w", t.files.Cert, err)
	}
	ca, err := readKeyFile("cluster.tls.ca", t.files.CA)
	if err != nil {
		return err
	}
	authorities, err := certfile.Parse("cluster.tls.ca", t.files.CA, ca)
	if err != nil {
		return err
	}
	t.current.Store(&loaded{config: configOf(&pair, &authorities), certificates: []certfile.File{own, authorities}})
	return nil
}

// checkOwn returns why other nodes would refuse the node's certificate: in TLS they can only report that it is bad.
func (f *TLSFiles) checkOwn(cert *x509.Certificate) error {
	if f.Address == "" {
		return nil
	}
	host, _, err := net.SplitHostPort(f.Address)
	if err != nil {
		return fmt.Errorf("cluster.advertise: %w", err)
	}
	if err := cert.VerifyHostname(host); err != nil {
		return fmt.Errorf("it is not for cluster.advertise %s: %w", f.Address, err)
	}
	uses := cert.ExtKeyUsage
	if len(uses)+len(cert.UnknownExtKeyUsage) == 0 || slices.Contains(uses, x509.ExtKeyUsageAny) {
		return nil
	}
	if !slices.Contains(uses, x509.ExtKeyUsageServerAuth) || !slices.Contains(uses, x509.ExtKeyUsageClientAuth) {
		return errors.New("its extended key usage has to have both serverAuth and clientAuth: a node is both to the others")
	}
	return nil
}

// configOf returns the common configuration of connections in both directions.
func configOf(pair *tls.Certificate, authorities *certfile.File) *tls.Config {
	pool := authorities.Pool()
	return &tls.Config{
		MinVersion: tls.VersionTLS12, NextProtos: []string{alpn}, Certificates: []tls.Certificate{*pair},
		RootCAs: pool, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert,
		SessionTicketsDisabled: true, // a node whose authority was removed must not resume a session
	}
}

// Files returns the certificates in use, including those of authorities.
func (t *TLS) Files() []certfile.File { return t.current.Load().certificates }

func readKeyFile(key, path string) ([]byte, error) {
	if path == "" {
		return nil, fmt.Errorf("%s is missing: nodes show one another certificates", key)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", key, err)
	}
	return content, nil
}

// accepting returns the configuration of an incoming connection.
func (t *TLS) accepting() *tls.Config {
	c := t.current.Load().config.Clone()
	c.VerifyConnection = spoken
	return c
}

// dialling returns the configuration of a connection to an address. The certificate there must name the address's host.
func (t *TLS) dialling(address string) *tls.Config {
	c := t.current.Load().config.Clone()
	c.VerifyConnection = spoken
	c.ServerName, _, _ = net.SplitHostPort(address)
	return c
}

// spoken refuses programs that have a certificate, but do not announce the protocol.
func spoken(s tls.ConnectionState) error {
	if s.NegotiatedProtocol != alpn {
		return fmt.Errorf("it does not name the protocol %s: %w", alpn, errNoNode)
	}
	return nil
}

// names returns an error unless the other side's certificate names the host of an address.
func names(s *tls.ConnectionState, address string) error {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("its cluster.advertise: %w", err)
	}
	if err := s.PeerCertificates[0].VerifyHostname(host); err != nil {
		return fmt.Errorf("its certificate is not for its cluster.advertise %s: %w", address, err)
	}
	return nil
}

// If one of two nodes speaks TLS and the other does not, both report it. The listening node answers in a form that the dialling
// node understands, and the dialling node recognizes the mismatch by the first bytes.

const keysOfTLS = "cluster.tls.cert, cluster.tls.key and cluster.tls.ca"

var (
	errSpeaksTLS   = errors.New("it speaks TLS with other nodes, and this node does not: set " + keysOfTLS + " at this node, as at the others")
	errSpeaksPlain = errors.New("it does not speak TLS with other nodes, and this node does: set " + keysOfTLS + " at that node, as at the others")
)

// Types of records of TLS [RFC 8446 5.1].
const (
	recordAlert     = 0x15
	recordHandshake = 0x16
)

// refusalTLS is a TLS record: a fatal alert, protocol_version [RFC 8446 6].
const refusalTLS = "\x15\x03\x01\x00\x02\x02\x46"

// beginsTLS reports whether the first bytes of a connection belong to TLS.
func beginsTLS(b []byte) bool {
	return len(b) > 0 && (b[0] == recordAlert || b[0] == recordHandshake)
}

// plainly translates the error of a TLS handshake. It becomes errSpeaksPlain if the other end is a node without TLS.
func plainly(err error) error {
	var r tls.RecordHeaderError
	if errors.As(err, &r) && string(r.RecordHeader[:]) == magic[:len(r.RecordHeader)] {
		return errSpeaksPlain
	}
	return err
}

// listening is how long a refused connection is read so that the refusal arrives: closing a socket with unread bytes resets the connection.
const listening = time.Second

// tellSpeech answers a dialling node if it speaks TLS and this node does not, or vice versa.
func tellSpeech(conn net.Conn, err error) {
	switch {
	case errors.Is(err, errSpeaksTLS):
		err = writeGreeting(conn, &greeting{Refused: "it speaks no TLS"})
	case errors.Is(err, errSpeaksPlain):
		_, err = io.WriteString(conn, refusalTLS)
	default:
		return
	}
	if err == nil {
		err = conn.SetReadDeadline(time.Now().Add(listening))
	}
	if err == nil {
		_, _ = io.CopyN(io.Discard, conn, maxGreeting) // ends when the other node has read the answer
	}
}
