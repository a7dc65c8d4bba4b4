package bench

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
)

// secure sets up TLS if the flags or the URI ask for it.
func (o *options) secure(given map[string]bool) error {
	if o.tls && !given["uri"] {
		if err := o.broker.Set("amqps://guest:guest@127.0.0.1/"); err != nil {
			return err
		}
	}
	if !o.tls && !o.broker.secure {
		for _, name := range []string{"tls-ca", "tls-insecure", "tls-cert", "tls-key"} {
			if given[name] {
				return fmt.Errorf("--%s needs --tls, or a --uri with amqps", name)
			}
		}
		return nil
	}
	if o.tlsAny && o.tlsCA != "" {
		return errors.New("--tls-ca, --tls-insecure: only one of them: with the second any certificate will do")
	}
	roots, err := o.roots()
	if err != nil {
		return err
	}
	own, err := o.certificates()
	if err != nil {
		return err
	}
	host, _, err := net.SplitHostPort(o.broker.addr)
	o.broker.tls = &tls.Config{
		ServerName:                  host,
		RootCAs:                     roots,
		Certificates:                own,
		InsecureSkipVerify:          o.tlsAny,
		DynamicRecordSizingDisabled: true, // each message in one record, from the first
	}
	return err
}

// certificates returns the client's certificate; nil = none.
func (o *options) certificates() ([]tls.Certificate, error) {
	if o.tlsCert == "" {
		if o.tlsKey != "" {
			return nil, errors.New("--tls-key needs --tls-cert")
		}
		return nil, nil
	}
	key := cmp.Or(o.tlsKey, o.tlsCert)
	own, err := tls.LoadX509KeyPair(o.tlsCert, key)
	if err != nil {
		return nil, fmt.Errorf("--tls-cert %s, --tls-key %s: %w", o.tlsCert, key, err)
	}
	return []tls.Certificate{own}, nil
}

// roots returns the trusted authorities; nil = the system's.
func (o *options) roots() (*x509.CertPool, error) {
	if o.tlsCA == "" {
		return nil, nil
	}
	pem, err := os.ReadFile(o.tlsCA)
	if err != nil {
		return nil, fmt.Errorf("--tls-ca: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("--tls-ca %s: it contains no certificate", o.tlsCA)
	}
	return roots, nil
}
