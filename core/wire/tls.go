package wire

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"
)

// TLS says how to listen with TLS. Cert, Key and CA are paths of PEM files.
type TLS struct {
	Cert, Key  string
	CA         string // who signs client certificates; "" = nobody is asked for one
	VerifyPeer bool   // demand a client certificate that CA signed
	MinVersion uint16 // tls.VersionTLS12 or tls.VersionTLS13
}

// Certificates are what a listener needs for TLS. They can be read anew while connections come in, from any goroutine.
type Certificates struct {
	options TLS
	clients *x509.CertPool
	pair    atomic.Pointer[tls.Certificate]
}

// LoadCertificates reads the files. Its error names the key of the configuration that it is about.
func LoadCertificates(o TLS) (*Certificates, error) {
	c := &Certificates{options: o}
	if err := c.Reload(); err != nil {
		return nil, err
	}
	if o.CA == "" {
		return c, nil
	}
	pem, err := os.ReadFile(o.CA)
	if err != nil {
		return nil, fmt.Errorf("tls.ca: %w", err)
	}
	c.clients = x509.NewCertPool()
	if !c.clients.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("tls.ca: no certificate in %s", o.CA)
	}
	return c, nil
}

// Reload reads certificate and key. When it fails, the old ones stay.
func (c *Certificates) Reload() error {
	if c.options.Cert == "" || c.options.Key == "" {
		return errors.New("tls.cert and tls.key are needed to listen with TLS")
	}
	pair, err := tls.LoadX509KeyPair(c.options.Cert, c.options.Key)
	if err != nil {
		return fmt.Errorf("tls.cert, tls.key: %w", err)
	}
	c.pair.Store(&pair)
	return nil
}

// Expires returns when the certificate in use does.
func (c *Certificates) Expires() time.Time {
	leaf := c.pair.Load().Leaf
	if leaf == nil {
		return time.Time{}
	}
	return leaf.NotAfter
}

// Config returns what a listener is made with.
func (c *Certificates) Config() *tls.Config {
	return &tls.Config{
		MinVersion:     max(c.options.MinVersion, tls.VersionTLS12),
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return c.pair.Load(), nil },
		ClientCAs:      c.clients,
		ClientAuth:     c.clientAuth(),
	}
}

func (c *Certificates) clientAuth() tls.ClientAuthType {
	switch {
	case c.options.VerifyPeer:
		return tls.RequireAndVerifyClientCert
	case c.clients != nil:
		return tls.VerifyClientCertIfGiven
	}
	return tls.NoClientCert
}
