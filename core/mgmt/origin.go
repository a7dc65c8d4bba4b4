package mgmt

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/curfewmq/curfew/core/auth"
	"github.com/curfewmq/curfew/core/wire/proxy"
)

// The origin of a request decides whether it gets metrics without a login, and whether the user guest, whose password is public, may log
// in. A client may make a request look as if it came from elsewhere, and gains nothing. A request from elsewhere must not look as if it
// came from here.

// origin returns the origin of the request. It does not believe the headers that proxies add, because any client can add them: they only
// show that there is a proxy. Clients behind a proxy on this machine share an address with local clients, and must not use up the local
// ones' attempts to log in.
func (c *caller) origin() auth.Origin {
	host := peerHost(c.r.RemoteAddr)
	here := c.elsewhere() == ""
	if !here && isLoopback(host) {
		host = "a proxy at " + host
	}
	return auth.Origin{Host: host, Loopback: here || !c.api.GuestLoopbackOnly, Now: c.api.Clock()}
}

// elsewhere returns the reason why a request does not count as one from this machine; "" if it does. A request from a loopback address may
// still come from elsewhere: through a proxy, or from a page in a local browser whose site claims to have moved to this machine.
func (c *caller) elsewhere() string {
	r := c.r
	switch {
	case isForwarded(r):
		return "it comes through a proxy of management.proxy-protocol"
	case !isLoopback(peerHost(r.RemoteAddr)):
		return "it does not come over a loopback address"
	case !c.api.namesMachine(hostName(r.Host)):
		return fmt.Sprintf("it is for the host %q, which is not a name of this machine", r.Host)
	case !r.ProtoAtLeast(1, 1):
		return "it is in HTTP/1.0, which proxies speak"
	}
	for name := range r.Header {
		if ofProxies(name) {
			return "it has the header " + name + ", which proxies add"
		}
	}
	if origin := r.Header.Get("Origin"); origin != "" && !c.api.isOurs(origin) {
		return fmt.Sprintf("it is made by a page from %q", origin)
	}
	return ""
}

// forwarded is the key of contexts of requests that come through a proxy which says so by the PROXY protocol.
type forwarded struct{}

// noteForwarded is the server's ConnContext.
func noteForwarded(ctx context.Context, conn net.Conn) context.Context {
	if proxy.Proxied(conn) {
		return context.WithValue(ctx, forwarded{}, true)
	}
	return ctx
}

func isForwarded(r *http.Request) bool { return r.Context().Value(forwarded{}) != nil }

// peerHost returns a peer's address without its port.
func peerHost(remote string) string {
	host, _, err := net.SplitHostPort(remote)
	if err != nil {
		return remote
	}
	return host
}

func isLoopback(host string) bool {
	addr, err := netip.ParseAddr(host)
	return err == nil && addr.Unmap().IsLoopback()
}

// ofProxies reports whether proxies add a header of that name.
func ofProxies(name string) bool {
	switch name {
	case "Forwarded", "Via", "Cdn-Loop", "X-Forwarded", "X-Real-Ip", "X-Client-Ip", "X-Cluster-Client-Ip", "True-Client-Ip", "X-Host":
		return true
	}
	return slices.ContainsFunc([]string{"X-Forwarded-", "X-Original-", "X-Envoy-", "X-Proxyuser-", "Cf-"}, func(prefix string) bool {
		return strings.HasPrefix(name, prefix)
	})
}

// hostName returns the name or address in a Host header, which may have a port.
func hostName(hostport string) string {
	host, _, err := net.SplitHostPort(hostport)
	if err != nil {
		host = strings.TrimSuffix(strings.TrimPrefix(hostport, "["), "]")
	}
	return strings.ToLower(strings.TrimSuffix(host, "."))
}

// namesMachine reports whether a host is certainly this machine: a loopback address, or a name that no outsider can point elsewhere.
func (a *API) namesMachine(host string) bool {
	if host == "localhost" || strings.HasSuffix(host, ".localhost") || isLoopback(host) { // [RFC 6761 6.3]
		return true
	}
	_, own, _ := strings.Cut(strings.ToLower(a.Node), "@")
	short, _, _ := strings.Cut(own, ".")
	return host != "" && (host == own || host == short)
}

// isOurs reports whether the origin that a browser sends is a page from this machine.
func (a *API) isOurs(origin string) bool {
	u, err := url.Parse(origin)
	return err == nil && a.namesMachine(hostName(u.Host))
}

// misdirected refuses requests for hosts that are not in Hosts, unless that is empty. Addresses pass: only with a name can a site
// make a browser believe that another machine belongs to it.
func (a *API) misdirected(r *http.Request) error {
	host := hostName(r.Host)
	if len(a.Hosts) == 0 || a.namesMachine(host) || slices.Contains(a.Hosts, host) {
		return nil
	}
	if _, err := netip.ParseAddr(host); err == nil {
		return nil
	}
	return &failure{http.StatusMisdirectedRequest, "misdirected_request", fmt.Sprintf("the host %q is not in management.hosts", r.Host)}
}

// crossOrigin keeps pages of other sites from using the login that a browser remembers. It has no state.
var crossOrigin = http.NewCrossOriginProtection()

// checkSite refuses requests that a page of another site makes, as far as browsers say so. Links from there are fine. Requests in
// the background are not, even if they change nothing: they can be costly, and never end.
func checkSite(r *http.Request) error {
	if err := crossOrigin.Check(r); err != nil {
		return &failure{http.StatusForbidden, "forbidden", err.Error()}
	}
	switch r.Header.Get("Sec-Fetch-Site") {
	case "", "none", "same-origin":
		return nil
	}
	if r.Header.Get("Sec-Fetch-Mode") == "navigate" && r.Header.Get("Sec-Fetch-Dest") == "document" {
		return nil
	}
	return &failure{http.StatusForbidden, "forbidden", "cross-origin request detected from Sec-Fetch-Site header"}
}
