package mgmt

import "net/http"

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
	c := &request{api: a, w: w, r: r}
	if err := c.admitToMetrics(); err != nil { //nolint:contextcheck // a call has its request
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

// Unguarded answers what there is to see without a login, and metrics without one, wherever a request comes from. It is for a
// listener that only those can reach who may see this.
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

// Speaks is the version of RabbitMQ that the API is like.
const Speaks = speaks

// Cluster is what the broker is called together with others: the name that it was given, or else its own.
func (a *API) Cluster() string { return a.cluster() }
