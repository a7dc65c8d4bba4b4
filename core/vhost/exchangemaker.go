package vhost

import (
	"fmt"
	"log/slog"

	"github.com/curfewmq/curfew/core/chain"
	"github.com/curfewmq/curfew/core/clock"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/core/route"
	"github.com/curfewmq/curfew/policies"
	"github.com/curfewmq/curfew/sdk/hook"
)

// pluginPart is the part of an exchange that plugins provide. The zero value belongs to an exchange of one of the broker's own types,
// without filters.
type pluginPart struct {
	router   *chain.Router // of an exchange of a plugin's type
	schedule *schedule     // nil if its type holds nothing
	missing  bool          // no plugin offers its type: it routes nothing
	filters  chain.Filters
	volatile bool // plugins are asked about each of its messages
}

// exchangeMaker makes exchanges, with the queues and the parts of plugins that they need.
type exchangeMaker struct {
	*rules
	changes   *changes
	broker    *queue.Broker
	clock     clock.Clock
	host      queue.Host
	log       *slog.Logger
	heldChain *chain.Chain           // of schedules
	drained   func(x *exchange) bool // see [exchanges.deleteDrained]
	restoring bool                   // no other goroutine uses the vhost yet
}

// router passes the bindings in an exchange's table to its plugin.
type router struct {
	*chain.Router
	maker    *exchangeMaker
	exchange string
}

var _ route.Router[destination] = router{}

func (r router) Bind(n hook.Destination, b route.Binding[destination]) {
	if r.Router.Bind(hookBinding(n, b)) {
		r.maker.logBroken(r.exchange, r.Plugin())
	}
}

func (r router) Unbind(n hook.Destination, b route.Binding[destination]) {
	if r.Router.Unbind(hookBinding(n, b)) {
		r.maker.logBroken(r.exchange, r.Plugin())
	}
}

// logBroken logs that a plugin failed on an exchange or one of its bindings.
func (mk *exchangeMaker) logBroken(exchange, plugin string) {
	mk.log.Error("an exchange routes no messages until the broker is started again, because a plugin failed on it or on one of its bindings",
		"exchange", exchange, "plugin", plugin)
}

func hookBinding(n hook.Destination, b route.Binding[destination]) *hook.Binding {
	return &hook.Binding{
		Destination: n, Name: b.Destination.name(), ToExchange: b.Destination.exchange != nil, Key: b.Key, Args: hookArgs(b.Args),
	}
}

// hookExchange describes an exchange without policies to plugins.
func (r *rules) hookExchange(x *Exchange) *hook.Exchange {
	return r.hookExchangeUnder(x, policies.Applied{})
}

// hookExchangeUnder describes an exchange to which policies apply.
func (r *rules) hookExchangeUnder(x *Exchange, applied policies.Applied) *hook.Exchange {
	args := hookArgs(x.Args)
	return &hook.Exchange{
		VHost: r.name, Name: x.Name, Type: x.Type, Args: args, Types: r.chain.InnerTypes(),
		Setting: func(name string) (any, bool) {
			arg, has := args.Lookup("x-" + name)
			return applied.Setting(name, arg, has, policies.Exchange)
		},
	}
}

// make makes an exchange. After an error, which means that a plugin failed, it exists, but refuses messages.
func (mk *exchangeMaker) make(d Exchange, storage *queue.Storage) (*exchange, error) {
	x := &exchange{Exchange: d}
	described := mk.hookExchange(&x.Exchange)
	failure := mk.addSchedule(x, described, storage)
	if failure == nil {
		failure = mk.setTable(x, described)
	}
	if !x.isDefault() {
		filters, err := mk.chain.NewFilters(described)
		x.filters = filters
		if failure == nil {
			failure = err
		}
	}
	x.volatile = x.filters != nil || x.router != nil && x.router.Volatile
	x.applyPolicies(nil)
	return x, failure
}

// setTable gives x the table that its type needs.
func (mk *exchangeMaker) setTable(x *exchange, described *hook.Exchange) (err error) {
	if x.schedule != nil {
		routed := *described
		routed.Type = x.schedule.Inner()
		described = &routed
	}
	if kind, ok := route.ParseKind(described.Type); ok {
		x.table = route.New[destination](kind)
		return nil
	}
	t := mk.chain.ExchangeType(described.Type)
	if t == nil {
		x.missing = true
		x.table = route.New[destination](route.Plugin)
		return nil
	}
	x.router, err = t.NewRouter(described)
	x.table = route.NewPlugin[destination](router{x.router, mk, x.Name})
	return err
}

