package bench

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
)

// secure decides whether and how to connect with TLS.
func (o *options) secure(given map[string]bool) error {
	if o.tls && !given["uri"] {
		if err := o.broker.Set("amqps://guest:guest@127.0.0.1/"); err != nil {
			return err
		}
	}
	if !o.tls && !o.broker.secure {
		if given["tls-ca"] || given["tls-insecure"] {
			return errors.New("--tls-ca and --tls-insecure need --tls, or a --uri with amqps")
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
	host, _, err := net.SplitHostPort(o.broker.addr)
	o.broker.tls = &tls.Config{
		ServerName:                  host,
		RootCAs:                     roots,
		InsecureSkipVerify:          o.tlsAny,
		DynamicRecordSizingDisabled: true, // one record for each message, from the first on
	}
	return err
}

// roots returns the authorities; nil = the system's.
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
		return nil, fmt.Errorf("--tls-ca %s: there is no certificate in it", o.tlsCA)
	}
	return roots, nil
}
