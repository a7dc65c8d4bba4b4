package mgmt

import (
	"strconv"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/auth"
	"github.com/curfewmq/curfew/core/mgmt/jsonobj"
	"github.com/curfewmq/curfew/sdk/hook"
)

// Lab shows what policies decide, without effect on queues. Any goroutine may use it. Errors that a client has caused are
// [*ModuleError].
type Lab interface {
	// Differences returns messages on which a shadow disagreed with the strategy in force, in the order of their IDs: at most count of the
	// ones with IDs greater than after.
	Differences(name string, after uint64, count int) (Differences, error)
	// Rehearse returns the means for a simulation: the plugins of the broker and, unless candidate is nil, a module that is to be tried. A
	// candidate without bytes names a loaded module.
	Rehearse(candidate *Module) (Rehearsal, error)
	// Activate puts a shadow in force: as the next version of the policy that it runs beside or, beside another strategy, as a policy of
	// its own name. Its warnings are about loading the module.
	Activate(name string, recompute bool) (warnings []string, err error)
	// Back puts the previous version of a policy in force.
	Back(name string, recompute bool) (warnings []string, err error)
	// Strategies returns the expiry strategies that queues can choose, and the one of queues that choose none.
	Strategies() (names []string, standard string)
}

// Differences are the latest messages on which a shadow disagreed.
type Differences struct {
	Compared, Differing uint64 // numbers of messages
	PerSecond           int    // messages that are remembered in a second
	Latest              []Difference
}

// Difference is a message on which a shadow disagreed, and both verdicts.
type Difference struct {
	ID                           uint64
	At                           hook.Instant
	VHost, Queue, Strategy, Hook string
	Exchange, RoutingKey         string
	Properties                   []DifferenceProperty
	Headers                      []byte // the encoded table, or its beginning
	HeadersSize                  int    // bytes, of all headers
	Size                         int    // bytes, of the body
	Enqueued, Deadline           hook.Instant
	Deliveries                   uint32
	Redelivered                  bool
	Active, Shadow               hook.Verdict
	ActiveDigest, ShadowDigest   string
}

// DifferenceProperty is a property of a message: a string or a number.
type DifferenceProperty struct {
	Name  string
	Value any
}

const maxDifferences = 256

// differences lists the messages on which a shadow disagreed.
func (a *moduleHandlers) differences(c *request) error {
	if a.modules == nil || a.lab == nil {
		return errNoWASM
	}
	q := c.query.raw
	if err := onlyParameters(q, []string{"after", "count", "columns"}); err != nil {
		return err
	}
	count, err := queryNumber(q, "count", 1, maxDifferences, maxDifferences)
	if err != nil {
		return err
	}
	after := uint64(0)
	if s := q.Get("after"); s != "" {
		if after, err = strconv.ParseUint(s, 10, 64); err != nil {
			return badRequest("after is %.40q: the id of a difference is expected", s)
		}
	}
	all, err := a.lab.Differences(c.vars["name"], after, count)
	if err != nil {
		return failureOfModule(err)
	}
	list := []object{}
	mayRead := readers(c)
	for i := range all.Latest {
		d := &all.Latest[i]
		list = append(list, d.describe(mayRead(d.VHost, d.Queue)))
		after = d.ID
	}
	return c.reply(object{
		{"compared", all.Compared},
		{"differing", all.Differing},
		{"kept_per_second", all.PerSecond},
		{"kept", maxDifferences},
		{"next", strconv.FormatUint(after, 10)},
		{"differences", list},
	})
}

// readers returns a function that reports whether the user may read a queue. It remembers its answers: many differences are about the
// same queues.
func readers(c *request) func(vhost, queue string) bool {
	type place struct{ vhost, queue string }
	known := map[place]bool{}
	return func(vhost, queue string) bool {
		at := place{vhost, queue}
		may, ok := known[at]
		if !ok {
			may = c.mayUse(auth.Read, &holder{what: auth.Resource{Kind: auth.Queue, VHost: vhost, Name: queue}}) == nil
			known[at] = may
		}
		return may
	}
}

