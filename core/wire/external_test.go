package wire

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/auth"
)

// external starts a broker that logs users in by the common names of certificates. Its user app has no password.
func external(t *testing.T, a *authority, change ...func(*Options)) *Server {
	t.Helper()
	return start(t, append([]func(*Options){func(o *Options) {
		o.AMQP, o.AMQPS, o.TLS = "127.0.0.1:0", "127.0.0.1:0", a.server("broker")
		o.TLS.CA, o.Session.CertificateLogin, o.Session.GuestLoopbackOnly = a.path("ca.pem"), auth.CertificateLogin{Field: auth.CommonName}, true
		if _, err := o.Session.Users.Set(auth.Account{Name: "app"}); err != nil {
			t.Fatal(err)
		}
		if _, err := o.Session.Users.SetPermissions(auth.Grant{User: "app", VHost: "/", Permissions: auth.Permissions{Configure: ".*", Write: ".*", Read: ".*"}}); err != nil {
			t.Fatal(err)
		}
	}}, change...)...)
}

// greet sends the protocol header and returns the mechanisms that are announced.
func (c *client) greet() string {
	c.t.Helper()
	c.write([]byte(amqp.ProtocolHeader))
	return expectMethod[*amqp.ConnectionStart](c).Mechanisms
}

// ask requests a login by a mechanism, and reads a refusal.
func (c *client) ask(mechanism, response string) {
	c.t.Helper()
	c.send(0, &amqp.ConnectionStartOK{
		ClientProperties: amqp.Table{{Key: "capabilities", Value: amqp.Table{{Key: "authentication_failure_close", Value: true}}}},
		Mechanism:        mechanism, Response: response, Locale: "en_US",
	})
}

func dialTLS(t *testing.T, s *Server, config *tls.Config) *client {
	t.Helper()
	socket, err := tls.Dial("tcp", s.Addresses()[1].String(), config)
	if err != nil {
		t.Fatal(err)
	}
	return newClient(t, socket)
}

// The mechanism EXTERNAL is offered to clients with a certificate that the authorities signed. The user is the certificate's, whatever
// name the client sends.
func TestLoginByCertificate(t *testing.T) {
	a := newAuthority(t)
	s := external(t, a)
	for _, response := range []string{"", "guest", "\x00guest\x00guest", strings.Repeat("x", 4096)} {
		c := dialTLS(t, s, a.client("app"))
		if got := c.greet(); got != "EXTERNAL PLAIN AMQPLAIN" {
			t.Errorf("announced %q", got)
		}
		c.ask("EXTERNAL", response)
		expectMethod[*amqp.ConnectionTune](c)
		c.send(0, &amqp.ConnectionTuneOK{ChannelMax: 100, FrameMax: 131072}, &amqp.ConnectionOpen{VirtualHost: "/"})
		expectMethod[*amqp.ConnectionOpenOK](c)
		all := s.OpenConns()
		if len(all) != 1 || all[0].User != "app" || all[0].Mechanism != "EXTERNAL" {
			t.Errorf("listed: %+v", all)
		}
		c.close()
	}
}

func TestExternalIsNotAnnounced(t *testing.T) {
	a := newAuthority(t)
	s := external(t, a)
	if got := connect(t, s.Addresses()[0]).greet(); got != auth.Mechanisms {
		t.Errorf("announced without TLS: %q", got)
	}
	if got := dialTLS(t, s, a.client("")).greet(); got != auth.Mechanisms {
		t.Errorf("announced without a certificate: %q", got)
	}
	off := external(t, a, func(o *Options) { o.Session.CertificateLogin = auth.CertificateLogin{} })
	c := dialTLS(t, off, a.client("app"))
	if got := c.greet(); got != auth.Mechanisms {
		t.Errorf("announced although it is off: %q", got)
	}
}

