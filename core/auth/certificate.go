package auth

import (
	"crypto/x509"
	"encoding/asn1"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/rabbit"
)

// External is the SASL mechanism of a login by the certificate that the client has shown [RFC 4422 A].
const External = "EXTERNAL"

// CertificateField names the field of a certificate that holds the name of the user.
type CertificateField uint8

// The fields. SAN is the subject alternative name.
const (
	NoField           CertificateField = iota // certificates log no user in
	DistinguishedName                         // of the subject, as RabbitMQ prints it: CN=app,O=Example
	CommonName                                // of the subject; if it has several, all of them, separated by commas
	SANDNS
	SANEmail
	SANURI
	SANIP
	SANOther // the text of an otherName, such as Microsoft's user principal name
)

// CertificateLogin says how certificates log users in. The zero value means that they do not.
type CertificateLogin struct {
	Field CertificateField
	Index int // of the subject alternative names of the type: 0 is the first
}

// On reports whether certificates log users in.
func (l CertificateLogin) On() bool { return l.Field != NoField }

// sanTags are the tags of subject alternative names [RFC 5280 4.2.1.6].
var sanTags = map[CertificateField]int{SANOther: 0, SANEmail: 1, SANDNS: 2, SANURI: 6, SANIP: 7}

// errNoName has RabbitMQ's text.
var errNoName = errors.New("no name found")

// Name returns the name of the user that a certificate belongs to. Errors describe the fault of the certificate.
func (l CertificateLogin) Name(cert *x509.Certificate) (string, error) {
	var name string
	var err error
	switch l.Field {
	case DistinguishedName:
		name, err = rabbit.DistinguishedName(cert.RawSubject)
	case CommonName:
		name, err = commonName(cert)
	default:
		name, err = l.alternative(cert)
	}
	switch {
	case err != nil:
		return "", err
	case name == "":
		return "", errNoName
	}
	return name, checkName("the name in the certificate", name)
}

func commonName(cert *x509.Certificate) (string, error) {
	attributes, err := rabbit.Attributes(cert.RawSubject)
	if err != nil {
		return "", err
	}
	var names []string
	for _, a := range attributes {
		if a.Type.Equal(rabbit.CommonName) {
			names = append(names, a.Text())
		}
	}
	return strings.Join(names, ","), nil
}

// sanExtension is the extension with the subject alternative names.
var sanExtension = asn1.ObjectIdentifier{2, 5, 29, 17}

// alternative returns the subject alternative name of the type at the index, "" if the certificate has too few of that type.
func (l CertificateLogin) alternative(cert *x509.Certificate) (string, error) {
	for _, e := range cert.Extensions {
		if !e.Id.Equal(sanExtension) {
			continue
		}
		var all []asn1.RawValue
		if _, err := asn1.Unmarshal(e.Value, &all); err != nil {
			return "", fmt.Errorf("subject alternative name: %w", err)
		}
		left := l.Index
		for _, v := range all {
			if v.Class != asn1.ClassContextSpecific || v.Tag != sanTags[l.Field] {
				continue
			}
			if left == 0 {
				return l.text(&v)
			}
			left--
		}
	}
	return "", nil
}

// text returns a subject alternative name as text.
func (l CertificateLogin) text(v *asn1.RawValue) (string, error) {
	switch l.Field {
	case SANIP:
		if len(v.Bytes) != net.IPv4len && len(v.Bytes) != net.IPv6len {
			return "", fmt.Errorf("subject alternative name: an address of %d bytes", len(v.Bytes))
		}
		return net.IP(v.Bytes).String(), nil
	case SANOther:
		return otherName(v.Bytes)
	}
	return string(v.Bytes), nil
}

func otherName(der []byte) (string, error) {
	var kind asn1.ObjectIdentifier
	rest, err := asn1.Unmarshal(der, &kind)
	if err != nil {
		return "", fmt.Errorf("subject alternative name: %w", err)
	}
	var explicit, value asn1.RawValue
	if _, err = asn1.Unmarshal(rest, &explicit); err == nil {
		_, err = asn1.Unmarshal(explicit.Bytes, &value)
	}
	if err != nil {
		return "", fmt.Errorf("subject alternative name: %w", err)
	}
	return rabbit.DecodeString(&value), nil
}

// LoginExternal logs a client in by the certificate that the client presented and TLS verified; nil = the client presented none. The
// name that the client sends with the mechanism is ignored. The error is a [*Refused].
func (s *Store) LoginExternal(cert *x509.Certificate, by CertificateLogin, from Origin) (User, error) {
	u, refused := s.byCertificate(cert, by, from)
	s.logins[bySASL].count(refused == nil)
	if refused != nil {
		return User{}, refused
	}
	return u, nil
}

// AuthenticateCertificate is [Store.LoginExternal] for HTTP.
func (s *Store) AuthenticateCertificate(cert *x509.Certificate, by CertificateLogin, from Origin) (User, error) {
	u, refused := s.byCertificate(cert, by, from)
	s.logins[byName].count(refused == nil)
	if refused != nil {
		refused.Mechanism = ""
		return User{}, refused
	}
	return u, nil
}

// Distrusted counts a login over HTTP by a certificate that is no longer trusted, and returns its refusal.
func (s *Store) Distrusted(why error) *Refused {
	s.logins[byName].count(false)
	r := unchecked(refuse("", "%.500v", why)) // it quotes certificates that the client has sent
	r.Mechanism = ""
	return r
}

// byCertificate needs no throttle: a client cannot guess a certificate, and the check costs nothing.
func (s *Store) byCertificate(cert *x509.Certificate, by CertificateLogin, from Origin) (User, *Refused) {
	if cert == nil {
		return User{}, unchecked(refuse("", "connection peer presented no TLS (x.509) certificate"))
	}
	name, err := by.Name(cert)
	if err != nil {
		return User{}, unchecked(refuse("", "%v", err))
	}
	u := s.user(name)
	switch {
	case u == nil:
		if r := s.unready(name); r != nil {
			return User{}, unchecked(r)
		}
		r := unchecked(refuse(name, "user '%s' - invalid credentials", name))
		r.unknown = true
		return User{}, r
	case name == Guest && !from.Loopback:
		r := unchecked(refuse(name, "user '%s' can only connect via localhost", name))
		r.Elsewhere = true
		return User{}, r
	}
	s.verifier.sources.succeeded(s.verifier.sources.source(network(from.Host)), name)
	return u.loggedIn(), nil
}

func unchecked(r *Refused) *Refused {
	r.Mechanism, r.unchecked = External, true
	return r
}

// NotExternal counts a login by [External] on a connection without TLS, and returns the login's error.
func (s *Store) NotExternal() error {
	s.logins[bySASL].count(false)
	return amqp.Errorf(amqp.ReplyCommandInvalid, "invalid authentication mechanism '%s'", External)
}
