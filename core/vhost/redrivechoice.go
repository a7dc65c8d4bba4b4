package vhost

import (
	"bytes"
	"sync"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/death"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/sdk/hook"
)

// redriveChoice chooses which messages leave, and where to. It belongs to the queue's turn, except for the field names.
type redriveChoice struct {
	topology *topology
	request  *RedriveRequest
	before   hook.Instant // only messages that entered the queue until then leave; 0 means all
	filters  bool

	targets map[string]*redriveTarget // of messages with the same place, by its parts
	key     []byte                    // buffer for keys of targets
	last    redriveMemo

	uses []func() // end the use of the queues that messages go to
	runs bool     // messages leave: it is no plan

	ids map[string]int // of names
	mu  sync.Mutex     // guards names
	// names are the targets by number. They are not counted by routing key.
	names []RedriveTarget
}

// redriveTarget is a target, or the reason why a message has none.
type redriveTarget struct {
	queue.RedriveTarget
	failure queue.RedriveFailure
}

// redriveMemo is the choice for the last message: the next message often has the same properties.
type redriveMemo struct {
	known    bool
	props    []byte
	key      []byte
	recorded bool
	chosen   *redriveTarget
	failure  queue.RedriveFailure
}

// maxRedriveTargets limits the targets that are remembered, and the targets that are counted one by one.
const maxRedriveTargets = 1000

// maxKey limits the length of a routing key. Keys in CC headers may be longer, but lead nowhere.
const maxKey = 255

func newRedriveChoice(t *topology, r *RedriveRequest) *redriveChoice {
	c := &redriveChoice{topology: t, request: r, targets: map[string]*redriveTarget{}, ids: map[string]int{}}
	if r.OlderThan > 0 {
		c.before = max(t.clock().Add(-r.OlderThan), 1)
	}
	c.filters = r.Reason != "" || r.WhereQueue != "" || r.MessageID != ""
	return c
}

// plan counts a message that a scan has found.
func (c *redriveChoice) plan(s *queue.Stored, p *RedrivePlan, most int) {
	if s.State != queue.MessageReady || s.Load() != nil {
		return
	}
	t, failure := c.choose(s)
	switch {
	case t != nil && (most == 0 || p.Matched < most):
		p.Matched++
		for len(p.Targets) <= t.ID {
			p.Targets = append(p.Targets, RedriveTarget{})
		}
		p.Targets[t.ID].Moved++
	case failure != queue.NotChosen:
		p.Failed[failure]++
	}
}

// choose returns where a message goes, as [queue.RedriveOptions] describes it.
func (c *redriveChoice) choose(m *queue.Stored) (*queue.RedriveTarget, queue.RedriveFailure) {
	if c.before != 0 && m.Enqueued > c.before {
		return nil, queue.NotChosen
	}
	recorded := m.Flags&queue.HasDeathHistory != 0
	last := &c.last
	if !last.known || last.recorded != recorded || !bytes.Equal(last.props, m.Props) || !bytes.Equal(last.key, m.Key) {
		last.known, last.recorded, last.props, last.key = true, recorded, append(last.props[:0], m.Props...), append(last.key[:0], m.Key...)
		last.chosen, last.failure = c.chooseBy(m, recorded)
	}
	if last.chosen == nil {
		return nil, last.failure
	}
	return &last.chosen.RedriveTarget, queue.NotChosen
}

// chooseBy is choose for properties that the last message did not have. It uses only a history that the broker has written, because
// publishers must not choose where messages go.
func (c *redriveChoice) chooseBy(m *queue.Stored, recorded bool) (*redriveTarget, queue.RedriveFailure) {
	idx, err := amqp.ScanProps(m.Props)
	if err != nil { // the session checked them
		return nil, queue.NotChosen
	}
	headers := idx.Headers(m.Props)
	latest, died := death.Place{}, false
	if recorded {
		latest, died = death.Latest(headers)
	}
	if c.filters && !c.passes(m, &idx, &latest) {
		return nil, queue.NotChosen
	}
	var t *redriveTarget
	switch c.request.To {
	case ToQueue:
		t = c.target("", c.request.Queue, nil, nil)
	case ToExchange:
		t = c.toExchange(m.Key)
	case ToSource:
		if !died {
			return nil, queue.FailNoDeath
		}
		shown := latest.Exchange
		if len(latest.Key) > maxKey {
			shown = nil
		}
		t = c.target("", string(latest.Queue), shown, latest.Key)
	case ToOrigin:
		first, ok := death.First(headers)
		if !recorded || !ok || len(first.Key) > maxKey {
			return nil, queue.FailNoDeath
		}
		t = c.target(string(first.Exchange), string(first.Key), nil, nil)
	}
	if t.failure != queue.NotChosen {
		return nil, t.failure
	}
	return t, queue.NotChosen
}

