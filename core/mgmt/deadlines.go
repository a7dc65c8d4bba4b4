package mgmt

import (
	"errors"
	"net/url"

	"github.com/curfewmq/curfew/core/mgmt/live"
	"github.com/curfewmq/curfew/core/queue"
)

// deadlines counts when messages are due, see the package's documentation.
func (a *API) deadlines(c *request) error {
	n, err := bucketsOf(c.query.raw)
	if err != nil {
		return err
	}
	see := c.sees()
	var counts live.Counts
	a.survey.Read(func(r *live.Reading) { counts = r.Counts(see) })
	return c.reply(counts.Object(n))
}

// deadlinesOfQueue counts when the messages of one queue are due.
func (a *API) deadlinesOfQueue(c *request) error {
	n, err := bucketsOf(c.query.raw)
	if err != nil {
		return err
	}
	m, err := c.mailbox()
	if err != nil {
		return err
	}
	counts, err := live.Count(m)
	if errors.Is(err, queue.ErrGone) {
		return errNotFound
	}
	if err != nil {
		return err
	}
	return c.reply(counts.Object(n))
}

func (c *request) checkBuckets() error {
	_, err := bucketsOf(c.query.raw)
	return err
}

// bucketsOf returns the number of buckets of a histogram, and refuses parameters that histograms do not have.
func bucketsOf(q url.Values) (int, error) {
	if err := onlyParameters(q, []string{"buckets", "columns"}); err != nil {
		return 0, err
	}
	return live.ParseBuckets(q.Get("buckets"))
}
