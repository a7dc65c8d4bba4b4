package broker

import (
	"crypto/x509"
	"log/slog"
	"time"

	"github.com/curfewmq/curfew/core/rabbit"
)

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
