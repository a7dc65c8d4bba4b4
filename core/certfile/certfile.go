// Package certfile reads files with certificates, and remembers their paths and
// configuration keys, for reports of when certificates expire.
package certfile

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"
)

// File is a file with certificates, as it was read last. It is read only.
type File struct {
	Key          string // of the configuration: "tls.cert" or "tls.ca"; for other nodes "cluster.tls.cert" or "cluster.tls.ca"
	Path         string
	Certificates []*x509.Certificate // at least one
}

// Parse returns the certificates of a PEM file. All of them must be readable, because a
// certificate that was left out would be missed later. Errors name key and path.
func Parse(key, path string, content []byte) (File, error) {
	f := File{Key: key, Path: path}
	for len(content) > 0 {
		var block *pem.Block
		if block, content = pem.Decode(content); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			continue
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return f, fmt.Errorf("%s %s: certificate %d: %w", key, path, len(f.Certificates)+1, err)
		}
		f.Certificates = append(f.Certificates, cert)
	}
	if len(f.Certificates) == 0 {
		return f, fmt.Errorf("%s: no certificate in %s", key, path)
	}
	return f, nil
}

// Pool returns the certificates as authorities.
func (f *File) Pool() *x509.CertPool {
	pool := x509.NewCertPool()
	for _, cert := range f.Certificates {
		pool.AddCert(cert)
	}
	return pool
}
