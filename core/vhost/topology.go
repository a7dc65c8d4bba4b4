package vhost

import (
	"cmp"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/curfewmq/curfew/core/clock"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/core/rabbit"
	"github.com/curfewmq/curfew/core/route"
)

// topology is the graph that messages are routed through: exchanges, queues, and the bindings between them. It lives in memory; exchanges
// and queues, which are parts of the vhost, check and log what changes it.
type topology struct {
	*rules
	life  *life
	clock clock.Clock

	// mu guards the fields below, and the state of those parts of the vhost that have a pointer to it: a change concerns several parts at
	// once. It is never held while a method of a queue's mailbox is called: that may run the queue's turn, and turns call back into the
	// vhost.
	mu        sync.RWMutex
	exchanges map[string]*exchange
	queues    queueTable
	bindings  int

	generation   atomic.Uint64
	unroutedName atomic.Bool // a message for a queue that does not exist was routed since generation changed
}

// destination is the end of a binding: a queue or an exchange. The other one is nil.
type destination struct {
	queue    *queue.Mailbox
	exchange *exchange
}

func (d destination) name() string {
	if d.exchange != nil {
		return d.exchange.Name
	}
	return d.queue.Config().Name
}

// Generation changes whenever a message could be routed differently. A route is valid as long as Generation returns the same as before the
// route was looked up.
func (t *topology) Generation() uint64 { return t.generation.Load() }

// invalidateRoutes makes all known routes invalid. The caller holds mu for writing.
func (t *topology) invalidateRoutes() {
	t.unroutedName.Store(false)
	t.generation.Add(1)
}

// exchange returns an exchange; nil if it does not exist. The caller holds mu.
func (t *topology) exchange(name string) *exchange { return t.exchanges[name] }

// exchangeCount returns how many exchanges there are. The caller holds mu.
func (t *topology) exchangeCount() int { return len(t.exchanges) }

// eachExchange yields all exchanges. The caller holds mu.
func (t *topology) eachExchange() iter.Seq[*exchange] { return maps.Values(t.exchanges) }

// bindingCount returns how many bindings there are. The caller holds mu.
func (t *topology) bindingCount() int { return t.bindings }

// addExchange adds an exchange without bindings. The caller holds mu.
func (t *topology) addExchange(x *exchange) { t.exchanges[x.Name] = x }

// removeExchange removes an exchange with the bindings from it. The bindings to it stay. The caller holds mu.
func (t *topology) removeExchange(x *exchange) {
	delete(t.exchanges, x.Name)
	t.bindings -= x.table.Len()
	for b := range x.table.All() {
		t.unlink(x, b.Destination)
	}
}

// addQueue adds a queue. The caller holds mu.
func (t *topology) addQueue(m *queue.Mailbox, owner Owner) {
	t.queues.add(m, owner)
	if t.unroutedName.Load() {
		t.invalidateRoutes()
	}
}

// removeQueue removes a queue, and returns the exchanges that have bindings to it. Its bindings stay. The caller holds mu.
func (t *topology) removeQueue(m *queue.Mailbox) (sources []*exchange) {
	sources = t.queues.remove(m)
	t.invalidateRoutes()
	return sources
}

// addBinding adds a binding, and reports whether it is new. The caller holds mu.
func (t *topology) addBinding(x *exchange, b *Binding, to destination) bool {
	if !x.table.Add(b.Key, b.Args, to) {
		return false
	}
	t.bindings++
	t.link(x, to)
	return true
}

// removeBinding removes a binding, and reports whether it existed. The caller holds mu.
func (t *topology) removeBinding(x *exchange, b *Binding, to destination) bool {
	if t.exchanges[x.Name] != x || !x.table.Remove(b.Key, b.Args, to) {
		return false
	}
	t.bindings--
	if !x.hasBindingTo(to) {
		t.unlink(x, to)
	}
	return true
}

// removeBindings removes all bindings of x to a destination that is removed. The caller holds mu.
func (t *topology) removeBindings(x *exchange, to destination) {
	t.bindings -= x.table.RemoveDestination(to)
}

// ends finds the source and the destination of a binding. The caller holds mu.
func (t *topology) ends(b *Binding) (*exchange, destination, error) {
	x := t.exchanges[b.Source]
	if x == nil {
		return nil, destination{}, t.life.noExchange(b.Source)
	}
	to := t.destinationOf(b.Destination, b.ToExchange)
	if to == (destination{}) {
		return nil, to, t.noDestination(b)
	}
	return x, to, nil
}

// destinationOf finds a queue or, with toExchange, an exchange. The zero value means there is none. The caller holds mu.
func (t *topology) destinationOf(name string, toExchange bool) destination {
	if toExchange {
		return destination{exchange: t.exchanges[name]}
	}
	e, _ := t.queues.get(name)
	return destination{queue: e.mailbox}
}

func (t *topology) noDestination(b *Binding) *Error {
	if b.ToExchange {
		return t.life.noExchange(b.Destination)
	}
	return t.life.NoQueue(b.Destination)
}

