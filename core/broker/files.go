package broker

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"log/slog"
	"time"

	"github.com/curfewmq/curfew/core/config"
	"github.com/curfewmq/curfew/core/peer"
	"github.com/curfewmq/curfew/core/rabbit"
	"github.com/curfewmq/curfew/core/wire"
)

// CheckFiles reads the certificates and keys that a configuration names and without which the broker would not start.
func CheckFiles(c *config.Config) error {
	var errs []error
	switch { // the AMQP listener has all files of the management listener
	case c.Listen.AMQPS != "":
		_, err := wire.LoadCertificates(amqpTLS(c))
		errs = append(errs, err)
	case c.Listen.ManagementTLS != "":
		_, err := wire.LoadCertificates(managementTLS(c))
		errs = append(errs, err)
	}
	if c.Cluster.On() && c.Cluster.TLS.Cert != "" {
		_, err := peer.LoadTLS(peerTLS(c))
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// amqpTLS returns the TLS settings of the AMQP listener.
func amqpTLS(c *config.Config) wire.TLS {
	return wire.TLS{
		Cert: c.TLS.Cert, Key: c.TLS.Key, CA: c.TLS.CA,
		VerifyPeer: c.TLS.VerifyPeer, MinVersion: tlsVersion(c.TLS.MinVersion),
	}
}

// managementTLS returns the TLS settings of the API's listener. It asks for clients' certificates only if configured, because browsers that
// have one show their users a dialog then.
func managementTLS(c *config.Config) wire.TLS {
	t := wire.TLS{Cert: c.TLS.Cert, Key: c.TLS.Key, MinVersion: tlsVersion(c.TLS.MinVersion)}
	if c.Management.ClientCertificates != "off" {
		t.CA, t.VerifyPeer = c.TLS.CA, c.Management.ClientCertificates == "required"
	}
	return t
}

// peerTLS returns the files for the links between the nodes.
func peerTLS(c *config.Config) peer.TLSFiles {
	t := &c.Cluster.TLS
	return peer.TLSFiles{Cert: t.Cert, Key: t.Key, CA: t.CA, Address: c.Cluster.Advertise}
}

func tlsVersion(s string) uint16 {
	if s == "1.3" {
		return tls.VersionTLS13
	}
	return tls.VersionTLS12
}

// expiringWithin is how long before its end a certificate is logged when it is loaded.
const expiringWithin = 30 * 24 * time.Hour

// logExpiring logs certificates of listeners, and of the authorities of their clients, that have expired or will expire soon.
func (b *Broker) logExpiring() {
	now, logged := time.Now(), map[string]bool{}
	for _, l := range b.listeners() {
		for _, f := range l.Files {
			for _, cert := range f.Certificates {
				if id := f.Key + string(cert.Raw); !logged[id] { // listeners share files
					logged[id] = true
					logExpiring(b.log.With("key", f.Key, "file", f.Path), cert, now)
				}
			}
		}
	}
}

func logExpiring(log *slog.Logger, cert *x509.Certificate, now time.Time) {
	subject, err := rabbit.DistinguishedName(cert.RawSubject)
	if err != nil {
		subject = cert.Subject.String()
	}
	log = log.With("subject", subject)
	switch left := cert.NotAfter.Sub(now); {
	case left <= 0:
		log.Warn("a certificate has expired", "at", cert.NotAfter.UTC().Format(time.RFC3339))
	case left < expiringWithin:
		log.Warn("a certificate expires soon", "at", cert.NotAfter.UTC().Format(time.RFC3339), "days_left", int(left.Hours()/24))
	case cert.NotBefore.After(now):
		log.Warn("a certificate is not valid yet", "from", cert.NotBefore.UTC().Format(time.RFC3339))
	}
}
