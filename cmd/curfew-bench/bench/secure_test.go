package bench

import (
	"bytes"
	"context"
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
		{name: "with an unknown authority", line: "--tls", want: "--tls-ca names the authorities"},
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

// The error names the kind of port. It was once EOF, a frame of type 72, or "tls: first record does not look like a TLS handshake".
func TestOtherKindsOfPortsAreTold(t *testing.T) {
	cases := []struct {
		name, line, answer string
		want               string
	}{
		{name: "TLS without --tls", want: "handshake: EOF: the other side hung up without a word: a port that wants TLS does (--tls)"},
		{name: "TLS that says so", answer: "\x15\x03\x01\x00\x02\x02\x46", want: ": this port speaks TLS (--tls)"},
		{name: "HTTP", answer: "HTTP/1.1 400 Bad Request\r\n\r\n", want: ": this port speaks HTTP, not AMQP"},
		{name: "--tls without TLS", line: "--tls --tls-insecure", answer: "AMQP\x00\x00\x09\x01", want: ": this port does not speak TLS"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			ours, theirs := net.Pipe()
			done := make(chan struct{})
			go func() {
				defer close(done)
				_, _ = theirs.Read(make([]byte, 4096)) // the client reports the error
				_, _ = theirs.Write([]byte(c.answer))
				_ = theirs.Close()
			}()
			var stderr bytes.Buffer
			e := env{stderr: &stderr, dial: func(context.Context, string) (net.Conn, error) { return ours, nil }}
			if status := e.main(t.Context(), strings.Fields(c.line)); status != 1 || !strings.Contains(stderr.String(), c.want) {
				t.Errorf("exit status %d, stderr %q, want %q", status, &stderr, c.want)
			}
			<-done
		})
	}
}

// selfSigned returns a certificate for 127.0.0.1 that is its own authority, and a file with it.
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