// checkOwner refuses to bind or unbind another connection's exclusive queue. The caller holds mu.
func (t *topology) checkOwner(b *Binding, owner Owner) error {
	if b.ToExchange {
		return nil
	}
	e, _ := t.queues.get(b.Destination)
	return t.checkExclusive(b.Destination, e, owner)
}

// sourcesOf returns the exchanges with bindings to d; nil if d can have none. The caller holds mu.
func (t *topology) sourcesOf(d destination) *[]*exchange {
	if d.exchange != nil {
		return &d.exchange.sources
	}
	return t.queues.sourcesOf(d.queue)
}

// link adds x to the sources of the destination. The caller holds mu.
func (t *topology) link(x *exchange, to destination) {
	if to.queue != nil {
		t.queues.extend(to.queue)
	}
	if sources := t.sourcesOf(to); !slices.Contains(*sources, x) {
		*sources = append(*sources, x)
	}
}

// unlink removes x from the sources of the destination, if that still exists. The caller holds mu.
func (t *topology) unlink(x *exchange, to destination) {
	if sources := t.sourcesOf(to); sources != nil {
		if i := slices.Index(*sources, x); i >= 0 {
			*sources = slices.Delete(*sources, i, i+1)
		}
	}
}

// Exchange returns the description of an exchange and whether it exists.
func (t *topology) Exchange(name string) (Exchange, bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	x := t.exchanges[name]
	if x == nil {
		return Exchange{}, false
	}
	return x.Exchange, true
}

// Exchanges returns all exchanges, sorted by name.
func (t *topology) Exchanges() []Exchange {
	t.mu.RLock()
	all := make([]Exchange, 0, len(t.exchanges))
	for _, x := range t.exchanges {
		all = append(all, x.Exchange)
	}
	t.mu.RUnlock()
	slices.SortFunc(all, func(a, b Exchange) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// MissingTypes counts exchanges of types that no plugin offers, by type.
func (t *topology) MissingTypes() map[string]int {
	t.mu.RLock()
	defer t.mu.RUnlock()
	counts := map[string]int{}
	for _, x := range t.exchanges {
		if x.missing {
			counts[x.Type]++
		}
	}
	return counts
}

// durableOnly reports whether all exchanges are durable and have no plugin that may remember messages. The caller holds mu.
func (t *topology) durableOnly() bool {
	for _, x := range t.exchanges {
		if !x.Durable || x.volatile {
			return false
		}
	}
	return true
}

// Schedules returns the schedules of exchanges, as queues that are not in the table, in no particular order.
func (t *topology) Schedules() (all []*queue.Mailbox) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	for _, x := range t.exchanges {
		if x.schedule != nil {
			all = append(all, x.schedule.mailbox)
		}
	}
	return all
}

// Schedule returns an exchange's schedule, as a queue that is not in the table. It is an error if exchanges of its type hold nothing.
func (t *topology) Schedule(exchange string) (*queue.Mailbox, error) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	switch x := t.exchanges[exchange]; {
	case x == nil:
		return nil, t.life.noExchange(exchange)
	case x.schedule == nil:
		return nil, refuse(Precondition, "%s of type '%s' holds no messages", t.exchangeName(exchange), x.Type)
	default:
		return x.schedule.mailbox, nil
	}
}

// HasBinding reports whether a binding exists.
func (t *topology) HasBinding(b Binding) bool {
	t.mu.RLock()
	defer t.mu.RUnlock()
	x, to, err := t.ends(&b)
	return err == nil && x.table.Has(b.Key, b.Args, to)
}

// Bindings returns all bindings, in no particular order, except the bindings of the default exchange: every queue has one.
func (t *topology) Bindings() (all []Binding) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	for _, x := range t.exchanges {
		all = x.appendBindings(all, x.table.All())
	}
	return all
}

// BindingsFrom returns the bindings from an exchange, in no particular order. The default exchange shows none.
func (t *topology) BindingsFrom(exchange string) []Binding {
	t.mu.RLock()
	defer t.mu.RUnlock()
	x := t.exchanges[exchange]
	if x == nil {
		return nil
	}
	return x.appendBindings(nil, x.table.All())
}

// BindingsTo returns the bindings to a queue or, with toExchange, to an exchange, in no particular order. That of the default
// exchange is left out.
func (t *topology) BindingsTo(name string, toExchange bool) (all []Binding) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	to := t.destinationOf(name, toExchange)
	if to == (destination{}) {
		return nil
	}
	if sources := t.sourcesOf(to); sources != nil {
		for _, x := range *sources {
			all = x.appendBindings(all, x.table.Of(to))
		}
	}
	return all
}

func (x *exchange) hasBindingTo(d destination) bool {
	for range x.table.Of(d) {
		return true
	}
	return false
}

func (x *exchange) appendBindings(all []Binding, bindings iter.Seq[route.Binding[destination]]) []Binding {
	for b := range bindings {
		all = append(all, bindingOf(x, b))
	}
	return all
}

