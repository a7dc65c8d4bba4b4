package vhost

import (
	"slices"
	"strings"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/core/rabbit"
	"github.com/curfewmq/curfew/core/route"
	"github.com/curfewmq/curfew/policies"
)

// Exchange describes an exchange.
type Exchange struct {
	Name       string
	Type       string
	Durable    bool
	AutoDelete bool // it goes with the last binding it is the source of
	Internal   bool // clients may not publish to it
	Args       amqp.Table
}

const argAlternate = "alternate-exchange"

// predeclared are the exchanges of every vhost. Clients can neither create nor delete such names.
var predeclared = []Exchange{
	{Name: "", Type: "direct", Durable: true},
	{Name: "amq.direct", Type: "direct", Durable: true},
	{Name: "amq.fanout", Type: "fanout", Durable: true},
	{Name: "amq.topic", Type: "topic", Durable: true},
	{Name: "amq.headers", Type: "headers", Durable: true},
	{Name: "amq.match", Type: "headers", Durable: true},
	{Name: "amq.rabbitmq.trace", Type: "topic", Durable: true, Internal: true},
}

func isPredeclared(name string) bool {
	return name == "" || strings.HasPrefix(name, rabbit.ReservedPrefix)
}

// exchange is an exchange in the topology; the vhost's mutex guards it. What Exchange says never changes.
type exchange struct {
	Exchange
	alternate    string
	hasAlternate bool // there is an alternate
	policies     policies.Applied

	table   *route.Table[destination] // nil for the default exchange, which every queue is bound to by its name
	sources []*exchange               // with bindings to this one
}

// destination is what a binding leads to: a queue or an exchange, the other is nil.
type destination struct {
	queue    *queue.Mailbox
	exchange *exchange
}

func newExchange(d Exchange) *exchange {
	x := &exchange{Exchange: d}
	x.applyPolicies(nil)
	if kind, ok := route.ParseKind(d.Type); ok && d.Name != "" {
		x.table = route.New[destination](kind)
	}
	return x
}

// Exchange returns the description of an exchange and whether it exists.
func (v *VHost) Exchange(name string) (Exchange, bool) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	x := v.exchanges[name]
	if x == nil {
		return Exchange{}, false
	}
	return x.Exchange, true
}

// CheckExchange is the passive declaration.
func (v *VHost) CheckExchange(name string) error {
	name = rabbit.Sanitise(name)
	if name == "" {
		return errDefaultExchange
	}
	if _, ok := v.Exchange(name); !ok {
		return v.noExchange(name)
	}
	return nil
}

// DeclareExchange creates an exchange, or finds that there is one that is the same. allow, if not nil, is asked before an
// exchange with an alternate is created; its error is returned as it is.
func (v *VHost) DeclareExchange(d Exchange, allow func(alternate string) error) error {
	d.Name = rabbit.Sanitise(d.Name)
	if _, ok := route.ParseKind(d.Type); !ok {
		return refuse(Precondition, "unknown exchange type '%s'", d.Type)
	}
	if d.Name == "" {
		return errDefaultExchange
	}
	current, ok := v.Exchange(d.Name)
	if !ok {
		err := v.checkNewExchange(d, allow)
		if err != nil {
			return err
		}
		if current, err = v.addExchange(d); err != nil {
			return err
		}
	}
	return v.equivalentExchange(current, d)
}

func (v *VHost) checkNewExchange(d Exchange, allow func(alternate string) error) error {
	if err := checkNew("exchange", d.Name); err != nil {
		return err
	}
	alternate, ok := d.Args.Lookup(argAlternate)
	if !ok {
		return nil
	}
	name, ok := alternate.(string)
	if !ok {
		return refuse(Precondition, "invalid type '%s' for arg '%s' in %s", amqp.TypeName(alternate), argAlternate, v.exchangeName(d.Name))
	}
	if allow == nil {
		return nil
	}
	return allow(name)
}

// addExchange creates an exchange unless somebody was faster, and returns the one that is there.
func (v *VHost) addExchange(d Exchange) (is Exchange, err error) {
	h := additive // one that is not durable keeps its name from one that will be
	if d.Durable {
		h = exclusive
	}
	is = d
	err = v.change(fixedMode(h), func() (apply func() error, err error) {
		if x := v.exchanges[d.Name]; x != nil {
			is = x.Exchange
			return nil, nil
		}
		x := newExchange(d)
		if v.isLogged(x) {
			v.logDefinition(v.defineExchange(&x.Exchange))
		}
		return func() error {
			x.applyPolicies(v.policies.Load())
			v.exchanges[d.Name] = x
			v.invalidateRoutes()
			return nil
		}, nil
	})
	return is, err
}

