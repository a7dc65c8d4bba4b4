package telemetry

import (
	"net/url"
	"os"
	"strings"

	"github.com/curfewmq/curfew/core/config"
	"github.com/curfewmq/curfew/core/otlp"
)

// Collectors describes the destinations of spans and metrics: "off", "stdout", or protocol and address of a collector.
func (t *Telemetry) Collectors() (traces, metrics string) {
	return describeExport("TRACES", t.settings.traces), describeExport("METRICS", t.settings.metrics)
}

func describeExport(s signal, e export) string {
	if e.to != config.ExportOTLP {
		return string(e.to)
	}
	c := collectorOf(s, e)
	address := c.Host + c.Path
	if c.Host == "" {
		address = withoutLogin(os.Getenv(s.variable("ENDPOINT")))
	}
	return string(e.protocol) + " " + address
}

// withoutLogin removes the secret part of a URL.
func withoutLogin(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return "(not a URL)"
	}
	u.User, u.RawQuery, u.Fragment = nil, "", ""
	return u.String()
}

// collectorOf returns the collector for a signal: the one in the configuration or the variables, otherwise one on this machine, which
// OpenTelemetry calls without TLS.
func collectorOf(s signal, e export) otlp.Collector {
	c := otlp.Collector{HTTP: e.protocol == config.ProtocolHTTP}
	switch {
	case e.endpoint != "":
		c.Host, c.Path, c.Insecure = parseEndpoint(e.endpoint, e.insecure)
	case os.Getenv(s.variable("ENDPOINT")) != "":
	case c.HTTP:
		c.Host, c.Insecure = "localhost:4318", true
	default:
		c.Host, c.Insecure = "localhost:4317", true
	}
	return c
}

// parseEndpoint parses host:port or a URL. The text has been checked.
func parseEndpoint(endpoint string, withoutTLS bool) (host, path string, insecure bool) {
	if !strings.Contains(endpoint, "://") {
		return endpoint, "", withoutTLS
	}
	u, err := url.Parse(endpoint)
	if err != nil {
		return endpoint, "", withoutTLS
	}
	return u.Host, u.Path, u.Scheme == "http"
}
