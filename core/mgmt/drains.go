package mgmt

import (
	"net/http"
	"time"

	"github.com/curfewmq/curfew/core/mgmt/drain"
)

// drained is a handler for the drain of the broker.
func (a *API) drained(do handler) handler {
	return a.onNode(func(c *request) error {
		if a.Drain == nil {
			return errNotFound
		}
		return do(c)
	})
}

func (a *API) showDrain(c *request) error { return c.reply(a.Drain.Describe()) }

// beginDrain drains the broker, see the package's documentation.
func (a *API) beginDrain(c *request) error {
	r := c.body()
	r.Only("timeout_ms", "stop", "listening")
	o := drain.Order{Timeout: drain.DefaultTimeout, Stop: r.Flag("stop"), Listening: r.Flag("listening"), By: c.user.Name}
	if r.Has("timeout_ms") {
		ms := readNumber(r, "", "timeout_ms", drain.MinTimeout.Milliseconds(), drain.MaxTimeout.Milliseconds())
		o.Timeout = time.Duration(ms) * time.Millisecond
	}
	if err := r.Err(); err != nil {
		return err
	}
	if err := a.Drain.Begin(o); err != nil {
		return undrainable(err)
	}
	return c.reply(a.Drain.Describe())
}

// endDrain lets publishers and new connections in again.
func (a *API) endDrain(c *request) error {
	if err := a.Drain.End(c.user.Name); err != nil {
		return undrainable(err)
	}
	return c.done(nil)
}

// undrainable returns the answer of a broker that is ending, or whose addresses another process has taken.
func undrainable(err error) error {
	return &failure{http.StatusServiceUnavailable, "unavailable", err.Error()}
}
