package broker

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/curfewmq/curfew/core/config"
	"github.com/curfewmq/curfew/core/mgmt"
	"github.com/curfewmq/curfew/core/wire"
	"github.com/curfewmq/curfew/core/wire/proxy"
)

// management is the management API, the metrics without login, and their listeners. It is empty while these are off.
type management struct {
	api          handlerSwitch
	unguarded    handlerSwitch // for the metrics listener, which needs no login
	servers      []*http.Server
	listeners    []managementListener
	certificates *wire.Certificates // nil without TLS
	connections  int                // at most, of each listener; 0 = any number
	proxies      proxy.Options
	failed       chan error // capacity 1: the error of a listener that ended by itself
	serving      sync.WaitGroup
}

type managementListener struct {
	net.Listener
	key      string // of the configuration
	protocol string // RabbitMQ's name
}

// metricsProtocol is RabbitMQ's name for a listener for metrics.
const metricsProtocol = "http/prometheus"

// listenManagement opens the listeners of the management API, all or none.
func listenManagement(ctx context.Context, c *config.Config, log *slog.Logger) (*management, error) {
	m := &management{connections: c.Limits.Management, failed: make(chan error, 1), proxies: proxy.Options{
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
		m.serving.Go(func() {
			if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
				m.fail(err)
			}
		})
	}
}

// fail reports that a listener has ended by itself. It keeps the first report.
func (m *management) fail(err error) {
	select {
	case m.failed <- err:
	default:
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

// describe returns the API's listeners.
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

// lastAnswers is how long the API may still answer requests after everything else has ended. Some requests never end, and some clients do
// not read.
const lastAnswers = 2 * time.Second

// shutdown waits for requests in progress, for lastAnswers at most and until ctx ends, and closes everything.
func (m *management) shutdown(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, lastAnswers)
	defer cancel()
	for _, s := range m.servers {
		_ = s.Shutdown(ctx)
		_ = s.Close() // cuts off requests that Shutdown has left
	}
	m.serving.Wait()
}

func (b *Broker) manage(ctx context.Context) (*mgmt.API, error) {
	o := b.server.Management()
	c := b.running
	o.Product, o.Version, o.Node, o.Log, o.LogLevel = "Curfew", b.o.Program.Version, NodeName(c), b.log, b.o.Level
	for _, p := range c.Plugins {
		o.Plugins = append(o.Plugins, p.Name)
	}
	o.Alarms, o.Listeners, o.Machine = b.Alarms, b.listeners, b.machine
	o.Lateness, o.Overstays = b.o.Recorder.Lateness().Read, b.o.Recorder.Lateness().Overstays
	o.GuestLoopbackOnly, o.FixedOperators = c.Auth.GuestLoopbackOnly, !c.Management.OperatorPolicyChanges
	o.CertificateLogin = certificateLogin(&c.Auth)
	if b.management.certificates != nil {
		o.VerifyClient = b.management.certificates.Verify
	}
	o.RatesInterval, o.BodyMax = c.Management.RatesInterval, int64(c.Management.BodySize)
	o.Hosts, o.Session, o.TraceURL = c.Management.Hosts, c.Management.Session, c.Management.TraceURL
	o.Profiles = c.Management.Pprof
	o.Events, o.ConnectionLimit = b.o.Recorder.Events(), c.Limits.Connections
	var a *mgmt.API
	if o.Store != nil {
		b.openDrain(&o)
		var err error
		if o.Metrics, err = b.measure(ctx, &o, func() string { return a.Cluster() }); err != nil {
			return nil, err
		}
	}
	a = mgmt.New(o) //nolint:contextcheck // requests have their own
	return a, nil
}

func (b *Broker) listeners() []mgmt.Listener {
	var all []mgmt.Listener
	names, addresses := b.amqpListeners(), b.server.Addresses()
	if !b.server.Listening() {
		addresses = nil
	}
	for i, addr := range addresses {
		l := mgmt.Listener{Protocol: names[i].protocol, Address: addr}
		if l.Protocol == "amqp/ssl" {
			l.Files = b.server.CertificateFiles()
		}
		all = append(all, l)
	}
	if l, clustered := b.server.NodeListener(); clustered {
		all = append(all, l)
	}
	return append(all, b.management.describe()...)
}

type listenerName struct{ key, protocol string }

// amqpListeners returns the configuration's and RabbitMQ's names of the broker's addresses, in their order.
func (b *Broker) amqpListeners() (names []listenerName) {
	if b.running.Listen.AMQP != "" {
		names = append(names, listenerName{"listen.amqp", "amqp"})
	}
	if b.running.Listen.AMQPS != "" {
		names = append(names, listenerName{"listen.amqps", "amqp/ssl"})
	}
	return names
}

// absolute returns the path as a user in another directory has to write it.
func absolute(path string) string {
	if full, err := filepath.Abs(path); err == nil {
		return full
	}
	return path
}

// machine describes the machine and this process.
func (b *Broker) machine() mgmt.Machine {
	m := describeProcess(b.running.Data.Dir)
	m.MemoryLimit, m.MemoryTotal, m.DataDir = b.limit, b.total, absolute(b.running.Data.Dir)
	m.LogFiles = []string{"<stderr>"} // as RabbitMQ has it
	if b.o.ConfigFile != "" {
		m.ConfigFiles = []string{absolute(b.o.ConfigFile)}
	}
	m.MemoryLimit, m.DiskLimit = uint64(max(b.server.MemoryLimit(), 0)), uint64(b.server.DiskLimit())
	return m
}

// pageAddress returns the address of the page on this machine, preferably without TLS; "" = there is no page.
func (m *management) pageAddress() string {
	for _, scheme := range []string{"http", "https"} {
		for _, l := range m.listeners {
			if l.protocol == scheme {
				return scheme + "://" + reachable(l.Addr().String()) + "/"
			}
		}
	}
	return ""
}

// reachable returns an address that reaches a listener: one that listens on all addresses has no address of its own.
func reachable(listener string) string {
	at, err := netip.ParseAddrPort(listener)
	if err != nil || !at.Addr().IsUnspecified() {
		return listener
	}
	_, port, _ := net.SplitHostPort(listener)
	return net.JoinHostPort("localhost", port)
}