// passes reports whether the request selects a message.
func (c *redriveChoice) passes(m *queue.Stored, idx *amqp.PropIndex, latest *death.Place) bool {
	r := c.request
	if r.Reason != "" && string(latest.Reason) != r.Reason || r.WhereQueue != "" && string(latest.Queue) != r.WhereQueue {
		return false
	}
	if r.MessageID == "" {
		return true
	}
	id, ok := idx.MessageID(m.Props)
	return ok && string(id) == r.MessageID
}

// toExchange returns the target of a message for the request's exchange.
func (c *redriveChoice) toExchange(key []byte) *redriveTarget {
	r := c.request
	if r.HasKey {
		return c.target(r.Exchange, r.Key, nil, nil)
	}
	t := c.remembered(r.Exchange, key, nil, nil)
	if t == nil {
		t = c.newTarget(r.Exchange, string(key))
		t.HasKey, t.Key = false, ""
		c.remember(t)
	}
	return t
}

// target returns the target with an exchange and a key. Consumers see shownExchange and shownKey unless the former is nil.
func (c *redriveChoice) target(exchange, key string, shownExchange, shownKey []byte) *redriveTarget {
	t := c.remembered(exchange, []byte(key), shownExchange, shownKey)
	if t != nil {
		return t
	}
	t = c.newTarget(exchange, key)
	if shownExchange != nil {
		t.Routing = &queue.RoutingInfo{Exchange: string(shownExchange), Key: string(shownKey)}
	}
	c.remember(t)
	return t
}

// remembered returns a target that was made before, nil if it is not known any more. It sets c.key.
func (c *redriveChoice) remembered(exchange string, key, shownExchange, shownKey []byte) *redriveTarget {
	b := append(append(c.key[:0], exchange...), 0)
	b = append(append(b, key...), 0)
	b = append(append(b, shownExchange...), 0)
	c.key = append(b, shownKey...)
	return c.targets[string(c.key)]
}

func (c *redriveChoice) remember(t *redriveTarget) {
	if len(c.targets) >= maxRedriveTargets {
		clear(c.targets)
	}
	c.targets[string(c.key)] = t
}

// newTarget makes a target, and checks whether the user may publish there.
func (c *redriveChoice) newTarget(exchange, key string) *redriveTarget {
	r := c.request
	t := &redriveTarget{RedriveTarget: queue.RedriveTarget{Target: hook.Target{Exchange: exchange, Key: key, HasKey: true}}}
	t.Only = r.To == ToQueue || r.To == ToExchange && (r.HasKey || exchange != "")
	if exchange == "" {
		t.ID = c.number(RedriveTarget{Queue: key})
		c.use(key)
	} else {
		t.ID = c.number(RedriveTarget{Exchange: exchange})
	}
	if r.MayPublish(exchange, key) != nil {
		t.failure = queue.FailNoPermission
	} else if x, ok := c.topology.Exchange(exchange); ok && x.Internal {
		t.failure = queue.FailNoPermission
	}
	return t
}

// use keeps a queue in use while messages leave for it: between two of them it must not
// expire.
func (c *redriveChoice) use(queue string) {
	if m := c.topology.Mailbox(queue); c.runs && m != nil && len(c.uses) < maxRedriveTargets {
		c.uses = append(c.uses, m.Use())
	}
}

// end ends the use of all queues.
func (c *redriveChoice) end() {
	for _, done := range c.uses {
		done()
	}
	c.uses = nil
}

// number returns the number of a target's name. All targets beyond the first maxRedriveTargets share one number.
func (c *redriveChoice) number(name RedriveTarget) int {
	text := name.Exchange + "\x00" + name.Queue
	if id, ok := c.ids[text]; ok {
		return id
	}
	id := len(c.ids)
	if id >= maxRedriveTargets {
		id, name = maxRedriveTargets, RedriveTarget{Others: true}
	} else {
		c.ids[text] = id
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if id == len(c.names) {
		c.names = append(c.names, name)
	}
	return id
}

// named gives counts their names.
func (c *redriveChoice) named(counts []RedriveTarget) []RedriveTarget {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range counts {
		n := c.names[i]
		counts[i].Queue, counts[i].Exchange, counts[i].Others = n.Queue, n.Exchange, n.Others
	}
	return counts
}
