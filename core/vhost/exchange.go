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
	AutoDelete bool // it is deleted with the last binding it is the source of
	Internal   bool // clients may not publish to it
	Args       amqp.Table
}

const argAlternate = "alternate-exchange"

// predeclared are the exchanges of every vhost. Clients can neither create nor delete them.
var predeclared = []Exchange{
	{Name: "", Type: "direct", Durable: true},
	{Name: "amq.direct", Type: "direct", Durable: true},
	{Name: "amq.fanout", Type: "fanout", Durable: true},
	{Name: "amq.topic", Type: "topic", Durable: true},
	{Name: "amq.headers", Type: "headers", Durable: true},
	{Name: "amq.match", Type: "headers", Durable: true},
	{Name: TraceExchange, Type: "topic", Durable: true, Internal: true},
}

// Predeclared returns the type of an exchange that every vhost has. ok is false if name is none.
func Predeclared(name string) (kind string, ok bool) {
	i := slices.IndexFunc(predeclared, func(x Exchange) bool { return x.Name == name })
	if i < 0 {
		return "", false
	}
	return predeclared[i].Type, true
}

// exchange is an exchange in the topology, guarded by the vhost's mutex. Its description never changes.
type exchange struct {
	Exchange
	alternate    string
	hasAlternate bool
	policies     policies.Applied

	table   *route.Table[destination] // always empty for the default exchange, to which every queue is bound by its name
	sources []*exchange               // exchanges with bindings to this one
	// deletionLogged means that the exchange is about to be deleted: nothing else may be logged of it.
	deletionLogged bool
	pluginPart
}

// destination is the end of a binding: a queue or an exchange. The other one is nil.
type destination struct {
	queue    *queue.Mailbox
	exchange *exchange
}

func (x *exchange) isDefault() bool { return x.Name == "" }

// isUnused reports whether an exchange that just lost a binding is deleted.
func (x *exchange) isUnused() bool { return x.AutoDelete && x.table.Len() == 0 && !x.keeps() }

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

// Exchanges returns all exchanges, sorted by name.
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

// CheckExchange is the passive declaration.
func (v *VHost) CheckExchange(name string) error {
	name = rabbit.Sanitise(name)
	if name == "" {
		return errDefaultExchange
	}
	if err := v.checkMoved(); err != nil {
		return err
	}
	if _, ok := v.Exchange(name); !ok {
		return v.noExchange(name)
	}
	return nil
}

// DeclareExchange creates an exchange, or checks that the existing one is equivalent. allow, if not nil, is asked before an
// exchange with an alternate is created; its error is returned as it is.
func (v *VHost) DeclareExchange(d Exchange, allow func(alternate string) error) error {
	d.Name, d.Type = rabbit.Sanitise(d.Name), v.chain.TypeName(d.Type)
	if err := v.checkExchangeType(d.Type); err != nil {
		return err
	}
	if d.Name == "" {
		return errDefaultExchange
	}
	if err := v.checkMoved(); err != nil {
		return err
	}
	current, ok := v.Exchange(d.Name)
	if !ok {
		err := checkFields(v.exchangeName(d.Name), d.Args)
		if err == nil {
			err = v.checkNewExchange(d, allow)
		}
		if err != nil {
			return err
		}
		if current, err = v.addExchange(d); err != nil {
			return err
		}
	}
	return v.checkEquivalentExchange(current, d)
}

// addExchange creates an exchange, unless another caller just did, and returns the one that exists.
func (v *VHost) addExchange(d Exchange) (Exchange, error) {
	mode := additive // of a transient exchange, because a durable one may not get its name
	if d.Durable {
		mode = exclusive
	}
	storage, err := v.storageFor(&d)
	if err != nil {
		return d, err
	}
	err = v.change(fixedMode(mode), func() (apply func(), err error) {
		if x := v.exchanges[d.Name]; x != nil {
			d = x.Exchange
			return nil, nil
		}
		x, err := v.newExchange(d, storage)
		if err != nil {
			return nil, refuse(Precondition, "%v", err)
		}
		if v.isLogged(x) {
			v.logDefinition(v.defineExchange(x))
		}
		return func() {
			v.applyExchangePolicies(x, v.policies.Load())
			v.exchanges[d.Name] = x
			v.invalidateRoutes()
		}, nil
	})
	return d, err
}

