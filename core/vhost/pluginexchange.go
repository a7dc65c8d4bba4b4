package vhost

import (
	"github.com/curfewmq/curfew/core/chain"
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

// router passes the bindings in an exchange's table to its plugin.
type router struct {
	*chain.Router
	vhost    *VHost
	exchange string
}

var _ route.Router[destination] = router{}

func (r router) Bind(n hook.Destination, b route.Binding[destination]) {
	if r.Router.Bind(hookBinding(n, b)) {
		r.vhost.logBroken(r.exchange, r.Plugin())
	}
}

func (r router) Unbind(n hook.Destination, b route.Binding[destination]) {
	if r.Router.Unbind(hookBinding(n, b)) {
		r.vhost.logBroken(r.exchange, r.Plugin())
	}
}

// logBroken logs that a plugin failed on an exchange or one of its bindings.
func (v *VHost) logBroken(exchange, plugin string) {
	v.log.Error("an exchange routes no messages until the broker is started again, because a plugin failed on it or on one of its bindings",
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

// newExchange makes an exchange. After an error, which means that a plugin failed, it exists, but refuses messages.
func (v *VHost) newExchange(d Exchange, storage *queue.Storage) (*exchange, error) {
	x := &exchange{Exchange: d}
	described := v.hookExchange(&x.Exchange)
	failure := v.addSchedule(x, described, storage)
	if failure == nil {
		failure = v.setTable(x, described)
	}
	if !x.isDefault() {
		filters, err := v.chain.NewFilters(described)
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
func (v *VHost) setTable(x *exchange, described *hook.Exchange) (err error) {
	if x.schedule != nil {
		routed := *described
		routed.Type = x.schedule.Inner()
		described = &routed
	}
	if kind, ok := route.ParseKind(described.Type); ok {
		x.table = route.New[destination](kind)
		return nil
	}
	t := v.chain.ExchangeType(described.Type)
	if t == nil {
		x.missing = true
		x.table = route.New[destination](route.Plugin)
		return nil
	}
	x.router, err = t.NewRouter(described)
	x.table = route.NewPlugin[destination](router{x.router, v, x.Name})
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

// restoreExchange makes an exchange that was declared before. It stays, even if a plugin fails on it.
func (v *VHost) restoreExchange(d Exchange, storage *queue.Storage) *exchange {
	x, err := v.newExchange(d, storage)
	if err != nil {
		v.log.Error("an exchange routes no messages until the broker is started again", "exchange", d.Name, "error", err)
	}
	return x
}

// MissingTypes counts exchanges of types that no plugin offers, by type.
func (v *VHost) MissingTypes() map[string]int {
	v.mu.RLock()
	defer v.mu.RUnlock()
	counts := map[string]int{}
	for _, x := range v.exchanges {
		if x.missing {
			counts[x.Type]++
		}
	}
	return counts
}
