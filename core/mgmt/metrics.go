package mgmt

import "net/http"

// isMetrics reports whether Options.Metrics answers for a path.
func isMetrics(path string) bool {
	return path == "/metrics" || path == "/metrics/per-object" || path == "/metrics/detailed"
}

// metrics answers requests from this machine, and requests of users that may monitor.
func (a *API) metrics(w http.ResponseWriter, r *http.Request) {
	if a.Metrics == nil {
		writeFailure(w, errNotFound)
		return
	}
	c := &request{api: a, w: w, r: r}
	if err := c.admitToMetrics(); err != nil { //nolint:contextcheck // the request has it
		c.refuse(err)
		return
	}
	a.Metrics.ServeHTTP(w, r)
}

func (c *request) admitToMetrics() error {
	if err := checkSite(c.r); err != nil {
		return err
	}
	if c.elsewhere() == "" {
		return nil
	}
	if err := c.authenticate(); err != nil {
		return err
	}
	return c.authorise(monitor)
}

// Unguarded answers probes, and requests for metrics without a login, from any machine. Its listener must be out of reach for everyone
// else.
func (a *API) Unguarded() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path := r.URL.EscapedPath()
		secure(w.Header(), r)
		if err := a.misdirected(r); err != nil {
			(&request{api: a, w: w, r: r}).refuse(err)
			return
		}
		switch {
		case isMetrics(path) && a.Metrics != nil:
			a.Metrics.ServeHTTP(w, r)
		case path == "/healthz" || path == "/readyz":
			a.ServeHTTP(w, r)
		default:
			writeFailure(w, errNotFound)
		}
	})
}