// equivalentExchange compares a declaration with the exchange that exists. Of the arguments, only the alternate counts.
func (v *VHost) equivalentExchange(current, received Exchange) error {
	what := v.exchangeName(current.Name)
	if err := equivalentField(what, "type", current.Type, received.Type); err != nil {
		return err
	}
	if err := equivalentField(what, "durable", current.Durable, received.Durable); err != nil {
		return err
	}
	if err := equivalentField(what, "auto_delete", current.AutoDelete, received.AutoDelete); err != nil {
		return err
	}
	if err := equivalentField(what, "internal", current.Internal, received.Internal); err != nil {
		return err
	}
	return equivalentArgument(what, argAlternate, tableArgument(current.Args, argAlternate), tableArgument(received.Args, argAlternate))
}

// DeleteExchange deletes an exchange with its bindings, those from it and those to it. One that does not exist is as good
// as deleted.
func (v *VHost) DeleteExchange(name string, ifUnused bool) error {
	name = rabbit.Sanitise(name)
	if name == "" {
		return errDefaultExchange
	}
	if strings.HasPrefix(name, rabbit.ReservedPrefix) {
		return refuse(AccessRefused, "deletion of system %s not allowed", v.exchangeName(name))
	}
	return v.change(v.modeFor(name, exclusive), func() (func() error, error) { return v.dropExchange(name, ifUnused) })
}

// dropExchange plans the deletion of an exchange. The caller holds mu.
func (v *VHost) dropExchange(name string, ifUnused bool) (apply func() error, err error) {
	x := v.exchanges[name]
	if x == nil {
		return nil, nil
	}
	if ifUnused && x.table.Len() > 0 {
		return nil, refuse(Precondition, "%s in use", v.exchangeName(name))
	}
	doomed := v.logDeletions(x)
	return func() error {
		if v.exchanges[name] == x { // else it has deleted itself
			v.removeExchange(x, doomed)
		}
		return nil
	}, nil
}

// logDeletions notes that x is to be deleted, and with it every auto-delete exchange that leads nowhere else, and returns all of
// them. The caller holds mu.
func (v *VHost) logDeletions(x *exchange) []*exchange {
	doomed := []*exchange{x}
	for i := 0; i < len(doomed); i++ {
		for _, source := range doomed[i].sources {
			if source.AutoDelete && !slices.Contains(doomed, source) && source.bindsOnlyTo(doomed) {
				doomed = append(doomed, source)
			}
		}
	}
	for _, x := range doomed {
		v.logExchangeDeletion(x)
	}
	return doomed
}

func (v *VHost) logExchangeDeletion(x *exchange) {
	if v.isLogged(x) {
		v.logDefinition(v.defineName(opDeleteExchange, x.Name))
	}
}

func (x *exchange) bindsOnlyTo(list []*exchange) bool {
	n := 0
	for _, to := range list {
		for range x.table.Of(destination{exchange: to}) {
			n++
		}
	}
	return n == x.table.Len()
}

// removeExchange deletes x, and then every auto-delete exchange that lost its last binding by it. Those that are not doomed,
// as the others are, are noted. The caller holds mu.
func (v *VHost) removeExchange(x *exchange, doomed []*exchange) {
	going := []*exchange{x}
	for len(going) > 0 {
		x, going = going[len(going)-1], going[:len(going)-1]
		if !slices.Contains(doomed, x) {
			v.logExchangeDeletion(x)
		}
		delete(v.exchanges, x.Name)
		v.bindings -= x.table.Len()
		for b := range x.table.All() {
			v.unlink(x, b.Destination)
		}
		for _, source := range x.sources {
			if source != x {
				v.bindings -= source.table.RemoveDestination(destination{exchange: x})
			}
			if source.unused() {
				going = append(going, source)
			}
		}
	}
	v.invalidateRoutes()
}

// unused says that an exchange has to go, having just lost a binding.
func (x *exchange) unused() bool { return x.AutoDelete && x.table.Len() == 0 }

// Exchanges lists all exchanges by name.
func (v *VHost) Exchanges() []Exchange {
	v.mu.RLock()
	all := make([]Exchange, 0, len(v.exchanges))
	for _, x := range v.exchanges {
		all = append(all, x.Exchange)
	}
	v.mu.RUnlock()
	slices.SortFunc(all, func(a, b Exchange) int { return strings.Compare(a.Name, b.Name) })
	return all
}
