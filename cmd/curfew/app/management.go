package app

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/curfewmq/curfew/core/certfile"
	"github.com/curfewmq/curfew/core/mgmt"
	"github.com/curfewmq/curfew/core/wire"
	"github.com/curfewmq/curfew/core/wire/proxy"
)

// management is the management API, the metrics that need no login, and their listeners. It is empty while these are off.
type management struct {
	api          handlerSwitch
	unguarded    handlerSwitch // on the listener for metrics, which needs no login
	servers      []*http.Server
	listeners    []managementListener
	certificates *wire.Certificates // nil without TLS
	connections  int                // at a time, of each listener; 0 = any number
	proxies      proxy.Options
	ended        chan error // what each listener's Serve returned
}

type managementListener struct {
	net.Listener
	key      string // of the configuration
	protocol string // as RabbitMQ calls it
}

// metricsProtocol is RabbitMQ's name for a listener for metrics.
const metricsProtocol = "http/prometheus"

// listenManagement opens the listeners of the management API, all or none.
func listenManagement(ctx context.Context, c configuration, log *slog.Logger) (*management, error) {
	m := &management{connections: c.Limits.Management, ended: make(chan error, 3), proxies: proxy.Options{
		Proxies: c.Management.ProxyProtocol, Timeout: c.Limits.HandshakeTimeout, Most: c.Limits.Management, Key: "management.proxy-protocol", Log: log,
	}}
	var errs []error
	if addr := c.Listen.Management; addr != "" {
		errs = append(errs, m.listen(ctx, "listen.management", "http", addr, nil))
	}
	if addr := c.Listen.ManagementTLS; addr != "" {
		var err error
		m.certificates, err = wire.LoadCertificates(managementTLS(c))
		if err == nil {
			err = m.listen(ctx, "listen.management-tls", "https", addr, m.certificates.Config())
		}
		errs = append(errs, err)
	}
	if addr := c.Listen.Metrics; addr != "" {
		errs = append(errs, m.listen(ctx, "listen.metrics", metricsProtocol, addr, nil))
	}
	if err := errors.Join(errs...); err != nil {
		m.closeListeners()
		return nil, err
	}
	return m, nil
}

// managementTLS returns how the API listens with TLS. It asks for certificates of clients only where that is wanted: browsers that
// have some bother their users.
func managementTLS(c configuration) wire.TLS {
	t := wire.TLS{Cert: c.TLS.Cert, Key: c.TLS.Key, MinVersion: tlsVersion(c.TLS.MinVersion)}
	if c.Management.ClientCertificates != "off" {
		t.CA, t.VerifyPeer = c.TLS.CA, c.Management.ClientCertificates == "required"
	}
	return t
}

func (m *management) listen(ctx context.Context, key, protocol, addr string, secure *tls.Config) error {
	ln, err := wire.Listen(ctx, m.proxies.Log, key, addr, operatorDescriptors(filesLimit()))
	if err != nil {
		return err
	}
	if protocol != metricsProtocol {
		ln = proxy.Listen(ln, m.proxies)
	}
	if secure != nil {
		ln = tls.NewListener(ln, secure)
	}
	m.listeners = append(m.listeners, managementListener{ln, key, protocol})
	return nil
}

func (m *management) closeListeners() {
	for _, l := range m.listeners {
		_ = l.Close() // nothing was accepted from it
	}
}

// handlerSwitch passes requests to a handler that can be replaced. Any goroutine may use it.
type handlerSwitch struct{ current atomic.Pointer[http.Handler] }

func (s *handlerSwitch) set(to http.Handler) { s.current.Store(&to) }

func (s *handlerSwitch) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	(*s.current.Load()).ServeHTTP(w, r)
}

// serve begins to answer requests: the broker is starting.
func (m *management) serve(log *slog.Logger) {
	m.api.set(mgmt.Starting())
	m.unguarded.set(mgmt.Starting())
	for _, l := range m.listeners {
		handler := &m.api
		if l.protocol == metricsProtocol {
			handler = &m.unguarded
		}
		s := mgmt.Server(handler, log, m.connections)
		m.servers = append(m.servers, s)
		go func() { m.ended <- s.Serve(l) }()
	}
}

// open lets the API answer requests.
func (m *management) open(a *mgmt.API) {
	for _, s := range m.servers {
		s.RegisterOnShutdown(a.EndStreams)
	}
	m.api.set(a)
	m.unguarded.set(a.Unguarded())
}

// describe returns what the API listens on.
func (m *management) describe() []mgmt.Listener {
	all := make([]mgmt.Listener, len(m.listeners))
	for i, l := range m.listeners {
		all[i] = mgmt.Listener{Protocol: l.protocol, Address: l.Addr()}
		if l.protocol == "https" {
			all[i].Files = m.certificates.Files()
		}
	}
	return all
}

