package ctl

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"
)

// addressHelp is the advice for an address at which nothing listens, or another program.
const addressHelp = "Is the broker running, and is this its address? --url, --host and --port, or CURFEW_CTL_URL, specify another one."

// speaksHelp returns advice for an address with another protocol; "" if the error does not indicate that.
func (c *client) speaksHelp(err error) string {
	secured := "https://" + strings.TrimPrefix(c.base, "http://")
	switch text := err.Error(); {
	case strings.Contains(text, "server gave HTTP response to HTTPS client"):
		return "The address speaks HTTP without TLS: use http://" + strings.TrimPrefix(c.base, "https://") + " and neither --cacert nor --insecure."
	case strings.Contains(text, `malformed HTTP response "\x15\x03`), strings.Contains(text, "malformed HTTP status code \"\\x15"):
		return "The address speaks TLS: use " + secured + ", with --cacert or --insecure if its certificate is not from a known authority."
	case strings.Contains(text, `malformed HTTP response "AMQP`):
		return "The address speaks AMQP: the management API has another port, 15672 or 15671 over TLS unless it is configured."
	case strings.Contains(text, "first record does not look like a TLS handshake"):
		return "The address does not speak TLS. The management API without TLS has http:// and usually port 15672."
	}
	return ""
}

// wantsTLS are the texts with which servers refuse plain HTTP on a port for TLS: Go's, nginx and Apache.
var wantsTLS = [][]byte{
	[]byte("HTTP request to an HTTPS server"), []byte("plain HTTP request was sent to HTTPS port"), []byte("speaking plain HTTP to an SSL-enabled server port"),
}

// refusesPlain reports whether an answer is such a refusal.
func (c *client) refusesPlain(status int, body []byte) bool {
	if status != http.StatusBadRequest || !strings.HasPrefix(c.base, "http://") {
		return false
	}
	for _, text := range wantsTLS {
		if bytes.Contains(body, text) {
			return true
		}
	}
	return false
}

// plainRefused returns the error for a refusal of plain HTTP.
func (c *client) plainRefused() error {
	return &failure{unavailable, fmt.Sprintf("Error: %s speaks TLS, but the address begins with http://\n\nUse https://%s, with --cacert or --insecure if its certificate is not from a known authority.",
		c.base, strings.TrimPrefix(c.base, "http://"))}
}

// misread returns the error for an answer that could not be decoded. want names the expected content.
func (c *client) misread(answer *http.Response, want string, err error) error {
	path := answer.Request.URL.EscapedPath()
	kind, _, _ := mime.ParseMediaType(answer.Header.Get("Content-Type"))
	_, wrong := errors.AsType[*json.SyntaxError](err)
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF):
		return failed(unavailable, "the answer of %s%s broke off: the connection was cut, by the broker or by a proxy in between", c.base, path)
	case kind == "text/html", errors.Is(err, io.EOF), wrong && !strings.Contains(kind, "json"):
		return failed(unavailable, "%s%s answers with %s and not with %s: is this the address of the broker, and does a proxy in between change answers?",
			c.base, path, shownKind(kind, err), want)
	}
	return failed(unavailable, "%s%s did not send %s: %v", c.base, path, want, err)
}

// shownKind names the content of an answer.
func shownKind(kind string, err error) string {
	switch {
	case errors.Is(err, io.EOF):
		return "nothing"
	case kind == "":
		return "something without a type"
	}
	return shown(kind)
}
