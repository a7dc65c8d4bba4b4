package vhost

import (
	"slices"
	"time"

	"github.com/curfewmq/curfew/core/parts"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/core/telemetry"
	"github.com/curfewmq/curfew/sdk/hook"
)

// An exchange of a type with a schedule has, besides the bindings of its inner type, a
// queue of its own for the messages that it holds. That queue is not in the table of
// queues. A message that the schedule holds goes there and nowhere else, through the same
// batches, confirms and transactions as to any queue. When it is due it is published
// through the exchange like a dead letter, without x-death.

// schedule is the queue of messages that an exchange holds, and the plugin that decides about them.
type schedule struct {
	*queue.Schedule
	mailbox *queue.Mailbox
	// unbound means that the exchange has lost its last binding. If it is an auto-delete
	// exchange and gets no other binding, it is deleted when it holds no messages any more.
	unbound bool
}

// storage returns the storage of the exchange's schedule; nil if it has no schedule or is not durable.
func (x *exchange) storage() *queue.Storage {
	if x.schedule == nil {
		return nil
	}
	return x.schedule.mailbox.Config().Storage
}

func (x *exchange) holds() bool { return x.schedule != nil && x.schedule.Held() > 0 }

// keeps reports whether the exchange holds messages, or has released some that have not arrived durably.
func (x *exchange) keeps() bool { return x.holds() || x.schedule != nil && x.schedule.mailbox.Sends() }

// noteLastBinding notes whether the exchange has lost its last binding. It deletes an
// auto-delete exchange that holds no messages, once its released messages have arrived.
func (xs *exchanges) noteLastBinding(x *exchange) {
	if x.schedule == nil || x.table.Len() > 0 {
		return
	}
	if !x.schedule.unbound && x.AutoDelete && x.keeps() && xs.changes.isLogged(x) && !x.deletionLogged {
		xs.changes.add(xs.changes.defineUnbound(x))
	}
	x.schedule.unbound = true
	if x.AutoDelete && !x.holds() {
		x.schedule.mailbox.AfterDeadLetters(func(err error) {
			if err == nil {
				xs.deleteDrained(x)
			}
		})
	}
}

// settleReleases halts the releases of an exchange that is about to be deleted, and waits
// until the releases under way are durable: a restart must find each message at its
// destination, or in the exchange. resume ends the halt. While the disk is full, the wait
// could last for any time and block the client; so the deletion is refused.
func (xs *exchanges) settleReleases(exchange string) (resume func(), err error) {
	xs.topology.mu.RLock()
	x := xs.topology.exchange(exchange)
	xs.topology.mu.RUnlock()
	if x == nil || x.storage() == nil {
		return func() {}, nil
	}
	resume = x.schedule.mailbox.HaltReleases()
	arrived := make(chan error, 1)
	if x.schedule.mailbox.AfterDeadLetters(func(err error) { arrived <- err }) {
		full := false
		if full, err = awaitReleases(arrived, x.storage().Journal); full {
			resume()
			return nil, refuse(Precondition, "%s has released messages that wait for space on the disk: delete it when there is space", xs.exchangeName(exchange))
		}
	}
	if err != nil {
		resume()
		return nil, xs.stoppedError(err, "%s: messages that it has released could not be written", xs.exchangeName(exchange))
	}
	return resume, nil
}

// lookForSpace is how often a deletion that waits for released messages checks whether the
// disk is full.
const lookForSpace = 100 * time.Millisecond

// awaitReleases waits until released messages have arrived durably. It returns the error of
// a message that never will, and returns early if the disk is full.
func awaitReleases(arrived <-chan error, j queue.Journal) (full bool, err error) {
	space, ends := j.(queue.Granter)
	look := time.NewTicker(lookForSpace) //nolint:forbidigo // the disk is looked at; nothing is due at this time
	defer look.Stop()
	for !ends || !space.Low() {
		select {
		case err := <-arrived:
			return false, err
		case <-look.C:
		}
	}
	return true, nil
}

// deleteDrained deletes an auto-delete exchange that lost its last binding and now its last
// message, and reports whether it did. It is called on the turn of the schedule's queue.
// The deletion waits until the released messages have arrived: until then a restart must
// find the exchange, which still has them.
func (xs *exchanges) deleteDrained(x *exchange) bool {
	xs.topology.mu.Lock()
	defer xs.changes.unlock()
	if xs.topology.exchange(x.Name) != x || x.table.Len() > 0 || !x.schedule.unbound || x.holds() {
		return false
	}
	if x.schedule.mailbox.AfterDeadLetters(func(err error) {
		if err == nil { // else a restart releases them again
			xs.deleteDrained(x)
		}
	}) {
		return false
	}
	xs.remove(x, nil)
	return true
}

// dropHeld drops the messages that a deleted exchange holds. The caller holds mu.
func (xs *exchanges) dropHeld(x *exchange) {
	if x.schedule != nil {
		xs.dropMailbox(x.schedule.mailbox)
	}
}

// dropMailbox drops a schedule's queue, without waiting for it.
func (xs *exchanges) dropMailbox(m *queue.Mailbox) {
	m.DropAsync(func(now hook.Instant, messages int) {
		xs.changes.letGo(m)
		if messages == 0 {
			return
		}
		xs.log.Info("an exchange was deleted with the messages that it held", "exchange", m.Config().Name, "messages", messages)
		xs.telemetry.Notice(telemetry.Notice{Kind: telemetry.ExchangeDeleted, VHost: xs.name, Name: m.Config().Name, Messages: messages})
	})
}

