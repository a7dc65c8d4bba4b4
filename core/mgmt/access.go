package mgmt

import (
	"context"
	"errors"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/curfewmq/curfew/core/auth"
)

// access is the right that an endpoint needs. Every user of the API has one of the tags management, policymaker, monitoring and
// administrator [RabbitMQ: management.html#permissions].
type access uint8

const (
	anyone           access = iota // any of these tags
	stranger                       // no login: the request is itself about a login
	inVHost                        // permissions in the vhost that the path names, too, or the tag administrator
	inVHostOrMonitor               // the same, or the tag monitoring
	monitor                        // monitoring or administrator
	policymaker                    // policymaker or administrator and, if the path names a vhost, permissions there
	administrator                  // that tag
)

// The tags that give access.
const (
	tagAdministrator = auth.Administrator
	tagMonitoring    = "monitoring"
	tagPolicymaker   = "policymaker"
	tagManagement    = "management"
)

func isAdministrator(u auth.User) bool { return u.Has(tagAdministrator) }
func isMonitor(u auth.User) bool       { return u.Has(tagMonitoring) || isAdministrator(u) }
func isPolicymaker(u auth.User) bool   { return u.Has(tagPolicymaker) || isAdministrator(u) }

func isAnyone(u auth.User) bool {
	return u.Has(tagManagement) || u.Has(tagPolicymaker) || isMonitor(u)
}

// loginTime is how long a login may wait for its turn.
const loginTime = 10 * time.Second

// authenticate checks the login. HTTP Basic authentication comes before a cookie, because a client has to choose to send it, and a cookie
// before a certificate, because browsers show certificates with every request. A session that has ended is ignored if there is a
// certificate.
func (c *caller) authenticate() error {
	if name, password, ok := c.r.BasicAuth(); ok {
		return c.check(name, password)
	}
	found, err := c.resume()
	if found && (err != errSessionEnded || !c.hasCertificate()) { //nolint:errorlint // resume returns it unwrapped
		return err
	}
	if c.hasCertificate() {
		return c.checkCertificate()
	}
	return c.noLogin()
}

// hasCertificate reports whether there is a certificate that may log the request in, which asks for no other login.
func (c *caller) hasCertificate() bool {
	return c.api.CertificateLogin.On() && c.r.Header.Get("Authorization") == "" && c.r.TLS != nil && len(c.r.TLS.VerifiedChains) > 0
}

// checkCertificate logs the request in with the client's certificate. The connection may be older than the end of the certificate or
// the last reload of the authorities, so that it is verified again.
func (c *caller) checkCertificate() error {
	shown := c.r.TLS.PeerCertificates
	if err := c.api.VerifyClient(shown); err != nil {
		return c.refuseLogin(c.api.users().Distrusted(err))
	}
	u, err := c.api.users().AuthenticateCertificate(shown[0], c.api.CertificateLogin, c.origin())
	if c.retryLogin(err) {
		u, err = c.api.users().AuthenticateCertificate(shown[0], c.api.CertificateLogin, c.origin())
	}
	if err == nil {
		c.user, c.certified = u, true
		return c.checkProof()
	}
	if refused, ok := errors.AsType[*auth.Refused](err); ok {
		return c.refuseLogin(refused)
	}
	return err
}

// noLogin returns the error of a request without a login that could be checked. RabbitMQ answers an unreadable header without a body; here
// users with a misspelt header get an error text.
func (c *caller) noLogin() error {
	scheme, _, _ := strings.Cut(c.r.Header.Get("Authorization"), " ")
	switch {
	case scheme == "":
		return errNoLogin
	case strings.EqualFold(scheme, "Basic"):
		return errBadLogin
	}
	return errLoginFailed
}

// check logs the request in with a name and a password.
func (c *caller) check(name, password string) error {
	ctx, cancel := context.WithTimeout(c.r.Context(), loginTime)
	defer cancel()
	u, err := c.api.users().Authenticate(ctx, name, password, c.origin())
	if c.retryLogin(err) {
		u, err = c.api.users().Authenticate(ctx, name, password, c.origin())
	}
	if err == nil {
		c.user = u
		return nil
	}
	if refused, ok := errors.AsType[*auth.Refused](err); ok {
		return c.refuseLogin(refused)
	}
	return err
}

