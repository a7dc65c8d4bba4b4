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
	CA         string // who signs client certificates; "" = nobody is asked for one
	VerifyPeer bool   // demand a client certificate that CA signed
	MinVersion uint16 // tls.VersionTLS12 or tls.VersionTLS13
}

// Certificates are what a listener needs for TLS. They can be read anew while connections come in, from any goroutine.
type Certificates struct {
	options TLS
	current atomic.Pointer[certified]
}

// certified is what was read from the files at one time.
type certified struct {
	pair   tls.Certificate
	config *tls.Config
}

// LoadCertificates reads the files. Its error names the key of the configuration that it is about.
func LoadCertificates(o TLS) (*Certificates, error) {
	c := &Certificates{options: o}
	if err := c.Reload(); err != nil {
		return nil, err
	}
	return c, nil
}

// Reload reads certificate, key and authorities. When it fails, all of the old ones stay. Whom an authority let in that is not
// there any more has to prove itself again to resume a session.
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

// authorities reads who signs client certificates, nil if nobody is asked for one.
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

// Expires returns when the certificate in use does.
func (c *Certificates) Expires() time.Time {
	leaf := c.current.Load().pair.Leaf
	if leaf == nil {
		return time.Time{}
	}
	return leaf.NotAfter
}

// Config returns what a listener is made with.
func (c *Certificates) Config() *tls.Config {
	return &tls.Config{
		MinVersion:         max(c.options.MinVersion, tls.VersionTLS12),
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return c.current.Load().config, nil },
	}
}

// config is what a connection is made with. Tickets of an earlier one are void.
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