// describe returns the difference as a user may see it. Properties are a part of a message's contents: a user without permission to read
// the queue sees only the properties that events show, too.
func (d *Difference) describe(mayRead bool) object {
	properties := object{}
	var cut []string
	for _, p := range d.Properties {
		if mayRead || p.Name == "message_id" {
			properties.Add(p.Name, p.Value)
		} else if cut == nil {
			cut = []string{"properties"}
		}
	}
	switch {
	case len(d.Headers) == 0:
	case !mayRead:
		cut = []string{"properties"}
	default:
		var whole bool
		var headers object
		if headers, whole = rememberedHeaders(d.Headers); !whole || len(d.Headers) < d.HeadersSize {
			cut = append(cut, "headers")
		}
		properties.Add("headers", headers)
	}
	return object{
		{"id", strconv.FormatUint(d.ID, 10)},
		{"at", jsonobj.Instant(d.At)},
		{"vhost", d.VHost},
		{"queue", d.Queue},
		{"strategy", d.Strategy},
		{"hook", d.Hook},
		{"message", object{
			{"exchange", d.Exchange},
			{"routing_key", d.RoutingKey},
			{"properties", properties},
			{"payload_bytes", d.Size},
			{"enqueued", jsonobj.Instant(d.Enqueued)},
			{"deadline", jsonobj.Instant(d.Deadline)},
			{"deliveries", int(d.Deliveries)},
			{"redelivered", d.Redelivered},
		}},
		{"cut", cut},
		{"active", describeVerdict(&d.Active)},
		{"shadow", describeVerdict(&d.Shadow)},
		{"active_digest", jsonobj.OrNull(d.ActiveDigest)},
		{"shadow_digest", jsonobj.OrNull(d.ShadowDigest)},
	}
}

// maxShownHeader is how many bytes of a header are shown.
const maxShownHeader = 1024

// rememberedHeaders returns the headers at the start of an encoded table that may be cut off, and whether none of them was left out.
func rememberedHeaders(raw []byte) (o object, whole bool) {
	o, whole = object{}, true
	for f := range amqp.RawTable(raw).All() {
		v, err := f.Decode()
		if err != nil || len(f.Value) > maxShownHeader {
			whole = false
			continue
		}
		o = append(o, jsonobj.OfTable(amqp.Table{{Key: string(f.Key), Value: v}})...)
	}
	return o, whole
}

// actions are the names of the verdicts' actions.
var actions = [...]string{hook.Keep: "keep", hook.Drop: "drop", hook.Route: "route", hook.Refuse: "refuse"}

// describeVerdict returns the parts of a verdict that its queue acts on. Members without a meaning for the action are null.
func describeVerdict(v *hook.Verdict) object {
	o := object{{"action", actions[min(int(v.Action), len(actions)-1)]}}
	reason, deadline, hold := any(nil), any(nil), any(nil)
	exchange, key := any(nil), any(nil)
	switch v.Action {
	case hook.Keep:
		deadline, hold = jsonobj.Instant(v.Deadline), jsonobj.Instant(v.Hold)
	case hook.Drop, hook.Route:
		reason = v.Reason.String()
	}
	if v.Action == hook.Route && v.Target != nil {
		exchange = v.Target.Exchange
		if v.Target.HasKey {
			key = v.Target.Key
		}
	}
	return append(o, member{"deadline", deadline}, member{"hold", hold}, member{"reason", reason}, member{"final", v.Action == hook.Drop && v.Final},
		member{"nack", v.Nack || v.Action == hook.Refuse}, member{"exchange", exchange}, member{"routing_key", key},
		member{"ask_at_head", v.Action == hook.Keep && v.AskHead}, member{"ask_again", v.Action == hook.Keep && v.Again})
}