// refuseLogin answers without the reason, which only the log gets.
func (c *caller) refuseLogin(r *auth.Refused) error {
	c.logRefusal(r)
	switch {
	case r.Unready:
		return c.errUnowned(registryText)
	case r.Elsewhere: // also after many failed attempts
		return errNotHere
	case r.Retry > 0:
		seconds := int(math.Ceil(r.Retry.Seconds()))
		c.w.Header().Set("Retry-After", strconv.Itoa(max(seconds, 1)))
		return &failure{http.StatusTooManyRequests, "too_many_requests", "Too many failed logins"}
	case r.Busy:
		c.w.Header().Set("Retry-After", "1")
		return &failure{http.StatusServiceUnavailable, "too_many_logins", "Too many logins at a time"}
	}
	return errLoginFailed
}

// logRefusal logs a refused login, unless there are too many.
func (c *caller) logRefusal(r *auth.Refused) {
	should, skipped := c.api.users().ShouldLog(r, c.api.Clock())
	if !should {
		return
	}
	log := c.api.Log.With("user", r.User, "client", c.r.RemoteAddr, "reason", r.Reason)
	if r.Elsewhere {
		why := c.elsewhere() // it quotes the request
		log = log.With("because", why[:min(len(why), 300)])
	}
	if skipped > 0 {
		log = log.With("not_told", skipped)
	}
	log.Warn("login refused")
}

var (
	errNoLogin     = &failure{status: http.StatusUnauthorized}
	errBadLogin    = &failure{http.StatusBadRequest, "bad_request", `header Authorization: after "Basic" comes NAME:PASSWORD in base64`}
	errLoginFailed = &failure{http.StatusUnauthorized, "not_authorized", "Login failed"}
	errNotHere     = notAuthorised("User can only log in via localhost")
)

// authorise checks that the user may use an endpoint, and looks up the vhost that the path names.
func (c *request) authorise(need access) error {
	if !isAnyone(c.user) {
		return notAuthorised("Not management user")
	}
	switch {
	case need == administrator && !isAdministrator(c.user):
		return notAuthorised("Not administrator user")
	case need == monitor && !isMonitor(c.user):
		return notAuthorised("Not monitor user")
	case need == policymaker && !isPolicymaker(c.user):
		return notAuthorised("User not authorised to access object")
	}
	return c.enterVHost(need)
}

func (c *request) enterVHost(need access) error {
	name, named := c.vars["vhost"]
	if !named {
		return nil
	}
	// Pages ask again and again, also as an administrator without rights in the vhost.
	looks := !c.forwarded && isAdministrator(c.user) && (c.r.Method == http.MethodGet || c.r.Method == http.MethodHead)
	if !c.forwarded && !c.api.nodes.knows(name) || !looks && c.api.users().OpenVHost(c.user.Name, name) != nil {
		c.freshen() // the vhost, or the right, may have been made at another node a moment ago
	}
	v, ok := c.api.Store.VHost(name)
	if !ok && c.forwarded {
		v, ok = c.awaitVHost(name)
	}
	if !ok && !c.api.nodes.knows(name) {
		return c.absentVHost()
	}
	switch {
	case need == inVHost && !c.mayEnter(name), need == inVHostOrMonitor && !isMonitor(c.user) && !c.mayEnter(name):
		return notAuthorised("User not authorised to access virtual host")
	case need == policymaker && !c.mayEnter(name):
		return notAuthorised("User not authorised to access object")
	}
	c.vhost = v // nil if it lives at another node
	return nil
}

// absentVHost returns the error for a vhost that does not exist.
func (c *request) absentVHost() error {
	_, ofUser := c.vars["user"]
	switch {
	case c.r.Method != http.MethodPut:
		return errNotFound
	case ofUser:
		return errNoUserOrVHost
	}
	return errNoVHost
}

// mayEnter reports whether the user may see into a vhost.
func (c *caller) mayEnter(vhost string) bool {
	return isAdministrator(c.user) || c.api.users().OpenVHost(c.user.Name, vhost) == nil
}