func TestRefusedByCertificate(t *testing.T) {
	a := newAuthority(t)
	for _, tt := range []struct {
		name   string
		client *tls.Config
		want   string // in the log
	}{
		{"no certificate", a.client(""), "connection peer presented no TLS (x.509) certificate"},
		{"unknown", a.client("nobody"), "user 'nobody' - invalid credentials"},
		{"no name", a.client("x", func(c *x509.Certificate) { c.Subject = pkix.Name{Organization: []string{"x"}} }), "no name found"},
		{"NUL", a.client("nul", func(c *x509.Certificate) { c.Subject = pkix.Name{CommonName: "app\x00"} }), "not UTF-8 without NUL"},
		{"64 KiB", a.client("long", func(c *x509.Certificate) { c.Subject = pkix.Name{CommonName: strings.Repeat("x", 60<<10)} }), "at most 255 are allowed"},
		{"two names", a.client("two", func(c *x509.Certificate) {
			c.Subject = pkix.Name{CommonName: "app", ExtraNames: []pkix.AttributeTypeAndValue{{Type: asn1.ObjectIdentifier{2, 5, 4, 3}, Value: "guest"}, {Type: asn1.ObjectIdentifier{2, 5, 4, 3}, Value: "app"}}}
		}), "user 'guest,app' - invalid credentials"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			told := make(lines, 100)
			s := external(t, a, func(o *Options) { o.Session.Log = slog.New(slog.NewTextHandler(told, nil)) })
			c := dialTLS(t, s, tt.client)
			c.greet()
			c.ask("EXTERNAL", "")
			if m := expectMethod[*amqp.ConnectionClose](c); m.ReplyCode != amqp.ReplyAccessRefused ||
				m.ReplyText != "ACCESS_REFUSED - Login was refused using authentication mechanism EXTERNAL. For details see the broker logfile." {
				t.Errorf("closed with %d %s", m.ReplyCode, m.ReplyText)
			}
			for line := range told {
				if strings.Contains(line, "login refused") {
					if !strings.Contains(line, tt.want) {
						t.Errorf("logged %s, want %q", line, tt.want)
					}
					break
				}
			}
		})
	}
}

// TLS itself rejects untrusted certificates, before any AMQP is exchanged.
func TestWrongCertificates(t *testing.T) {
	a := newAuthority(t)
	s := external(t, a)
	for name, change := range map[string]func(*x509.Certificate){
		"expired": func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) },
		"not valid yet": func(c *x509.Certificate) {
			c.NotBefore, c.NotAfter = time.Now().Add(time.Hour), time.Now().Add(2*time.Hour)
		},
		"for servers": func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth} },
	} {
		t.Run(name, func(t *testing.T) {
			socket, err := tls.Dial("tcp", s.Addresses()[1].String(), a.client("app", change))
			if err != nil {
				return // with TLS 1.2
			}
			c := newClient(t, socket)
			_, _ = socket.Write([]byte(amqp.ProtocolHeader)) // it may have been closed
			c.ended()
		})
	}
	stranger := newAuthority(t).client("app")
	stranger.RootCAs = a.client("").RootCAs
	dialTLS(t, s, stranger).ended()
}

// guest may log in from this machine only, even with a certificate.
func TestGuestsCertificate(t *testing.T) {
	a := newAuthority(t)
	s := external(t, a)
	c := dialTLS(t, s, a.client("guest"))
	c.greet()
	c.ask("EXTERNAL", "")
	expectMethod[*amqp.ConnectionTune](c)
	host := someAddress(t)
	far := external(t, a, func(o *Options) { o.AMQPS = net.JoinHostPort(host, "0") })
	config := a.client("guest")
	config.InsecureSkipVerify = true // it is for another address
	c = dialTLS(t, far, config)
	c.greet()
	c.ask("EXTERNAL", "")
	if m := expectMethod[*amqp.ConnectionClose](c); m.ReplyCode != amqp.ReplyAccessRefused {
		t.Errorf("closed with %d %s", m.ReplyCode, m.ReplyText)
	}
}

// someAddress returns an address of this machine that is not a loopback address.
func someAddress(t *testing.T) string {
	t.Helper()
	all, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, at := range all {
		if n, ok := at.(*net.IPNet); ok && n.IP.IsGlobalUnicast() && n.IP.To4() != nil {
			return n.IP.String()
		}
	}
	t.Skip("this machine has no address but loopback ones")
	return ""
}

// A stranger must not fill the log: the certificates in a failed handshake may contain names of any length, which the reason quotes.
func TestFailedTLSIsLoggedShortly(t *testing.T) {
	a, other := newAuthority(t), newAuthority(t)
	long := strings.Repeat("\x01", 70<<10)
	fake, _ := other.issue("fake", nil, nil, func(c *x509.Certificate) { c.Subject = pkix.Name{CommonName: long} })
	issuer := *fake
	issuer.PublicKey = nil // so that another key may sign in its name
	cert, key := other.issue("app", &issuer, other.key)
	config := a.client("")
	config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { // whatever authorities the server lists
		return &tls.Certificate{Certificate: [][]byte{cert.Raw, fake.Raw}, PrivateKey: key}, nil
	}
	told := make(lines, 100)
	s := external(t, a, func(o *Options) { o.Session.Log = slog.New(slog.NewTextHandler(told, nil)) })
	dialTLS(t, s, config).ended()
	for line := range told {
		if strings.Contains(line, "TLS handshake failed") {
			if len(line) > 2000 {
				t.Errorf("logged %d bytes: %.400s", len(line), line)
			}
			return
		}
	}
}
