package ctl

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"

	"github.com/curfewmq/curfew/cmd/curfew/usage"
)

// Environment variables, which apply if the flag is not given.
const (
	urlVariable      = "CURFEW_CTL_URL"
	usernameVariable = "CURFEW_CTL_USERNAME"
	passwordVariable = "CURFEW_CTL_PASSWORD"
	cacertVariable   = "CURFEW_CTL_CACERT"
	insecureVariable = "CURFEW_CTL_INSECURE"
	certVariable     = "CURFEW_CTL_CERT"
	keyVariable      = "CURFEW_CTL_KEY"
)

// connect returns a client for the API that flags and variables specify.
func connect(l *commandLine, environ []string) (*client, error) {
	env := usage.Variables(environ)
	cacert := cmp.Or(l.value("cacert"), env[cacertVariable])
	insecure := l.has("insecure") || env[insecureVariable] == "true" || env[insecureVariable] == "1"
	own := pair{cmp.Or(l.value("cert"), env[certVariable]), cmp.Or(l.value("key"), env[keyVariable])}
	at, err := locate(l, env, cacert != "" || insecure || own.cert != "")
	if err != nil {
		return nil, err
	}
	transport, err := secured(cacert, insecure)
	if err != nil {
		return nil, err
	}
	if transport.TLSClientConfig.Certificates, err = own.load(); err != nil {
		return nil, err
	}
	c := &client{http: &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
	var given bool
	c.user, c.password, given = credentials(l, env, at.User)
	if own.cert != "" && !given { // the certificate identifies the user
		c.user, c.password = "", ""
	}
	at.User = nil
	c.base = strings.TrimSuffix(at.String(), "/")
	return c, nil
}

// locate returns the API's address. Flags take precedence over variables, and variables over the host in --node.
func locate(l *commandLine, env map[string]string, secure bool) (*url.URL, error) {
	host, port := l.value("host"), l.value("port")
	switch {
	case l.has("url"):
		return parseURL("--url", l.value("url"))
	case host == "" && port == "" && env[urlVariable] != "":
		return parseURL(urlVariable, env[urlVariable])
	case host == "":
		host = nodeHost(l.value("node"))
	}
	scheme, usual := "http", "15672"
	if secure {
		scheme, usual = "https", "15671"
	}
	return &url.URL{Scheme: scheme, Host: net.JoinHostPort(strings.Trim(host, "[]"), cmp.Or(port, usual))}, nil
}

func parseURL(source, text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, misused("%s: not a URL of the kind http://HOST:PORT or https://HOST:PORT", source)
	}
	u.RawQuery, u.Fragment = "", ""
	return u, nil
}

// nodeHost returns the host in the name of a node. For this machine it is localhost, because guest may log in only from there.
func nodeHost(node string) string {
	_, host, ok := strings.Cut(node, "@")
	own, err := os.Hostname()
	short, _, _ := strings.Cut(own, ".")
	if !ok || host == "" || err == nil && (strings.EqualFold(host, own) || strings.EqualFold(host, short)) {
		return "localhost"
	}
	return host
}

// credentials returns the user and the password. given is false if both are defaults.
func credentials(l *commandLine, env map[string]string, inURL *url.Userinfo) (user, password string, given bool) {
	user, password = "guest", "guest"
	if v, ok := env[usernameVariable]; ok {
		user, given = v, true
	}
	if v, ok := env[passwordVariable]; ok {
		password, given = v, true
	}
	if inURL != nil {
		user, given = inURL.Username(), true
		if p, ok := inURL.Password(); ok {
			password = p
		}
	}
	if l.has("username") {
		user, given = l.value("username"), true
	}
	if l.has("password") {
		password, given = l.value("password"), true
	}
	return user, password, given
}

// pair names the files of the client's own certificate and its key, which may be in one file.
type pair struct{ cert, key string }

// load reads the files; it returns nil if no files are configured.
func (p pair) load() ([]tls.Certificate, error) {
	if p.cert == "" {
		if p.key != "" {
			return nil, misused("--key needs --cert")
		}
		return nil, nil
	}
	own, err := tls.LoadX509KeyPair(p.cert, cmp.Or(p.key, p.cert))
	if err != nil {
		return nil, &misuse{dataError, fmt.Sprintf("--cert %s, --key %s: %v", p.cert, cmp.Or(p.key, p.cert), err)}
	}
	return []tls.Certificate{own}, nil
}

// secured returns a transport that trusts the certificates in the file cacert, or any certificate if insecure. It uses no proxy,
// because a proxy would see the credentials.
func secured(cacert string, insecure bool) (*http.Transport, error) {
	t := &http.Transport{TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: insecure}}
	if cacert == "" {
		return t, nil
	}
	pem, err := os.ReadFile(cacert)
	if err != nil {
		return nil, &misuse{dataError, fmt.Sprintf("--cacert: %v", err)}
	}
	t.TLSClientConfig.RootCAs = x509.NewCertPool()
	if !t.TLSClientConfig.RootCAs.AppendCertsFromPEM(pem) {
		return nil, &misuse{dataError, "--cacert: there is no certificate in " + cacert}
	}
	return t, nil
}
