package telemetry

import (
	"cmp"
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

	"github.com/curfewmq/curfew/core/config"
	"github.com/curfewmq/curfew/core/otlp"
	core "github.com/curfewmq/curfew/core/telemetry"
)

// The variables for settings that the configuration leaves open, and those that the exporters read themselves. The latter are checked
// first, because exporters ignore wrong values.
const (
	envDisabled       = "OTEL_SDK_DISABLED"
	envServiceName    = "OTEL_SERVICE_NAME"
	envSampler        = "OTEL_TRACES_SAMPLER"
	envSamplerArg     = "OTEL_TRACES_SAMPLER_ARG"
	envMetricInterval = "OTEL_METRIC_EXPORT_INTERVAL"
	envMetricTimeout  = "OTEL_METRIC_EXPORT_TIMEOUT"
	envAttributes     = "OTEL_RESOURCE_ATTRIBUTES"
)

// settings are the result of configuration and environment.
type settings struct {
	service  string // "" = as in OTEL_RESOURCE_ATTRIBUTES, or curfew
	traces   export
	metrics  export
	sampling core.Sampling
	batches  otlp.Limits
	interval time.Duration // of metrics
}

// export describes the destination of spans or metrics.
type export struct {
	to       config.Exporter // never auto
	protocol config.OTLPProtocol
	endpoint string // of the collector, as in config.OTLP; "" = left to the variables
	insecure bool   // without TLS, if the endpoint is no URL
}

// settle computes the settings from the configuration and the environment.
func settle(c *config.Telemetry) (settings, error) {
	s := settings{service: c.ServiceName}
	disabled, err := truth(envDisabled)
	if err != nil {
		return settings{}, err
	}
	var wrong [7]error
	s.traces, wrong[0] = signal("TRACES").export(c, c.Traces.Exporter, disabled)
	s.metrics, wrong[1] = signal("METRICS").export(c, c.Metrics.Exporter, disabled)
	if s.traces.to != config.ExportOff {
		s.sampling, wrong[2] = sampling(c.Traces.Sample)
		s.batches, wrong[3] = limits(c.Traces.Buffer)
	}
	if s.metrics.to != config.ExportOff {
		s.interval, wrong[4] = interval(c.Metrics.Interval)
		_, wrong[5] = number(envMetricTimeout)
	}
	if s.traces.to != config.ExportOff || s.metrics.to != config.ExportOff {
		wrong[6] = checkResource(c.ServiceName)
	}
	if s.service == "" {
		s.service = os.Getenv(envServiceName)
	}
	return s, once(wrong[:]...)
}

func badVariable(name, problem, accepted string) error {
	return fmt.Errorf("%s: %q %s; accepted: %s", name, config.WithoutLogin(os.Getenv(name)), problem, accepted)
}

// truth reads a variable that is true or false; an absent one counts as false.
func truth(name string) (bool, error) {
	switch strings.ToLower(os.Getenv(name)) {
	case "", "false":
		return false, nil
	case "true":
		return true, nil
	}
	return false, badVariable(name, "is not a truth value", "true or false")
}

// number reads a variable that is a whole number from 1; an absent one counts as 0.
func number(name string) (int64, error) {
	v := os.Getenv(name)
	if v == "" {
		return 0, nil
	}
	n, err := strconv.ParseInt(v, 10, 64)
	if err != nil || n < 1 {
		return 0, badVariable(name, "is not such a number", "a whole number from 1")
	}
	return n, nil
}

// interval returns the time between two exports of metrics.
func interval(given config.Optional[time.Duration]) (time.Duration, error) {
	if given.Given {
		return given.Value, nil
	}
	ms, err := number(envMetricInterval)
	if ms == 0 {
		return time.Minute, err
	}
	return time.Duration(min(ms, int64(time.Hour/time.Millisecond))) * time.Millisecond, nil
}

