package mgmt

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/curfewmq/curfew/core/auth"
)

// Where a request comes from decides who may do without a login, for metrics, and whether the user guest may have one, whose
// password everybody knows. Anybody can make a request look as if it came from elsewhere, and nobody gains by that; what must
// not be is that one from elsewhere looks as if it came from here.

// origin is where the request comes from. Headers that proxies add are not believed: anybody can add them. They are taken for
// what they show, that there is a proxy. Those who come through one on this machine share an address with those who are here,
// and must not use up the attempts to log in that these have.
func (c *request) origin() auth.Origin {
	host := peerHost(c.r.RemoteAddr)
	here := c.elsewhere() == ""
	if !here && isLoopback(host) {
		host = "a proxy at " + host
	}
	return auth.Origin{Host: host, Loopback: here || !c.api.GuestLoopbackOnly, Now: c.api.Clock()}
}

// elsewhere says why the request is not taken for one from this machine; "" = it is. One that comes over a loopback address may
// still be somebody else's: a proxy's, or that of a page in a browser here whose site claims to have moved to this machine.
func (c *request) elsewhere() string {
	r := c.r
	switch {
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

// peerHost is the address in the address of a peer.
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

// ofProxies reports whether a header is one that proxies add, whatever it says.
func ofProxies(name string) bool {
	switch name {
	case "Forwarded", "Via", "Cdn-Loop", "X-Forwarded", "X-Real-Ip", "X-Client-Ip", "X-Cluster-Client-Ip", "True-Client-Ip", "X-Host":
		return true
	}
	return slices.ContainsFunc([]string{"X-Forwarded-", "X-Original-", "X-Envoy-", "X-Proxyuser-", "Cf-"}, func(prefix string) bool {
		return strings.HasPrefix(name, prefix)
	})
}

// hostName is the name or the address in a host as requests have it, which may have a port.
func hostName(hostport string) string {
	host, _, err := net.SplitHostPort(hostport)
	if err != nil {
		host = strings.TrimSuffix(strings.TrimPrefix(hostport, "["), "]")
	}
	return strings.ToLower(strings.TrimSuffix(host, "."))
}

// namesMachine reports whether a host is this machine, whoever says so: a loopback address, or a name that nobody can have
// point to where they like.
func (a *API) namesMachine(host string) bool {
	if host == "localhost" || strings.HasSuffix(host, ".localhost") || isLoopback(host) { // [RFC 6761 6.3]
		return true
	}
	_, own, _ := strings.Cut(strings.ToLower(a.Node), "@")
	short, _, _ := strings.Cut(own, ".")
	return host != "" && (host == own || host == short)
}

// isOurs reports whether an origin as browsers have it is a page from this machine.
func (a *API) isOurs(origin string) bool {
	u, err := url.Parse(origin)
	return err == nil && a.namesMachine(hostName(u.Host))
}

// misdirected refuses requests for hosts that are not ours, if it is known which are. Addresses are: it takes a name to have a
// browser believe that another machine is part of a site.
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

// crossOrigin keeps pages of other sites from using the login that a browser remembers. It holds no state.
var crossOrigin = http.NewCrossOriginProtection()

// checkSite refuses what a page of another site has a browser ask for, as far as browsers say so. To follow a link from there
// is fine; to make use of us beside what is shown is not, even where nothing is changed: it can be costly, and go on for ever.
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
