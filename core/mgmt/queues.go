package mgmt

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/clock"
	"github.com/curfewmq/curfew/core/mgmt/definitions"
	"github.com/curfewmq/curfew/core/mgmt/jsonobj"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/core/rabbit"
	"github.com/curfewmq/curfew/core/session"
	"github.com/curfewmq/curfew/core/vhost"
	"github.com/curfewmq/curfew/policies"
	"github.com/curfewmq/curfew/sdk/hook"
)

type queueRef struct {
	vhost   *vhost.VHost
	mailbox *queue.Mailbox
	cfg     *queue.Config
	node    string
}

// queueHandlers show and declare queues, and show their consumers.
type queueHandlers struct {
	node   string
	clock  clock.Clock
	meters *meters
	nodes  *nodes
}

func (a *queueHandlers) list(c *request) error { return list(c, a.listing(c)) }

// listing is the queues that the request is about.
func (a *queueHandlers) listing(c *request) listing[queueRef] {
	var all []queueRef
	for _, v := range c.visible() {
		from := len(all)
		for _, m := range v.Mailboxes() {
			all = append(all, queueRef{v, m, m.Config(), a.node})
		}
		slices.SortFunc(all[from:], func(x, y queueRef) int { return strings.Compare(x.cfg.Name, y.cfg.Name) })
	}
	return listing[queueRef]{
		items: all, object: func(r queueRef) object { return a.describeQueue(c, r) }, field: newQueueField(), timely: timelyMembers,
		name:  func(r queueRef) string { return r.cfg.Name },
		vhost: func(r queueRef) string { return r.cfg.VHost },
	}
}

// queueFields are the members of a queue's object that are known without asking the queue. Their names are of the type that members
// have: see namedCount.
var queueFields = [...]struct {
	name any
	get  func(queueRef) any
}{
	{"name", func(r queueRef) any { return r.cfg.Name }},
	{"vhost", func(r queueRef) any { return r.cfg.VHost }},
	{"type", func(r queueRef) any { return r.cfg.Kind }},
	{"durable", func(r queueRef) any { return r.cfg.Durable }},
	{"auto_delete", func(r queueRef) any { return r.cfg.AutoDelete }},
	{"exclusive", func(r queueRef) any { return r.cfg.Exclusive }},
	{"arguments", func(r queueRef) any { return jsonobj.OfArgs(r.cfg.Args) }},
	{"node", func(r queueRef) any { return r.node }},
	{"policy", func(r queueRef) any { return policyName(r.cfg.Policies.User) }},
	{"operator_policy", func(r queueRef) any { return policyName(r.cfg.Policies.Operator) }},
	{"effective_policy_definition", func(r queueRef) any { return definitions.PolicyDefinition(r.cfg.Policies.Definition()) }},
	{"expiry_strategy", func(r queueRef) any { return r.cfg.Strategy }},
	{"delivery_lease", func(r queueRef) any { return millisOrNull(r.cfg.DeliveryLease) }},
}

// millisOrNull returns a duration as JSON has it: null if there is none.
func millisOrNull(d time.Duration) any {
	if d == 0 {
		return nil
	}
	return d.Milliseconds()
}

func policyName(p *policies.Policy) any {
	if p == nil {
		return nil
	}
	return p.Name
}

// timelyMembers are the members of a queue's object that are instants: most queues have none.
var timelyMembers = []string{"next_deadline", "next_release", "lease_expires_at"}

// queueSortKeys are the members of a queue's object, besides its depths, that a list can be sorted by without making the objects.
var queueSortKeys = map[string]func(*queue.Stats) int64{
	"consumers":             func(s *queue.Stats) int64 { return int64(s.Consumers) },
	"message_bytes_ready":   func(s *queue.Stats) int64 { return s.ReadyBytes },
	"messages_persistent":   func(s *queue.Stats) int64 { return int64(s.Persistent) },
	"messages_ram":          func(s *queue.Stats) int64 { return int64(s.InMemory) },
	"next_deadline":         func(s *queue.Stats) int64 { return int64(s.NextDeadline) },
	"next_release":          func(s *queue.Stats) int64 { return int64(s.NextRelease) },
	"lease_expires_at":      func(s *queue.Stats) int64 { return int64(s.LeaseExpires) },
	"messages_expired":      func(s *queue.Stats) int64 { return int64(s.Expired()) },
	"messages_redriven":     func(s *queue.Stats) int64 { return int64(s.DeadLettered[hook.ReasonRedriven]) },
	"messages_cancelled":    func(s *queue.Stats) int64 { return int64(s.Dropped[hook.ReasonCancelled]) },
	"delivery_leases_ended": func(s *queue.Stats) int64 { return int64(s.LeasesEnded) },
}