// plan asks the schedule of x about the message. planned means that x puts it into the
// schedule, and sends it nowhere else.
func (r *routing) plan(x *exchange) (planned bool, err error) {
	m := r.message
	if x.schedule.Broken() {
		return true, r.topology.checkRoutable(x)
	}
	r.prepare()
	r.volatile = true // at another time, the plan may be another
	p := &r.planned   // in r, because an object that a plugin gets would be allocated otherwise
	*p = hook.Plan{}
	switch wrong, ok := x.schedule.Plan(&r.publishing, p); {
	case (!ok || wrong != nil) && !m.Published: // a dead letter is not lost because of its headers
		return false, nil
	case !ok:
		return true, r.topology.notRouted(x.schedule.Plugin(), x)
	case wrong != nil:
		return true, refuse(Precondition, "%v", wrong)
	}
	held := holds(p, m)
	if !held && len(p.ID) == 0 {
		return false, nil
	}
	if m.Mandatory && !p.Cancel && !r.leads(x) {
		return true, nil
	}
	if held {
		follow(p, m)
		m.HeldFirst = m.Published && m.Exchange == x.Name && x.filters == nil
	} else {
		m.Passes = true
	}
	if d := (destination{queue: x.schedule.mailbox}); !slices.Contains(r.list, d) {
		r.list = append(r.list, d)
	}
	return held, nil
}

// holds reports whether a message with a plan goes to the exchange's schedule, and nowhere
// else. A message that a client publishes with an identity, to be routed at once, passes
// the schedule in its place among the client's other messages.
func holds(p *hook.Plan, m *parts.Message) bool {
	return p.Hold > m.Now || p.Cancel || len(p.ID) > 0 && (m.Waits || !m.Published)
}

// follow notes the plan in a message that goes to an exchange's schedule.
func follow(p *hook.Plan, m *parts.Message) {
	m.Held = true
	m.Cancels = m.Cancels || p.Cancel
	if m.Hold = 0; len(p.ID) == 0 {
		m.Hold = p.Hold
	}
}

// Planner asks the schedules of exchanges about one publisher's messages. It belongs to one goroutine.
type Planner struct {
	publishing hook.Publishing
	plan       hook.Plan
}

// Holds reports whether a message takes the same way as an earlier one with the same
// routing keys and HeldFirst set: to is the schedule that the earlier one went to. This
// holds as long as Generation returns the same as before the route of the earlier message
// was looked up. If so, Holds sets Cancels and Hold; otherwise Route must be called. It
// must not be called for mandatory messages.
func (p *Planner) Holds(to *queue.Schedule, m *parts.Message) bool {
	p.publishing, p.plan = hook.Publishing{Now: m.Now, Key: m.Key, More: m.More}, hook.Plan{}
	p.publishing.Bind(m)
	m.Published = true
	if wrong, ok := to.Plan(&p.publishing, &p.plan); !ok || wrong != nil || !holds(&p.plan, m) {
		return false
	}
	follow(&p.plan, m)
	return true
}

// leads reports whether x would route the message anywhere now.
func (r *routing) leads(x *exchange) bool {
	probe := routings.Get().(*routing)
	probe.topology, probe.message, probe.probing = r.topology, r.message, true
	queues, err := probe.follow(x, nil)
	probe.release()
	return len(queues) > 0 || err != nil // the error is reported when the message is released
}

// addAll adds all destinations of x's bindings, and reports whether there are any. A probe
// uses it for plugins that choose anew for each message, because they may remember the
// messages that they are asked about.
func (r *routing) addAll(x *exchange) (matched bool) {
	known := make(map[destination]struct{}, len(r.list)) // the list may get as long as there are queues
	for _, d := range r.list {
		known[d] = struct{}{}
	}
	for d := range x.table.Destinations() {
		matched = true
		if _, listed := known[d]; !listed {
			r.list = append(r.list, d)
		}
	}
	return matched
}

// routeReleased is routeInternal for a message that an exchange held until now.
func (t *topology) routeReleased(from *queue.Config, m *parts.Message, dst []*queue.Mailbox) ([]*queue.Mailbox, reuse, telemetry.Outcome) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	x := t.exchanges[from.Name]
	if x == nil || x.schedule == nil || x.schedule.mailbox.Config() != from { // it was deleted; another exchange may have its name
		return dst, sameKeys, telemetry.NoExchange
	}
	m.Released = x.Name
	return t.routeFrom(x, m, dst)
}

// Leads returns the names of the queues to which an exchange would route a message from its
// schedule if it released it now; nil if none. If a plugin chooses anew for each message,
// it returns all queues that the plugin may choose. Leads changes nothing.
func (t *topology) Leads(exchange string, m *parts.Message) (queues []string) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	x := t.exchanges[exchange]
	if x == nil || x.schedule == nil {
		return nil
	}
	m.Exchange, m.Released = x.Name, x.Name
	probe := routings.Get().(*routing)
	probe.topology, probe.message, probe.probing = t, m, true
	found, _ := probe.follow(x, nil) // the error is reported when the message is released
	probe.release()
	for _, q := range found {
		if cfg := q.Config(); cfg.Schedule == nil {
			queues = append(queues, cfg.Name)
		}
	}
	return queues
}
