package telemetry

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// check checks the variables that the exporters read themselves.
func (s signal) check(endpointToo bool) error {
	var errs []error
	if endpointToo {
		errs = append(errs, checkURL(s.variable("ENDPOINT")))
	}
	_, err := truth(s.variable("INSECURE"))
	errs = append(errs, err, checkTimeout(s.variable("TIMEOUT")), checkHeaders(s.variable("HEADERS")))
	if name := s.variable("COMPRESSION"); !slices.Contains([]string{"", "gzip", "none"}, os.Getenv(name)) {
		errs = append(errs, badVariable(name, "is not a compression", "gzip, none"))
	}
	errs = append(errs, checkAuthorities(s.variable("CERTIFICATE")), checkPair(s.variable("CLIENT_CERTIFICATE"), s.variable("CLIENT_KEY")))
	return errors.Join(errs...)
}

// once joins errors without duplicates: both signals check the same variables.
func once(errs ...error) error {
	var all []error
	said := map[string]bool{}
	for len(errs) > 0 {
		err := errs[0]
		errs = errs[1:]
		if joined, ok := err.(interface{ Unwrap() []error }); ok {
			errs = append(slices.Clone(joined.Unwrap()), errs...)
			continue
		}
		if err != nil && !said[err.Error()] {
			said[err.Error()] = true
			all = append(all, err)
		}
	}
	return errors.Join(all...)
}

func checkURL(name string) error {
	v := os.Getenv(name)
	if v == "" {
		return nil
	}
	u, err := url.Parse(v)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || !isPort(u.Port()) {
		return badVariable(name, "is not the URL of a collector", "http://host:port or https://host:port")
	}
	return nil
}

// isPort reports whether a URL may have this port; "" is allowed.
func isPort(s string) bool {
	n, err := strconv.ParseUint(s, 10, 16)
	return s == "" || err == nil && n > 0
}

// checkTimeout refuses a value that would overflow when multiplied.
func checkTimeout(name string) error {
	const most = int64(24 * time.Hour / time.Millisecond)
	n, err := number(name, 1)
	if n > most {
		return badVariable(name, "is too long", fmt.Sprintf("milliseconds up to %d", most))
	}
	return err
}

// checkHeaders checks a list of headers. Its error does not repeat the value, which is secret.
func checkHeaders(name string) error {
	v := os.Getenv(name)
	if v == "" {
		return nil
	}
	for item := range strings.SplitSeq(v, ",") {
		key, value, ok := strings.Cut(item, "=")
		value, err := url.PathUnescape(strings.TrimSpace(value))
		if !ok || err != nil || !isToken(strings.TrimSpace(key)) || strings.ContainsFunc(value, unsendable) {
			return fmt.Errorf("%s: is not a list of headers; accepted: name=value, separated by commas, values percent-encoded", name)
		}
	}
	return nil
}

// isToken reports whether a header can have this name [RFC 9110 5.6.2].
func isToken(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		letter, digit := 'a' <= r|0x20 && r|0x20 <= 'z', '0' <= r && r <= '9'
		return !letter && !digit && !strings.ContainsRune("!#$%&'*+-.^_`|~", r)
	})
}

// unsendable reports whether a character is not allowed in a header: gRPC sends printable ASCII and spaces.
func unsendable(r rune) bool { return r < ' ' || r > '~' }

// checkAuthorities checks a file with certificates of authorities.
func checkAuthorities(name string) error {
	v := os.Getenv(name)
	if v == "" {
		return nil
	}
	pem, err := os.ReadFile(v)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if !x509.NewCertPool().AppendCertsFromPEM(pem) {
		return badVariable(name, "has no certificate in it", "a PEM file")
	}
	return nil
}

// checkPair checks the broker's own certificate and its key: both are set, or neither.
func checkPair(cert, key string) error {
	c, k := os.Getenv(cert), os.Getenv(key)
	switch {
	case c == "" && k == "":
		return nil
	case c == "":
		return fmt.Errorf("%s: is empty, and %s is not", cert, key)
	case k == "":
		return fmt.Errorf("%s: is empty, and %s is not", key, cert)
	}
	if _, err := tls.LoadX509KeyPair(c, k); err != nil {
		return fmt.Errorf("%s, %s: %w", cert, key, err)
	}
	return nil
}

// checkResource checks the resource, which is part of every export: an error in it would invalidate all exports.
func checkResource(service string) error {
	var errs []error
	if !utf8.ValidString(service) {
		errs = append(errs, fmt.Errorf("telemetry.service-name: %q is not a text; accepted: UTF-8", service))
	}
	if v := os.Getenv(envServiceName); !utf8.ValidString(v) {
		errs = append(errs, badVariable(envServiceName, "is not a text", "UTF-8"))
	}
	v := os.Getenv(envAttributes)
	if v == "" {
		return errors.Join(errs...)
	}
	for item := range strings.SplitSeq(v, ",") {
		key, value, ok := strings.Cut(item, "=")
		value, err := url.PathUnescape(strings.TrimSpace(value))
		if !ok || err != nil || !utf8.ValidString(key+value) {
			return errors.Join(append(errs, badVariable(envAttributes, "is not a list of attributes",
				"name=value, separated by commas, values percent-encoded"))...)
		}
	}
	return errors.Join(errs...)
}
