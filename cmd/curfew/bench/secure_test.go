package bench

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestTLS(t *testing.T) {
	cases := []struct {
		name, line string
		want       string // part of the complaint; "" = it works
	}{
		{name: "with its authority", line: "--uri amqps://127.0.0.1/ --tls-ca CA"},
		{name: "by flag, on the default port", line: "--tls --tls-ca CA"},
		{name: "with any certificate", line: "--tls --tls-insecure --confirm 10 --prefetch 10"},
		{name: "large messages", line: "--tls --tls-insecure --size 200000"},
		{name: "with an unknown authority", line: "--tls", want: "certificate"},
		{name: "for another host", line: "--uri amqps://localhost --tls-ca CA", want: "localhost"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newFakeBroker()
				ca, cert := selfSigned(t)
				b.tls = &tls.Config{Certificates: []tls.Certificate{cert}}
				e, stdout, stderr := b.env(t)
				status := e.main(t.Context(), strings.Fields("--messages 50 --json "+strings.Replace(c.line, "CA", ca, 1)))
				if (status == 0) != (c.want == "") || !strings.Contains(stderr.String(), c.want) {
					t.Fatalf("exit status %d, stderr %q, want %q", status, stderr, c.want)
				}
				if c.want == "" && !strings.Contains(stdout.String(), `"consumed":50`) {
					t.Errorf("result %s, want 50 consumed", stdout)
				}
			})
		})
	}
}

// SelfSigned is a certificate for 127.0.0.1 that is its own authority, and its file.
func selfSigned(t *testing.T) (file string, cert tls.Certificate) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	file = filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	return file, tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}
