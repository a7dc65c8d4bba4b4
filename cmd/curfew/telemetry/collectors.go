package telemetry

import (
	"net/url"
	"os"

	"github.com/curfewmq/curfew/core/config"
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
	address := c.host + c.path
	if c.host == "" {
		address = withoutLogin(os.Getenv(s.variable("ENDPOINT")))
	}
	return string(e.protocol) + " " + address
}

// withoutLogin removes the secret part of a URL.
func withoutLogin(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return "(what is no URL)"
	}
	u.User, u.RawQuery, u.Fragment = nil, "", ""
	return u.String()
}
