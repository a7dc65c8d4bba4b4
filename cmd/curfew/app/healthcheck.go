package app

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/curfewmq/curfew/core/chain"
)

const healthcheckHelp = `
Without --url, the broker is the one that the same configuration describes: its
listen.metrics, else listen.management, else listen.management-tls is asked, on
this machine. The certificate of listen.management-tls is not checked, that of
an https URL is. Nothing needs a login.

The exit status is 0 if the broker is ready (with --live: if it works), 1 if it
is not, or does not answer, and 2 if the command or the configuration is wrong.

In a container: HEALTHCHECK CMD ["curfew", "healthcheck"]
`

// question is a request of healthcheck.
type question struct {
	url *url.URL
	own bool // the listener is configured here: its certificate need not be valid for the name used to reach it
}

func (a *app) healthcheck(args []string) int {
	f := newFlags("healthcheck", "Checks whether clients may connect to a running broker.")
	f.more = configHelp + healthcheckHelp
	read := configFlags(f)
	address := f.String("url", "", "check the broker at this `URL`, as in http://broker:15672")
	live := f.Bool("live", false, "only check that the process works, like /healthz; true while the broker starts or drains")
	timeout := f.Duration("timeout", 5*time.Second, "fail if there is no answer within this time (default 5s)")
	if code, done := a.parse(f, args); done {
		return code
	}
	if *timeout <= 0 {
		return a.misuse(f.Name(), fmt.Sprintf("the flag --timeout takes a duration above 0s, not %s", *timeout))
	}
	var q question
	var err error
	if *address != "" {
		q.url, err = parseBroker(*address)
	} else {
		file, set := read()
		c, problem := a.load(file, set, chain.Options{})
		if problem != nil {
			return a.refuseConfig(f.Name(), problem)
		}
		q.url, err = ownAddress(c)
		q.own = true
	}
	if err != nil {
		return a.misuse(f.Name(), err.Error())
	}
	word, path := "ready", "readyz"
	if *live {
		word, path = "live", "healthz"
	}
	q.url = q.url.JoinPath(path)
	ctx, cancel := context.WithTimeout(context.Background(), *timeout)
	defer cancel()
	if err := q.ask(ctx); err != nil {
		fmt.Fprintf(a.stderr, "curfew healthcheck: not %s: %v\n", word, err)
		return exitFailure
	}
	fmt.Fprintf(a.stdout, "%s: %s\n", word, q.url)
	return exitOK
}

// parseBroker parses the address of a broker's HTTP listener. The address of a probe is accepted, too.
func parseBroker(address string) (*url.URL, error) {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.RawQuery != "" || u.Fragment != "" {
		return nil, fmt.Errorf("the flag --url takes an address such as http://broker:15672, not %q", address)
	}
	if u.User != nil {
		return nil, errors.New("the flag --url takes no user: no request needs a login")
	}
	for _, probe := range []string{"/readyz", "/healthz"} {
		u.Path = strings.TrimSuffix(u.Path, probe)
	}
	return u, nil
}

// ownAddress returns the address, on this machine, of a listener that answers without a login.
func ownAddress(c configuration) (*url.URL, error) {
	for _, l := range []struct{ key, scheme, address string }{
		{"listen.metrics", "http", c.Listen.Metrics},
		{"listen.management", "http", c.Listen.Management},
		{"listen.management-tls", "https", c.Listen.ManagementTLS},
	} {
		if l.address == "" {
			continue
		}
		host, port, err := net.SplitHostPort(l.address)
		if err != nil || port == "0" {
			return nil, fmt.Errorf("the port of %s is not known: it is %s; name the broker with --url", l.key, l.address)
		}
		return &url.URL{Scheme: l.scheme, Host: net.JoinHostPort(ownHost(host), port)}, nil
	}
	return nil, errors.New("listen.metrics, listen.management and listen.management-tls are off, and nothing else answers: turn one on, as in listen.metrics: 127.0.0.1:15692")
}

// ownHost returns an address of this machine at which a listener's host can be reached.
func ownHost(host string) string {
	a, err := netip.ParseAddr(host)
	if host != "" && (err != nil || !a.IsUnspecified()) {
		return host
	}
	if err == nil && a.Is6() {
		return "::1"
	}
	return "127.0.0.1"
}

// maxAnswer bounds the bytes that are read of an answer.
const maxAnswer = 64 << 10

// ask returns nil if the answer is 200, otherwise the reason why it is not.
func (q question) ask(ctx context.Context) error {
	transport := &http.Transport{DisableKeepAlives: true} // and no proxy
	if q.own {
		transport.TLSClientConfig = &tls.Config{InsecureSkipVerify: true} //nolint:gosec // no secrets are sent, and only to this machine
	}
	client := http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, q.url.String(), http.NoBody)
	if err != nil {
		return err
	}
	answer, err := client.Do(r)
	if err != nil {
		if errors.Is(err, context.DeadlineExceeded) {
			return fmt.Errorf("%s does not answer in time", q.url)
		}
		return err
	}
	defer func() { _ = answer.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(answer.Body, maxAnswer))
	if answer.StatusCode == http.StatusOK {
		return err
	}
	return fmt.Errorf("%s answers %s%s", q.url, answer.Status, reasonsIn(body))
}

// reasonsIn returns the reasons in a probe's answer, after a colon.
func reasonsIn(body []byte) string {
	var a struct {
		Status  string   `json:"status"`
		Reasons []string `json:"reasons"`
	}
	if json.Unmarshal(body, &a) != nil {
		return ""
	}
	if text := cmp.Or(strings.Join(a.Reasons, ", "), a.Status); text != "" {
		return ": " + text
	}
	return ""
}
