package mgmt

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/curfewmq/curfew/core/auth"
	"github.com/curfewmq/curfew/core/clock"
	"github.com/curfewmq/curfew/core/mgmt/jsonobj"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/core/vhost"
	"github.com/curfewmq/curfew/sdk/hook"
)

// scanTime is how long a request looks at a queue's messages.
const scanTime = 2 * time.Second

// Limits of the numbers in a redrive.
const (
	maxRedriveCount = 1 << 53
	maxPerSecond    = 1_000_000
	maxOlderThan    = 10 * 365 * 24 * time.Hour
)

// redriveHandlers begin and end redrives.
type redriveHandlers struct {
	clock clock.Clock
	log   *slog.Logger
}

// start moves ready messages of a queue to other queues: 202 and {"id"}. With dry_run it moves none, and shows the plan.
func (a *redriveHandlers) start(c *request) error {
	r, dryRun, err := readRedrive(c.body())
	if err != nil {
		return err
	}
	if _, err := c.mailbox(); err != nil {
		return err
	}
	r.From = c.vars["queue"]
	if err := c.mayQueue(auth.Read, r.From); err != nil {
		return err
	}
	r.MayPublish = c.mayPublish
	plan := &vhost.RedrivePlan{}
	if dryRun || r.To == vhost.ToSource || r.To == vhost.ToOrigin || r.Reason != "" || r.WhereQueue != "" || r.MessageID != "" || r.OlderThan > 0 {
		p, err := c.vhost.Redrives().Plan(&r, a.clock().Add(scanTime))
		if err != nil {
			return err
		}
		plan = &p
	}
	if dryRun {
		return c.reply(describePlan(plan))
	}
	if err := checkPublishers(c); err != nil {
		return err
	}
	j, err := c.vhost.Redrives().Start(&r, plan)
	if err != nil {
		return err
	}
	a.log.Info("a redrive is started", "vhost", c.vhost.Name(), "queue", r.From, "redrive", j.ID, "user", c.user.Name)
	c.w.Header().Set("Location", root+"redrives/"+j.ID)
	writeObject(c.w, http.StatusAccepted, object{{"id", j.ID}})
	return nil
}

// readRedrive reads which messages are to be moved, and where to.
func readRedrive(r *jsonobj.Reader) (q vhost.RedriveRequest, dryRun bool, err error) {
	r.Only("to", "where", "count", "per_second", "dry_run")
	r.Need("to")
	readRedriveTo(r, &q)
	if r.Has("where") {
		if _, ok := r.Value("where").(map[string]any); !ok {
			r.Fail(jsonobj.Pair("not_object", "where"))
		}
		w := r.Object("where")
		w.Only("reason", "queue", "message_id", "older_than_ms")
		q.Reason, q.WhereQueue, q.MessageID = readReason(w), readSome(w, "queue"), readSome(w, "message_id")
		q.OlderThan = time.Duration(readNumber(w, "where.", "older_than_ms", 0, maxOlderThan.Milliseconds())) * time.Millisecond
	}
	q.Count = int(readNumber(r, "", "count", 1, maxRedriveCount))
	q.PerSecond = int(readNumber(r, "", "per_second", 1, maxPerSecond))
	dryRun = r.Flag("dry_run")
	return q, dryRun, r.Err()
}

const redriveTargets = `accepted are "source", "origin", {"queue"} and {"exchange", "routing_key"}`

// readRedriveTo reads where messages are to go.
func readRedriveTo(r *jsonobj.Reader, q *vhost.RedriveRequest) {
	switch to := r.Value("to").(type) {
	case string:
		switch to {
		case "source":
			q.To = vhost.ToSource
		case "origin":
			q.To = vhost.ToOrigin
		default:
			r.Fail(jsonobj.Errorf("to is %q: %s", to, redriveTargets))
		}
	case map[string]any:
		o := r.Object("to")
		o.Only("queue", "exchange", "routing_key")
		if o.Has("queue") == o.Has("exchange") || o.Has("queue") && o.Has("routing_key") {
			r.Fail(jsonobj.Errorf("to: %s", redriveTargets))
		}
		q.To, q.Queue, q.Exchange, q.Key, q.HasKey = vhost.ToQueue, o.Name("queue"), o.Name("exchange"), o.Name("routing_key"), o.Has("routing_key")
		if o.Has("exchange") {
			q.To = vhost.ToExchange
			q.Exchange = defaultExchange(q.Exchange)
		} else if q.Queue == "" {
			r.Fail(jsonobj.Errorf("to.queue is empty"))
		}
	default:
		r.Fail(jsonobj.Errorf("to: %s", redriveTargets))
	}
}

