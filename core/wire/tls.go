package wire

import (
	"crypto/rand"
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
	CA         string // that signs client certificates; "" means that none is requested
	VerifyPeer bool   // demand a client certificate that CA signed
	MinVersion uint16 // tls.VersionTLS12 or tls.VersionTLS13
}

// Certificates holds the certificate, the key and the authorities of a listener. Any goroutine may reload them while connections come
// in.
type Certificates struct {
	options TLS
	current atomic.Pointer[certified]
}

// certified is the content of the files as read at one time.
type certified struct {
	pair   tls.Certificate
	config *tls.Config
}

// LoadCertificates reads the files. Errors name the configuration key.
func LoadCertificates(o TLS) (*Certificates, error) {
	c := &Certificates{options: o}
	if err := c.Reload(); err != nil {
		return nil, err
	}
	return c, nil
}

// Reload reads certificate, key and authorities. If it fails, all of the old ones stay. It voids TLS session tickets, so that a client
// of a removed authority cannot resume a session.
func (c *Certificates) Reload() error {
	if c.options.Cert == "" || c.options.Key == "" {
		return errors.New("tls.cert and tls.key are needed to listen with TLS")
	}
	pair, err := tls.LoadX509KeyPair(c.options.Cert, c.options.Key)
	if err != nil {
		return fmt.Errorf("tls.cert, tls.key: %w", err)
	}
	clients, err := c.authorities()
	if err != nil {
		return err
	}
	c.current.Store(&certified{pair: pair, config: c.config(&pair, clients)})
	return nil
}

// authorities reads the CA of client certificates, nil if none is requested.
func (c *Certificates) authorities() (*x509.CertPool, error) {
	if c.options.CA == "" {
		return nil, nil
	}
	pem, err := os.ReadFile(c.options.CA)
	if err != nil {
		return nil, fmt.Errorf("tls.ca: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("tls.ca: no certificate in %s", c.options.CA)
	}
	return pool, nil
}

// Expires returns when the certificate in use expires.
func (c *Certificates) Expires() time.Time {
	leaf := c.current.Load().pair.Leaf
	if leaf == nil {
		return time.Time{}
	}
	return leaf.NotAfter
}

// Config returns the configuration of a listener. Each connection gets the certificates of its time.
func (c *Certificates) Config() *tls.Config {
	return &tls.Config{
		MinVersion:         max(c.options.MinVersion, tls.VersionTLS12),
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return c.current.Load().config, nil },
	}
}

// config returns the configuration of a connection. Its session tickets are valid for it alone.
func (c *Certificates) config(pair *tls.Certificate, clients *x509.CertPool) *tls.Config {
	o := &tls.Config{
		MinVersion:   max(c.options.MinVersion, tls.VersionTLS12),
		Certificates: []tls.Certificate{*pair},
		ClientCAs:    clients,
		ClientAuth:   c.clientAuth(clients),
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
