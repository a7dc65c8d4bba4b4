package mgmt

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/curfewmq/curfew/core/auth"
)

// withCertificate returns a request over a connection whose client has shown a certificate of a common name.
func (r *rig) withCertificate(name, method, path, body string) *http.Request {
	r.t.Helper()
	subject, err := asn1.Marshal(pkix.Name{CommonName: name}.ToRDNSequence())
	must(r.t, err)
	cert := &x509.Certificate{RawSubject: subject}
	q := r.request("-", method, path, body)
	q.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{cert}, VerifiedChains: [][]*x509.Certificate{{cert}}}
	return q
}

// certified is a broker that logs users in by the common names of certificates. ops is an administrator without a password.
func certified(t *testing.T, verify func() error) *rig {
	t.Helper()
	r := newRig(t, func(o *Options) {
		o.CertificateLogin, o.GuestLoopbackOnly = auth.CertificateLogin{Field: auth.CommonName}, true
		o.VerifyClient = func([]*x509.Certificate) error { return verify() }
	})
	for name, tags := range map[string][]string{"ops": {"administrator"}, "app": nil} {
		_, err := r.api.users().Set(auth.Account{Name: name, Tags: tags})
		must(t, err)
	}
	return r
}

func trusted() error { return nil }

func TestCertificateLogsIn(t *testing.T) {
	r := certified(t, trusted)
	w := r.serve(r.withCertificate("ops", "GET", "/api/whoami", ""))
	if w.Code != http.StatusOK || !strings.Contains(w.Body.String(), `"name":"ops"`) {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	for _, c := range []struct {
		name, want string
	}{
		{"app", "Not management user"},
		{"nobody", "Login failed"},
		{"", "Login failed"},
		{"ops\x00", "Login failed"},
	} {
		w := r.serve(r.withCertificate(c.name, "GET", "/api/whoami", ""))
		if w.Code != http.StatusUnauthorized || !strings.Contains(w.Body.String(), c.want) {
			t.Errorf("%q: %d %s, want %s", c.name, w.Code, w.Body, c.want)
		}
	}
	if _, basic := r.api.users().Attempts(); basic.Succeeded != 2 || basic.Failed != 3 {
		t.Errorf("counted %+v", basic)
	}
}

// A name and a password come before a certificate, and so does the cookie of a session.
func TestCertificateComesLast(t *testing.T) {
	r := certified(t, trusted)
	q := r.withCertificate("ops", "GET", "/api/whoami", "")
	q.SetBasicAuth("guest", "guest")
	if w := r.serve(q); !strings.Contains(w.Body.String(), `"name":"guest"`) {
		t.Errorf("with a password: %d %s", w.Code, w.Body)
	}
	q = r.withCertificate("ops", "GET", "/api/whoami", "")
	q.SetBasicAuth("guest", "wrong")
	if w := r.serve(q); w.Code != http.StatusUnauthorized {
		t.Errorf("with a wrong password: %d %s", w.Code, w.Body)
	}
	q = r.withCertificate("ops", "GET", "/api/whoami", "")
	q.Header.Set("Authorization", "Bearer x")
	if w := r.serve(q); w.Code != http.StatusUnauthorized {
		t.Errorf("with a token: %d %s", w.Code, w.Body)
	}
	cookie := r.logIn(`{"user":"guest","password":"guest"}`)
	asOps := func() string {
		q := r.withCertificate("ops", "GET", "/api/whoami", "")
		q.AddCookie(cookie)
		return r.serve(q).Body.String()
	}
	if got := asOps(); !strings.Contains(got, `"name":"guest"`) {
		t.Errorf("with a session: %s", got)
	}
	r.with(cookie, "DELETE", "/api/session", "")
	if got := asOps(); !strings.Contains(got, `"name":"ops"`) {
		t.Errorf("with a session that has ended: %s", got)
	}
}

// Browsers show a certificate with the requests of any page: pages of other sites must not change anything by it.
func TestCrossSiteRequestsWithACertificate(t *testing.T) {
	r := certified(t, trusted)
	for _, c := range []struct {
		headers []string
		want    int
	}{
		{nil, http.StatusForbidden},
		{[]string{"Origin", "https://evil.example"}, http.StatusForbidden},
		{[]string{"Sec-Fetch-Site", "cross-site"}, http.StatusForbidden},
		{[]string{"Sec-Fetch-Site", "same-origin"}, http.StatusCreated},
		{[]string{"X-Requested-With", "curl"}, http.StatusNoContent},
		{[]string{"X-Requested-With", "curl", "Origin", "https://evil.example"}, http.StatusForbidden},
	} {
		q := r.withCertificate("ops", "PUT", "/api/vhosts/v", "")
		for i := 0; i < len(c.headers); i += 2 {
			q.Header.Set(c.headers[i], c.headers[i+1])
		}
		if w := r.serve(q); w.Code != c.want {
			t.Errorf("%v: %d %s, want %d", c.headers, w.Code, w.Body, c.want)
		}
	}
	if w := r.serve(r.withCertificate("ops", "GET", "/api/vhosts", "")); w.Code != http.StatusOK {
		t.Errorf("reading: %d", w.Code)
	}
}

// A connection may outlive the trust in its client: a certificate that has expired, or whose authority is gone, is no login.
func TestCertificateThatIsNotTrustedAnyMore(t *testing.T) {
	var distrust error
	r := certified(t, func() error { return distrust })
	ask := func() int { return r.serve(r.withCertificate("ops", "GET", "/api/whoami", "")).Code }
	if got := ask(); got != http.StatusOK {
		t.Fatalf("%d while it is trusted", got)
	}
	distrust = errors.New("certificate has expired")
	if got := ask(); got != http.StatusUnauthorized {
		t.Errorf("%d when it is not", got)
	}
}

// A stream of events or of a view lasts for hours. It ends when the certificate is not trusted any more, as a request would be refused.
func TestStreamByACertificateThatIsNotTrustedAnyMore(t *testing.T) {
	var distrust error
	r := certified(t, func() error { return distrust })
	c := &request{caller: caller{api: r.api, w: httptest.NewRecorder(), r: r.withCertificate("ops", "GET", "/api/events", "")}}
	must(t, c.authenticate())
	if !c.renew() {
		t.Fatal("ended while it is trusted")
	}
	distrust = errors.New("certificate signed by unknown authority")
	if c.renew() {
		t.Error("goes on when it is not trusted any more")
	}
}

func TestGuestsCertificateFromElsewhere(t *testing.T) {
	r := certified(t, trusted)
	q := r.withCertificate("guest", "GET", "/api/whoami", "")
	if w := r.serve(q); w.Code != http.StatusOK {
		t.Errorf("on this machine: %d %s", w.Code, w.Body)
	}
	q = r.withCertificate("guest", "GET", "/api/whoami", "")
	q.RemoteAddr = "192.0.2.1:9"
	if w := r.serve(q); w.Code != http.StatusUnauthorized || !strings.Contains(w.Body.String(), "User can only log in via localhost") {
		t.Errorf("from elsewhere: %d %s", w.Code, w.Body)
	}
}

// Without auth.certificate-login no certificate is a login.
func TestCertificatesAreOff(t *testing.T) {
	r := newRig(t)
	if w := r.serve(r.withCertificate("guest", "GET", "/api/whoami", "")); w.Code != http.StatusUnauthorized {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

func TestCipherSuites(t *testing.T) {
	for suite, want := range map[uint16][3]string{ // as RabbitMQ 3.10 lists them
		tls.TLS_AES_256_GCM_SHA384:                      {"any", "aes_256_gcm", "aead"},
		tls.TLS_CHACHA20_POLY1305_SHA256:                {"any", "chacha20_poly1305", "aead"},
		tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256:     {"ecdhe_ecdsa", "aes_128_gcm", "aead"},
		tls.TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256: {"ecdhe_rsa", "chacha20_poly1305", "aead"},
		tls.TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA:          {"ecdhe_rsa", "aes_128_cbc", "sha"},
	} {
		exchange, cipher, hash := suiteParts(tls.CipherSuiteName(suite))
		if got := [3]string{exchange, cipher, hash}; got != want {
			t.Errorf("%s: got %v, want %v", tls.CipherSuiteName(suite), got, want)
		}
	}
}

// A certificate may name a user that was added at another node a moment ago: the registry is asked once, as for a password.
func TestCertificateOfANewUser(t *testing.T) {
	c := newCluster(t, func(o *Options) {
		o.CertificateLogin = auth.CertificateLogin{Field: auth.CommonName}
		o.VerifyClient = func([]*x509.Certificate) error { return nil }
	})
	r := c.rigs[1]
	if w := r.serve(r.withCertificate("late", "GET", "/api/whoami", "")); w.Code != 401 || c.freshened != 1 {
		t.Errorf("nobody: got %d, and the registry was asked %d times", w.Code, c.freshened)
	}
	if w := r.serve(r.withCertificate("", "GET", "/api/whoami", "")); w.Code != 401 || c.freshened != 1 {
		t.Errorf("a certificate without a name: got %d, and the registry was asked %d times in all", w.Code, c.freshened)
	}
	c.news = func() {
		_, err := r.api.users().Set(auth.Account{Name: "late", Tags: []string{"monitoring"}})
		must(t, err)
	}
	if w := r.serve(r.withCertificate("late", "GET", "/api/whoami", "")); w.Code != 200 || !strings.Contains(w.Body.String(), `"name":"late"`) {
		t.Errorf("a user who is added meanwhile: got %d %s", w.Code, w.Body)
	}
}