func bindingOf(x *exchange, b route.Binding[destination]) Binding {
	return Binding{
		Source: x.Name, Destination: b.Destination.name(), ToExchange: b.Destination.exchange != nil, Key: b.Key, Args: b.Args,
	}
}

// lookup returns a queue's entry and whether the queue exists.
func (t *topology) lookup(name string) (queueEntry, bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.queues.get(name)
}

// Queue returns a queue that owner may use. If a method of the mailbox later reports [queue.ErrGone], the queue has been deleted:
// see [VHost.NoQueue].
func (t *topology) Queue(name string, owner Owner) (*queue.Mailbox, error) {
	name = rabbit.Sanitise(name)
	e, ok := t.lookup(name)
	if !ok {
		return nil, t.life.NoQueue(name)
	}
	if err := t.checkExclusive(name, e, owner); err != nil {
		return nil, err
	}
	return e.mailbox, nil
}

// Mailbox returns a queue, whichever connection owns it; nil if it does not exist.
func (t *topology) Mailbox(name string) *queue.Mailbox {
	e, _ := t.lookup(name)
	return e.mailbox
}

// Mailboxes returns all queues in no particular order. Some may be deleted by the time they are used.
func (t *topology) Mailboxes() []*queue.Mailbox {
	t.mu.RLock()
	defer t.mu.RUnlock()
	all := make([]*queue.Mailbox, 0, t.queues.count())
	for _, e := range t.queues.all() {
		all = append(all, e.mailbox)
	}
	return all
}

// Queues returns all queues, sorted by name. Some may be deleted by the time they are used.
func (t *topology) Queues() []*queue.Mailbox {
	all := t.Mailboxes()
	slices.SortFunc(all, func(a, b *queue.Mailbox) int { return cmp.Compare(a.Config().Name, b.Config().Name) })
	return all
}

// queueTable is the table of queues. The topology's lock guards it.
type queueTable struct {
	byName    map[string]queueEntry
	peak      int                                   // the most queues since the map was made
	exclusive map[Owner]map[*queue.Mailbox]struct{} // exclusive queues
}

// queueEntry is a queue in the table. Most queues need no extras.
type queueEntry struct {
	mailbox *queue.Mailbox
	extras  *queueExtras // nil until the queue has any
}

// queueExtras are fields for exclusive and bound queues only.
type queueExtras struct {
	owner   Owner
	sources []*exchange // exchanges with bindings to the queue
}

func (e *queueEntry) extend() *queueExtras {
	if e.extras == nil {
		e.extras = &queueExtras{}
	}
	return e.extras
}

func (e queueEntry) owner() Owner {
	if e.extras == nil {
		return 0
	}
	return e.extras.owner
}

func (t *queueTable) count() int { return len(t.byName) }

func (t *queueTable) get(name string) (queueEntry, bool) {
	e, ok := t.byName[name]
	return e, ok
}

func (t *queueTable) all() iter.Seq2[string, queueEntry] { return maps.All(t.byName) }

// add adds a queue, with its owner if it is exclusive.
func (t *queueTable) add(m *queue.Mailbox, owner Owner) {
	e := queueEntry{mailbox: m}
	if owner != 0 {
		e.extend().owner = owner
		if t.exclusive[owner] == nil {
			t.exclusive[owner] = map[*queue.Mailbox]struct{}{}
		}
		t.exclusive[owner][m] = struct{}{}
	}
	t.byName[m.Config().Name] = e
	t.peak = max(t.peak, len(t.byName))
}

// remove removes a queue that is in the table, and returns the exchanges that have bindings to it.
func (t *queueTable) remove(m *queue.Mailbox) (sources []*exchange) {
	name := m.Config().Name
	e := t.byName[name]
	delete(t.byName, name)
	t.shrink()
	if e.extras == nil {
		return nil
	}
	owned := t.exclusive[e.extras.owner]
	if delete(owned, m); len(owned) == 0 {
		delete(t.exclusive, e.extras.owner)
	}
	return e.extras.sources
}

// shrink rebuilds the table when few of many queues are left, because a map never gives memory back.
func (t *queueTable) shrink() {
	const small = 1024
	if t.peak <= small || len(t.byName) > t.peak/8 {
		return
	}
	queues := make(map[string]queueEntry, 2*len(t.byName))
	maps.Copy(queues, t.byName)
	t.byName, t.peak = queues, len(queues)
}

// extend makes space for the sources of a queue that is in the table.
func (t *queueTable) extend(m *queue.Mailbox) {
	name := m.Config().Name
	e := t.byName[name]
	e.extend()
	t.byName[name] = e
}

// sourcesOf returns the exchanges with bindings to a queue; nil if it has none, or is not in the table.
func (t *queueTable) sourcesOf(m *queue.Mailbox) *[]*exchange {
	if e := t.byName[m.Config().Name]; e.mailbox == m && e.extras != nil {
		return &e.extras.sources
	}
	return nil
}

// disown forgets which queues a connection owns, and returns them.
func (t *queueTable) disown(owner Owner) map[*queue.Mailbox]struct{} {
	queues := t.exclusive[owner]
	delete(t.exclusive, owner)
	return queues
}