// checkRoutable returns an error if x can route no message at all.
func (r *rules) checkRoutable(x *exchange) error {
	switch {
	case x.schedule != nil && x.schedule.Broken() && !x.missing:
		return refuse(Precondition, "%s takes no messages until the broker is started again: the plugin '%s' failed on it",
			r.exchangeName(x.Name), x.schedule.Plugin())
	case x.missing:
		return refuse(Precondition, "Cannot route message through %s: exchange type %s not found", r.exchangeName(x.Name), x.Type)
	case x.router != nil && x.router.Broken():
		return refuse(Precondition, "%s routes no messages until the broker is started again: the plugin '%s' failed on it or on one of its bindings",
			r.exchangeName(x.Name), x.router.Plugin())
	}
	return nil
}

// notRouted is the error for a message on which a plugin failed.
func (r *rules) notRouted(plugin string, x *exchange) error {
	return refuse(Precondition, "the plugin '%s' failed to route a message through %s", plugin, r.exchangeName(x.Name))
}

// startRestoring makes the queues of schedules with a storage wait for their messages, until done is called.
func (mk *exchangeMaker) startRestoring() (done func()) {
	mk.restoring = true
	return func() { mk.restoring = false }
}

// restore makes an exchange that was declared before. It stays, even if a plugin fails on it.
func (mk *exchangeMaker) restore(d Exchange, storage *queue.Storage) *exchange {
	x, err := mk.make(d, storage)
	if err != nil {
		mk.log.Error("an exchange routes no messages until the broker is started again", "exchange", d.Name, "error", err)
	}
	return x
}

// emptyChain returns the chain for schedules: no queue plugin sees held messages.
func emptyChain() *chain.Chain {
	c, err := chain.New(nil, chain.Options{})
	if err != nil {
		panic(err) // there is no plugin to blame
	}
	return c
}

// heldSettings are the settings of a schedule: it has none.
func heldSettings(string) (any, bool) { return nil, false }

// storageFor returns the storage for a new exchange, nil if it needs none.
func (mk *exchangeMaker) storageFor(d *Exchange) (*queue.Storage, error) {
	t := mk.chain.ExchangeType(d.Type)
	if t == nil || t.Schedule == nil || !d.Durable || !mk.changes.durable() {
		return nil, nil
	}
	s := mk.changes.newStorage()
	if err := s.Journal.Err(); err != nil {
		return nil, mk.stoppedError(err, "%s: shard %d failed", mk.exchangeName(d.Name), s.Shard)
	}
	return s, nil
}

// addSchedule gives an exchange the schedule of its type. If the type's plugin was taken out of the chain, the exchange still has its
// storage, and so its schedule. After an error the schedule is broken: it keeps the messages that it has.
func (mk *exchangeMaker) addSchedule(x *exchange, described *hook.Exchange, storage *queue.Storage) error {
	t := mk.chain.ExchangeType(x.Type)
	if storage == nil && (t == nil || t.Schedule == nil) {
		return nil
	}
	plans, err := mk.chain.NewSchedule(described)
	if err == nil && storage == nil && x.Durable && mk.changes.durable() {
		plans = &chain.Schedule{}
		err = fmt.Errorf("%s was declared when its type held no messages: delete it and declare it again", mk.exchangeName(x.Name))
	}
	s := &schedule{Schedule: &queue.Schedule{Schedule: plans, Target: &hook.Target{Exchange: x.Name}}}
	if x.AutoDelete {
		s.Unused = func() bool { return mk.drained(x) }
	}
	config := &queue.Config{
		Profile: &queue.Profile{VHost: mk.name, Kind: queue.Classic, DeliveryLimit: -1, Settings: heldSettings},
		Name:    x.Name, Durable: x.Durable, AutoDelete: x.AutoDelete, Storage: storage, Schedule: s.Schedule,
	}
	create := mk.broker.NewMailbox
	if mk.restoring && storage != nil {
		create = mk.broker.NewPausedMailbox
	}
	s.mailbox = create(config, mk.heldChain, mk.host, mk.clock)
	x.schedule = s
	if err != nil {
		x.missing = t == nil
		x.table = route.New[destination](route.Plugin)
	}
	return err
}

// applyPolicies applies policies to an exchange. The caller holds mu.
func (mk *exchangeMaker) applyPolicies(x *exchange, s *policies.Set) {
	before := x.policies
	x.applyPolicies(s)
	if x.schedule == nil || x.policies == before || x.schedule.Broken() {
		return
	}
	if err := x.schedule.Renew(mk.chain, mk.hookExchangeUnder(&x.Exchange, x.policies)); err != nil {
		mk.log.Error("a policy does not apply to an exchange", "exchange", x.Name, "error", err)
	}
}
