package mgmt

import (
	"errors"
	"net/url"
	"strings"

	"github.com/curfewmq/curfew/core/mgmt/live"
	"github.com/curfewmq/curfew/core/mgmt/pattern"
	"github.com/curfewmq/curfew/core/queue"
)

// deadlines counts when messages are due, see the package's documentation.
func (a *liveHandlers) deadlines(c *request) error {
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
func deadlinesOfQueue(c *request) error {
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

func checkBuckets(c *request) error {
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

// readDeadlines reads the parameters of the view deadlines.
func readDeadlines(a *liveHandlers, q url.Values) (func(*watcher) maker, error) {
	d, err := deadlinesView(a.turns, q)
	if err != nil {
		return nil, err
	}
	sort, err := choiceOf(q, "sort", live.RowMembers, "next_deadline")
	if err != nil {
		return nil, err
	}
	reverse, err := truthOf(q, "sort_reverse")
	return func(w *watcher) maker {
		own := d
		own.Survey, own.See, own.Watch = a.survey, w.sees(), w.watches()
		own.SortBy(sort, reverse)
		if isMonitor(w.user) {
			own.Lateness = a.late
		}
		return own.State
	}, err
}

func deadlinesView(turns *pattern.Turns, q url.Values) (d live.Deadlines, err error) {
	const most = 100
	if d.Page, d.Size, err = pageOf(q, most); err != nil {
		return d, err
	}
	if d.Buckets, err = live.ParseBuckets(q.Get("buckets")); err != nil {
		return d, err
	}
	d.Queue, err = queueFilter(turns, q.Get("queue"))
	return d, err
}

// queueFilter returns a filter for the queue of a name or, after a slash, for queues that match an RE2 expression, which may end with
// another slash; nil for none.
func queueFilter(turns *pattern.Turns, s string) (*pattern.Filter, error) {
	switch {
	case s == "":
		return nil, nil
	case len(s) > pattern.MaxExpression:
		return nil, badRequest("queue has %d bytes: at most %d are allowed", len(s), pattern.MaxExpression)
	case !strings.HasPrefix(s, "/"):
		return pattern.Plain(func(name string) bool { return name == s }), nil
	}
	expression := s[1:]
	if len(expression) > 1 {
		expression = strings.TrimSuffix(expression, "/")
	}
	return expressionFilter(turns.Expression("queue", expression))
}