// sampling decides which messages are traced.
func sampling(given config.Optional[float64]) (core.Sampling, error) {
	if given.Given {
		return core.Sampling{Ratio: given.Value}, nil
	}
	switch name, byRatio := strings.CutPrefix(os.Getenv(envSampler), "parentbased_"); name {
	case "", "always_on":
		return core.Sampling{Ratio: 1, ByRatio: !byRatio && name != ""}, nil
	case "always_off":
		return core.Sampling{ByRatio: !byRatio}, nil
	case "traceidratio":
		ratio, err := samplerRatio()
		return core.Sampling{Ratio: ratio, ByRatio: !byRatio}, err
	}
	return core.Sampling{}, badVariable(envSampler, "is not a sampler that Curfew has",
		"always_on, always_off, traceidratio, and these with parentbased_ before them")
}

func samplerRatio() (float64, error) {
	v := os.Getenv(envSamplerArg)
	if v == "" {
		return 1, nil
	}
	ratio, err := strconv.ParseFloat(v, 64)
	if err != nil || !(ratio >= 0 && ratio <= 1) {
		return 0, badVariable(envSamplerArg, "is not a share", "0 to 1")
	}
	return ratio, nil
}

// limits returns the limits of batches of spans. The number of waiting spans is waiting, unless a variable sets another.
func limits(waiting int) (otlp.Limits, error) {
	var errs []error
	read := func(name string, most, standard int64) int64 {
		n, err := number("OTEL_BSP_" + name)
		errs = append(errs, err)
		return min(cmp.Or(n, standard), most)
	}
	l := otlp.Limits{
		Delay:   time.Duration(read("SCHEDULE_DELAY", int64(time.Hour/time.Millisecond), 5000)) * time.Millisecond,
		Timeout: time.Duration(read("EXPORT_TIMEOUT", int64(time.Hour/time.Millisecond), 30_000)) * time.Millisecond,
		Waiting: int(read("MAX_QUEUE_SIZE", 1<<20, int64(waiting))),
		Batch:   int(read("MAX_EXPORT_BATCH_SIZE", 1<<20, 2048)),
	}
	l.Batch = min(l.Batch, (l.Waiting+3)/4) // other spans need space while a batch is filled
	return l, errors.Join(errs...)
}

// signal is TRACES or METRICS, as in the names of variables.
type signal string

// variable returns the name of a variable for the export of the signal: the signal's own variable if that is set.
func (s signal) variable(name string) string {
	if special := "OTEL_EXPORTER_OTLP_" + string(s) + "_" + name; os.Getenv(special) != "" {
		return special
	}
	return "OTEL_EXPORTER_OTLP_" + name
}

func (s signal) export(c *config.Telemetry, to config.Exporter, disabled bool) (export, error) {
	e := export{to: to, endpoint: c.OTLP.Endpoint, insecure: c.OTLP.Insecure, protocol: c.OTLP.Protocol}
	var err error
	switch {
	case disabled:
		e.to = config.ExportOff
	case to == config.ExportAuto:
		e.to, err = s.exporter(e.endpoint)
	}
	if err != nil || e.to != config.ExportOTLP {
		return e, err
	}
	if e.protocol == config.ProtocolAuto {
		e.protocol, err = s.protocol()
	}
	return e, errors.Join(err, s.check(e.endpoint == ""))
}

// exporter returns the environment's exporter for the signal. If a collector is named, in the configuration or in a variable, it gets
// the signal.
func (s signal) exporter(endpoint string) (config.Exporter, error) {
	name := "OTEL_" + string(s) + "_EXPORTER"
	switch v := os.Getenv(name); {
	case v == "none":
		return config.ExportOff, nil
	case v == "otlp":
		return config.ExportOTLP, nil
	case v == "console":
		return config.ExportStdout, nil
	case v == "prometheus" && s == "METRICS":
		return config.ExportOff, nil // /metrics is for that
	case v != "":
		return "", badVariable(name, "is not an exporter that Curfew has", "otlp, console, none")
	case endpoint != "" || os.Getenv(s.variable("ENDPOINT")) != "":
		return config.ExportOTLP, nil
	}
	return config.ExportOff, nil
}

func (s signal) protocol() (config.OTLPProtocol, error) {
	name := s.variable("PROTOCOL")
	switch os.Getenv(name) {
	case "", "grpc":
		return config.ProtocolGRPC, nil
	case "http/protobuf":
		return config.ProtocolHTTP, nil
	}
	return "", badVariable(name, "is not a protocol that Curfew has", "grpc, http/protobuf")
}

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
	n, err := number(name)
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
