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

// Variables that stand in for flags.
const (
	urlVariable      = "CURFEW_CTL_URL"
	usernameVariable = "CURFEW_CTL_USERNAME"
	passwordVariable = "CURFEW_CTL_PASSWORD"
	cacertVariable   = "CURFEW_CTL_CACERT"
	insecureVariable = "CURFEW_CTL_INSECURE"
)

// connect returns a client for the API that flags and variables name.
func connect(l *commandLine, environ []string) (*client, error) {
	env := usage.Variables(environ)
	cacert := cmp.Or(l.value("cacert"), env[cacertVariable])
	insecure := l.has("insecure") || env[insecureVariable] == "true" || env[insecureVariable] == "1"
	at, err := locate(l, env, cacert != "" || insecure)
	if err != nil {
		return nil, err
	}
	transport, err := secured(cacert, insecure)
	if err != nil {
		return nil, err
	}
	c := &client{http: &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
	c.user, c.password = credentials(l, env, at.User)
	at.User = nil
	c.base = strings.TrimSuffix(at.String(), "/")
	return c, nil
}

// locate returns the API's address. Flags take precedence over variables, and these over the host in --node.
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

// nodeHost returns the host in a node's name. For this machine it is localhost, because guest may only log in from there.
func nodeHost(node string) string {
	_, host, ok := strings.Cut(node, "@")
	own, err := os.Hostname()
	short, _, _ := strings.Cut(own, ".")
	if !ok || host == "" || err == nil && (strings.EqualFold(host, own) || strings.EqualFold(host, short)) {
		return "localhost"
	}
	return host
}

func credentials(l *commandLine, env map[string]string, inURL *url.Userinfo) (user, password string) {
	user, password = "guest", "guest"
	if v, ok := env[usernameVariable]; ok {
		user = v
	}
	if v, ok := env[passwordVariable]; ok {
		password = v
	}
	if inURL != nil {
		user = inURL.Username()
		if p, ok := inURL.Password(); ok {
			password = p
		}
	}
	if l.has("username") {
		user = l.value("username")
	}
	if l.has("password") {
		password = l.value("password")
	}
	return user, password
}

// secured returns a transport that trusts the certificates in the file cacert, or any. It uses no proxy, so that nobody but the
// broker sees the credentials.
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