// defaultExchange returns the name of an exchange that the API may call amq.default.
func defaultExchange(name string) string {
	if name == "amq.default" {
		return ""
	}
	return name
}

// readSome reads a name that, if it is there, is not empty.
func readSome(r *jsonobj.Reader, key string) string {
	s := r.Name(key)
	if r.Has(key) && s == "" {
		r.Fail(jsonobj.Errorf("where.%s is empty", key))
	}
	return s
}

// readReason reads a reason that x-death can have.
func readReason(r *jsonobj.Reader) string {
	s := r.Text("reason")
	var known []string
	for _, reason := range [...]hook.Reason{
		hook.ReasonExpired, hook.ReasonRejected, hook.ReasonMaxLen, hook.ReasonDeliveryLimit, hook.ReasonQueueExpired, hook.ReasonTooLarge,
	} {
		known = append(known, reason.String())
	}
	if r.Has("reason") && !slices.Contains(known, s) {
		r.Fail(jsonobj.Errorf("where.reason is %q: accepted are %s", s, strings.Join(known, ", ")))
	}
	return s
}

// readNumber reads a whole number from least to most; 0 if it is absent. Errors put within before the key.
func readNumber(r *jsonobj.Reader, within, key string, least, most int64) int64 {
	if !r.Has(key) {
		return 0
	}
	number, ok := r.Value(key).(json.Number)
	n, err := number.Int64()
	if !ok || err != nil || n < least || n > most {
		r.Fail(jsonobj.Errorf("%s%s is %s: whole numbers from %d to %d are allowed", within, key, jsonobj.Marshal(r.Value(key)), least, most))
		return 0
	}
	return n
}

// mayQueue checks the user's permission for a queue of the vhost. As over AMQP, the tag administrator is not enough.
func (c *request) mayQueue(p auth.Permission, name string) error {
	return c.may(p, auth.Resource{Kind: auth.Queue, Name: name})
}

// mayPublish checks that the user may publish to an exchange of the vhost with a key.
func (c *request) mayPublish(exchange, key string) error {
	v := c.vhost
	if err := c.may(auth.Write, auth.Resource{Kind: auth.Exchange, Name: exchange}); err != nil {
		return err
	}
	if x, ok := v.Exchange(exchange); !ok || x.Type != "topic" {
		return nil
	}
	return c.api.users().CheckTopic(c.user.Name, auth.Write, auth.Topic{VHost: v.Name(), Exchange: exchange, Key: key})
}

func (c *request) may(p auth.Permission, r auth.Resource) error {
	if c.api.users().OpenVHost(c.user.Name, c.vhost.Name()) != nil {
		return notAuthorised("User not authorised to access virtual host")
	}
	r.VHost = c.vhost.Name()
	return c.api.users().Check(c.user.Name, p, r)
}

// describePlan returns the expected effects of a redrive.
func describePlan(p *vhost.RedrivePlan) object {
	return object{
		{"dry_run", true},
		{"messages", p.Matched},
		{"targets", describeTargets(p.Targets, false)},
		{"failed", describeFailures(&p.Failed)},
		{"complete", p.Complete},
	}
}

// describeTargets lists counts by target, without targets that have none.
func describeTargets(all []vhost.RedriveTarget, failures bool) []object {
	list := []object{}
	for _, t := range all {
		if t.Moved+t.Failed == 0 {
			continue
		}
		var o object
		switch {
		case t.Others:
			o.Add("others", true)
		case t.Exchange != "":
			o.Add("exchange", t.Exchange)
		default:
			o.Add("queue", t.Queue)
		}
		if failures {
			o.Add("moved", t.Moved)
			o.Add("failed", t.Failed)
		} else {
			o.Add("messages", t.Moved)
		}
		list = append(list, o)
	}
	return list
}

