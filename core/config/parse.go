package config

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

func formatLevel(l slog.Level) string { return strings.ToLower(l.String()) }

func parseLevel(s string) (slog.Level, error) {
	levels := []slog.Level{slog.LevelDebug, slog.LevelInfo, slog.LevelWarn, slog.LevelError}
	i := slices.IndexFunc(levels, func(l slog.Level) bool { return formatLevel(l) == s })
	if i < 0 {
		return 0, errors.New("is not a log level")
	}
	return levels[i], nil
}

func parseBool(s string) (bool, error) {
	if s != "true" && s != "false" {
		return false, errors.New("is not a truth value")
	}
	return s == "true", nil
}

// parseSeconds reads a duration that must be in whole seconds, because AMQP transmits it so.
func parseSeconds(s string) (time.Duration, error) {
	d, err := ParseDuration(s)
	if err == nil && d%time.Second != 0 {
		err = errors.New("is not in whole seconds")
	}
	return d, err
}

// parseShare reads a part of a whole: "0.01" or "1%".
func parseShare(s string) (float64, error) {
	number, percent := strings.CutSuffix(s, "%")
	f, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
	if err != nil || math.IsNaN(f) {
		return 0, errors.New("is not a share such as 0.01 or 1%")
	}
	if percent {
		f /= 100
	}
	return f, nil
}

func formatShare(f float64) string { return strconv.FormatFloat(f, 'g', -1, 64) }

func checkAddress(s string) error {
	if s == "" {
		return nil
	}
	_, port, err := net.SplitHostPort(s)
	if err != nil {
		return missingPart(s)
	}
	if n, err := strconv.ParseUint(port, 10, 64); err != nil || n > 65535 {
		return fmt.Errorf("has the port %q, which is not 0 to 65535", port)
	}
	return nil
}

// missingPart guesses the intended address from an incomplete one.
func missingPart(s string) error {
	if _, err := strconv.ParseUint(s, 10, 16); err == nil {
		return fmt.Errorf("is a port without its colon (:%s?)", s)
	}
	if strings.Count(s, ":") > 1 && !strings.Contains(s, "[") {
		return errors.New("is not an address: an IPv6 host needs brackets, as in [::1]:5672")
	}
	return errors.New("is not an address such as :5672 or 127.0.0.1:5672")
}

// checkEndpoint checks the address of a collector, host:port or a URL; "" means none.
func checkEndpoint(s string) error {
	if s == "" {
		return nil
	}
	if strings.Contains(s, "://") {
		return checkCollectorURL(s)
	}
	if err := checkAddress(s); err != nil {
		return err
	}
	if strings.HasPrefix(s, ":") {
		return errors.New("has no host")
	}
	return nil
}

func checkCollectorURL(s string) error {
	u, err := url.Parse(s)
	if err != nil || u.Host == "" {
		return errors.New("is not a URL")
	}
	if u.Scheme != "http" && u.Scheme != "https" {
		return fmt.Errorf("is a URL of scheme %q, not http or https", u.Scheme)
	}
	if u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return errors.New("has more than host, port and path; credentials go into OTEL_EXPORTER_OTLP_HEADERS")
	}
	return nil
}

// checkTraceURL checks a link for browsers. Only the schemes http and https cannot run scripts.
func checkTraceURL(s string) error {
	const most, id = 2048, "{trace_id}"
	if s == "" {
		return nil
	}
	if len(s) > most {
		return fmt.Errorf("has %d bytes", len(s))
	}
	if err := checkLink(s); err != nil {
		return err
	}
	if !strings.Contains(s, id) {
		return errors.New("has no " + id)
	}
	return nil
}

// checkLink checks a URL for browsers. Host names with braces do not exist, so placeholders in the host are refused.
func checkLink(s string) error {
	u, err := url.Parse(s)
	if err != nil || u.Host == "" {
		return errors.New("is not a URL")
	}
	if u.Scheme != "http" && u.Scheme != "https" {
		return fmt.Errorf("is a URL of scheme %q, not http or https", u.Scheme)
	}
	if u.User != nil {
		return errors.New("has credentials, which all users of the page would see")
	}
	return nil
}

var hostName = regexp.MustCompile(`^[a-z0-9_]([a-z0-9_.-]{0,251}[a-z0-9_])?$`)

// checkHosts checks names of hosts, and converts them to lower case.
func checkHosts(words []string) error {
	for i, word := range words {
		words[i] = strings.ToLower(word)
		if !hostName.MatchString(words[i]) {
			return fmt.Errorf("has %q, which is not the name of a host without scheme and port", word)
		}
	}
	return nil
}
