package mgmt

import (
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// isMetrics reports whether Options.Metrics answers for a path.
func isMetrics(path string) bool {
	return path == "/metrics" || path == "/metrics/per-object" || path == "/metrics/detailed"
}

// metrics answers whoever asks from this machine, and users who may monitor.
func (a *API) metrics(w http.ResponseWriter, r *http.Request) {
	if a.Metrics == nil {
		writeFailure(w, errNotFound)
		return
	}
	c := &call{api: a, w: w, r: r}
	if err := c.admitToMetrics(); err != nil {
		c.refuse(err)
		return
	}
	a.Metrics.ServeHTTP(w, r)
}

func (c *call) admitToMetrics() error {
	if c.fromHere() {
		return nil
	}
	if err := c.authenticate(); err != nil {
		return err
	}
	return c.authorise(monitor)
}

// fromHere reports whether the request comes from this machine: not through a proxy on it, nor from a page in a browser on it
// whose site claims to have moved here.
func (c *call) fromHere() bool {
	host, _, err := net.SplitHostPort(c.r.RemoteAddr)
	if err != nil {
		return false
	}
	addr, err := netip.ParseAddr(host)
	if err != nil || !addr.Unmap().IsLoopback() {
		return false
	}
	for name := range c.r.Header {
		if ofProxies(name) {
			return false
		}
	}
	return namesMachine(c.r.Host)
}

// ofProxies reports whether a header is one that proxies add, whatever it says.
func ofProxies(name string) bool {
	return name == "Forwarded" || name == "X-Real-Ip" || name == "Via" || strings.HasPrefix(name, "X-Forwarded-")
}

// namesMachine reports whether a host as requests have it cannot be one of the internet's domains.
func namesMachine(hostport string) bool {
	host, _, err := net.SplitHostPort(hostport)
	if err != nil {
		host = strings.Trim(hostport, "[]")
	}
	if _, err := netip.ParseAddr(host); err == nil {
		return true
	}
	return !strings.Contains(strings.TrimSuffix(host, "."), ".")
}

// Unguarded answers what there is to see without a login, and metrics without one, wherever a request comes from. It is for a
// listener that only those can reach who may see this.
func (a *API) Unguarded() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path := r.URL.EscapedPath()
		switch {
		case isMetrics(path) && a.Metrics != nil:
			secure(w.Header(), r)
			a.Metrics.ServeHTTP(w, r)
		case path == "/healthz" || path == "/readyz":
			a.ServeHTTP(w, r)
		default:
			secure(w.Header(), r)
			writeFailure(w, errNotFound)
		}
	})
}

// Speaks is the version of RabbitMQ that the API is like.
const Speaks = speaks

// Cluster is what the broker is called together with others: the name that it was given, or else its own.
func (a *API) Cluster() string { return a.cluster() }
