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

// addressHelp is what usually helps against an address where nobody listens, or somebody else.
const addressHelp = "Is the broker running, and is this its address? --url, --host and --port, or CURFEW_CTL_URL, tell another one."

// speaksHelp returns what helps against an address that speaks another protocol; "" if the error does not say that it does.
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

// wantsTLS are how servers refuse plain HTTP on a port for TLS: Go's, nginx, and Apache.
var wantsTLS = [][]byte{
	[]byte("HTTP request to an HTTPS server"), []byte("plain HTTP request was sent to HTTPS port"), []byte("speaking plain HTTP to an SSL-enabled server port"),
}

// refusesPlain reports whether an answer says that the port is for TLS.
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

// plainRefused words the refusal of plain HTTP.
func (c *client) plainRefused() error {
	return &failure{unavailable, fmt.Sprintf("Error: %s speaks TLS, and the address says http://\n\nUse https://%s, with --cacert or --insecure if its certificate is not from a known authority.",
		c.base, strings.TrimPrefix(c.base, "http://"))}
}

// misread words the error of an answer that could not be read. want is what it should have been.
func (c *client) misread(answer *http.Response, want string, err error) error {
	path := answer.Request.URL.EscapedPath()
	kind, _, _ := mime.ParseMediaType(answer.Header.Get("Content-Type"))
	_, wrong := errors.AsType[*json.SyntaxError](err)
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF):
		return failed(unavailable, "the answer of %s%s broke off: the connection was cut, by the broker or by a proxy between", c.base, path)
	case kind == "text/html", errors.Is(err, io.EOF), wrong && !strings.Contains(kind, "json"):
		return failed(unavailable, "%s%s answers with %s and not with %s: is this the address of the broker, and does a proxy between leave answers as they are?",
			c.base, path, shownKind(kind, err), want)
	}
	return failed(unavailable, "%s%s answers what is not %s: %v", c.base, path, want, err)
}

// shownKind names what an answer is.
func shownKind(kind string, err error) string {
	switch {
	case errors.Is(err, io.EOF):
		return "nothing"
	case kind == "":
		return "something without a type"
	}
	return shown(kind)
}
