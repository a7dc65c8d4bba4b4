package mgmt

import (
	"errors"
	"maps"
	"net/url"
	"slices"

	"github.com/curfewmq/curfew/core/mgmt/jsonobj"
	"github.com/curfewmq/curfew/core/mgmt/live"
	"github.com/curfewmq/curfew/core/mgmt/pattern"
	"github.com/curfewmq/curfew/core/queue"
)

// liveColumns are the members of queues in the view queues if the reader chooses none. A page of a hundred queues with these has some 50
// KB.
var liveColumns = [][]string{
	{"name"},
	{"vhost"},
	{"type"},
	{"durable"},
	{"auto_delete"},
	{"exclusive"},
	{"policy"},
	{"operator_policy"},
	{"expiry_strategy"},
	{"state"},
	{"consumers"},
	{"messages"},
	{"messages_ready"},
	{"messages_unacknowledged"},
	{"messages_held"},
	{"messages_expired"},
	{"next_deadline"},
	{"next_release"},
	{"lease_expires_at"},
	{"message_stats", "publish_details", "rate"},
	{"message_stats", "deliver_get_details", "rate"},
	{"message_stats", "ack_details", "rate"},
}

type queuesView struct {
	page, size int
	name       *pattern.Filter
	order      live.Order
	columns    [][]string
}

// readQueues reads the parameters of the view queues.
func readQueues(a *liveHandlers, q url.Values) (func(*watcher) maker, error) {
	v, err := parseQueuesView(a.turns, q)
	return func(w *watcher) maker {
		see := w.sees()
		w.request.query = query{columns: v.columns, needs: firstOf(v.columns), unknown: true}
		selection := live.NewSelection(see, v.name)
		return func() (object, error) {
			var at any
			var page []queueRef
			var keys []any
			total, filtered := 0, 0
			err := selection.Read(a.survey, func(r *live.Reading, matched []*live.Entry) {
				at, total, filtered = jsonobj.Instant(r.At), r.Queues(see), len(matched)
				var entries []*live.Entry
				entries, keys = v.order.Page(matched, (v.page-1)*v.size, v.size)
				for _, e := range entries {
					page = append(page, queueRef{e.VHost, e.Mailbox, e.Config, a.node})
				}
			})
			if err != nil {
				return nil, err
			}
			w.byID = nil // the owners of exclusive queues are looked up anew
			rows, order := make(object, len(page)), make([]string, len(page))
			for i, r := range page {
				order[i] = r.cfg.VHost + "\x00" + r.cfg.Name
				rows[i] = member{order[i], a.queues.describeQueue(w.request, r).Pick(v.columns)}
			}
			return object{
				{"at", at},
				{"rows", rows},
				{"order", order},
				{live.KeysMember, keys},
				{"filtered_count", filtered},
				{"total_count", total},
				{"page", v.page},
				{"page_count", (filtered + v.size - 1) / v.size},
			}, nil
		}
	}, err
}

func parseQueuesView(turns *pattern.Turns, q url.Values) (v queuesView, err error) {
	if v.page, v.size, err = pageOf(q, maxPage); err != nil {
		return v, err
	}
	expression, err := truthOf(q, "use_regex")
	if err != nil {
		return v, err
	}
	if v.name, err = nameFilter(turns, q.Get("name"), expression); err != nil {
		return v, err
	}
	if v.columns, err = parseColumns(q.Get("columns")); err != nil {
		return v, err
	}
	if v.columns == nil {
		v.columns = liveColumns
	}
	v.order, err = queueOrder(q)
	return v, err
}

func firstOf(paths [][]string) (names []string) {
	for _, p := range paths {
		names = append(names, p[0])
	}
	return names
}

// queueTexts are the members of queues that are text, and that the view queues can be sorted by.
var queueTexts = map[string]func(*queue.Config) string{
	"name":            func(c *queue.Config) string { return c.Name },
	"vhost":           func(c *queue.Config) string { return c.VHost },
	"type":            func(c *queue.Config) string { return c.Kind },
	"expiry_strategy": func(c *queue.Config) string { return c.Strategy },
	"policy": func(c *queue.Config) string {
		if p := c.Policies.User; p != nil {
			return p.Name
		}
		return ""
	},
}

// queueOrder reads the parameters sort and sort_reverse of the view queues. It accepts the members that are known without asking the
// queues.
func queueOrder(q url.Values) (o live.Order, err error) {
	names := slices.Collect(maps.Keys(queueTexts))
	for name := range queueSortKeys {
		names = append(names, name)
	}
	for _, depth := range depthNames {
		names = append(names, depth[0].(string))
	}
	slices.Sort(names)
	sort, err := choiceOf(q, "sort", names, "")
	if err != nil {
		return o, err
	}
	if o.Reverse, err = truthOf(q, "sort_reverse"); err != nil || sort == "" {
		return o, err
	}
	if text := queueTexts[sort]; text != nil {
		o.Key = func(e *live.Entry) any { return text(e.Config) }
		return o, nil
	}
	key, timely := queueSortKey(sort), slices.Contains(timelyMembers, sort)
	o.Key = func(e *live.Entry) any {
		n := key(&e.Stats)
		if timely && n == 0 {
			return nil
		}
		return n
	}
	return o, nil
}

// readQueue reads the parameters of the view queue.
func readQueue(a *liveHandlers, q url.Values) (func(*watcher) maker, error) {
	buckets, err := live.ParseBuckets(q.Get("buckets"))
	if err != nil {
		return nil, err
	}
	for _, name := range []string{"vhost", "queue"} {
		if q.Get(name) == "" {
			return nil, badRequest("%s: is missing; the view queue needs a vhost and a queue", name)
		}
	}
	return func(w *watcher) maker {
		w.request.query.unknown = true
		return func() (object, error) {
			m := w.vhost.Mailbox(q.Get("queue"))
			if m == nil {
				return nil, errNotFound
			}
			w.byID = nil
			o := a.queues.queueObject(w.request, queueRef{w.vhost, m, m.Config(), a.node})
			counts, err := live.Count(m)
			if errors.Is(err, queue.ErrGone) {
				return nil, errNotFound
			}
			return append(o, member{"deadlines", counts.Object(buckets)}), err
		}
	}, nil
}
