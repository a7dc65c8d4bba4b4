package config

import (
	"errors"
	"fmt"
	"math"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// Telemetry says what the broker tells of itself, and whom. What is left open here is for the OTEL_ variables of the
// environment to say.
type Telemetry struct {
	ServiceName string // "" = open
	Events      int    // that are remembered for the event stream
	OTLP        OTLP
	Traces      Traces
	Metrics     Metrics
}

// OTLP is the collector that spans and metrics are sent to.
type OTLP struct {
	Endpoint string // host:port, or a URL; "" = open
	Protocol OTLPProtocol
	Insecure bool // without TLS, where Endpoint is no URL that says so
}

// OTLPProtocol is what a collector is spoken to in.
type OTLPProtocol string

// The protocols.
const (
	ProtocolAuto OTLPProtocol = "auto" // open
	ProtocolGRPC OTLPProtocol = "grpc"
	ProtocolHTTP OTLPProtocol = "http"
)

// Exporter is where spans or metrics go.
type Exporter string

// The exporters.
const (
	ExportAuto   Exporter = "auto" // open
	ExportOff    Exporter = "off"
	ExportOTLP   Exporter = "otlp"
	ExportStdout Exporter = "stdout"
)

// Traces says which messages are traced.
type Traces struct {
	Exporter Exporter
	Sample   Optional[float64] // share of the messages that bring no context, 0 to 1
	Expiries Expiries
	Buffer   int // spans that may wait to be made; what is beyond is dropped
}

// Expiries says which expiries have spans.
type Expiries string

// The choices.
const (
	ExpiriesSampled Expiries = "sampled" // those of messages that are traced
	ExpiriesAlways  Expiries = "always"  // all
)

// Metrics says how often metrics are sent, and how many there are.
type Metrics struct {
	Exporter Exporter
	Interval Optional[time.Duration]
	Queues   int // that have series of their own
}

// Optional is a value that may be left open.
type Optional[T any] struct {
	Value T
	Given bool
}

// Or returns the value, or another where it is open.
func (o Optional[T]) Or(other T) T {
	if o.Given {
		return o.Value
	}
	return other
}

// leftOpen is how a value that is left open is written.
const leftOpen = "auto"

var errNotShare = errors.New("is not a share such as 0.01 or 1%")

// optional is a value from low to high, or none.
func optional[T int | float64 | time.Duration](p *Optional[T], low, high T, parse func(string) (T, error), format func(T) string) value {
	inRange := between(new(T), low, high, parse, format)
	return &parsed[Optional[T]]{
		p: p, accepted: leftOpen + ", or " + inRange.accepted,
		parse: func(s string) (Optional[T], error) {
			if s == leftOpen {
				return Optional[T]{}, nil
			}
			v, err := inRange.parse(s)
			return Optional[T]{v, true}, err
		},
		format: func(o Optional[T]) string {
			if !o.Given {
				return leftOpen
			}
			return format(o.Value)
		},
	}
}

// share is a part of a whole, from 0 to 1, or open.
func share(p *Optional[float64]) value { return optional(p, 0, 1, parseShare, formatShare) }

func parseShare(s string) (float64, error) {
	number, percent := strings.CutSuffix(s, "%")
	f, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
	if err != nil || math.IsNaN(f) {
		return 0, errNotShare
	}
	if percent {
		f /= 100
	}
	return f, nil
}

func formatShare(f float64) string { return strconv.FormatFloat(f, 'g', -1, 64) }

// interval is a duration, or open.
func interval(p *Optional[time.Duration], low, high time.Duration) value {
	return optional(p, low, high, parseDuration, formatDuration)
}

// endpoint is the address of a collector: host:port or a URL; "" is none.
func endpoint(p *string) value {
	return &chars{p: p, check: checkEndpoint, accepted: "host:port, or a URL such as http://collector:4318"}
}

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
