package wire

import (
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"sync/atomic"

	"github.com/curfewmq/curfew/core/certfile"
)

// TLS configures listening with TLS. Cert, Key and CA are paths of PEM files.
type TLS struct {
	Cert, Key  string
	CA         string // signs client certificates; "" means that none is requested
	VerifyPeer bool   // demand a client certificate that CA signed
	MinVersion uint16 // tls.VersionTLS12 or tls.VersionTLS13
}

// Certificates holds the certificate, the key and the authorities of a listener. Any goroutine may reload them while connections arrive.
type Certificates struct {
	options TLS
	current atomic.Pointer[certified]
}

// certified is the content of the files, all read at the same time.
type certified struct {
	pair    tls.Certificate
	clients *x509.CertPool // nil: clients are not asked for a certificate
	files   []certfile.File
	config  *tls.Config
}

// LoadCertificates reads the files. Errors name the configuration key and the file.
func LoadCertificates(o TLS) (*Certificates, error) {
	c := &Certificates{options: o}
	if err := c.Reload(); err != nil {
		return nil, err
	}
	return c, nil
}

// Reload reads certificate, key and authorities. If it fails, all of the old ones stay in force. It voids TLS session tickets, so that a
// client of a removed authority cannot resume a session.
func (c *Certificates) Reload() error {
	if c.options.Cert == "" || c.options.Key == "" {
		return errors.New("tls.cert and tls.key are needed to listen with TLS")
	}
	var read certified
	if err := c.readPair(&read); err != nil {
		return err
	}
	if err := c.readAuthorities(&read); err != nil {
		return err
	}
	read.config = c.config(&read)
	c.current.Store(&read)
	return nil
}

// readPair reads the certificate and its key.
func (c *Certificates) readPair(into *certified) error {
	cert, err := os.ReadFile(c.options.Cert)
	if err != nil {
		return fmt.Errorf("tls.cert: %w", err)
	}
	key, err := os.ReadFile(c.options.Key)
	if err != nil {
		return fmt.Errorf("tls.key: %w", err)
	}
	if into.pair, err = tls.X509KeyPair(cert, key); err != nil {
		return fmt.Errorf("tls.cert %s, tls.key %s: %w", c.options.Cert, c.options.Key, err)
	}
	return into.add("tls.cert", c.options.Cert, cert)
}

// readAuthorities reads the CA of client certificates, if clients are asked for one.
func (c *Certificates) readAuthorities(into *certified) error {
	if c.options.CA == "" {
		return nil
	}
	content, err := os.ReadFile(c.options.CA)
	if err != nil {
		return fmt.Errorf("tls.ca: %w", err)
	}
	if err := into.add("tls.ca", c.options.CA, content); err != nil {
		return err
	}
	into.clients = into.files[len(into.files)-1].Pool()
	return nil
}

func (c *certified) add(key, path string, content []byte) error {
	f, err := certfile.Parse(key, path, content)
	if err == nil {
		c.files = append(c.files, f)
	}
	return err
}

// Files returns the certificates in use, including those of authorities.
func (c *Certificates) Files() []certfile.File { return c.current.Load().files }

// Verify checks the certificates that a client has presented, its own first, against the present authorities and the present time.
func (c *Certificates) Verify(shown []*x509.Certificate) error {
	clients := c.current.Load().clients
	if clients == nil || len(shown) == 0 {
		return errors.New("there is no certificate that could be verified")
	}
	between := x509.NewCertPool()
	for _, cert := range shown[1:] {
		between.AddCert(cert)
	}
	_, err := shown[0].Verify(x509.VerifyOptions{
		Roots: clients, Intermediates: between, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	return err
}

// Config returns the configuration of a listener. Each connection gets the certificates in force when it is accepted.
func (c *Certificates) Config() *tls.Config {
	return &tls.Config{
		MinVersion:         max(c.options.MinVersion, tls.VersionTLS12),
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return c.current.Load().config, nil },
	}
}

// config returns the configuration of one connection. Its session tickets are valid only with these certificates.
func (c *Certificates) config(read *certified) *tls.Config {
	o := &tls.Config{
		MinVersion:   max(c.options.MinVersion, tls.VersionTLS12),
		Certificates: []tls.Certificate{read.pair},
		ClientCAs:    read.clients,
		ClientAuth:   c.clientAuth(read.clients),
	}
	var key [32]byte
	_, _ = rand.Read(key[:]) // never fails
	o.SetSessionTicketKeys([][32]byte{key})
	return o
}

func (c *Certificates) clientAuth(clients *x509.CertPool) tls.ClientAuthType {
	switch {
	case c.options.VerifyPeer:
		return tls.RequireAndVerifyClientCert
	case clients != nil:
		return tls.VerifyClientCertIfGiven
	}
	return tls.NoClientCert
}
