package mgmt

import (
	"errors"
	"net"
	"net/http"
	"strconv"
	"strings"

	"github.com/curfewmq/curfew/core/auth"
	"github.com/curfewmq/curfew/core/mgmt/definitions"
	"github.com/curfewmq/curfew/core/mgmt/jsonobj"
)

// A session keeps a browser logged in, by a cookie that scripts cannot read and that browsers send to this site only.

const (
	cookiePrefix = "curfew-session"
	// hostPrefix makes browsers refuse a cookie that is for more than one host, or that came without TLS [RFC 6265bis 4.1.3.2].
	hostPrefix = "__Host-"
	// maxCookies limits how many cookies of the session's name are read: other sites of the same host can add some.
	maxCookies = 16
	// maxLoginBody limits a request to log in, in bytes.
	maxLoginBody = 16 << 10
)

// cookieName returns the name of the session's cookie without its prefix. Cookies are not kept apart by ports, but brokers are.
func cookieName(r *http.Request) string {
	_, port, err := net.SplitHostPort(r.Host)
	if n, bad := strconv.ParseUint(port, 10, 16); err == nil && bad == nil {
		return cookiePrefix + "-" + strconv.FormatUint(n, 10)
	}
	return cookiePrefix
}

// cookies returns the sessions in the request's cookies. Cookies that no other host can have set come first.
func cookies(r *http.Request) (ids []auth.SessionID) {
	name, looked := cookieName(r), 0
	for _, name := range [...]string{hostPrefix + name, name} {
		for _, cookie := range r.CookiesNamed(name) {
			if looked++; looked > maxCookies {
				return ids
			}
			if id, ok := auth.ParseToken(cookie.Value); ok {
				ids = append(ids, id)
			}
		}
	}
	return ids
}

// hasCookie reports whether the request has a cookie of a session, which may have ended.
func hasCookie(r *http.Request) bool {
	name := cookieName(r)
	return len(r.CookiesNamed(name)) > 0 || len(r.CookiesNamed(hostPrefix+name)) > 0
}

// setCookie gives the browser a token; "" takes it away.
func (c *caller) setCookie(token string) {
	cookie := http.Cookie{Name: cookieName(c.r), Value: token, Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode}
	cookie.MaxAge = int(c.api.Session.Seconds())
	if token == "" {
		cookie.MaxAge = -1
	}
	if c.overTLS() {
		cookie.Secure, cookie.Name = true, hostPrefix+cookie.Name
	}
	http.SetCookie(c.w, &cookie)
}

// overTLS reports whether the browser speaks TLS, perhaps to a proxy: then the page says so when it logs in.
func (c *caller) overTLS() bool {
	return c.r.TLS != nil || strings.HasPrefix(c.r.Header.Get("Origin"), "https://")
}

var errSessionEnded = &failure{http.StatusUnauthorized, "not_authorized", "The session has ended: log in again"}

// resume logs the request in by its cookie. found is false without one.
func (c *caller) resume() (found bool, err error) {
	ids := cookies(c.r)
	if len(ids) == 0 {
		return false, nil
	}
	c.from = c.origin()
	for _, id := range ids {
		u, until, err := c.api.users().Resume(id, c.from)
		if err == nil {
			c.user, c.session, c.until = u, id, until
			return true, c.checkProof()
		}
		if refused, ok := errors.AsType[*auth.Refused](err); ok && refused.Elsewhere {
			return true, c.refuseLogin(refused)
		}
	}
	return true, errSessionEnded
}

var errNoProof = &failure{
	http.StatusForbidden, "forbidden",
	"a request that changes something by a session's cookie or a certificate needs the header Origin or Sec-Fetch-Site of a browser, or X-Requested-With",
}

// checkProof refuses a request that changes something by a cookie or a certificate without a proof that no page of another site has made
// it: browsers send both with the requests of any page. checkSite has already refused requests that come from another site by their own
// account.
func (c *caller) checkProof() error {
	switch h := c.r.Header; {
	case c.r.Method == http.MethodGet, c.r.Method == http.MethodHead:
	case h.Get("Sec-Fetch-Site") != "", h.Get("Origin") != "": // checkSite believes them
	case h.Get("X-Requested-With") != "": // other sites would have to ask before they send it
	default:
		return errNoProof
	}
	return nil
}

// renew looks up the user again, for answers that take long. It reports whether the login still holds.
func (c *caller) renew() bool {
	if c.certified && c.api.VerifyClient(c.r.TLS.PeerCertificates) != nil {
		return false
	}
	if c.session == (auth.SessionID{}) {
		u, ok := c.api.users().Still(c.user)
		if ok {
			c.user = u
		}
		return ok && isAnyone(u)
	}
	c.from.Now = c.api.Clock()
	u, _, err := c.api.users().Resume(c.session, c.from)
	if err == nil {
		c.user = u
	}
	return err == nil && isAnyone(c.user)
}

// sessionHandlers log browsers in and out.
type sessionHandlers struct {
	*Options
	nodes *nodes
}

// logIn begins a session. It needs no login before.
func (a *sessionHandlers) logIn(c *request) error {
	if err := c.checkLoginProof(); err != nil {
		return err
	}
	r := c.jsonBody(maxLoginBody)
	r.Only("user", "password")
	r.Need("user", "password")
	name, password := r.Text("user"), r.Text("password")
	if err := r.Err(); err != nil {
		return err
	}
	if err := c.check(name, password); err != nil {
		return err
	}
	if err := c.authorise(anyone); err != nil {
		return err
	}
	for _, id := range cookies(c.r) { // a new login must not continue a session that an attacker may have planted in the browser
		a.Store.Users().EndSession(id)
	}
	c.setCookie(a.Store.Users().OpenSession(c.user, a.Clock(), a.Session))
	return c.done(nil)
}

// checkLoginProof is checkProof for a login: another site must not log a browser in as another user. Forms of other sites cannot send JSON.
func (c *caller) checkLoginProof() error {
	if strings.HasPrefix(c.r.Header.Get("Content-Type"), "application/json") {
		return nil
	}
	if err := c.checkProof(); err != nil {
		return &failure{http.StatusForbidden, "forbidden", "a login needs the header Content-Type: application/json"}
	}
	return nil
}

// logOut ends the sessions that the request has cookies of.
func (a *sessionHandlers) logOut(c *request) error {
	ids := cookies(c.r)
	if len(ids) > 0 {
		if err := c.checkProof(); err != nil {
			return err
		}
	}
	for _, id := range ids {
		a.Store.Users().EndSession(id)
	}
	c.setCookie("")
	return c.done(nil)
}

// who returns the logged-in user, the end of the login, and the broker's settings that the page needs.
func (a *sessionHandlers) who(c *request) error {
	o := object{{"name", c.user.Name}, {"tags", definitions.Tags(c.user.Tags)}}
	if c.until != 0 {
		o.Add("expires_at", jsonobj.Instant(c.until))
	}
	return c.reply(append(o, object{
		{"node", a.Node}, {"cluster_name", a.nodes.clusterName()}, {"version", a.Version}, {"trace_url", jsonobj.OrNull(a.TraceURL)},
	}...))
}