// reloadTLS reads the certificate again.
func (m *management) reloadTLS() error {
	if m.certificates == nil {
		return nil
	}
	return m.certificates.Reload()
}

// lastAnswers bounds answering the last requests, after everything else has ended. Some never end, and some clients do not read.
const lastAnswers = 2 * time.Second

// shutdown waits a little for requests to be answered, at most until ctx ends, and closes everything.
func (m *management) shutdown(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, lastAnswers)
	defer cancel()
	for _, s := range m.servers {
		_ = s.Shutdown(ctx)
		_ = s.Close() // cuts off what Shutdown left
	}
	for range m.listeners {
		<-m.ended
	}
}

// manage returns the API of the running broker.
func (s *service) manage(ctx context.Context) (*mgmt.API, error) {
	o := s.broker.Management()
	c := s.running.Config
	o.Product, o.Version, o.Node, o.Log, o.LogLevel = "Curfew", version, nodeName(c), s.log, s.level
	for _, p := range s.running.Plugins {
		o.Plugins = append(o.Plugins, p.Name)
	}
	o.Alarms, o.Listeners, o.Machine = s.alarms, s.listeners, s.machine
	o.Lateness, o.Overstays = s.telemetry.Recorder.Lateness().Read, s.telemetry.Recorder.Lateness().Overstays
	o.GuestLoopbackOnly, o.FixedOperators = c.Auth.GuestLoopbackOnly, !c.Management.OperatorPolicyChanges
	o.CertificateLogin = certificateLogin(&c.Auth)
	if s.management.certificates != nil {
		o.VerifyClient = s.management.certificates.Verify
	}
	o.RatesInterval, o.BodyMax = c.Management.RatesInterval, int64(c.Management.BodySize)
	o.Hosts, o.Session, o.TraceURL = c.Management.Hosts, c.Management.Session, c.Management.TraceURL
	o.Profiles = c.Management.Pprof
	o.Events, o.ConnectionLimit = s.telemetry.Recorder.Events(), c.Limits.Connections
	var a *mgmt.API
	if o.Store != nil {
		s.openDrain(&o)
		var err error
		if o.Metrics, err = s.measure(ctx, &o, func() string { return a.Cluster() }); err != nil {
			return nil, err
		}
	}
	a = mgmt.New(o) //nolint:contextcheck // requests have their own
	return a, nil
}

// listeners returns what the broker listens on.
func (s *service) listeners() []mgmt.Listener {
	var all []mgmt.Listener
	names, addresses := s.amqpListeners(), s.broker.Addresses()
	if !s.accepts() {
		addresses = nil
	}
	for i, addr := range addresses {
		l := mgmt.Listener{Protocol: names[i].protocol, Address: addr}
		if l.Protocol == "amqp/ssl" {
			l.Files = s.certificateFiles()
		}
		all = append(all, l)
	}
	if n, ok := s.broker.(interface{ NodeListener() (mgmt.Listener, bool) }); ok {
		if l, clustered := n.NodeListener(); clustered {
			all = append(all, l)
		}
	}
	return append(all, s.management.describe()...)
}

type listenerName struct{ key, protocol string }

// amqpListeners returns the configuration's and RabbitMQ's names of the broker's addresses, in their order.
func (s *service) amqpListeners() (names []listenerName) {
	if s.running.Listen.AMQP != "" {
		names = append(names, listenerName{"listen.amqp", "amqp"})
	}
	if s.running.Listen.AMQPS != "" {
		names = append(names, listenerName{"listen.amqps", "amqp/ssl"})
	}
	return names
}

// certificateFiles returns the certificates of the AMQP listener.
func (s *service) certificateFiles() []certfile.File {
	if b, ok := s.broker.(interface{ CertificateFiles() []certfile.File }); ok {
		return b.CertificateFiles()
	}
	return nil
}

// limited is a broker whose limits for memory and disk can be changed.
type limited interface {
	MemoryLimit() int64
	SetMemoryLimit(bytes int64)
	DiskLimit() int64
	SetDiskLimit(bytes int64)
}

// absolute returns the path for users in another directory.
func absolute(path string) string {
	if full, err := filepath.Abs(path); err == nil {
		return full
	}
	return path
}

// machine describes the machine and this process.
func (s *service) machine() mgmt.Machine {
	m := describeProcess(s.running.Data.Dir)
	m.MemoryLimit, m.MemoryTotal, m.DataDir = s.limit, s.total, absolute(s.running.Data.Dir)
	m.LogFiles = []string{"<stderr>"} // as RabbitMQ has it
	if s.running.file != "" {
		m.ConfigFiles = []string{absolute(s.running.file)}
	}
	if b, ok := s.broker.(limited); ok {
		m.MemoryLimit, m.DiskLimit = uint64(max(b.MemoryLimit(), 0)), uint64(b.DiskLimit())
	}
	return m
}
