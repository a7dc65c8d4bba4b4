package auth

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"errors"
	"strings"
	"testing"

	"github.com/curfewmq/curfew/core/amqp"
)

// certificate returns a certificate with a subject and with alternative names in DER.
func certificate(tb testing.TB, subject pkix.RDNSequence, alternatives ...asn1.RawValue) *x509.Certificate {
	tb.Helper()
	name, err := asn1.Marshal(subject)
	if err != nil {
		tb.Fatal(err)
	}
	san, err := asn1.Marshal(alternatives)
	if err != nil {
		tb.Fatal(err)
	}
	return &x509.Certificate{RawSubject: name, Extensions: []pkix.Extension{{Id: asn1.ObjectIdentifier{2, 5, 29, 15}}, {Id: sanExtension, Value: san}}}
}

func named(names ...string) (all pkix.RDNSequence) {
	for _, n := range names {
		all = append(all, pkix.RelativeDistinguishedNameSET{{Type: asn1.ObjectIdentifier{2, 5, 4, 3}, Value: n}})
	}
	return all
}

func alternative(tag int, value string) asn1.RawValue {
	return asn1.RawValue{Class: asn1.ClassContextSpecific, Tag: tag, IsCompound: tag == 0, Bytes: []byte(value)}
}

// principal is an otherName as Microsoft's directories put users' names into certificates.
const principal = "\x06\x0a\x2b\x06\x01\x04\x01\x82\x37\x14\x02\x03\xa0\x11\x0c\x0fupn@example.com"

func TestNamesInCertificates(t *testing.T) {
	full := certificate(
		t, append(pkix.RDNSequence{{{Type: asn1.ObjectIdentifier{2, 5, 4, 10}, Value: "Example, Inc."}}}, named("first", "second")...),
		alternative(2, "app.example.com"), alternative(1, "app@example.com"), alternative(2, "second.example.com"), alternative(6, "urn:app"),
		alternative(7, "\x0a\x00\x00\x01"), alternative(7, "\xfe\x80"+strings.Repeat("\x00", 13)+"\x01"), alternative(0, principal),
	)
	bare := certificate(t, nil)
	for name, c := range map[string]struct {
		cert  *x509.Certificate
		field CertificateField
		index int
		want  string
		err   string
	}{
		"distinguished name":        {full, DistinguishedName, 0, `CN=second,CN=first,O=Example\, Inc.`, ""},
		"common names":              {full, CommonName, 0, "first,second", ""},
		"DNS":                       {full, SANDNS, 0, "app.example.com", ""},
		"another DNS":               {full, SANDNS, 1, "second.example.com", ""},
		"one too many":              {full, SANDNS, 2, "", "no name found"},
		"e-mail":                    {full, SANEmail, 0, "app@example.com", ""},
		"URI":                       {full, SANURI, 0, "urn:app", ""},
		"IPv4":                      {full, SANIP, 0, "10.0.0.1", ""},
		"IPv6":                      {full, SANIP, 1, "fe80::1", ""},
		"principal":                 {full, SANOther, 0, "upn@example.com", ""},
		"no subject":                {bare, DistinguishedName, 0, "", "no name found"},
		"no common name":            {bare, CommonName, 0, "", "no name found"},
		"no alternative":            {bare, SANDNS, 0, "", "no name found"},
		"half an address":           {certificate(t, nil, alternative(7, "\x0a\x00")), SANIP, 0, "", "an address of 2 bytes"},
		"half a principal":          {certificate(t, nil, alternative(0, principal[:20])), SANOther, 0, "", "subject alternative name"},
		"an empty common name":      {certificate(t, named("")), CommonName, 0, "", "no name found"},
		"NUL in it":                 {certificate(t, named("guest\x00evil")), CommonName, 0, "", "not UTF-8 without NUL"},
		"NUL in an alternative":     {certificate(t, nil, alternative(2, "guest\x00.evil")), SANDNS, 0, "", "not UTF-8 without NUL"},
		"no UTF-8":                  {certificate(t, nil, alternative(1, "a\xff@b")), SANEmail, 0, "", "not UTF-8 without NUL"},
		"NUL is escaped in a DN":    {certificate(t, named("guest\x00evil")), DistinguishedName, 0, `CN=guest\00evil`, ""},
		"64 KiB":                    {certificate(t, named(strings.Repeat("x", 64<<10))), DistinguishedName, 0, "", "the name in the certificate of 65539 bytes: at most 255 are allowed"},
		"as much as fits":           {certificate(t, named(strings.Repeat("x", 252))), DistinguishedName, 0, "CN=" + strings.Repeat("x", 252), ""},
		"line breaks, for the log":  {certificate(t, named("a\r\nb")), DistinguishedName, 0, `CN=a\0D\0Ab`, ""},
		"alternatives that are not": {&x509.Certificate{Extensions: []pkix.Extension{{Id: sanExtension, Value: []byte{0x30, 9}}}}, SANDNS, 0, "", "subject alternative name"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := CertificateLogin{c.field, c.index}.Name(c.cert)
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) {
					t.Fatalf("got %q, %v, want the error %q", got, err, c.err)
				}
				return
			}
			if got != c.want || err != nil {
				t.Errorf("got %q, %v, want %q", got, err, c.want)
			}
		})
	}
}

func TestLoginExternal(t *testing.T) {
	s, by := store(t), CertificateLogin{Field: CommonName}
	if _, err := s.Set(Account{Name: "app"}); err != nil { // without a password
		t.Fatal(err)
	}
	u, err := s.LoginExternal(certificate(t, named("app")), by, from(false))
	if err != nil || u.Name != "app" {
		t.Errorf("got %q, %v", u.Name, err)
	}
	if _, err := s.Login(t.Context(), "PLAIN", plainResponse("app", ""), from(true)); err == nil {
		t.Error("a user without a password logs in with an empty one")
	}
	for _, c := range []struct {
		name      string
		cert      *x509.Certificate
		loopback  bool
		want      string
		elsewhere bool
	}{
		{"no certificate", nil, true, "connection peer presented no TLS (x.509) certificate", false},
		{"a stranger", certificate(t, named("mallory")), true, "user 'mallory' - invalid credentials", false},
		{"guest from elsewhere", certificate(t, named("guest")), false, "user 'guest' can only connect via localhost", true},
		{"no name", certificate(t, nil), true, "no name found", false},
	} {
		_, err := s.LoginExternal(c.cert, by, from(c.loopback))
		var refused *Refused
		if !errors.As(err, &refused) || refused.Reason != c.want || refused.Mechanism != "EXTERNAL" || refused.Elsewhere != c.elsewhere {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
			continue
		}
		if r := refused.Reply(); r.Code != amqp.ReplyAccessRefused || !strings.Contains(r.Text, "Login was refused using authentication mechanism EXTERNAL. For details see the broker logfile.") {
			t.Errorf("%s: the client gets %v", c.name, r)
		}
	}
	if _, err := s.LoginExternal(certificate(t, named("guest")), by, from(true)); err != nil {
		t.Errorf("guest on this machine: %v", err)
	}
	if sasl, http := s.Attempts(); sasl != (Attempts{2, 5}) || http != (Attempts{}) {
		t.Errorf("counted %v of AMQP, %v of HTTP", sasl, http)
	}
	if _, err := s.AuthenticateCertificate(certificate(t, named("app")), by, from(false)); err != nil {
		t.Error(err)
	}
	if _, http := s.Attempts(); http != (Attempts{1, 0}) {
		t.Errorf("counted %v of HTTP", http)
	}
}