// queueSortKey returns a function for a member of queues, as a number that orders them; nil if no sort key has that name.
func queueSortKey(name string) func(*queue.Stats) int64 {
	i := slices.IndexFunc(depthNames[:], func(names [2]any) bool { return names[0] == name })
	if i < 0 {
		return queueSortKeys[name]
	}
	return func(s *queue.Stats) int64 {
		var d depth
		d.add(s)
		return d[i]
	}
}

// newQueueField returns a function that returns a member of a queue's object for sorting, without making the object. The member is nil for
// a queue that was deleted. The closure that looks at queues is made once for each name, not for each queue.
func newQueueField() func(r queueRef, name string) (value any, ok bool) {
	var (
		known  string
		key    func(*queue.Stats) int64
		timely bool
		value  any
	)
	look := func(q *queue.Queue) {
		s := q.Stats()
		if n := key(&s); n != 0 || !timely {
			value = n
		}
	}
	return func(r queueRef, name string) (any, bool) {
		for i := range queueFields {
			if queueFields[i].name == name {
				return queueFields[i].get(r), true
			}
		}
		if known != name {
			known, key, timely = name, queueSortKey(name), slices.Contains(timelyMembers, name)
		}
		if key == nil {
			return nil, false
		}
		value = nil
		_ = r.mailbox.Look(look)
		return value, true
	}
}

// describeQueue returns a queue as an object, and asks the queue only for members that the query wants. A queue that was deleted
// has the members that are known without it.
func (a *queueHandlers) describeQueue(c *request, r queueRef) object {
	o, q := make(object, len(queueFields)), &c.query
	for i := range queueFields {
		o[i] = member{queueFields[i].name, queueFields[i].get(r)}
	}
	if q.within(o) {
		return o
	}
	s, err := look(r.mailbox)
	if err != nil {
		return append(o, member{"state", "down"})
	}
	if !q.noStats {
		return a.appendStats(o, c, r, s)
	}
	if q.queueTotals {
		var d depth
		d.add(&s.Stats)
		o = appendCounts(o, d.counts())
	}
	return append(o, member{"state", s.state()})
}

// mailbox returns the queue that the path names.
func (c *request) mailbox() (*queue.Mailbox, error) {
	m := c.vhost.Mailbox(c.vars["queue"])
	if m == nil || c.vhost.Moved() { // a queue is empty by then
		return nil, errNotFound
	}
	return m, nil
}

func (a *queueHandlers) one(c *request) error {
	m, err := c.mailbox()
	if err != nil {
		return err
	}
	return c.reply(a.queueObject(c, queueRef{c.vhost, m, m.Config(), a.node}))
}

// queueObject returns a queue as an object that is not in a list, with its consumers.
func (a *queueHandlers) queueObject(c *request, r queueRef) object {
	consumers := []object{}
	for _, s := range consumersOf(r.mailbox) {
		consumers = append(consumers, a.describeConsumer(s.ConsumerInfo, s.active))
	}
	return append(
		a.describeQueue(c, r),
		member{"effective_settings", effectiveSettings(r.cfg)}, member{"consumer_details", consumers}, member{"incoming", []any{}}, member{"deliveries", []any{}},
	)
}

func (a *queueHandlers) put(c *request) error {
	if err := c.mayConnect(); err != nil {
		return err
	}
	r := c.body()
	if node, ok := r.Value("node").(string); r.Has("node") && (!ok || node != "" && a.nodes.seat(node) == len(a.nodes.members())) {
		r.Fail(badRequest("Node %s could not be contacted", node))
	}
	d := definitions.ReadQueue(r, c.vars["queue"])
	if d.Name == "" {
		r.Fail(definitions.ErrNoQueueName)
	}
	if err := r.Err(); err != nil {
		return err
	}
	exists := c.vhost.Mailbox(rabbit.Sanitise(d.Name)) != nil
	return c.created(!exists, c.ask(&amqp.QueueDeclare{Queue: d.Name, Durable: d.Durable, AutoDelete: d.AutoDelete, Arguments: d.Args}))
}