func describeFailures(n *[queue.RedriveFailures]int) object {
	o := object{}
	for f := queue.NotChosen + 1; f < queue.RedriveFailures; f++ {
		if n[f] > 0 {
			o.Add(f.String(), n[f])
		}
	}
	return o
}

func describeRedrive(j *vhost.RedriveJob) object {
	s, targets := j.Status()
	r := &j.Request
	failed := 0
	for _, n := range s.Failed {
		failed += n
	}
	return object{
		{"id", j.ID},
		{"vhost", j.VHost},
		{"queue", r.From},
		{"to", describeRedriveTo(r)},
		{"where", describeWhere(r)},
		{"count", orNull(int64(r.Count))},
		{"per_second", orNull(int64(r.PerSecond))},
		{"state", s.State.String()},
		{"reason", jsonobj.OrNull(s.Reason)},
		{"started_at", jsonobj.Instant(s.Began)},
		{"ended_at", jsonobj.Instant(s.Ended)},
		{"total", total(&s, r.Count)},
		{"moved", s.Moved},
		{"remaining", max(total(&s, r.Count)-s.Moved-failed, 0)},
		{"rate", s.Rate},
		{"failed", describeFailures(&s.Failed)},
		{"targets", describeTargets(targets, true)},
	}
}

// total returns how many messages a redrive covers: at its end the number that it found, before that an estimate.
func total(s *queue.RedriveStatus, count int) int {
	if s.State == queue.RedriveDone {
		n := s.Moved
		for _, failed := range s.Failed {
			n += failed
		}
		return n
	}
	if count > 0 {
		return min(count, s.Total)
	}
	return s.Total
}

func orNull(n int64) any {
	if n == 0 {
		return nil
	}
	return n
}

func describeRedriveTo(r *vhost.RedriveRequest) any {
	switch r.To {
	case vhost.ToSource:
		return "source"
	case vhost.ToOrigin:
		return "origin"
	case vhost.ToQueue:
		return object{{"queue", r.Queue}}
	}
	o := object{{"exchange", r.Exchange}}
	if r.HasKey {
		o.Add("routing_key", r.Key)
	}
	return o
}

func describeWhere(r *vhost.RedriveRequest) object {
	o := object{}
	for _, m := range []struct{ name, value string }{{"reason", r.Reason}, {"queue", r.WhereQueue}, {"message_id", r.MessageID}} {
		if m.value != "" {
			o.Add(m.name, m.value)
		}
	}
	if r.OlderThan > 0 {
		o.Add("older_than_ms", r.OlderThan.Milliseconds())
	}
	return o
}

// listRedrives lists the redrives of all vhosts that the user may enter.
func listRedrives(c *request) error {
	var all []*vhost.RedriveJob
	for _, v := range c.visible() {
		all = append(all, v.Redrives().List()...)
	}
	return list(c, listing[*vhost.RedriveJob]{
		items: all, object: describeRedrive,
		name:  func(j *vhost.RedriveJob) string { return j.Request.From },
		vhost: func(j *vhost.RedriveJob) string { return j.VHost },
	})
}

// findRedrive returns the redrive that the path names.
func findRedrive(c *request) (*vhost.VHost, *vhost.RedriveJob, error) {
	for _, v := range c.visible() {
		for _, j := range v.Redrives().List() {
			if j.ID == c.vars["redrive"] {
				return v, j, nil
			}
		}
	}
	return nil, nil, errNotFound
}

func oneRedrive(c *request) error {
	_, j, err := findRedrive(c)
	if err != nil {
		return err
	}
	return c.reply(describeRedrive(j))
}

// cancel ends a redrive, or forgets one that has ended. Messages that are under way still arrive.
func (a *redriveHandlers) cancel(c *request) error {
	v, j, err := findRedrive(c)
	if err != nil {
		return err
	}
	c.vhost = v
	if err := c.mayQueue(auth.Read, j.Request.From); err != nil {
		return err
	}
	v.Redrives().Cancel(j)
	a.log.Info("a redrive is cancelled", "vhost", v.Name(), "queue", j.Request.From, "redrive", j.ID, "user", c.user.Name)
	return c.done(nil)
}