// checkEquivalentExchange compares a declaration with the existing exchange. Of the arguments only the alternate exchange counts, and
// arguments that a plugin wants to be compared.
func (v *VHost) checkEquivalentExchange(current, received Exchange) error {
	what := v.exchangeName(current.Name)
	if err := checkEquivalent(what,
		property{"type", current.Type, received.Type},
		property{"durable", current.Durable, received.Durable},
		property{"auto_delete", current.AutoDelete, received.AutoDelete},
		property{"internal", current.Internal, received.Internal},
	); err != nil {
		return err
	}
	for _, name := range append([]string{argAlternate}, v.chain.ComparedArguments(current.Type)...) {
		if err := checkEquivalentArgument(what, name, optional(current.Args.Lookup(name)), optional(received.Args.Lookup(name))); err != nil {
			return err
		}
	}
	return nil
}

// DeleteExchange deletes an exchange and all bindings from and to it. It need not exist.
func (v *VHost) DeleteExchange(name string, ifUnused bool) error {
	name = rabbit.Sanitise(name)
	if name == "" {
		return errDefaultExchange
	}
	if strings.HasPrefix(name, rabbit.ReservedPrefix) {
		return refuse(AccessRefused, "deletion of system %s not allowed", v.exchangeName(name))
	}
	resume, err := v.settleReleases(name)
	if err != nil {
		return err
	}
	defer resume()
	return v.change(v.modeFor(name, exclusive), func() (apply func(), err error) {
		x := v.exchanges[name]
		if x == nil {
			return nil, nil
		}
		if ifUnused && (x.table.Len() > 0 || x.holds()) {
			return nil, refuse(Precondition, "%s in use", v.exchangeName(name))
		}
		logged := v.logDeletions(x)
		return func() {
			if v.exchanges[name] == x { // else it has deleted itself
				v.removeExchange(x, logged)
			}
		}, nil
	})
}

// exchangeSet is a set of exchanges. nil is empty.
type exchangeSet map[*exchange]struct{}

func (s exchangeSet) has(x *exchange) bool {
	_, ok := s[x]
	return ok
}

// logDeletions logs the deletion of x and of every auto-delete exchange whose bindings all lead to deleted exchanges. It returns all of
// them. The caller holds mu: thousands of exchanges may be deleted, so it looks at each of their bindings once.
func (v *VHost) logDeletions(x *exchange) exchangeSet {
	list, deleted := []*exchange{x}, exchangeSet{x: {}}
	lost := map[*exchange]int{} // bindings to exchanges in list
	for i := 0; i < len(list); i++ {
		to := destination{exchange: list[i]}
		for _, source := range list[i].sources {
			if !source.AutoDelete || deleted.has(source) {
				continue
			}
			for range source.table.Of(to) {
				lost[source]++
			}
			if lost[source] == source.table.Len() && !source.keeps() {
				list, deleted[source] = append(list, source), struct{}{}
			}
		}
	}
	for _, x := range list {
		v.logExchangeDeletion(x)
	}
	return deleted
}

func (v *VHost) logExchangeDeletion(x *exchange) {
	if v.isLogged(x) {
		x.deletionLogged = true
		v.logDefinition(v.defineName(opDeleteExchange, x.Name))
	}
}

// removeExchange removes x, and then every auto-delete exchange that thereby lost its last binding. It logs the deletions, except of
// exchanges in logged. The caller holds mu.
func (v *VHost) removeExchange(x *exchange, logged exchangeSet) {
	unused := []*exchange{x}
	for len(unused) > 0 {
		x, unused = unused[len(unused)-1], unused[:len(unused)-1]
		if !logged.has(x) {
			v.logExchangeDeletion(x)
		}
		delete(v.exchanges, x.Name)
		v.dropHeld(x)
		v.bindings -= x.table.Len()
		for b := range x.table.All() {
			v.unlink(x, b.Destination)
		}
		for _, source := range x.sources {
			if source != x {
				v.bindings -= source.table.RemoveDestination(destination{exchange: x})
			}
			if source.isUnused() || source.table.Len() == 0 && logged.has(source) {
				unused = append(unused, source)
			}
			v.noteLastBinding(source)
		}
	}
	v.invalidateRoutes()
}