func deleteQueue(c *request) error {
	m, err := c.mailbox()
	if err != nil {
		return err
	}
	return c.done(c.ask(&amqp.QueueDelete{
		Queue:    m.Config().Name,
		IfUnused: c.query.raw.Get("if-unused") == "true", IfEmpty: c.query.raw.Get("if-empty") == "true",
	}))
}

func purge(c *request) error {
	m, err := c.mailbox()
	if err != nil {
		return err
	}
	return c.done(c.ask(&amqp.QueuePurge{Queue: m.Config().Name}))
}

// act accepts the actions for mirrored queues, which do not exist here, and does nothing.
func act(c *request) error {
	if _, err := c.mailbox(); err != nil {
		return err
	}
	r := c.body()
	r.Need("action")
	if action := r.Text("action"); action != "sync" && action != "cancel_sync" {
		r.Fail(jsonobj.Pair("unknown", action))
	}
	return c.done(r.Err())
}

type consumerRef struct {
	session.ConsumerInfo
	active bool
}

func (a *queueHandlers) consumers(c *request) error {
	var all []consumerRef
	for _, v := range c.visible() {
		for _, m := range v.Mailboxes() {
			all = append(all, consumersOf(m)...)
		}
	}
	slices.SortFunc(all, func(x, y consumerRef) int {
		p, q := x.Queue.Config(), y.Queue.Config()
		return cmp.Or(cmp.Compare(p.VHost, q.VHost), cmp.Compare(p.Name, q.Name), cmp.Compare(x.Tag, y.Tag))
	})
	return list(c, listing[consumerRef]{
		items: all, object: func(r consumerRef) object { return a.describeConsumer(r.ConsumerInfo, r.active) },
		name:  func(r consumerRef) string { return r.Tag },
		vhost: func(r consumerRef) string { return r.Queue.Config().VHost },
	})
}

// consumersOf lists the consumers of a queue in the order in which they came.
func consumersOf(m *queue.Mailbox) (all []consumerRef) {
	var consumers []queue.ConsumerStatus
	if m.Look(func(q *queue.Queue) { consumers = q.Consumers() }) != nil {
		return nil
	}
	for _, s := range consumers {
		if info, ok := session.ConsumerOf(s.Consumer); ok && info.Conn != nil {
			all = append(all, consumerRef{info, s.Active})
		}
	}
	return all
}

// isActive reports whether a consumer can get messages: not every one can where a single consumer is active.
func isActive(info session.ConsumerInfo) (active bool) {
	if !info.Queue.Config().SingleActive {
		return true
	}
	_ = info.Queue.Look(func(q *queue.Queue) { // it fails if the queue was deleted, and its consumers with it
		for _, s := range q.Consumers() {
			active = active || s.Active && s.Consumer == info.Consumer
		}
	})
	return active
}

func (a *queueHandlers) describeConsumer(info session.ConsumerInfo, active bool) object {
	cfg := info.Queue.Config()
	peerHost, peerPort := splitAddress(info.Conn.Peer.Address)
	return object{
		{"consumer_tag", info.Tag},
		{"queue", object{{"name", cfg.Name}, {"vhost", cfg.VHost}}},
		{"ack_required", !info.NoAck},
		{"exclusive", info.Exclusive},
		{"prefetch_count", int(info.Prefetch)},
		{"delivery_lease", millisOrNull(info.DeliveryLease)},
		{"arguments", jsonobj.OfTable(info.Arguments)},
		{"active", active},
		{"activity_status", activity(cfg, active)},
		{"channel_details", object{
			{"name", channelName(info.Conn.Name(), info.Channel)},
			{"number", int(info.Channel)},
			{"connection_name", info.Conn.Name()},
			{"node", a.node},
			{"peer_host", peerHost},
			{"peer_port", peerPort},
			{"user", info.Conn.User},
		}},
	}
}

func activity(cfg *queue.Config, active bool) string {
	switch {
	case !cfg.SingleActive:
		return "up"
	case active:
		return "single_active"
	}
	return "waiting"
}
